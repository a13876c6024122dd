/**
 * Estimates how long rules take on texts, to decide whether they may run on the calling thread: the usual time, and the
 * worst-case time, for which other streams would wait. Pure.
 */
import type { BuiltinSlug } from '../../protocol/management/guardrails.ts'
import type { RuleSet } from './detector.ts'
import { nativePattern } from './expressions/engine.ts'
import { readPattern } from './pattern-syntax.ts'

/**
 * Microseconds that the texts of a request may usually take on a serve thread. A task in a worker costs the calling
 * thread about 20 µs and the request up to 100 (bench/micro/guardrails.ts), and more if all cores are busy, because
 * workers get their turn late: above this limit the worker is cheaper for all other requests.
 */
const INLINE_MAX_MICROS = 200
/** The same for the worst-case texts of that length, for which other streams have to wait. */
const INLINE_MAX_WORST_MICROS = 30_000
/**
 * The same with a pattern that may read far for each match: an author of such a pattern may also supply matching texts.
 */
const INLINE_MAX_FAR_MICROS = 1_000

/**
 * An inline scan with more findings stops, and the pool repeats the whole scan: findings take most of the worst-case
 * time.
 */
export const INLINE_MAX_FOUND = 64

/** Nanoseconds per UTF-16 unit, between a text without findings and one full of them: bench/micro/guardrails.ts. */
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
  // All user patterns of the automaton together.
  custom: 8,
}
/** Costs of a pattern in V8: with a literal that excludes most texts, without one, and for a search by runs. */
const NATIVE_NANOS_PER_CHAR = { literal: 0.2, none: 0.6, runs: 5 }
/** Longer literals and patterns may exceed the memory of the automaton, or take long. */
const INLINE_MAX_PATTERN_CHARS = 4_000
/** User patterns with more places than this compile for tens of milliseconds, and would delay the first request. */
const INLINE_MAX_PLACES = 600
const INLINE_MAX_NATIVE_PLACES = 6_000

/**
 * An unbounded repeat of a broad class may read far ahead for each match: `a(?:.*z)?` reads to the end for every `a`.
 */
const READS_FAR = /(?:\.|\]|\)|\\[SWDPp])(?:[*+]|\{\d+,\})/
/** With one of these, an unbounded repeat may read beyond the end of its match. */
const MAY_FAIL_LATE = /\||\)(?:[?*]|\{0)/
/** Classes with hundreds of ranges, which cost as much as that many places. */
const UNICODE_CLASS = /\\[pP]/
const UNICODE_PLACES = 10

/** Worst time of a user pattern, in microseconds: for each unit and place of the automaton, and for each match. */
const WORST_PER_PLACE = 0.01
const WORST_PER_MATCH = 1.5
/** For each unit and proved step of a pattern for V8. */
const WORST_PER_STEP = 0.0025
/**
 * Per unit if the pattern matches the empty string: such matches are not findings, so each position is tried
 * separately.
 */
const WORST_PER_EMPTY_MATCH = 3.5
/** For each text. */
const WORST_PER_TEXT = 2
/** Usual time for each unit and place. */
const USUAL_PER_PLACE = 0.002

type ScanPlace = 'inline' | 'offload'

interface PatternCost {
  /** The places of the automaton; 0 for a literal and for V8. */
  readonly places: number
  /** Proved steps in V8 for each unit; 0 for a literal and for the automaton. */
  readonly steps: number
  /** Usual nanoseconds for each unit; 0 for the automaton. */
  readonly nanos: number
  readonly shortest: number
  /** Units that one match may read beyond its end. */
  readonly reach: number
}

interface NativeCost {
  readonly cost: PatternCost
  readonly places: number
  readonly isLiteral: boolean
}

/** The cost of one rule set. Create it once per rule set. */
export class ScanCost {
  readonly #nanosPerChar: number
  readonly #patterns: readonly PatternCost[]
  readonly #places: number
  readonly #steps: number
  /** False if compiling the patterns alone takes too long. */
  readonly #mayInline: boolean
  readonly #worstMicros: number

  constructor({ builtins, custom }: RuleSet) {
    const perChar = builtins.reduce((sum, { slug }) => sum + NANOS_PER_CHAR[slug], 0)
    const rules = custom.map(({ pattern }) => ({ pattern, native: nativeOf(pattern) }))
    const slow = rules.filter(({ native }) => native === null)
    const long = rules.filter(({ native }) => native === null || native.isLiteral)
    const chars = long.reduce((sum, { pattern }) => sum + pattern.length, 0)
    // Patterns that never run inline are not parsed: that alone would take tens of milliseconds.
    const read = chars > INLINE_MAX_PATTERN_CHARS ? [] : slow.map(({ pattern }) => costOf(pattern))
    const native = rules.flatMap(each => (each.native === null ? [] : [each.native]))
    this.#patterns = [...read, ...native.map(({ cost }) => cost)]
    this.#places = read.reduce((sum, { places }) => sum + places, 0)
    this.#steps = native.reduce((sum, { cost }) => sum + cost.steps, 0)
    const isLong = native.reduce((sum, { places }) => sum + places, 0) > INLINE_MAX_NATIVE_PLACES
    this.#mayInline = chars <= INLINE_MAX_PATTERN_CHARS && this.#places <= INLINE_MAX_PLACES && !isLong
    const readsFar = read.some(({ reach }) => reach === Number.POSITIVE_INFINITY)
    this.#worstMicros = readsFar ? INLINE_MAX_FAR_MICROS : INLINE_MAX_WORST_MICROS
    const automaton = read.some(({ nanos }) => nanos === 0) ? NANOS_PER_CHAR.custom : 0
    this.#nanosPerChar = this.#patterns.reduce((sum, { nanos }) => sum + nanos, perChar + automaton)
  }

  /** Usual microseconds for a text of this many units. */
  micros(textChars: number): number {
    return (this.#nanosPerChar * textChars) / 1_000
  }

  /** Microseconds for a window with this many findings. */
  windowMicros(windowChars: number, found: number): number {
    let each = WORST_PER_MATCH
    if (found > 0)
      for (const pattern of this.#patterns) each = Math.max(each, matchMicros(pattern, windowChars))
    return this.micros(windowChars) + USUAL_PER_PLACE * this.#places * windowChars + found * each
  }

  /**
   * The maximum number of findings up to which texts with this total length may be scanned on this thread; null if they
   * may not.
   */
  mostInline(textChars: number, texts: number): number | null {
    for (let most = INLINE_MAX_FOUND; most > 0; most >>= 2) {
      if (this.where(textChars, texts, most) === 'inline') return most
    }
    return null
  }

  /** Worst-case microseconds for texts with this total length, if the scan stops after this many findings. */
  #worst(textChars: number, texts: number, most: number): number {
    let micros = WORST_PER_TEXT * texts + WORST_PER_PLACE * this.#places * textChars
    // One pass of all patterns together, then one for each pattern that occurs.
    if (most < Number.POSITIVE_INFINITY) micros *= 2
    micros += WORST_PER_STEP * this.#steps * textChars
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

  /** The place to scan texts with this total length in UTF-16 units; `most` findings stop an inline scan. */
  where(textChars: number, texts = 1, most = Number.POSITIVE_INFINITY): ScanPlace {
    if (!this.#mayInline || this.micros(textChars) > INLINE_MAX_MICROS) return 'offload'
    return this.#worst(textChars, texts, most) <= this.#worstMicros ? 'inline' : 'offload'
  }
}

/** Worst-case microseconds of one match. */
function matchMicros({ places, shortest, reach }: PatternCost, textChars: number): number {
  const alone = shortest === 0 ? WORST_PER_EMPTY_MATCH : WORST_PER_MATCH
  return alone + WORST_PER_PLACE * places * Math.min(textChars, reach)
}

/** The cost of a literal, or of a pattern for V8; null if the pattern needs the automaton. */
function nativeOf(pattern: string): NativeCost | null {
  if (pattern.length > INLINE_MAX_PATTERN_CHARS) return null
  const { literal, positions, shortest } = readPattern(pattern)
  const native = literal === null ? nativePattern(pattern) : null
  if (literal === null && native === null) return null
  const { literal: rulesOut, none, runs } = NATIVE_NANOS_PER_CHAR
  const nanos = native?.hasLiteral === false ? (native.isByRuns ? runs : none) : rulesOut
  const cost = { places: 0, steps: native?.steps ?? 0, nanos, shortest, reach: 0 }
  return { cost, places: positions, isLiteral: literal !== null }
}

function costOf(pattern: string): PatternCost {
  const { positions, shortest, unbounded } = readPattern(pattern)
  const isFar = READS_FAR.test(pattern) || (unbounded && MAY_FAIL_LATE.test(pattern))
  const programPositions = UNICODE_CLASS.test(pattern) ? positions * UNICODE_PLACES : positions
  return {
    places: programPositions,
    steps: 0,
    nanos: 0,
    shortest,
    reach: isFar ? Number.POSITIVE_INFINITY : programPositions,
  }
}
