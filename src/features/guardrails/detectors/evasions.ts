/**
 * Undoes disguises of prompt injection. Pure; time is linear in the text, and constants bound the work.
 * - Folding gives the form that a reader sees: lower case, look-alike letters as ASCII, no invisible characters, runs
 *   of blanks as one; positions map between the folded text and the original.
 * - Words with scrambled middles, base64 and hexadecimal text, and letters set apart are decoded and then judged.
 */

export interface FoldedText {
  readonly text: string
  /**
   * The position in the original text of each unit of the folded text, and of its end; null if the positions are equal.
   */
  readonly positions: Uint32Array | null
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

/**
 * True for zero-width characters, soft hyphens, joiners, direction marks, variation selectors, combining marks and
 * language tags.
 */
export const isInvisible = (code: number): boolean =>
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

export function fold(text: string): FoldedText {
  if (!UNEVEN.test(text)) return { text: text.toLowerCase(), positions: null }
  const originals = new Uint32Array(text.length + 1)
  const parts: string[] = []
  let length = 0
  let wasBlank = false
  for (let index = 0; index < text.length; index++) {
    let code = text.charCodeAt(index)
    const position = index
    if (code >= 0xd800 && code <= 0xdbff) {
      const codePoint = text.codePointAt(index) ?? code
      if (codePoint > 0xffff) index++
      code = codePoint
    }
    if (isInvisible(code)) continue
    const blank = isBlank(code) || (code >= 0x2000 && code <= 0x200a) || code === 0x3000
    if (blank && wasBlank) continue
    wasBlank = blank
    originals[length++] = position
    parts.push(blank ? ' ' : foldedCharacter(code))
  }
  originals[length] = text.length
  return { text: parts.join(''), positions: originals.subarray(0, length + 1) }
}

/** Every character becomes one unit. */
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

/** The first position in the folded text that comes from `position` in the original or later. */
export function foldedPosition({ text, positions: places }: FoldedText, position: number): number {
  if (places === null) return position
  let low = 0
  let high = text.length
  while (low < high) {
    const middle = (low + high) >> 1
    if ((places[middle] ?? 0) < position) low = middle + 1
    else high = middle
  }
  return low
}

/** The position in the original of a unit of the folded text. */
export function originalPosition({ positions }: FoldedText, position: number): number {
  return positions === null ? position : (positions[position] ?? position)
}

/** Units of one encoded run that are decoded: enough for any instruction, and a bound for plain data. */
const ENCODED_MAX_CHARS = 4_096
export const SCRAMBLED = [
  'ignore',
  'bypass',
  'override',
  'reveal',
  'delete',
  'system',
  'prompt',
  'instructions',
  'previous',
]

interface ScrambledWord {
  readonly word: string
  readonly letters: string
}
const sorted = (word: string): string => [...word].sort().join('')
const BY_ENDS = new Map<string, ScrambledWord[]>()
for (const word of SCRAMBLED) {
  const key = `${word[0]}${word.at(-1)}${word.length}`
  BY_ENDS.set(key, [...(BY_ENDS.get(key) ?? []), { word, letters: sorted(word) }])
}
const CANDIDATE = new RegExp(
  `\\b(?:${SCRAMBLED.map(word => `${word[0]}[${[...new Set(word.slice(1, -1))].join('')}]{${word.length - 2}}${word.at(-1)}`).join('|')})\\b`,
  'g',
)

/** Restores scrambled words without changing the length. Null if there are none. */
export function unscramble(folded: string): string | null {
  let hasChanged = false
  const text = folded.replace(CANDIDATE, candidate => {
    const candidates = BY_ENDS.get(`${candidate[0]}${candidate.at(-1)}${candidate.length}`)
    const match = candidates?.find(({ word, letters }) => word !== candidate && letters === sorted(candidate))
    if (match === undefined) return candidate
    hasChanged = true
    return match.word
  })
  return hasChanged ? text : null
}

const ENCODED =
  /(?<![A-Za-z0-9+/=_-])(?:(?:[0-9a-fA-F]{2}[ ]?){12,2048}(?![A-Za-z0-9+/=_-])|[A-Za-z0-9+/_-]{16,4096}={0,2}(?![A-Za-z0-9+/=_-]))/g
const KEYWORDS = /ignore|bypass|override|reveal|system|prompt|instruction|disregard|jailbreak/g

interface Run {
  readonly start: number
  readonly end: number
}

/** The first run at `from` or later whose decoded text is hostile or contains two keywords. */
export function encodedRun(text: string, from: number, isHostile: (decoded: string) => boolean): Run | null {
  ENCODED.lastIndex = from
  for (;;) {
    const match = ENCODED.exec(text)
    if (match === null) return null
    for (const decoded of decodings(match[0].trimEnd())) {
      const lower = decoded.toLowerCase()
      if (new Set(lower.match(KEYWORDS)).size >= 2 || isHostile(lower)) {
        return { start: match.index, end: match.index + match[0].trimEnd().length }
      }
    }
  }
}

/** Readable texts that the run may encode; base64 may contain base64 again. */
function decodings(run: string): string[] {
  const texts: string[] = []
  const beginning = run.slice(0, ENCODED_MAX_CHARS)
  if (/^[0-9a-fA-F ]+$/.test(beginning))
    texts.push(Buffer.from(beginning.replaceAll(' ', ''), 'hex').toString('latin1'))
  else if (/[a-z]/.test(beginning) && /[A-Z]/.test(beginning)) {
    const decoded = Buffer.from(beginning, 'base64').toString('latin1')
    texts.push(decoded)
    if (/^[A-Za-z0-9+/_-]{16,}={0,2}\s?$/.test(decoded))
      texts.push(Buffer.from(decoded, 'base64').toString('latin1'))
  }
  return texts.filter(isReadable)
}

/** True if at least nine tenths of the text are printable. */
function isReadable(text: string): boolean {
  let printable = 0
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index)
    if ((code >= 32 && code < 127) || code === 10 || code === 13 || code === 9) printable++
  }
  return printable >= text.length * 0.9
}

const SPACED = /(?<![a-z0-9])(?:[a-z](?: {1,3}|[._*|\-/]| ?[._*|\-/] ?)){7,240}[a-z](?![a-z0-9])/g
const HOSTILE =
  /(?:ignore|disregard|forget|override|bypass|reveal|delete|show)[a-z]{0,40}(?:instruction|prompt|rules|system|safety|guideline)|jailbreak|systemprompt|doanythingnow|developermode/

/** The first run of spaced-out letters, at `from` or later, that reads as an instruction to the model. */
export function spacedRun(folded: string, from: number): Run | null {
  SPACED.lastIndex = from
  for (;;) {
    const match = SPACED.exec(folded)
    if (match === null) return null
    if (HOSTILE.test(match[0].replace(/[^a-z]/g, ''))) {
      return { start: match.index, end: match.index + match[0].length }
    }
  }
}
