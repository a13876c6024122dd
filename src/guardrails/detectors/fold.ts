/**
 * Folds a text to the form that a reader sees: lower case, look-alike letters as ASCII, no invisible characters, one
 * blank for several. Pure; linear. Maps positions in the folded text to the original and back.
 */

export interface Folded {
  readonly text: string
  /** By unit of the folded text: its place in the original, and one more for the end; null: they are the same. */
  readonly places: Uint32Array | null
}

const LOOK_ALIKES = new Map<number, string>()
for (const [letters, ascii] of [
  ['аɑαａ', 'a'],
  ['ьｂ', 'b'],
  ['сϲｃ', 'c'],
  ['ԁｄ', 'd'],
  ['еєｅéèêë', 'e'],
  ['ｆ', 'f'],
  ['ɡｇ', 'g'],
  ['һｈ', 'h'],
  ['іıιｉíìîï', 'i'],
  ['јｊ', 'j'],
  ['кκｋ', 'k'],
  ['ӏｌ', 'l'],
  ['ｍм', 'm'],
  ['ոｎпη', 'n'],
  ['оοσօｏóòôö', 'o'],
  ['рρｐ', 'p'],
  ['ｑ', 'q'],
  ['гｒ', 'r'],
  ['ѕｓ', 's'],
  ['тτｔ', 't'],
  ['υսｕúùûü', 'u'],
  ['ѵνｖ', 'v'],
  ['ԝωｗ', 'w'],
  ['хχｘ', 'x'],
  ['уγｙ', 'y'],
  ['ｚ', 'z'],
  ['’‘ʼ', "'"],
  ['：', ':'],
] as const) {
  for (const letter of letters) {
    const code = letter.codePointAt(0) ?? 0
    if (code > 127) LOOK_ALIKES.set(code, ascii)
  }
}

/** Zero width, soft hyphen, joiners, direction marks, variation selectors, combining marks, language tags. */
const isInvisible = (code: number): boolean =>
  code === 0xad ||
  (code >= 0x300 && code <= 0x36f) ||
  code === 0x34f ||
  code === 0x61c ||
  (code >= 0x180b && code <= 0x180e) ||
  (code >= 0x200b && code <= 0x200f) ||
  (code >= 0x202a && code <= 0x202e) ||
  (code >= 0x2060 && code <= 0x206f) ||
  (code >= 0xfe00 && code <= 0xfe0f) ||
  code === 0xfeff ||
  (code >= 0xe0000 && code <= 0xe0fff)
const isBlank = (code: number): boolean => code === 32 || code === 9 || code === 13 || code === 0xa0

/** Characters that folding changes, apart from capitals. */
const UNEVEN = /[^\x20-\x7e\n]| {2}/

export function fold(text: string): Folded {
  if (!UNEVEN.test(text)) return { text: text.toLowerCase(), places: null }
  const places = new Uint32Array(text.length + 1)
  const parts: string[] = []
  let length = 0
  let wasBlank = false
  for (let at = 0; at < text.length; at++) {
    let code = text.charCodeAt(at)
    const place = at
    if (code >= 0xd800 && code <= 0xdbff) {
      const whole = text.codePointAt(at) ?? code
      if (whole > 0xffff) at++
      code = whole
    }
    if (isInvisible(code)) continue
    const blank = isBlank(code) || (code >= 0x2000 && code <= 0x200a) || code === 0x3000
    if (blank && wasBlank) continue
    wasBlank = blank
    places[length++] = place
    parts.push(blank ? ' ' : foldedCharacter(code))
  }
  places[length] = text.length
  return { text: parts.join(''), places: places.subarray(0, length + 1) }
}

/** One unit for any character. */
function foldedCharacter(code: number): string {
  if (code < 128) return String.fromCharCode(code >= 65 && code <= 90 ? code + 32 : code)
  // Mathematical letters: thirteen alphabets of 52, capitals first.
  if (code >= 0x1d400 && code <= 0x1d6a3) return String.fromCharCode(97 + ((code - 0x1d400) % 26))
  if (code >= 0xff01 && code <= 0xff5e && code !== 0xff5c) return foldedCharacter(code - 0xfee0)
  if (code >= 0x24b6 && code <= 0x24e9) return String.fromCharCode(97 + ((code - 0x24b6) % 26))
  const direct = LOOK_ALIKES.get(code)
  if (direct !== undefined) return direct
  const lower = String.fromCodePoint(code).toLowerCase()
  return lower.length === 1 ? (LOOK_ALIKES.get(lower.charCodeAt(0)) ?? lower) : '\ufffd'
}

/** The first place of the folded text that comes from `place` of the original or after it. */
export function foldedPlace({ text, places }: Folded, place: number): number {
  if (places === null) return place
  let low = 0
  let high = text.length
  while (low < high) {
    const middle = (low + high) >> 1
    if ((places[middle] ?? 0) < place) low = middle + 1
    else high = middle
  }
  return low
}

/** The place in the original of a unit of the folded text. */
export function originalPlace({ places }: Folded, place: number): number {
  return places === null ? place : (places[place] ?? place)
}
