/**
 * JSON with letters in the places of their escapes, except where JSON needs the escape, so that it is JSON still. Pure.
 * One loop over the units: parsing takes memory and time that nothing bounds, and a pattern fifteen times as long.
 */

const BACKSLASH = 0x5c
const QUOTE = 0x22
const SPACE = 0x20
const LETTER_U = 0x75

export function unescaped(json: string): string {
  const units = new Uint16Array(json.length)
  let length = 0
  for (let at = 0; at < json.length; at++) {
    const unit = json.charCodeAt(at)
    units[length++] = unit
    if (unit !== BACKSLASH || at + 1 === json.length) continue
    const next = json.charCodeAt(++at)
    const code = next === LETTER_U ? codeAt(json, at + 1) : -1
    if (code < SPACE || code === QUOTE || code === BACKSLASH) {
      units[length++] = next
      continue
    }
    units[length - 1] = code
    at += 4
  }
  return Buffer.from(units.buffer, 0, 2 * length).toString('utf16le')
}

/** What four hexadecimal digits say; -1 where there are none. */
function codeAt(text: string, from: number): number {
  let code = 0
  for (let at = from; at < from + 4; at++) {
    const digit = digitOf(text.charCodeAt(at))
    if (digit === -1) return -1
    code = 16 * code + digit
  }
  return code
}

function digitOf(unit: number): number {
  if (unit >= 0x30 && unit <= 0x39) return unit - 0x30
  const lower = unit | 0x20
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1
}
