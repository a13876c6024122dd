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
const MAX_REPEATS = 1_000
const MAX_GROUP_DEPTH = 100

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
    return {
      ...part,
      problem: part.positions > PATTERN_MAX_POSITIONS ? TOO_MANY_POSITIONS : null,
      literal: null,
    }
  } catch (error) {
    if (error instanceof Refusal) return { ...EMPTY_PART, problem: error.message, literal: null }
    throw error
  }
}

const TOO_MANY_POSITIONS = `must expand to at most ${PATTERN_MAX_POSITIONS} characters, with repeats written out: split it into several patterns`

class Reader {
  readonly #text: string
  #position = 0

  constructor(text: string) {
    this.#text = text
  }

  alternatives(depth: number): Part {
    if (depth > MAX_GROUP_DEPTH) throw new Refusal(`must nest groups at most ${MAX_GROUP_DEPTH} deep`)
    let positions = 0
    let unbounded = false
    let shortest = 0
    let shortestBefore = Number.POSITIVE_INFINITY
    while (this.#position < this.#text.length && this.#text[this.#position] !== ')') {
      if (this.#text[this.#position] === '|') {
        this.#position++
        shortestBefore = Math.min(shortestBefore, shortest)
        shortest = 0
        continue
      }
      const part = this.#withRepeat(this.#atom(depth))
      positions += part.positions
      unbounded ||= part.unbounded
      shortest += part.shortest
      if (positions > PATTERN_MAX_POSITIONS) throw new Refusal(TOO_MANY_POSITIONS)
    }
    if (depth === 0 && this.#position < this.#text.length)
      throw new Refusal('must not close a group that is not open')
    return { positions, unbounded, shortest: Math.min(shortestBefore, shortest) }
  }

  #atom(depth: number): Part {
    const character = this.#text[this.#position++]
    if (character === '(') return this.#group(depth)
    if (character === '[') return this.#class()
    if (character === '\\') return this.#escape()
    if (character === '^' || character === '$') return EMPTY_PART
    return ONE_CHARACTER
  }

  #group(depth: number): Part {
    const start = this.#text.slice(this.#position, this.#position + 4)
    if (/^\?<?[=!]/.test(start))
      throw new Refusal('must not use lookaround, such as (?=…), (?!…), (?<=…), (?<!…)')
    if (start.startsWith('?>')) throw new Refusal('must not use atomic groups: (?>…)')
    if (start.startsWith('?(')) throw new Refusal('must not use conditions: (?(…)…)')
    if (start.startsWith('?P=') || start.startsWith('?&') || /^\?[R\d]/.test(start))
      throw new Refusal(BACKREFERENCE)
    if (start.startsWith('?#')) throw new Refusal('must not use comments: (?#…)')
    if (start.startsWith('?')) {
      const head = /^\?(?:P?<[^>]{0,200}>|[a-zA-Z-]{0,20}(?::|(?=\))))/.exec(
        this.#text.slice(this.#position, this.#position + 210),
      )
      if (head === null)
        throw new Refusal('must use only the groups of RE2 syntax: (…), (?:…), (?P<name>…), (?flags)')
      this.#position += head[0].length
    }
    const part = this.alternatives(depth + 1)
    if (this.#text[this.#position] !== ')') throw new Refusal('must close every group')
    this.#position++
    return part
  }

  #class(): Part {
    // A closing bracket directly after the opening one is a literal.
    if (this.#text[this.#position] === '^') this.#position++
    if (this.#text[this.#position] === ']') this.#position++
    for (;;) {
      const character = this.#text[this.#position++]
      if (character === undefined) throw new Refusal('must close every [class]')
      if (character === ']') return ONE_CHARACTER
      if (character === '\\') this.#position++
      if (character === '[' && this.#text[this.#position] === ':') {
        const end = this.#text.slice(this.#position, this.#position + 20).indexOf(':]')
        if (end >= 0) this.#position += end + 2
      }
    }
  }

  #escape(): Part {
    const character = this.#text[this.#position++]
    if (character === undefined) throw new Refusal('must not end in a backslash')
    if (/[1-9]/.test(character) || character === 'k' || character === 'g') throw new Refusal(BACKREFERENCE)
    if (/[AzBb]/.test(character)) return EMPTY_PART
    if (/[ZGK]/.test(character)) throw new Refusal('must not use \\Z, \\G or \\K')
    if (character === 'Q') {
      const end = this.#text.indexOf('\\E', this.#position)
      const stop = end < 0 ? this.#text.length : end
      const positions = stop - this.#position
      this.#position = end < 0 ? stop : stop + 2
      return { positions, unbounded: false, shortest: positions }
    }
    const braces = /^(?:[pP]\{[^}]{0,60}\}|x\{[0-9a-fA-F]{0,8}\}|x[0-9a-fA-F]{2}|[pP].)/.exec(
      this.#text.slice(this.#position - 1, this.#position + 64),
    )
    if (braces !== null) this.#position += braces[0].length - 1
    return ONE_CHARACTER
  }

  #withRepeat(part: Part): Part {
    const head = /^(?:([*+?])|\{(\d{1,9})(?:(,)(\d{0,9}))?\})/.exec(
      this.#text.slice(this.#position, this.#position + 24),
    )
    if (head === null) return part
    this.#position += head[0].length
    const [, sign, min, comma, max] = head
    if (this.#text[this.#position] === '?') this.#position++
    else if (this.#text[this.#position] === '+')
      throw new Refusal('must not use possessive repeats, such as a++')
    if (/^(?:[*+?]|\{\d+(?:,\d*)?\})/.test(this.#text.slice(this.#position, this.#position + 24)))
      throw new Refusal(NESTED_QUANTIFIERS)
    const unbounded = sign === '*' || sign === '+' || (comma !== undefined && max === '')
    const repeats = sign === undefined ? Math.max(Number(min), Number(max ?? 0), 1) : 1
    if (repeats > MAX_REPEATS) throw new Refusal(`must repeat at most ${MAX_REPEATS} times`)
    if (part.unbounded && (unbounded || repeats > 1)) throw new Refusal(NESTED_QUANTIFIERS)
    const minRepeats = sign === undefined ? Number(min) : sign === '+' ? 1 : 0
    return {
      positions: part.positions * repeats,
      unbounded: part.unbounded || unbounded,
      shortest: part.shortest * minRepeats,
    }
  }
}

const EMPTY_PART: Part = { positions: 0, unbounded: false, shortest: 0 }
const ONE_CHARACTER: Part = { positions: 1, unbounded: false, shortest: 1 }
const BACKREFERENCE = 'must not use backreferences, such as \\1, \\k<name> or (?P=name)'
const NESTED_QUANTIFIERS =
  'must not nest quantifiers: an unbounded repeat, such as a+, must not be repeated again, as in (a+)+'
