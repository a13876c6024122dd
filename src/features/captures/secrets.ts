/**
 * Removes secrets from captured data, whatever their encoding and whether they appear whole or as long fragments. A
 * provider may write the key that it was sent anywhere in its reply. Pure. The time depends on the length of the text,
 * not on its content.
 */
import type { UpstreamRequest } from '../../providers/upstream/transport.ts'

/** Shorter ones are ordinary words. */
const SHORTEST = 6
/** So many characters of a secret in a row are taken out; all of it, if it is shorter. */
const RUN = 10
/** Characters that are looked up at once. */
const GRAM = 4
/** Any eight characters in a row have a whole gram at a multiple of this. Shorter secrets are searched as they are. */
const STRIDE = 5
const INDEXED_MIN = STRIDE + GRAM - 1
/** Of a longer one only the usual writings are searched: private keys have some kilobytes. */
const REWRITTEN_MAX_CHARS = 512
const REDACTED = Buffer.from('[redacted]')
/** Bits of the first look at a gram. */
const SEEN_BITS = 1 << 18

/** A gram of a writing: which one, and where in it. */
interface GramPlace {
  readonly writing: Buffer
  readonly at: number
}

/** Finds writings of secrets. Make one for each exchange, and use it for all its texts. */
export class SecretScan {
  readonly #grams = new Map<number, GramPlace[]>()
  /** A bit for each gram, by hash: most places of a text end here. */
  readonly #seen = new Uint8Array(SEEN_BITS / 8)
  readonly #short: readonly string[]

  constructor(secrets: Iterable<string>) {
    const all = [...new Set(secrets)].filter(secret => secret.length >= SHORTEST)
    this.#short = all.filter(secret => secret.length < INDEXED_MIN)
    const long = all.filter(secret => secret.length >= INDEXED_MIN)
    for (const text of new Set(long.flatMap(writingsOf))) this.#index(text, 1, 0)
    for (const secret of long) {
      if (secret.length > REWRITTEN_MAX_CHARS) continue
      const hex = Buffer.from(secret).toString('hex')
      // Only grams with both digits of a byte: the mark before them is in many texts.
      this.#index(hex.replace(/../g, '%$&'), 3, 1)
      this.#index(hex.replace(/../g, '\\u00$&'), 6, 4)
    }
  }

  /** The text without them. */
  text(text: string): string {
    const bytes = Buffer.from(text)
    const clean = this.bytes(bytes)
    return clean === bytes ? text : clean.toString()
  }

  /** The bytes without them, whatever they are; the same object where there are none. */
  bytes(bytes: Buffer): Buffer {
    const ranges = this.#grams.size === 0 ? [] : this.#rangesIn(lowered(bytes))
    const clean = ranges.length === 0 ? bytes : without(bytes, ranges)
    return this.#short.reduce(withoutShort, clean)
  }

  /** @param text the bytes as latin1; grams are taken at every `unit` bytes from the first on */
  #index(text: string, unit: number, first: number): void {
    const writing = lowered(Buffer.from(text, 'latin1'))
    for (let at = first; at + GRAM <= writing.length; at += unit) {
      const gram = writing.readInt32LE(at)
      const places = this.#grams.get(gram)
      if (places === undefined) this.#grams.set(gram, [{ writing, at }])
      else if (places.length < PLACES_MAX) places.push({ writing, at })
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
      // Within a run that was found: what goes on behind it is found by a later gram.
      if (at + GRAM <= end) continue
      const range = runThrough(text, at, this.#grams.get(gram) ?? [])
      if (range === null) continue
      ranges.push(range)
      end = range[1]
    }
    return ranges
  }
}

/** From a place in the text up to another one. */
type Range = readonly [from: number, end: number]

/** Of one gram: a secret that repeats itself must not make every place of a text dear. */
const PLACES_MAX = 8
/** Of one look in each direction; the next gram goes on from there. */
const REACH = 64

/** A run of a writing that goes through this place of the text; null: none is long enough. */
function runThrough(text: Buffer, at: number, places: readonly GramPlace[]): Range | null {
  for (const { writing, at: inWriting } of places) {
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

/** A copy in lower case, as far as letters are ASCII. */
function lowered(bytes: Buffer): Buffer {
  const lower = Buffer.from(bytes)
  for (let at = 0; at < lower.length; at++) {
    const byte = lower[at] ?? 0
    if (byte >= 0x41 && byte <= 0x5a) lower[at] = byte + 0x20
  }
  return lower
}

/** A secret as it may be written: the bytes of each as latin1. */
function writingsOf(secret: string): string[] {
  const bytes = Buffer.from(secret)
  const json = JSON.stringify(secret).slice(1, -1)
  const usual = [secret, encodeURIComponent(secret.toWellFormed()), json, json.replaceAll('/', '\\/')]
  const base64 = [0, 1, 2].flatMap(shift => {
    const text = base64At(bytes, shift)
    return [text, text.replaceAll('+', '-').replaceAll('/', '_')]
  })
  const others = secret.length > REWRITTEN_MAX_CHARS ? [] : [bytes.toString('hex')]
  const wide = secret.length > REWRITTEN_MAX_CHARS ? [] : [Buffer.from(secret, 'utf16le').toString('latin1')]
  return [...[...usual, ...base64, ...others].map(text => Buffer.from(text).toString('latin1')), ...wide]
}

/** The base64 characters that these bytes alone decide when `shift` bytes are before them. */
function base64At(bytes: Buffer, shift: number): string {
  const base64 = Buffer.concat([Buffer.alloc(shift), bytes]).toString('base64')
  return base64.slice(shift === 0 ? 0 : shift + 1, Math.floor(((shift + bytes.length) * 8) / 6))
}

/** Headers of a request whose values say nothing of who asks. All others count as secrets. */
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
/** Headers of a reply that are kept; cookies and all others are not. */
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

/** Parts of a header's value that may be a secret; a scheme such as `Bearer` is none. */
const PART = /[^\s,;="]{12,}/g
/** The secret parts of a signature of AWS, which names headers too. */
const SIGNATURE_PART = /(?:Credential=|Signature=)([^\s,/]+)/g
const SIGNATURE = 'AWS4-HMAC-SHA256 '

/** Values by which a provider knows whose request it is: of headers, of the query, and of the address itself. */
export function secretsInRequest({ url, headers }: Pick<UpstreamRequest, 'url' | 'headers'>): string[] {
  const secrets: string[] = []
  for (const [name, value] of Object.entries(headers)) {
    if (SHOWN_OF_REQUEST.has(name.toLowerCase())) continue
    if (!value.startsWith(SIGNATURE)) secrets.push(...(value.match(PART) ?? []))
    else for (const [, part = ''] of value.matchAll(SIGNATURE_PART)) secrets.push(part)
  }
  for (const [, value] of url.searchParams) if (value.length >= INDEXED_MIN) secrets.push(value)
  for (const each of [url.username, url.password]) if (each !== '') secrets.push(decoded(each))
  return secrets
}

/** A key of the gateway itself: callers write theirs into prompts and fields by mistake. */
const GATEWAY_KEY = /sk-gw-(?:v1|mgmt)-[0-9a-f]{64}/gi

export function gatewayKeysIn(text: string): readonly string[] {
  return text.match(GATEWAY_KEY) ?? []
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
