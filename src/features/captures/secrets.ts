/**
 * Removes secrets from captured data, in any encoding, whole or as long fragments. A provider may repeat the key
 * anywhere in its reply. Pure. The time depends on the length of the text, not on its content.
 */
import type { UpstreamRequest } from '../../providers/upstream/transport.ts'

/** Shorter secrets are ordinary words. */
const MIN_SECRET_CHARS = 6
/** A run of at least this number of bytes of an encoded secret is removed; a shorter secret only as a whole. */
const MIN_RUN_BYTES = 10
/** Length of the pieces (grams) that are looked up. */
const GRAM_BYTES = 4
/** Distance of the grams that are looked up in a text: any eight consecutive bytes contain one of them completely. */
const GRAM_STRIDE = 5
const MIN_INDEXED_CHARS = GRAM_STRIDE + GRAM_BYTES - 1
/** Longer secrets are only searched in the usual encodings: private keys have a few kilobytes. */
const MAX_REWRITTEN_CHARS = 512
const REDACTED = Buffer.from('[redacted]')
/** Bits of the filter that is asked first about a gram. */
const FILTER_BITS = 1 << 18

/** The position of a gram in an encoded secret. */
interface GramPosition {
  readonly encoded: Buffer
  readonly position: number
}

/** Finds encoded secrets. Create one per exchange, and use it for all its texts. */
export class SecretScan {
  readonly #grams = new Map<number, GramPosition[]>()
  /** One bit per gram hash, which rules out most positions of a text. */
  readonly #filter = new Uint8Array(FILTER_BITS / 8)
  readonly #shortSecrets: readonly string[]

  constructor(secrets: Iterable<string>) {
    const distinctSecrets = [...new Set(secrets)].filter(secret => secret.length >= MIN_SECRET_CHARS)
    this.#shortSecrets = distinctSecrets.filter(secret => secret.length < MIN_INDEXED_CHARS)
    const longSecrets = distinctSecrets.filter(secret => secret.length >= MIN_INDEXED_CHARS)
    for (const text of new Set(longSecrets.flatMap(encodingsOf))) this.#index(text, 1, 0)
    for (const secret of longSecrets) {
      if (secret.length > MAX_REWRITTEN_CHARS) continue
      const hex = Buffer.from(secret).toString('hex')
      // Only grams with both digits of a byte, because the mark before them is common in texts.
      this.#index(hex.replace(/../g, '%$&'), 3, 1)
      this.#index(hex.replace(/../g, '\\u00$&'), 6, 4)
    }
  }

  /** The text without secrets. */
  text(text: string): string {
    const bytes = Buffer.from(text)
    const clean = this.bytes(bytes)
    return clean === bytes ? text : clean.toString()
  }

  /** The bytes without secrets; the same object if there are none. */
  bytes(bytes: Buffer): Buffer {
    const ranges = this.#grams.size === 0 ? [] : this.#rangesIn(toLower(bytes))
    const clean = ranges.length === 0 ? bytes : withoutRanges(bytes, ranges)
    return this.#shortSecrets.reduce(withoutShort, clean)
  }

  /** @param text the bytes as latin1; grams start at every `unit` bytes, beginning at `firstPosition` */
  #index(text: string, unit: number, firstPosition: number): void {
    const encoded = toLower(Buffer.from(text, 'latin1'))
    for (let position = firstPosition; position + GRAM_BYTES <= encoded.length; position += unit) {
      const gram = encoded.readInt32LE(position)
      const positions = this.#grams.get(gram)
      if (positions === undefined) this.#grams.set(gram, [{ encoded, position }])
      else if (positions.length < MAX_POSITIONS_PER_GRAM) positions.push({ encoded, position })
      const bit = bitOf(gram)
      this.#filter[bit >> 3] = (this.#filter[bit >> 3] ?? 0) | (1 << (bit & 7))
    }
  }

  #rangesIn(text: Buffer): Range[] {
    const ranges: Range[] = []
    let end = 0
    for (let position = 0; position + GRAM_BYTES <= text.length; position += GRAM_STRIDE) {
      const gram = text.readInt32LE(position)
      const bit = bitOf(gram)
      if (((this.#filter[bit >> 3] ?? 0) & (1 << (bit & 7))) === 0) continue
      // The gram is within a run that was found; a later gram finds the continuation of that run.
      if (position + GRAM_BYTES <= end) continue
      const range = runThrough(text, position, this.#grams.get(gram) ?? [])
      if (range === null) continue
      ranges.push(range)
      end = range[1]
    }
    return ranges
  }
}

/** A range of positions in the text. */
type Range = readonly [from: number, end: number]

/** Maximum positions per gram, so that a repetitive secret does not make every position expensive. */
const MAX_POSITIONS_PER_GRAM = 8
/** Maximum length of a run on each side of a gram; a later gram finds the remaining part. */
const MAX_REACH_BYTES = 64

/** The run of an encoded secret that includes this position of the text; null if none is long enough. */
function runThrough(text: Buffer, position: number, positions: readonly GramPosition[]): Range | null {
  for (const { encoded, position: encodedPosition } of positions) {
    const maxBefore = Math.min(encodedPosition, position, MAX_REACH_BYTES)
    let before = 0
    while (before < maxBefore && text[position - before - 1] === encoded[encodedPosition - before - 1])
      before++
    const maxAfter = Math.min(encoded.length - encodedPosition, text.length - position, MAX_REACH_BYTES)
    let after = GRAM_BYTES
    while (after < maxAfter && text[position + after] === encoded[encodedPosition + after]) after++
    if (before + after >= Math.min(MIN_RUN_BYTES, encoded.length))
      return [position - before, position + after]
  }
  return null
}

function withoutRanges(bytes: Buffer, ranges: readonly Range[]): Buffer {
  const pieces: Buffer[] = []
  let copiedTo = 0
  for (const [begin, end] of ranges.toSorted(([a], [b]) => a - b)) {
    if (begin > copiedTo || pieces.length === 0) pieces.push(bytes.subarray(copiedTo, begin), REDACTED)
    copiedTo = Math.max(copiedTo, end)
  }
  return Buffer.concat([...pieces, bytes.subarray(copiedTo)])
}

function withoutShort(bytes: Buffer, secret: string): Buffer {
  if (!bytes.includes(secret)) return bytes
  return Buffer.from(
    bytes.toString('latin1').replaceAll(Buffer.from(secret).toString('latin1'), REDACTED.toString()),
    'latin1',
  )
}

function bitOf(gram: number): number {
  return (Math.imul(gram, 0x9e3779b1) >>> 14) % FILTER_BITS
}

/** A copy in lower case, for ASCII letters. */
function toLower(bytes: Buffer): Buffer {
  const lower = Buffer.from(bytes)
  for (let index = 0; index < lower.length; index++) {
    const byte = lower[index] ?? 0
    if (byte >= 0x41 && byte <= 0x5a) lower[index] = byte + 0x20
  }
  return lower
}

/** The possible encodings of a secret, as latin1 bytes. */
function encodingsOf(secret: string): string[] {
  const bytes = Buffer.from(secret)
  const json = JSON.stringify(secret).slice(1, -1)
  const textForms = [secret, encodeURIComponent(secret.toWellFormed()), json, json.replaceAll('/', '\\/')]
  const base64 = [0, 1, 2].flatMap(shift => {
    const text = base64At(bytes, shift)
    return [text, text.replaceAll('+', '-').replaceAll('/', '_')]
  })
  const hex = secret.length > MAX_REWRITTEN_CHARS ? [] : [bytes.toString('hex')]
  const utf16 = secret.length > MAX_REWRITTEN_CHARS ? [] : [Buffer.from(secret, 'utf16le').toString('latin1')]
  return [...[...textForms, ...base64, ...hex].map(text => Buffer.from(text).toString('latin1')), ...utf16]
}

/** The base64 characters that depend only on these bytes, if `shift` bytes precede them. */
function base64At(bytes: Buffer, shift: number): string {
  const base64 = Buffer.concat([Buffer.alloc(shift), bytes]).toString('base64')
  return base64.slice(shift === 0 ? 0 : shift + 1, Math.floor(((shift + bytes.length) * 8) / 6))
}

/** Request headers whose values do not identify the caller. All others count as secrets. */
const SHOWN_REQUEST_HEADERS: ReadonlySet<string> = new Set([
  'accept',
  'accept-encoding',
  'anthropic-beta',
  'anthropic-version',
  'content-type',
  'openai-beta',
  'traceparent',
  'user-agent',
])
/** Reply headers that are recorded; cookies and all others are not. */
const SHOWN_REPLY_HEADERS =
  /^(?:content-(?:type|encoding|length)|date|retry-after(?:-ms)?|(?:x-|anthropic-)ratelimit-[\w-]{1,64}|(?:x-)?request-id|x-amzn-requestid|x-amzn-errortype|openai-(?:model|processing-ms|version)|cf-ray)$/
const MAX_VALUE_CHARS = 1_024

export type ShownHeaders = readonly (readonly [name: string, value: string])[]

export function shownOfRequest(headers: UpstreamRequest['headers']): ShownHeaders {
  return Object.entries(headers)
    .filter(([name]) => SHOWN_REQUEST_HEADERS.has(name.toLowerCase()))
    .map(([name, value]) => [name.toLowerCase(), value.slice(0, MAX_VALUE_CHARS)])
}

export function shownOfReply(headers: Readonly<Record<string, string>>): ShownHeaders {
  return Object.entries(headers)
    .filter(([name]) => SHOWN_REPLY_HEADERS.test(name))
    .map(([name, value]) => [name, value.slice(0, MAX_VALUE_CHARS)])
}

/** Parts of a header's value that may be a secret; a scheme such as `Bearer` is not. */
const SECRET_PART = /[^\s,;="]{12,}/g
/** The secret parts of an AWS signature, which also contains header names. */
const SIGNATURE_PART = /(?:Credential=|Signature=)([^\s,/]+)/g
const SIGNATURE_PREFIX = 'AWS4-HMAC-SHA256 '

/** Values that identify the sender to a provider: in headers, the query, and the address itself. */
export function secretsInRequest({ url, headers }: Pick<UpstreamRequest, 'url' | 'headers'>): string[] {
  const secrets: string[] = []
  for (const [name, value] of Object.entries(headers)) {
    if (SHOWN_REQUEST_HEADERS.has(name.toLowerCase())) continue
    if (!value.startsWith(SIGNATURE_PREFIX)) secrets.push(...(value.match(SECRET_PART) ?? []))
    else for (const [, part = ''] of value.matchAll(SIGNATURE_PART)) secrets.push(part)
  }
  for (const [, value] of url.searchParams) if (value.length >= MIN_INDEXED_CHARS) secrets.push(value)
  for (const login of [url.username, url.password]) if (login !== '') secrets.push(decodePercent(login))
  return secrets
}

/** The form of the gateway's own keys, which callers put into prompts and fields by mistake. */
const GATEWAY_KEY = /sk-gw-(?:v1|mgmt)-[0-9a-f]{64}/gi

export function gatewayKeysIn(text: string): readonly string[] {
  return text.match(GATEWAY_KEY) ?? []
}

function decodePercent(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
