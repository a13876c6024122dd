/**
 * Estimates the time that rules take on texts, to decide if they may run on the calling thread: the usual time, which
 * should be short, and the worst time, which other streams would have to wait. Pure.
 */
import type { BuiltinSlug } from '../protocol/guardrails.ts'
import { readPattern } from './pattern-syntax.ts'
import type { RuleSet } from './rules.ts'

/**
 * Microseconds that the texts of a request may usually take on a serve thread. A task in a worker costs the calling
 * thread some 20 µs and the request up to 100 (bench/micro/guardrails.ts): above this limit the worker is cheaper for
 * all other requests.
 */
const INLINE_MAX_MICROS = 100
/** The same for the worst texts of that length, for which other streams have to wait. */
const INLINE_MAX_WORST_MICROS = 30_000

/** An inline scan with more findings stops, and the pool does it all: findings take most of the worst time. */
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
  // All user patterns together: they are one automaton.
  custom: 8,
}
/** User patterns with more characters than this make an automaton that may exceed its memory. */
const INLINE_MAX_PATTERN_CHARS = 4_000
/** User patterns with more places than this compile for tens of milliseconds, and the first request would wait. */
const INLINE_MAX_PLACES = 600

/**
 * An unbounded repeat of a broad class may read far ahead for each match: `a(?:.*z)?` reads to the end of the text for
 * every `a`. Such patterns run inline only on texts up to this many units.
 */
const INLINE_MAX_FAR_CHARS = 1_000
const READS_FAR = /(?:\.|\]|\)|\\[SWDPp])(?:[*+]|\{\d+,\})/
/** With one of these, an unbounded repeat may read beyond the end of its match. */
const MAY_FAIL_LATE = /\||\)(?:[?*]|\{0)/
/** Classes with hundreds of ranges, which take as long as so many places. */
const UNICODE_CLASS = /\\[pP]/
const UNICODE_PLACES = 10

/** Worst time of a user pattern, in microseconds: for each unit and place of the automaton, and for each match. */
const WORST_PER_PLACE = 0.01
const WORST_PER_MATCH = 1.5
/** For each unit if the empty string matches: such matches are no findings, so each position is tried by itself. */
const WORST_PER_EMPTY_MATCH = 3.5
/** For each text. */
const WORST_PER_TEXT = 2
/** Usual time for each unit and place. */
const USUAL_PER_PLACE = 0.002

export type Where = 'inline' | 'offload'

interface PatternCost {
  readonly places: number
  readonly shortest: number
  /** Units that may be read for one match beyond its end. */
  readonly reach: number
}

/** The cost of one rule set. Make it once for each. */
export class ScanCost {
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
    // Patterns that never run inline are not parsed: that alone would take tens of milliseconds.
    const read = this.#patternChars > INLINE_MAX_PATTERN_CHARS ? [] : custom
    this.#patterns = read.map(({ pattern }) => costOf(pattern))
    this.#places = this.#patterns.reduce((sum, { places }) => sum + places, 0)
    this.#readsFar = this.#patterns.some(({ reach }) => reach === Number.POSITIVE_INFINITY)
  }

  /** Usual microseconds for a text of so many units. */
  micros(textChars: number): number {
    return (this.#nanosPerChar * textChars) / 1_000
  }

  /** Microseconds for a window with so many findings. */
  windowMicros(windowChars: number, found: number): number {
    let each = WORST_PER_MATCH
    if (found > 0)
      for (const pattern of this.#patterns) each = Math.max(each, matchMicros(pattern, windowChars))
    return this.micros(windowChars) + USUAL_PER_PLACE * this.#places * windowChars + found * each
  }

  /** Worst microseconds for texts of so many units together, if the scan stops after so many findings. */
  worstMicros(textChars: number, texts: number, most = Number.POSITIVE_INFINITY): number {
    let micros = WORST_PER_TEXT * texts + WORST_PER_PLACE * this.#places * textChars
    // One pass of all patterns together, then one for each pattern that occurs.
    if (most < Number.POSITIVE_INFINITY) micros *= 2
    let each = 0
    for (const pattern of this.#patterns) {
      const match = matchMicros(pattern, textChars)
      // Empty matches are no findings, so they do not stop the scan.
      if (pattern.shortest === 0 || most === Number.POSITIVE_INFINITY) {
        micros += (textChars / Math.max(1, pattern.shortest)) * match
      } else each = Math.max(each, match)
    }
    return micros + (each === 0 ? 0 : most * each)
  }

  /** The place to scan texts of so many UTF-16 units together; `most` findings stop an inline scan. */
  where(textChars: number, texts = 1, most = Number.POSITIVE_INFINITY): Where {
    if (this.#readsFar && textChars > INLINE_MAX_FAR_CHARS) return 'offload'
    if (this.#patternChars > INLINE_MAX_PATTERN_CHARS || this.#places > INLINE_MAX_PLACES) return 'offload'
    if (this.micros(textChars) > INLINE_MAX_MICROS) return 'offload'
    return this.worstMicros(textChars, texts, most) <= INLINE_MAX_WORST_MICROS ? 'inline' : 'offload'
  }
}

/** Worst microseconds of one match. */
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
