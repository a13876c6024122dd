/** Character sets, as sorted, non-adjacent ranges of code points: `[97, 122]` is `a` to `z`. Pure. */

/** First and last code point of each range, flattened into one list. */
export type Characters = readonly number[]

const LAST = 0x10ffff
export const NONE: Characters = []
export const ALL: Characters = [0, LAST]
export const FEED: Characters = [10, 10]
export const WORD: Characters = [48, 57, 65, 90, 95, 95, 97, 122]
const SPACE: Characters = [9, 10, 12, 13, 32, 32]
const DIGIT: Characters = [48, 57]
export const NOT_FEED = negate(FEED)
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
    for (let at = 0; at < set.length; at += 2) ranges.push([set[at] ?? 0, set[at + 1] ?? 0])
  ranges.sort((a, b) => a[0] - b[0])
  const out: number[] = []
  for (const [first, last] of ranges) {
    const end = out.at(-1)
    if (end !== undefined && first <= end + 1) out[out.length - 1] = Math.max(end, last)
    else out.push(first, last)
  }
  return out
}

export function negate(set: Characters): Characters {
  const out: number[] = []
  let next = 0
  for (let at = 0; at < set.length; at += 2) {
    const first = set[at] ?? 0
    if (first > next) out.push(next, first - 1)
    next = (set[at + 1] ?? 0) + 1
  }
  if (next <= LAST) out.push(next, LAST)
  return out
}

export function intersection(one: Characters, other: Characters): Characters {
  return negate(union(negate(one), negate(other)))
}

export function isDisjoint(one: Characters, other: Characters): boolean {
  let [at, by] = [0, 0]
  while (at < one.length && by < other.length) {
    if ((one[at + 1] ?? 0) < (other[by] ?? 0)) at += 2
    else if ((other[by + 1] ?? 0) < (one[at] ?? 0)) by += 2
    else return false
  }
  return true
}

export function isWithin(one: Characters, other: Characters): boolean {
  return isDisjoint(one, negate(other))
}

/** The largest number of sets that have one character in common. */
export function mostInOne(sets: readonly Characters[]): number {
  const ends: [code: number, change: number][] = []
  for (const set of sets) {
    for (let at = 0; at < set.length; at += 2) ends.push([set[at] ?? 0, 1], [(set[at + 1] ?? 0) + 1, -1])
  }
  ends.sort((a, b) => a[0] - b[0] || a[1] - b[1])
  let [now, most] = [0, 0]
  for (const [, change] of ends) {
    now += change
    most = Math.max(most, now)
  }
  return most
}

/** The only character of the set; null if it has none or several. */
export function onlyOne(set: Characters): string | null {
  return set.length === 2 && set[0] === set[1] ? String.fromCodePoint(set[0] ?? 0) : null
}

/** The characters in both cases; null if some are beyond ASCII, for which engines have different tables. */
export function inAnyCase(set: Characters): Characters | null {
  if ((set.at(-1) ?? 0) > 127) return null
  const added: number[] = []
  for (let at = 0; at < set.length; at += 2) {
    for (let code = set[at] ?? 0; code <= (set[at + 1] ?? 0); code++) {
      const lower = code | 0x20
      if (lower < 97 || lower > 122) continue
      added.push(lower, lower, lower - 32, lower - 32)
      for (const [ascii, other] of OTHER_CASES) if (ascii === lower) added.push(other, other)
    }
  }
  return union(set, ...pairs(added))
}

function pairs(flat: readonly number[]): Characters[] {
  return Array.from({ length: flat.length / 2 }, (_, n) => flat.slice(2 * n, 2 * n + 2))
}

/**
 * The source of a class with these characters, for an expression with the flag `u`, or for one without it that only
 * sees texts without surrogates.
 */
export function sourceOf(set: Characters, unicode: boolean): string {
  const [only = 0] = set
  if (onlyOne(set) !== null && (unicode || only <= 0xffff)) return escapeCharacter(only, unicode)
  let out = ''
  for (let at = 0; at < set.length; at += 2) {
    const [first, last] = [set[at] ?? 0, set[at + 1] ?? 0]
    if (!unicode && first > 0xffff) break
    out += escapeCharacter(first, unicode)
    if (last > first) out += `-${escapeCharacter(unicode ? last : Math.min(last, 0xffff), unicode)}`
  }
  return out === '' ? '[]' : `[${out}]`
}

function escapeCharacter(code: number, unicode: boolean): string {
  const isPlain = (code >= 48 && code <= 57) || (code >= 65 && code <= 90) || (code >= 97 && code <= 122)
  if (isPlain) return String.fromCharCode(code)
  return unicode ? `\\u{${code.toString(16)}}` : `\\u${code.toString(16).padStart(4, '0')}`
}
