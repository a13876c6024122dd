/**
 * Compressed request bodies: `Content-Encoding: gzip`, `deflate`, `br` or `zstd`. A short body may become a long one, so
 * the result is bounded by the operation's limit and by the length of what was sent, and it is counted while it grows.
 */
import { Readable, type Transform } from 'node:stream'
import {
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createInflateRaw,
  createZstdDecompress,
} from 'node:zlib'
import type { SentBody } from '../api/operation.ts'
import { GatewayError, overloadError } from '../base/errors.ts'
import type { Held } from '../exchange/exchange.ts'

/** JSON is seldom compressed to less than a twentieth. */
const MAX_RATIO = 100
/** A few compressed bytes may decode to a long text of blanks. */
const ALWAYS_ALLOWED_BYTES = 64 * 1024
const CHUNK_BYTES = 64 * 1024
/** 8 MiB, which zstd uses at its usual levels. The library would allocate as much as the sender asks for. */
const ZSTD_WINDOW_LOG_MAX = 23

const CODINGS: ReadonlyMap<string, (bytes: Uint8Array) => Transform> = new Map<
  string,
  (bytes: Uint8Array) => Transform
>([
  ['gzip', () => createGunzip({ chunkSize: CHUNK_BYTES })],
  // In the zlib format, as the standard requires; but some clients send the data without its header and checksum.
  [
    'deflate',
    bytes =>
      ((bytes[0] ?? 0) & 0x0f) === 8
        ? createInflate({ chunkSize: CHUNK_BYTES })
        : createInflateRaw({ chunkSize: CHUNK_BYTES }),
  ],
  ['br', () => createBrotliDecompress({ chunkSize: CHUNK_BYTES })],
  [
    'zstd',
    () =>
      createZstdDecompress({
        chunkSize: CHUNK_BYTES,
        params: { [constants.ZSTD_d_windowLogMax]: ZSTD_WINDOW_LOG_MAX },
      }),
  ],
])

/** The names of the codings, for errors. */
export const CODING_NAMES = [...CODINGS.keys()].join(', ')

/** The coding that the header names; null: not a supported one. */
export function codingIn(header: string): string | null {
  const name = header.trim().toLowerCase()
  return CODINGS.has(name) ? name : null
}

function tooLongError(maxBytes: number): GatewayError {
  return new GatewayError(
    'payload_too_large',
    `The request body has more than ${maxBytes} bytes when it is decompressed`,
  )
}

function invalidError(coding: string): GatewayError {
  return new GatewayError('invalid_request', `The request body is not valid ${coding} data`)
}

/** Maximum length of what `sentBytes` may become. */
function maxBytesOf(limitBytes: number, sentBytes: number): number {
  return Math.min(limitBytes, Math.max(ALWAYS_ALLOWED_BYTES, MAX_RATIO * sentBytes))
}

function decoderOf(coding: string, firstBytes: Uint8Array): Transform {
  const decoder = CODINGS.get(coding)?.(firstBytes)
  if (decoder === undefined) throw new Error(`no coding ${coding}`)
  return decoder
}

/**
 * The body without its coding. Its bytes are counted in `memory`, and stay counted.
 * @throws (rejects with) GatewayError `payload_too_large`, `invalid_request`, or `overloaded`
 */
export function decode(
  bytes: Uint8Array,
  coding: string,
  limitBytes: number,
  memory: Pick<Held, 'count'>,
): Promise<Uint8Array> {
  const decoder = decoderOf(coding, bytes)
  const maxBytes = maxBytesOf(limitBytes, bytes.length)
  return new Promise((resolve, reject) => {
    const chunks: Uint8Array[] = []
    let length = 0
    const fail = (fault: GatewayError): void => {
      decoder.destroy()
      memory.count(-length)
      length = 0
      reject(fault)
    }
    decoder.on('data', (chunk: Uint8Array) => {
      if (length + chunk.length > maxBytes) return fail(tooLongError(maxBytes))
      length += chunk.length
      chunks.push(chunk)
      if (!memory.count(chunk.length)) fail(overloadError())
    })
    decoder.on('error', () => fail(invalidError(coding)))
    decoder.on('end', () => resolve(Buffer.concat(chunks, length)))
    decoder.end(bytes)
  })
}

/**
 * The pieces of a received body without its coding, as they are decoded.
 * @throws GatewayError `payload_too_large`, or `invalid_request`; or an error of the disk
 */
export async function* decodedPieces(
  { bytes, pieces }: SentBody,
  coding: string,
  limitBytes: number,
): AsyncGenerator<Uint8Array> {
  const iterator = pieces()[Symbol.asyncIterator]()
  const first = await iterator.next()
  let fault: { readonly thrown: unknown } | null = null
  const source = Readable.from(
    (async function* () {
      try {
        for (let next = first; next.done !== true; next = await iterator.next()) yield next.value
      } catch (thrown) {
        fault = { thrown }
        throw thrown
      }
    })(),
  )
  const decoder = decoderOf(coding, first.done === true ? new Uint8Array() : first.value)
  source.on('error', error => decoder.destroy(error))
  source.pipe(decoder)
  const maxBytes = maxBytesOf(limitBytes, bytes)
  let length = 0
  try {
    for await (const chunk of decoder as AsyncIterable<Uint8Array>) {
      length += chunk.length
      if (length > maxBytes) throw tooLongError(maxBytes)
      yield chunk
    }
  } catch (thrown) {
    const sourceFault = fault as { readonly thrown: unknown } | null
    if (sourceFault !== null) throw sourceFault.thrown
    throw thrown instanceof GatewayError ? thrown : invalidError(coding)
  } finally {
    source.destroy()
    decoder.destroy()
  }
}
