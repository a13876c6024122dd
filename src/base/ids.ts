/** Random identifiers in the public forms. Leaf. Hot path: one call for random bytes serves many ids. */
import { randomFillSync } from 'node:crypto'

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
/** Random bytes from this value on are skipped, so that each of the 62 characters is equally likely. */
const FAIR_LIMIT = 248

const pool = Buffer.allocUnsafe(4096)
let nextByte = pool.length

/** `length` random letters and digits, about 5.95 bits each. */
export function randomText(length: number): string {
  let text = ''
  while (text.length < length) {
    if (nextByte === pool.length) {
      randomFillSync(pool)
      nextByte = 0
    }
    const byte = pool.readUInt8(nextByte++)
    if (byte < FAIR_LIMIT) text += ALPHABET[byte % 62]
  }
  return text
}

/**
 * Identifier of one exchange, also the `X-Generation-Id` header: `gen-<unix seconds>-<20 alphanumerics>`. The first two
 * characters encode the millisecond, so that ids sort by time: a database adds new ones at the end of an index, not in
 * all pages of this second.
 */
export function generationId(unixMs: number): string {
  const second = Math.floor(unixMs / 1000)
  return `gen-${second}-${MILLISECONDS[Math.floor(unixMs - second * 1000)]}${randomText(18)}`
}

/** Two characters for each millisecond of a second, in text order. */
const MILLISECONDS = Array.from(
  { length: 1000 },
  (_, ms) => `${ALPHABET[Math.floor(ms / ALPHABET.length)]}${ALPHABET[ms % ALPHABET.length]}`,
)

/** Identifier of a batch: `batch_` and 24 alphanumerics. */
export function batchId(): string {
  return `batch_${randomText(24)}`
}

/** Identifier of a file: `gw_file_` and 24 alphanumerics. */
export function fileId(): string {
  return `gw_file_${randomText(24)}`
}

const FILE_ID = /^gw_file_[0-9A-Za-z]{24}$/

/** True for an id of a file in the gateway. Ids of providers have other forms. */
export function isFileId(text: string): boolean {
  return FILE_ID.test(text)
}

/** Prefixes of output items, by their type. */
export type ItemPrefix = 'msg' | 'rs' | 'fc' | 'ctc' | 'cu' | 'st' | 'ts'

/** Identifier of an output item: prefix, underscore, 24 alphanumerics. */
export function itemId(prefix: ItemPrefix): string {
  return `${prefix}_${randomText(24)}`
}

/** Identifier of a capture: `cap_` and 24 alphanumerics. */
export function captureId(): string {
  return `cap_${randomText(24)}`
}

const CAPTURE_ID = /^cap_[0-9A-Za-z]{24}$/

export function isCaptureId(text: string): boolean {
  return CAPTURE_ID.test(text)
}
