/** Character sets, as sorted, non-adjacent ranges of code points: `[97, 122]` is `a` to `z`. Pure. */

/** First and last code point of each range, flattened into one list. */
export type Characters = readonly number[]

const LAST_CODE_POINT = 0x10ffff
export const NO_CHARACTERS: Characters = []
export const ALL_CHARACTERS: Characters = [0, LAST_CODE_POINT]
export const LINE_FEED: Characters = [10, 10]
export const WORD: Characters = [48, 57, 65, 90, 95, 95, 97, 122]
const SPACE: Characters = [9, 10, 12, 13, 32, 32]
const DIGIT: Characters = [48, 57]
export const NOT_LINE_FEED = negate(LINE_FEED)
export const NOT_WORD = negate(WORD)

/** The one-letter classes of RE2. JavaScript defines blanks differently. */
export const CLASSES: Readonly<Record<string, Characters>> = {
  d: DIGIT,
  D: negate(DIGIT),
  s: SPACE,
  S: negate(SPACE),
  w: WORD,
  W: NOT_WORD,
}

/** Non-ASCII letters that match ASCII letters when case is ignored: the Kelvin sign and the long s. */
const OTHER_CASES: readonly (readonly [ascii: number, other: number])[] = [
  [0x6b, 0x212a],
  [0x73, 0x17f],
]

export function union(...sets: readonly Characters[]): Characters {
  const ranges: [number, number][] = []
  for (const set of sets)
    for (let index = 0; index < set.length; index += 2) ranges.push([set[index] ?? 0, set[index + 1] ?? 0])
  ranges.sort((a, b) => a[0] - b[0])
  const merged: number[] = []
  for (const [first, last] of ranges) {
    const end = merged.at(-1)
    if (end !== undefined && first <= end + 1) merged[merged.length - 1] = Math.max(end, last)
    else merged.push(first, last)
  }
  return merged
}

export function negate(set: Characters): Characters {
  const ranges: number[] = []
  let next = 0
  for (let index = 0; index < set.length; index += 2) {
    const first = set[index] ?? 0
    if (first > next) ranges.push(next, first - 1)
    next = (set[index + 1] ?? 0) + 1
  }
  if (next <= LAST_CODE_POINT) ranges.push(next, LAST_CODE_POINT)
  return ranges
}

export function intersection(a: Characters, b: Characters): Characters {
  return negate(union(negate(a), negate(b)))
}

export function isDisjoint(a: Characters, b: Characters): boolean {
  let [indexA, indexB] = [0, 0]
  while (indexA < a.length && indexB < b.length) {
    if ((a[indexA + 1] ?? 0) < (b[indexB] ?? 0)) indexA += 2
    else if ((b[indexB + 1] ?? 0) < (a[indexA] ?? 0)) indexB += 2
    else return false
  }
  return true
}

export function isWithin(inner: Characters, outer: Characters): boolean {
  return isDisjoint(inner, negate(outer))
}

/** The largest number of sets that have one character in common. */
export function maxOverlap(sets: readonly Characters[]): number {
  const ends: [code: number, change: number][] = []
  for (const set of sets) {
    for (let index = 0; index < set.length; index += 2)
      ends.push([set[index] ?? 0, 1], [(set[index + 1] ?? 0) + 1, -1])
  }
  ends.sort((a, b) => a[0] - b[0] || a[1] - b[1])
  let [open, maxOpen] = [0, 0]
  for (const [, change] of ends) {
    open += change
    maxOpen = Math.max(maxOpen, open)
  }
  return maxOpen
}

/** The only character of the set; null if it has none or several. */
export function onlyCharacter(set: Characters): string | null {
  return set.length === 2 && set[0] === set[1] ? String.fromCodePoint(set[0] ?? 0) : null
}

/** The characters in both cases; null if some are beyond ASCII, for which engines have different tables. */
export function inAnyCase(set: Characters): Characters | null {
  if ((set.at(-1) ?? 0) > 127) return null
  const otherCase: number[] = []
  for (let index = 0; index < set.length; index += 2) {
    for (let code = set[index] ?? 0; code <= (set[index + 1] ?? 0); code++) {
      const lower = code | 0x20
      if (lower < 97 || lower > 122) continue
      otherCase.push(lower, lower, lower - 32, lower - 32)
      for (const [ascii, other] of OTHER_CASES) if (ascii === lower) otherCase.push(other, other)
    }
  }
  return union(set, ...pairs(otherCase))
}

function pairs(list: readonly number[]): Characters[] {
  return Array.from({ length: list.length / 2 }, (_, n) => list.slice(2 * n, 2 * n + 2))
}

/**
 * The source of a class with these characters, for an expression with the flag `u`, or for one without it that only
 * sees texts without surrogates.
 */
export function classSource(set: Characters, unicode: boolean): string {
  const [only = 0] = set
  if (onlyCharacter(set) !== null && (unicode || only <= 0xffff)) return escapeCharacter(only, unicode)
  let source = ''
  for (let index = 0; index < set.length; index += 2) {
    const [first, last] = [set[index] ?? 0, set[index + 1] ?? 0]
    if (!unicode && first > 0xffff) break
    source += escapeCharacter(first, unicode)
    if (last > first) source += `-${escapeCharacter(unicode ? last : Math.min(last, 0xffff), unicode)}`
  }
  return source === '' ? '[]' : `[${source}]`
}

function escapeCharacter(code: number, unicode: boolean): string {
  const isPlain = (code >= 48 && code <= 57) || (code >= 65 && code <= 90) || (code >= 97 && code <= 122)
  if (isPlain) return String.fromCharCode(code)
  return unicode ? `\\u{${code.toString(16)}}` : `\\u${code.toString(16).padStart(4, '0')}`
}
