/**
 * What looking at the texts of a request or at a window will take, to decide whether it may be done on the thread that
 * asks: what is usual, which should be short, and the worst, which must not hold up others. Pure.
 */
import type { BuiltinSlug } from '../protocol/guardrails.ts'
import { readPattern } from './pattern-syntax.ts'
import type { RuleSet } from './rules.ts'

/**
 * Microseconds that the texts of a request may usually take on a serve thread. A worker and back costs the thread that
 * asks some 20 µs and the request up to 100 (bench/micro/guardrails.ts): above this the detour is the cheaper one for
 * everybody else.
 */
const INLINE_MAX_MICROS = 100
/** The same for the worst texts of that length: other streams wait as long. */
const INLINE_MAX_WORST_MICROS = 30_000

/** Whoever finds more than this inline stops and has it all done elsewhere: what is found takes most of the worst. */
export const INLINE_MAX_FOUND = 64

/** Nanoseconds per UTF-16 unit, between a text with nothing to find and one full of it: bench/micro/guardrails.ts. */
const NANOS_PER_CHAR: Readonly<Record<BuiltinSlug | 'custom', number>> = {
  email: 1,
  phone: 6,
  ssn: 1,
  'credit-card': 2,
  'ip-address': 1,
  secrets: 9,
  'person-name': 12,
  address: 6,
  'regex-prompt-injection': 40,
  // All own patterns together: they are one automaton.
  custom: 8,
}
/** Own patterns of more characters than this make an automaton that may not stay in its memory. */
const INLINE_MAX_PATTERN_CHARS = 4_000
/** Own patterns of more places than this take tens of milliseconds to compile, which the first request waits for. */
const INLINE_MAX_PLACES = 600

/**
 * A repeat without an end of much else than letters may read far ahead for each match, `a(?:.*z)?` to the end of the
 * text for every `a`: of such patterns only texts up to this many units are looked at inline.
 */
const INLINE_MAX_FAR_CHARS = 1_000
const READS_FAR = /(?:\.|\]|\)|\\[SWDPp])(?:[*+]|\{\d+,\})/
/** With one of these what is read by a repeat without an end may end outside of the match. */
const MAY_FAIL_LATE = /\||\)(?:[?*]|\{0)/
/** Classes of some hundred ranges take as long as so many places. */
const UNICODE_CLASS = /\\[pP]/
const UNICODE_PLACES = 10

/** The worst of an own pattern, in microseconds: for a unit and place of the automaton, and for a match. */
const WORST_PER_PLACE = 0.01
const WORST_PER_MATCH = 1.5
/** Where nothing is a match, which is not told, each place is tried by itself. */
const WORST_PER_EMPTY_MATCH = 3.5
/** To begin with a text. */
const WORST_PER_TEXT = 2
/** For a unit and place, of a text that is not chosen to be the worst. */
const USUAL_PER_PLACE = 0.002

export type Where = 'inline' | 'offload'

interface PatternCost {
  readonly places: number
  readonly shortest: number
  /** Units that may be read for one match and are not its own. */
  readonly reach: number
}

/** Of one rule set. To be made once for each. */
export class Cost {
  readonly #nanosPerChar: number
  readonly #patterns: readonly PatternCost[]
  readonly #places: number
  readonly #patternChars: number
  readonly #readsFar: boolean

  constructor({ builtins, custom }: RuleSet) {
    let perChar = custom.length > 0 ? NANOS_PER_CHAR.custom : 0
    for (const { slug } of builtins) perChar += NANOS_PER_CHAR[slug]
    this.#nanosPerChar = perChar
    this.#patternChars = custom.reduce((sum, { pattern }) => sum + pattern.length, 0)
    // Too many to be looked for inline are not read: that alone would take tens of milliseconds.
    const read = this.#patternChars > INLINE_MAX_PATTERN_CHARS ? [] : custom
    this.#patterns = read.map(({ pattern }) => costOf(pattern))
    this.#places = this.#patterns.reduce((sum, { places }) => sum + places, 0)
    this.#readsFar = this.#patterns.some(({ reach }) => reach === Number.POSITIVE_INFINITY)
  }

  /** Microseconds for a text of so many units, as is usual. */
  micros(textChars: number): number {
    return (this.#nanosPerChar * textChars) / 1_000
  }

  /** Microseconds for a window in which so much was found. */
  windowMicros(windowChars: number, found: number): number {
    let each = WORST_PER_MATCH
    if (found > 0)
      for (const pattern of this.#patterns) each = Math.max(each, matchMicros(pattern, windowChars))
    return this.micros(windowChars) + USUAL_PER_PLACE * this.#places * windowChars + found * each
  }

  /** Microseconds for texts of so many units together, whatever they say, when looking ends with so many findings. */
  worstMicros(textChars: number, texts: number, most = Number.POSITIVE_INFINITY): number {
    let micros = WORST_PER_TEXT * texts + WORST_PER_PLACE * this.#places * textChars
    // First all together are asked whether they occur, then each that does where.
    if (most < Number.POSITIVE_INFINITY) micros *= 2
    let each = 0
    for (const pattern of this.#patterns) {
      const match = matchMicros(pattern, textChars)
      // Matches of nothing are not found, so nothing ends them.
      if (pattern.shortest === 0 || most === Number.POSITIVE_INFINITY) {
        micros += (textChars / Math.max(1, pattern.shortest)) * match
      } else each = Math.max(each, match)
    }
    return micros + (each === 0 ? 0 : most * each)
  }

  /** Where texts of so many UTF-16 units together are to be looked at; inline up to so many findings. */
  where(textChars: number, texts = 1, most = Number.POSITIVE_INFINITY): Where {
    if (this.#readsFar && textChars > INLINE_MAX_FAR_CHARS) return 'offload'
    if (this.#patternChars > INLINE_MAX_PATTERN_CHARS || this.#places > INLINE_MAX_PLACES) return 'offload'
    if (this.micros(textChars) > INLINE_MAX_MICROS) return 'offload'
    return this.worstMicros(textChars, texts, most) <= INLINE_MAX_WORST_MICROS ? 'inline' : 'offload'
  }
}

/** The worst of one match. */
function matchMicros({ places, shortest, reach }: PatternCost, textChars: number): number {
  const alone = shortest === 0 ? WORST_PER_EMPTY_MATCH : WORST_PER_MATCH
  return alone + WORST_PER_PLACE * places * Math.min(textChars, reach)
}

function costOf(pattern: string): PatternCost {
  const { literal, positions, shortest, unbounded } = readPattern(pattern)
  if (literal !== null) return { places: 0, shortest, reach: 0 }
  const isFar = READS_FAR.test(pattern) || (unbounded && MAY_FAIL_LATE.test(pattern))
  const places = UNICODE_CLASS.test(pattern) ? positions * UNICODE_PLACES : positions
  return { places, shortest, reach: isFar ? Number.POSITIVE_INFINITY : positions }
}
