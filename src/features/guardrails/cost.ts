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
/** Microseconds that the worst-case texts of that length may take, because other streams wait for them. */
const INLINE_MAX_WORST_MICROS = 30_000
/** The same if a pattern may read far for each match: the author of such a pattern may also supply matching texts. */
const INLINE_MAX_FAR_MICROS = 1_000

/**
 * An inline scan with more findings stops, and the pool repeats the whole scan: findings take most of the worst-case
 * time.
 */
export const INLINE_MAX_FINDINGS = 64

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
/** Unicode classes have hundreds of ranges, so they cost more than one place. */
const UNICODE_CLASS = /\\[pP]/
const UNICODE_PLACES = 10

/** Worst-case microseconds of a user pattern: for each unit and place of the automaton, and for each match. */
const WORST_PER_PLACE = 0.01
const WORST_PER_MATCH = 1.5
/** Worst-case microseconds for each unit and proved step of a pattern for V8. */
const WORST_PER_STEP = 0.0025
/**
 * Worst-case microseconds for each unit if the pattern matches the empty string: such matches are not findings, so each
 * position is tried separately.
 */
const WORST_PER_EMPTY_MATCH = 3.5
/** Worst-case microseconds for each text. */
const WORST_PER_TEXT = 2
/** Usual microseconds for each unit and place. */
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
  readonly #automatonPlaces: number
  readonly #nativeSteps: number
  /** False if compiling the patterns alone takes too long. */
  readonly #mayInline: boolean
  readonly #maxWorstMicros: number

  constructor({ builtins, custom }: RuleSet) {
    const perChar = builtins.reduce((sum, { slug }) => sum + NANOS_PER_CHAR[slug], 0)
    const rules = custom.map(({ pattern }) => ({ pattern, native: nativeCostOf(pattern) }))
    const automatonRules = rules.filter(({ native }) => native === null)
    const longRules = rules.filter(({ native }) => native === null || native.isLiteral)
    const chars = longRules.reduce((sum, { pattern }) => sum + pattern.length, 0)
    // Patterns that never run inline are not parsed: that alone would take tens of milliseconds.
    const automatonCosts =
      chars > INLINE_MAX_PATTERN_CHARS ? [] : automatonRules.map(({ pattern }) => automatonCostOf(pattern))
    const nativeCosts = rules.flatMap(rule => (rule.native === null ? [] : [rule.native]))
    this.#patterns = [...automatonCosts, ...nativeCosts.map(({ cost }) => cost)]
    this.#automatonPlaces = automatonCosts.reduce((sum, { places }) => sum + places, 0)
    this.#nativeSteps = nativeCosts.reduce((sum, { cost }) => sum + cost.steps, 0)
    const hasTooManyPlaces =
      nativeCosts.reduce((sum, { places }) => sum + places, 0) > INLINE_MAX_NATIVE_PLACES
    this.#mayInline =
      chars <= INLINE_MAX_PATTERN_CHARS && this.#automatonPlaces <= INLINE_MAX_PLACES && !hasTooManyPlaces
    const readsFar = automatonCosts.some(({ reach }) => reach === Number.POSITIVE_INFINITY)
    this.#maxWorstMicros = readsFar ? INLINE_MAX_FAR_MICROS : INLINE_MAX_WORST_MICROS
    const automaton = automatonCosts.some(({ nanos }) => nanos === 0) ? NANOS_PER_CHAR.custom : 0
    this.#nanosPerChar = this.#patterns.reduce((sum, { nanos }) => sum + nanos, perChar + automaton)
  }

  /** Usual microseconds for a text of this many units. */
  micros(textChars: number): number {
    return (this.#nanosPerChar * textChars) / 1_000
  }

  /** Microseconds for a window with this many findings. */
  windowMicros(windowChars: number, findings: number): number {
    let microsPerFinding = WORST_PER_MATCH
    if (findings > 0)
      for (const pattern of this.#patterns)
        microsPerFinding = Math.max(microsPerFinding, matchMicros(pattern, windowChars))
    return (
      this.micros(windowChars) +
      USUAL_PER_PLACE * this.#automatonPlaces * windowChars +
      findings * microsPerFinding
    )
  }

  /**
   * The maximum number of findings up to which texts with this total length may be scanned on this thread; null if they
   * may not.
   */
  maxInlineFindings(textChars: number, texts: number): number | null {
    for (let maxFindings = INLINE_MAX_FINDINGS; maxFindings > 0; maxFindings >>= 2) {
      if (this.placeFor(textChars, texts, maxFindings) === 'inline') return maxFindings
    }
    return null
  }

  /** Worst-case microseconds for texts with this total length, if the scan stops after this many findings. */
  #worstMicros(textChars: number, texts: number, maxFindings: number): number {
    let micros = WORST_PER_TEXT * texts + WORST_PER_PLACE * this.#automatonPlaces * textChars
    // One pass of all patterns together, then one for each pattern that occurs.
    if (maxFindings < Number.POSITIVE_INFINITY) micros *= 2
    micros += WORST_PER_STEP * this.#nativeSteps * textChars
    let microsPerFinding = 0
    for (const pattern of this.#patterns) {
      const microsOfMatch = matchMicros(pattern, textChars)
      // Empty matches are no findings, so they do not stop the scan.
      if (pattern.shortest === 0 || maxFindings === Number.POSITIVE_INFINITY) {
        micros += (textChars / Math.max(1, pattern.shortest)) * microsOfMatch
      } else microsPerFinding = Math.max(microsPerFinding, microsOfMatch)
    }
    return micros + (microsPerFinding === 0 ? 0 : maxFindings * microsPerFinding)
  }

  /** The place to scan texts with this total length in UTF-16 units; `maxFindings` findings stop an inline scan. */
  placeFor(textChars: number, texts = 1, maxFindings = Number.POSITIVE_INFINITY): ScanPlace {
    if (!this.#mayInline || this.micros(textChars) > INLINE_MAX_MICROS) return 'offload'
    return this.#worstMicros(textChars, texts, maxFindings) <= this.#maxWorstMicros ? 'inline' : 'offload'
  }
}

/** Worst-case microseconds of one match. */
function matchMicros({ places, shortest, reach }: PatternCost, textChars: number): number {
  const microsWithoutReach = shortest === 0 ? WORST_PER_EMPTY_MATCH : WORST_PER_MATCH
  return microsWithoutReach + WORST_PER_PLACE * places * Math.min(textChars, reach)
}

/** The cost of a literal, or of a pattern for V8; null if the pattern needs the automaton. */
function nativeCostOf(pattern: string): NativeCost | null {
  if (pattern.length > INLINE_MAX_PATTERN_CHARS) return null
  const { literal, positions, shortest } = readPattern(pattern)
  const v8Pattern = literal === null ? nativePattern(pattern) : null
  if (literal === null && v8Pattern === null) return null
  const { literal: rulesOut, none, runs } = NATIVE_NANOS_PER_CHAR
  const nanos = v8Pattern?.hasLiteral === false ? (v8Pattern.isByRuns ? runs : none) : rulesOut
  const cost = { places: 0, steps: v8Pattern?.steps ?? 0, nanos, shortest, reach: 0 }
  return { cost, places: positions, isLiteral: literal !== null }
}

function automatonCostOf(pattern: string): PatternCost {
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
