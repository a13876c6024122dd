/**
 * Parses `multipart/form-data` (RFC 7578) in a body stored on disk: finds the start and end of each part. The bytes of
 * parts are not copied. Unusual forms are refused, because parsers disagree about them.
 */
import { read as readCallback } from 'node:fs'
import { promisify } from 'node:util'
import { GatewayError } from '../../base/errors.ts'
import type { ContentSource } from './contents.ts'

const read = promisify(readCallback)

/** Bytes of an open file. */
export interface OpenBytes {
  readonly descriptor: number
  readonly bytes: number
}

/** A part of a form, with the position of its bytes in the body. */
export interface FormPart {
  readonly name: string
  /** Null for a field that is no file. */
  readonly filename: string | null
  readonly mediaType: string | null
  readonly start: number
  readonly end: number
}

const MAX_PARTS = 16
const MAX_HEAD_BYTES = 4_096
const WINDOW_BYTES = 256 * 1024
const BOUNDARY =
  /^multipart\/form-data *; *boundary=(?:"([0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-])"|([0-9A-Za-z'+_.-]{1,70}))$/i
const HEADER = /^([A-Za-z-]{1,64}):[ \t]*([^\0]*)$/
/** A parameter of a disposition; in quotes a backslash escapes the next character. */
const PARAMETER = /^; *([A-Za-z*]{1,32})=(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))/

/**
 * The parts of a form, in order.
 * @throws GatewayError `unsupported_media_type`, or `invalid_request` for an invalid form
 */
export async function readForm(
  body: OpenBytes,
  contentType: string | undefined,
): Promise<readonly FormPart[]> {
  const match = BOUNDARY.exec(contentType?.trim() ?? '')
  const boundary = match?.[1] ?? match?.[2]
  if (boundary === undefined) {
    throw new GatewayError(
      'unsupported_media_type',
      'Content-Type must be multipart/form-data with a boundary',
    )
  }
  const delimiter = Buffer.from(`\r\n--${boundary}`, 'latin1')
  const parts: FormPart[] = []
  let position = delimiter.length - 2
  if (!(await bytesAt(body, 0, position)).equals(delimiter.subarray(2)))
    throw malformedError('does not begin with its boundary')
  for (;;) {
    const next = (await bytesAt(body, position, 2)).toString('latin1')
    if (next === '--') {
      const ending = (await bytesAt(body, position + 2, 3)).toString('latin1')
      if (ending !== '' && ending !== '\r\n') throw malformedError('continues after its closing boundary')
      return parts
    }
    if (next !== '\r\n') throw malformedError('has text after a boundary on the same line')
    if (parts.length === MAX_PARTS) throw malformedError(`has more than ${MAX_PARTS} parts`)
    const head = await bytesAt(body, position + 2, MAX_HEAD_BYTES)
    const headEnd = head.indexOf('\r\n\r\n')
    if (headEnd === -1) throw malformedError('has a part without complete headers')
    const start = position + 2 + headEnd + 4
    const end = await findDelimiter(body, delimiter, start)
    parts.push({ ...readHead(head.subarray(0, headEnd)), start, end })
    position = end + delimiter.length
  }
}

/** The bytes of a part. */
export function partSource({ descriptor }: OpenBytes, { start, end }: FormPart): ContentSource {
  return {
    bytes: end - start,
    async *chunks() {
      for (let position = start; position < end; position += WINDOW_BYTES) {
        yield await bytesAt({ descriptor, bytes: end }, position, WINDOW_BYTES)
      }
    },
  }
}

/** The text of a field. @throws GatewayError `invalid_request` */
export async function fieldText(body: OpenBytes, part: FormPart, maxBytes: number): Promise<string> {
  if (part.end - part.start > maxBytes) throw malformedError('has a field that is too long')
  return decoded(await bytesAt(body, part.start, part.end - part.start))
}

/** The position of the next delimiter. @throws GatewayError `invalid_request` if there is none: the body was cut off */
async function findDelimiter(body: OpenBytes, delimiter: Buffer, from: number): Promise<number> {
  for (let position = from; position < body.bytes; position += WINDOW_BYTES - delimiter.length) {
    const index = (await bytesAt(body, position, WINDOW_BYTES)).indexOf(delimiter)
    if (index !== -1) return position + index
  }
  throw malformedError('ends in the middle of a part')
}

/** Returns fewer bytes only at the end of the body. */
async function bytesAt({ descriptor, bytes }: OpenBytes, position: number, count: number): Promise<Buffer> {
  const byteCount = Math.max(0, Math.min(count, bytes - position))
  const buffer = Buffer.allocUnsafe(byteCount)
  let length = 0
  while (length < byteCount) {
    const { bytesRead } = await read(descriptor, buffer, length, byteCount - length, position + length)
    if (bytesRead === 0) throw new TypeError('the stored body became shorter while it was read')
    length += bytesRead
  }
  return buffer
}

function readHead(bytes: Buffer): Pick<FormPart, 'name' | 'filename' | 'mediaType'> {
  const headers = new Map<string, string>()
  for (const line of decoded(bytes).split('\r\n')) {
    const [, name, value] = HEADER.exec(line) ?? []
    if (name === undefined || value === undefined || /[\r\n]/.test(value))
      throw malformedError('has a part with a malformed header')
    if (headers.has(name.toLowerCase())) throw malformedError('has a part with a duplicate header')
    headers.set(name.toLowerCase(), value)
  }
  const encoding = headers.get('content-transfer-encoding')?.toLowerCase()
  if (encoding !== undefined && !['binary', '8bit', '7bit'].includes(encoding))
    throw malformedError('has a part with a Content-Transfer-Encoding other than binary, 8bit or 7bit')
  return {
    ...readDisposition(headers.get('content-disposition')),
    mediaType: headers.get('content-type') ?? null,
  }
}

function readDisposition(text: string | undefined): Pick<FormPart, 'name' | 'filename'> {
  const parameters = new Map<string, string>()
  if (text === undefined || !/^form-data(?=;|$)/i.test(text))
    throw malformedError('has a part without a name')
  let remaining = text.slice('form-data'.length)
  while (remaining !== '') {
    const [matched, name, quoted, plain] = PARAMETER.exec(remaining) ?? []
    if (matched === undefined || name === undefined || parameters.has(name.toLowerCase()))
      throw malformedError('has a part with a malformed Content-Disposition')
    parameters.set(name.toLowerCase(), plain ?? unquote(quoted ?? ''))
    remaining = remaining.slice(matched.length)
  }
  const name = parameters.get('name')
  if (name === undefined) throw malformedError('has a part without a name')
  if (parameters.has('filename*'))
    throw malformedError('has a part with filename*, which is not allowed in forms: use filename')
  return { name, filename: parameters.get('filename') ?? null }
}

/** Browsers escape a quote as `%22`, other clients with a backslash. Other backslashes belong to a path. */
function unquote(text: string): string {
  return text.replaceAll('\\"', '"').replaceAll('%22', '"')
}

function decoded(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw malformedError('has text that is not UTF-8')
  }
}

function malformedError(problem: string): GatewayError {
  return new GatewayError('invalid_request', `The multipart body ${problem}`)
}
