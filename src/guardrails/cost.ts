/** What looking at a text will take, to decide whether it may be done on the thread that asks. Pure. */
import type { BuiltinSlug } from '../protocol/guardrails.ts'
import type { RuleSet } from './rules.ts'

/**
 * Microseconds that one text may take on a serve thread. A worker and back costs the thread that asks some 20 µs and
 * the request up to 100 (bench/micro/guardrails.ts): above this the detour is the cheaper one for everybody else.
 */
export const INLINE_MAX_MICROS = 100

/** Nanoseconds per UTF-16 unit, between a text with nothing to find and one full of it: bench/micro/guardrails.ts. */
export const NANOS_PER_CHAR: Readonly<Record<BuiltinSlug | 'custom', number>> = {
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
export const INLINE_MAX_PATTERN_CHARS = 4_000

/**
 * A repeat without an end of much else than letters may read far ahead for each match, `a(?:.*z)?` to the end of the
 * text for every `a`: of such patterns only texts up to this many units are looked at inline.
 */
export const INLINE_MAX_FAR_CHARS = 1_000
const READS_FAR = /(?:\.|\]|\)|\\[SWDPp])(?:[*+]|\{\d+,\})/

export type Where = 'inline' | 'offload'

/** Microseconds, estimated. */
export function estimateMicros(rules: RuleSet, textChars: number): number {
  let perChar = rules.custom.length > 0 ? NANOS_PER_CHAR.custom : 0
  for (const { slug } of rules.builtins) perChar += NANOS_PER_CHAR[slug]
  return (perChar * textChars) / 1_000
}

/** Where a text of so many UTF-16 units is to be looked at. */
export function whereToScan(rules: RuleSet, textChars: number): Where {
  let patternChars = 0
  for (const { pattern } of rules.custom) {
    patternChars += pattern.length
    if (textChars > INLINE_MAX_FAR_CHARS && READS_FAR.test(pattern)) return 'offload'
  }
  if (patternChars > INLINE_MAX_PATTERN_CHARS) return 'offload'
  return estimateMicros(rules, textChars) <= INLINE_MAX_MICROS ? 'inline' : 'offload'
}
