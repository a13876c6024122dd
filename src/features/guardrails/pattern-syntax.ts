/**
 * Parses a user-defined pattern far enough to decide whether it may run: it checks for syntax that RE2 does not
 * support, nesting and size. Pure. Lenient otherwise, because RE2 checks the pattern afterwards.
 */

/**
 * Limit of places in a pattern that read a character, with repeats written out. The worst text costs about 20 ns per
 * place and character (bench/micro/guardrails.ts), so a text of 20,000 characters takes less than a second.
 */
export const PATTERN_MAX_POSITIONS = 2_000
/** RE2's limit. */
const REPEAT_MAX = 1_000
const GROUPS_MAX_DEPTH = 100

interface PatternFacts {
  /** The reason that it may not run, worded to follow the name of its field; null if it may. */
  readonly problem: string | null
  /** The pattern itself if it has no syntax at all; only then may it have any length. */
  readonly literal: string | null
  /** Places that read a character, with repeats written out; 0 for a literal, which needs no automaton. */
  readonly positions: number
  /** Length of the shortest match in characters. */
  readonly shortest: number
  /** True if it has an unbounded repeat. */
  readonly unbounded: boolean
}

class Refusal extends Error {}

interface Part {
  /** Repeats written out. */
  readonly positions: number
  /** True if it has an unbounded repeat. */
  readonly unbounded: boolean
  readonly shortest: number
}

export function readPattern(pattern: string): PatternFacts {
  if (!/[\\^$.|?*+()[\]{}]/.test(pattern)) {
    return { problem: null, literal: pattern, positions: 0, shortest: pattern.length, unbounded: false }
  }
  try {
    const reader = new Reader(pattern)
    const part = reader.alternatives(0)
    return { ...part, problem: part.positions > PATTERN_MAX_POSITIONS ? TOO_MANY : null, literal: null }
  } catch (error) {
    if (error instanceof Refusal) return { ...NOTHING, problem: error.message, literal: null }
    throw error
  }
}

const TOO_MANY = `must expand to at most ${PATTERN_MAX_POSITIONS} characters, with repeats written out: split it into several patterns`

class Reader {
  readonly #text: string
  #at = 0

  constructor(text: string) {
    this.#text = text
  }

  alternatives(depth: number): Part {
    if (depth > GROUPS_MAX_DEPTH) throw new Refusal(`must nest groups at most ${GROUPS_MAX_DEPTH} deep`)
    let positions = 0
    let unbounded = false
    let shortest = 0
    let shortestBefore = Number.POSITIVE_INFINITY
    while (this.#at < this.#text.length && this.#text[this.#at] !== ')') {
      if (this.#text[this.#at] === '|') {
        this.#at++
        shortestBefore = Math.min(shortestBefore, shortest)
        shortest = 0
        continue
      }
      const part = this.#repeated(this.#one(depth))
      positions += part.positions
      unbounded ||= part.unbounded
      shortest += part.shortest
      if (positions > PATTERN_MAX_POSITIONS) throw new Refusal(TOO_MANY)
    }
    if (depth === 0 && this.#at < this.#text.length)
      throw new Refusal('must not close a group that is not open')
    return { positions, unbounded, shortest: Math.min(shortestBefore, shortest) }
  }

  #one(depth: number): Part {
    const character = this.#text[this.#at++]
    if (character === '(') return this.#group(depth)
    if (character === '[') return this.#class()
    if (character === '\\') return this.#escape()
    if (character === '^' || character === '$') return NOTHING
    return ONE
  }

  #group(depth: number): Part {
    const rest = this.#text.slice(this.#at, this.#at + 4)
    if (/^\?<?[=!]/.test(rest))
      throw new Refusal('must not use lookaround, such as (?=…), (?!…), (?<=…), (?<!…)')
    if (rest.startsWith('?>')) throw new Refusal('must not use atomic groups: (?>…)')
    if (rest.startsWith('?(')) throw new Refusal('must not use conditions: (?(…)…)')
    if (rest.startsWith('?P=') || rest.startsWith('?&') || /^\?[R\d]/.test(rest))
      throw new Refusal(BACKREFERENCE)
    if (rest.startsWith('?#')) throw new Refusal('must not use comments: (?#…)')
    if (rest.startsWith('?')) {
      const head = /^\?(?:P?<[^>]{0,200}>|[a-zA-Z-]{0,20}(?::|(?=\))))/.exec(
        this.#text.slice(this.#at, this.#at + 210),
      )
      if (head === null)
        throw new Refusal('must use only the groups of RE2 syntax: (…), (?:…), (?P<name>…), (?flags)')
      this.#at += head[0].length
    }
    const part = this.alternatives(depth + 1)
    if (this.#text[this.#at] !== ')') throw new Refusal('must close every group')
    this.#at++
    return part
  }

  #class(): Part {
    // A closing bracket directly after the opening one is a literal.
    if (this.#text[this.#at] === '^') this.#at++
    if (this.#text[this.#at] === ']') this.#at++
    for (;;) {
      const character = this.#text[this.#at++]
      if (character === undefined) throw new Refusal('must close every [class]')
      if (character === ']') return ONE
      if (character === '\\') this.#at++
      if (character === '[' && this.#text[this.#at] === ':') {
        const end = this.#text.slice(this.#at, this.#at + 20).indexOf(':]')
        if (end >= 0) this.#at += end + 2
      }
    }
  }

  #escape(): Part {
    const character = this.#text[this.#at++]
    if (character === undefined) throw new Refusal('must not end in a backslash')
    if (/[1-9]/.test(character) || character === 'k' || character === 'g') throw new Refusal(BACKREFERENCE)
    if (/[AzBb]/.test(character)) return NOTHING
    if (/[ZGK]/.test(character)) throw new Refusal('must not use \\Z, \\G or \\K')
    if (character === 'Q') {
      const end = this.#text.indexOf('\\E', this.#at)
      const stop = end < 0 ? this.#text.length : end
      const positions = stop - this.#at
      this.#at = end < 0 ? stop : stop + 2
      return { positions, unbounded: false, shortest: positions }
    }
    const braces = /^(?:[pP]\{[^}]{0,60}\}|x\{[0-9a-fA-F]{0,8}\}|x[0-9a-fA-F]{2}|[pP].)/.exec(
      this.#text.slice(this.#at - 1, this.#at + 64),
    )
    if (braces !== null) this.#at += braces[0].length - 1
    return ONE
  }

  #repeated(part: Part): Part {
    const head = /^(?:([*+?])|\{(\d{1,9})(?:(,)(\d{0,9}))?\})/.exec(this.#text.slice(this.#at, this.#at + 24))
    if (head === null) return part
    this.#at += head[0].length
    const [, sign, least, comma, most] = head
    if (this.#text[this.#at] === '?') this.#at++
    else if (this.#text[this.#at] === '+') throw new Refusal('must not use possessive repeats, such as a++')
    if (/^(?:[*+?]|\{\d+(?:,\d*)?\})/.test(this.#text.slice(this.#at, this.#at + 24)))
      throw new Refusal(NESTED)
    const unbounded = sign === '*' || sign === '+' || (comma !== undefined && most === '')
    const times = sign === undefined ? Math.max(Number(least), Number(most ?? 0), 1) : 1
    if (times > REPEAT_MAX) throw new Refusal(`must repeat at most ${REPEAT_MAX} times`)
    if (part.unbounded && (unbounded || times > 1)) throw new Refusal(NESTED)
    const fewest = sign === undefined ? Number(least) : sign === '+' ? 1 : 0
    return {
      positions: part.positions * times,
      unbounded: part.unbounded || unbounded,
      shortest: part.shortest * fewest,
    }
  }
}

const NOTHING: Part = { positions: 0, unbounded: false, shortest: 0 }
const ONE: Part = { positions: 1, unbounded: false, shortest: 1 }
const BACKREFERENCE = 'must not use backreferences, such as \\1, \\k<name> or (?P=name)'
const NESTED =
  'must not nest quantifiers: an unbounded repeat, such as a+, must not be repeated again, as in (a+)+'
