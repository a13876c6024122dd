/** Random identifiers in the public forms. Leaf. Hot path: one call for random bytes serves many ids. */
import { randomFillSync } from 'node:crypto'

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
/** Bytes from here on are dropped, so that each of the 62 characters is equally likely. */
const FAIR_LIMIT = 248

function createDraw(poolBytes: number): (length: number) => string {
  const pool = Buffer.allocUnsafe(poolBytes)
  let next = poolBytes
  return length => {
    let text = ''
    while (text.length < length) {
      if (next === poolBytes) {
        randomFillSync(pool)
        next = 0
      }
      const byte = pool.readUInt8(next++)
      if (byte < FAIR_LIMIT) text += ALPHABET[byte % 62]
    }
    return text
  }
}

const draw = createDraw(4096)

/** `length` random letters and digits, about 5.95 bits each. */
export function randomText(length: number): string {
  return draw(length)
}

/** Identifier of one exchange, also the `X-Generation-Id` header: `gen-<unix seconds>-<20 alphanumerics>`. */
export function generationId(unixSeconds: number): string {
  return `gen-${unixSeconds}-${draw(20)}`
}

/** Identifier of a batch: `batch_` and 24 alphanumerics. */
export function batchId(): string {
  return `batch_${draw(24)}`
}

/** Identifier of a file: `gw_file_` and 24 alphanumerics. */
export function fileId(): string {
  return `gw_file_${draw(24)}`
}

const FILE_ID = /^gw_file_[0-9A-Za-z]{24}$/

/** True for an id of a file of ours. Those of providers have other forms. */
export function isFileId(text: string): boolean {
  return FILE_ID.test(text)
}

/** Prefixes of output items, by their type. */
type ItemPrefix = 'msg' | 'rs' | 'fc' | 'ctc' | 'cu' | 'st'

/** Identifier of an output item: prefix, underscore, 24 alphanumerics. */
export function itemId(prefix: ItemPrefix): string {
  return `${prefix}_${draw(24)}`
}

/** Identifier of a capture: `cap_` and 24 alphanumerics. */
export function captureId(): string {
  return `cap_${draw(24)}`
}

const CAPTURE_ID = /^cap_[0-9A-Za-z]{24}$/

export function isCaptureId(text: string): boolean {
  return CAPTURE_ID.test(text)
}
