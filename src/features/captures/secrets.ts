/**
 * Removes secrets from captured data, in any encoding, whole or as long fragments. A provider may repeat the key
 * anywhere in its reply. Pure. The time depends on the length of the text, not on its content.
 */
import type { UpstreamRequest } from '../../providers/upstream/transport.ts'

/** Shorter secrets are ordinary words. */
const SHORTEST = 6
/** This many consecutive characters of a secret are removed; shorter secrets only as a whole. */
const RUN = 10
/** Length of the pieces (grams) that are looked up. */
const GRAM = 4
/**
 * Any eight consecutive characters contain a whole gram at a multiple of this. Shorter secrets are searched unchanged.
 */
const STRIDE = 5
const INDEXED_MIN = STRIDE + GRAM - 1
/** Longer secrets are only searched in the usual encodings: private keys have a few kilobytes. */
const REWRITTEN_MAX_CHARS = 512
const REDACTED = Buffer.from('[redacted]')
/** Bits of the first lookup of a gram. */
const SEEN_BITS = 1 << 18

/** The position of a gram in an encoded secret. */
interface GramPosition {
  readonly writing: Buffer
  readonly at: number
}

/** Finds encoded secrets. Create one per exchange, and use it for all its texts. */
export class SecretScan {
  readonly #grams = new Map<number, GramPosition[]>()
  /** One bit per gram hash, which rules out most positions of a text. */
  readonly #seen = new Uint8Array(SEEN_BITS / 8)
  readonly #short: readonly string[]

  constructor(secrets: Iterable<string>) {
    const all = [...new Set(secrets)].filter(secret => secret.length >= SHORTEST)
    this.#short = all.filter(secret => secret.length < INDEXED_MIN)
    const longSecrets = all.filter(secret => secret.length >= INDEXED_MIN)
    for (const text of new Set(longSecrets.flatMap(writingsOf))) this.#index(text, 1, 0)
    for (const secret of longSecrets) {
      if (secret.length > REWRITTEN_MAX_CHARS) continue
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
    const clean = ranges.length === 0 ? bytes : without(bytes, ranges)
    return this.#short.reduce(withoutShort, clean)
  }

  /** @param text the bytes as latin1; grams start at every `unit` bytes, beginning with the first */
  #index(text: string, unit: number, first: number): void {
    const writing = toLower(Buffer.from(text, 'latin1'))
    for (let at = first; at + GRAM <= writing.length; at += unit) {
      const gram = writing.readInt32LE(at)
      const positions = this.#grams.get(gram)
      if (positions === undefined) this.#grams.set(gram, [{ writing, at }])
      else if (positions.length < PLACES_MAX) positions.push({ writing, at })
      const bit = bitOf(gram)
      this.#seen[bit >> 3] = (this.#seen[bit >> 3] ?? 0) | (1 << (bit & 7))
    }
  }

  #rangesIn(text: Buffer): Range[] {
    const ranges: Range[] = []
    let end = 0
    for (let at = 0; at + GRAM <= text.length; at += STRIDE) {
      const gram = text.readInt32LE(at)
      const bit = bitOf(gram)
      if (((this.#seen[bit >> 3] ?? 0) & (1 << (bit & 7))) === 0) continue
      // Within a run that was found; its continuation is found by a later gram.
      if (at + GRAM <= end) continue
      const range = runThrough(text, at, this.#grams.get(gram) ?? [])
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
const PLACES_MAX = 8
/** Maximum distance searched in each direction; the next gram continues from there. */
const REACH = 64

/** A run of an encoded secret through this position of the text; null: none is long enough. */
function runThrough(text: Buffer, at: number, positions: readonly GramPosition[]): Range | null {
  for (const { writing, at: inWriting } of positions) {
    const most = Math.min(inWriting, at, REACH)
    let before = 0
    while (before < most && text[at - before - 1] === writing[inWriting - before - 1]) before++
    const rest = Math.min(writing.length - inWriting, text.length - at, REACH)
    let after = GRAM
    while (after < rest && text[at + after] === writing[inWriting + after]) after++
    if (before + after >= Math.min(RUN, writing.length)) return [at - before, at + after]
  }
  return null
}

function without(bytes: Buffer, ranges: readonly Range[]): Buffer {
  const pieces: Buffer[] = []
  let from = 0
  for (const [begin, end] of ranges.toSorted(([a], [b]) => a - b)) {
    if (begin > from || pieces.length === 0) pieces.push(bytes.subarray(from, begin), REDACTED)
    from = Math.max(from, end)
  }
  return Buffer.concat([...pieces, bytes.subarray(from)])
}

function withoutShort(bytes: Buffer, secret: string): Buffer {
  if (!bytes.includes(secret)) return bytes
  return Buffer.from(
    bytes.toString('latin1').replaceAll(Buffer.from(secret).toString('latin1'), REDACTED.toString()),
    'latin1',
  )
}

function bitOf(gram: number): number {
  return (Math.imul(gram, 0x9e3779b1) >>> 14) % SEEN_BITS
}

/** A copy in lower case, for ASCII letters. */
function toLower(bytes: Buffer): Buffer {
  const lower = Buffer.from(bytes)
  for (let at = 0; at < lower.length; at++) {
    const byte = lower[at] ?? 0
    if (byte >= 0x41 && byte <= 0x5a) lower[at] = byte + 0x20
  }
  return lower
}

/** The possible encodings of a secret, as latin1 bytes. */
function writingsOf(secret: string): string[] {
  const bytes = Buffer.from(secret)
  const json = JSON.stringify(secret).slice(1, -1)
  const usual = [secret, encodeURIComponent(secret.toWellFormed()), json, json.replaceAll('/', '\\/')]
  const base64 = [0, 1, 2].flatMap(shift => {
    const text = base64At(bytes, shift)
    return [text, text.replaceAll('+', '-').replaceAll('/', '_')]
  })
  const others = secret.length > REWRITTEN_MAX_CHARS ? [] : [bytes.toString('hex')]
  const utf16 = secret.length > REWRITTEN_MAX_CHARS ? [] : [Buffer.from(secret, 'utf16le').toString('latin1')]
  return [...[...usual, ...base64, ...others].map(text => Buffer.from(text).toString('latin1')), ...utf16]
}

/** The base64 characters that depend only on these bytes, if `shift` bytes precede them. */
function base64At(bytes: Buffer, shift: number): string {
  const base64 = Buffer.concat([Buffer.alloc(shift), bytes]).toString('base64')
  return base64.slice(shift === 0 ? 0 : shift + 1, Math.floor(((shift + bytes.length) * 8) / 6))
}

/** Request headers whose values do not identify the caller. All others count as secrets. */
const SHOWN_OF_REQUEST: ReadonlySet<string> = new Set([
  'accept',
  'accept-encoding',
  'anthropic-beta',
  'anthropic-version',
  'content-type',
  'openai-beta',
  'traceparent',
  'user-agent',
])
/** Reply headers that are kept; cookies and all others are not. */
const SHOWN_OF_REPLY =
  /^(?:content-(?:type|encoding|length)|date|retry-after(?:-ms)?|(?:x-|anthropic-)ratelimit-[\w-]{1,64}|(?:x-)?request-id|x-amzn-requestid|x-amzn-errortype|openai-(?:model|processing-ms|version)|cf-ray)$/
const VALUE_MAX_CHARS = 1_024

export type ShownHeaders = readonly (readonly [name: string, value: string])[]

export function shownOfRequest(headers: UpstreamRequest['headers']): ShownHeaders {
  return Object.entries(headers)
    .filter(([name]) => SHOWN_OF_REQUEST.has(name.toLowerCase()))
    .map(([name, value]) => [name.toLowerCase(), value.slice(0, VALUE_MAX_CHARS)])
}

export function shownOfReply(headers: Readonly<Record<string, string>>): ShownHeaders {
  return Object.entries(headers)
    .filter(([name]) => SHOWN_OF_REPLY.test(name))
    .map(([name, value]) => [name, value.slice(0, VALUE_MAX_CHARS)])
}

/** Parts of a header's value that may be a secret; a scheme such as `Bearer` is not. */
const PART = /[^\s,;="]{12,}/g
/** The secret parts of an AWS signature, which also contains header names. */
const SIGNATURE_PART = /(?:Credential=|Signature=)([^\s,/]+)/g
const SIGNATURE = 'AWS4-HMAC-SHA256 '

/** Values that identify the sender to a provider: in headers, the query, and the address itself. */
export function secretsInRequest({ url, headers }: Pick<UpstreamRequest, 'url' | 'headers'>): string[] {
  const secrets: string[] = []
  for (const [name, value] of Object.entries(headers)) {
    if (SHOWN_OF_REQUEST.has(name.toLowerCase())) continue
    if (!value.startsWith(SIGNATURE)) secrets.push(...(value.match(PART) ?? []))
    else for (const [, part = ''] of value.matchAll(SIGNATURE_PART)) secrets.push(part)
  }
  for (const [, value] of url.searchParams) if (value.length >= INDEXED_MIN) secrets.push(value)
  for (const each of [url.username, url.password]) if (each !== '') secrets.push(decode(each))
  return secrets
}

/** A key of the gateway itself, which callers put into prompts and fields by mistake. */
const GATEWAY_KEY = /sk-gw-(?:v1|mgmt)-[0-9a-f]{64}/gi

export function gatewayKeysIn(text: string): readonly string[] {
  return text.match(GATEWAY_KEY) ?? []
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
