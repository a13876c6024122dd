/**
 * File bytes in an S3-compatible bucket. Each request is signed with the hash of its bytes, so that the bucket accepts
 * no others; the hash is stored with the object, and downloads are checked against it. Any thread.
 */
import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import type { Dispatcher } from 'undici'
import type { Clock } from '../../base/clock.ts'
import { GatewayError, RETRY_AFTER_SECONDS, serviceUnavailable } from '../../base/errors.ts'
import { SlotQueue } from '../../base/fairness/slot-queue.ts'
import { s3Signer } from '../../providers/upstream/aws-signature.ts'
import type { ProxyOf } from '../../providers/upstream/egress.ts'
import { ReadTurns } from '../../providers/upstream/read-turns.ts'
import { type PartedReply, requestWithin } from '../../providers/upstream/undici/request.ts'
import { undici } from '../../providers/upstream/undici/undici.ts'
import { type ContentSource, checkedId, type FileContents } from './contents.ts'

interface S3Settings {
  readonly bucket: string
  /** Without slashes at its ends; '' for none. */
  readonly prefix: string
  /** Null for the AWS endpoint of the region. */
  readonly endpoint: string | null
  readonly region: string
  readonly accessKeyId: string
  readonly secretAccessKey: string
}

export interface S3Deps {
  readonly clock: Clock
  /** The egress proxy of an address. */
  readonly proxyOf: ProxyOf
}

const CONNECT_TIMEOUT_MS = 5_000
/** Maximum time in which the bucket accepts and sends no byte, including connecting. */
const SILENCE_TIMEOUT_MS = 30_000
/** A bucket may be busy, or may just have closed the connection that is used again. */
const MAX_ATTEMPTS = 2
const MAX_CONNECTIONS = 64
/** A share, because a client that reads slowly holds its connection for as long as it wants. */
const MAX_CONNECTIONS_PER_KEY = 16
/** Maximum bytes of an answer that is not an object. */
const MAX_ANSWER_BYTES = 64 * 1024
/** The hash of the bytes, stored with the object. */
const STORED_HASH_HEADER = 'x-amz-meta-sha256'
const EMPTY_SHA256 = createHash('sha256').digest('hex')

/** The reply to a request, and the timer that ends it if the bucket is silent. */
interface BucketReply {
  readonly reply: PartedReply
  readonly silence: SilenceTimer
}

export function createS3Contents(settings: S3Settings, { clock, proxyOf }: S3Deps): FileContents {
  const base = baseOf(settings)
  const sign = s3Signer(clock, settings, settings.region)
  let dispatcher: Dispatcher | null = null
  const turns = new ReadTurns()
  const slots = new SlotQueue({
    clock,
    slots: MAX_CONNECTIONS,
    perKey: MAX_CONNECTIONS_PER_KEY,
    waitMs: SILENCE_TIMEOUT_MS,
  })

  /** @throws GatewayError if it waits too long */
  async function enter(keyHash: string): Promise<() => void> {
    const leaveSlot = await slots.enter(keyHash)
    if (leaveSlot !== null) return leaveSlot
    throw slots.isFull(keyHash)
      ? keyFullError()
      : serviceUnavailable(new Error('too many file transfers are running'))
  }

  /** Resolves with the head of a successful answer. */
  async function send(
    method: 'PUT' | 'GET' | 'DELETE',
    id: string,
    sha256: string,
    source: ContentSource | null = null,
  ): Promise<BucketReply> {
    const url = new URL(`${base.pathname}${id}`, base)
    const ownHeaders =
      source === null ? {} : { 'content-length': String(source.bytes), [STORED_HASH_HEADER]: sha256 }
    const headers = { ...(await sign({ method, url, headers: ownHeaders }, sha256)), host: url.host }
    dispatcher ??= connect(base, proxyOf(base))
    const silence = new SilenceTimer(clock)
    const body =
      source === null || source.bytes === 0
        ? null
        : Readable.from(silence.withRestarts(source.chunks()), { objectMode: false })
    try {
      const { origin, pathname: path } = url
      const reply = await requestWithin(
        dispatcher,
        { origin, path, method, headers, body },
        turns,
        silence.signal,
      )
      silence.restart()
      if (reply.statusCode >= 300) throw new BucketError(reply.statusCode, await textOf(reply, silence))
      return { reply, silence }
    } catch (thrown) {
      silence.end()
      throw silence.brokenSource ?? thrown
    }
  }

  async function* readObject(id: string): AsyncIterable<Uint8Array> {
    const { reply, silence } = await withRetry(() => send('GET', id, EMPTY_SHA256))
    const storedHash = reply.headers[STORED_HASH_HEADER]
    const hash = createHash('sha256')
    try {
      for await (const chunk of silence.read(reply)) {
        hash.update(chunk)
        yield chunk
      }
      if (storedHash !== undefined && hash.digest('hex') !== storedHash)
        throw new Error('the bucket returned other bytes than the gateway had stored')
    } catch (error) {
      throw serviceUnavailable(error)
    } finally {
      silence.end()
      reply.body.destroy()
    }
  }

  return {
    async put(id, source, keyHash = '') {
      checkedId(id)
      const sha256 = await hashOf(source)
      const leaveSlot = await enter(keyHash)
      try {
        await withRetry(async () => {
          const { reply, silence } = await send('PUT', id, sha256, source)
          await textOf(reply, silence)
        })
      } finally {
        leaveSlot()
      }
    },
    async *read(id, keyHash = '') {
      checkedId(id)
      const leaveSlot = await enter(keyHash)
      try {
        yield* readObject(id)
      } finally {
        leaveSlot()
      }
    },
    async remove(id, keyHash = '') {
      checkedId(id)
      const leaveSlot = await enter(keyHash)
      try {
        await withRetry(async () => {
          const { reply, silence } = await send('DELETE', id, EMPTY_SHA256)
          await textOf(reply, silence)
        })
      } finally {
        leaveSlot()
      }
    },
  }
}

/** The address under which the objects are stored. */
function baseOf({ bucket, prefix, endpoint, region }: S3Settings): URL {
  const folder = prefix === '' ? '' : `${prefix.split('/').map(percentEncode).join('/')}/`
  // The bucket is in the path, because not every bucket name is a valid host name.
  if (endpoint !== null) return new URL(`/${percentEncode(bucket)}/${folder}`, endpoint)
  const host = `s3.${region}.amazonaws.com${region.startsWith('cn-') ? '.cn' : ''}`
  // Certificates of AWS cover only one label before their domain.
  return bucket.includes('.')
    ? new URL(`https://${host}/${percentEncode(bucket)}/${folder}`)
    : new URL(`https://${bucket}.${host}/${folder}`)
}

/** Escapes a part of a path as AWS does. */
function percentEncode(part: string): string {
  return encodeURIComponent(part).replace(
    /[!'()*]/g,
    char => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
  )
}

function connect(base: URL, proxy: string | null): Dispatcher {
  const { Pool, ProxyAgent } = undici()
  // `rejectUnauthorized` takes precedence over NODE_TLS_REJECT_UNAUTHORIZED. SilenceTimer replaces the other timeouts.
  const tls = { rejectUnauthorized: true, allowH2: false, timeout: CONNECT_TIMEOUT_MS }
  const options = { connections: MAX_CONNECTIONS, headersTimeout: 0, bodyTimeout: 0, allowH2: false }
  if (proxy === null) return new Pool(base.origin, { ...options, connect: tls })
  return new ProxyAgent({
    ...options,
    uri: proxy,
    connectTimeout: CONNECT_TIMEOUT_MS,
    requestTls: tls,
    proxyTls: tls,
    // The proxy only gets CONNECT, and must answer it within the time limit for connecting.
    clientFactory: (origin, poolOptions) =>
      new Pool(origin, { ...poolOptions, headersTimeout: CONNECT_TIMEOUT_MS }),
  })
}

function keyFullError(): GatewayError {
  return new GatewayError(
    'rate_limit_exceeded',
    'This API key has reached its limit of concurrent file transfers: wait for one of them to finish',
    { retryAfterSeconds: RETRY_AFTER_SECONDS.transfer },
  )
}

async function hashOf(source: ContentSource): Promise<string> {
  const hash = createHash('sha256')
  for await (const chunk of source.chunks()) hash.update(chunk)
  return hash.digest('hex')
}

/** Ends a request without progress. Bytes that this side holds back do not count. */
class SilenceTimer {
  readonly #clock: Clock
  readonly #aborting = new AbortController()
  #timer
  /** Set if the source of the bytes cannot be read. */
  brokenSource: BrokenSource | null = null

  constructor(clock: Clock) {
    this.#clock = clock
    this.#timer = this.#wait()
  }

  get signal(): AbortSignal {
    return this.#aborting.signal
  }

  /** Restarts the time limit. */
  restart(): void {
    this.#timer.cancel()
    this.#timer = this.#wait()
  }

  end(): void {
    this.#timer.cancel()
  }

  /** The bytes of the source, on their way to the bucket. */
  async *withRestarts(chunks: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
    try {
      for await (const chunk of chunks) {
        this.restart()
        yield chunk
      }
    } catch (error) {
      this.brokenSource = new BrokenSource(error)
      throw this.brokenSource
    }
    this.restart()
  }

  /** The bytes of the answer. */
  async *read({ body }: PartedReply): AsyncIterable<Uint8Array> {
    for (;;) {
      this.restart()
      const part = await body.read()
      this.end()
      if (part === null) return
      yield part
    }
  }

  #wait() {
    return this.#clock.after(SILENCE_TIMEOUT_MS, () => this.#aborting.abort(new SilentBucket()))
  }
}

/** Reads an answer that is not an object to its end. */
async function textOf(reply: PartedReply, silence: SilenceTimer): Promise<string> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  try {
    for await (const chunk of silence.read(reply)) {
      bytes += chunk.length
      if (bytes > MAX_ANSWER_BYTES) break
      chunks.push(chunk)
    }
    return Buffer.concat(chunks).toString()
  } finally {
    reply.body.destroy()
  }
}

class BrokenSource extends Error {
  constructor(cause: unknown) {
    super('the source of the bytes cannot be read', { cause })
  }
}

class SilentBucket extends Error {
  readonly code = 'ETIMEDOUT'

  constructor() {
    super('the bucket accepted and sent no bytes in time')
  }
}

/** The status and the bucket's error code, for the log. Its text may contain keys. */
class BucketError extends Error {
  readonly status: number
  readonly code: string

  constructor(status: number, text: string) {
    super('the bucket refused the request')
    this.status = status
    const [, word = ''] = /<Code>([A-Za-z0-9]{1,40})<\/Code>/.exec(text) ?? []
    this.code = `S3_${status}${word === '' ? '' : `_${word.toUpperCase()}`}`
  }
}

async function withRetry<T>(send: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await send()
    } catch (error) {
      if (error instanceof BrokenSource) throw error.cause
      if (attempt >= MAX_ATTEMPTS || !isTemporary(error)) throw serviceUnavailable(error)
    }
  }
}

function isTemporary(error: unknown): boolean {
  return !(error instanceof BucketError) || error.status >= 500 || error.status === 429
}
