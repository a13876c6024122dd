/**
 * Signals in tool results: errors, repeated failures and searches favour the capable model; successful edits and
 * passing tests favour the efficient one. Pure.
 */
import type { ToolResult } from './conversation.ts'

export type ModelRole = 'efficient' | 'capable'

/** From this sum on, in either direction, the signals decide. */
const DECISIVE = 2
/** Only the latest results count. */
const RESULTS_MAX = 8
/** This many search results in a row are a sign of difficulty. */
const SEARCHES = 3

const FAILURE =
  /\b(?:error|exception|traceback|failed|failure|fatal|panic|not found|no such file|permission denied|timed out)\b|exit(?:ed with)? (?:code|status) [1-9]/i
/** Texts that report zero failures. */
const NO_FAILURE = /\b(?:0|no) (?:errors?|failures?|failed)\b/gi
const PASSED = /\b(?:tests? pass(?:ed)?|all tests? pass|\d+ pass(?:ed|ing)|build succeeded|exit code 0)\b/i
const LANDED =
  /\b(?:successfully|has been (?:updated|edited|created|written)|file (?:updated|created|written)|applied)\b/i
const SEARCHING = /(?:^|[_-])(?:search|grep|glob|find|list|ls|read|view|open|cat|fetch|browse)(?:$|[_-])/i

/** Null if the results do not decide. */
export function sideOf(results: readonly ToolResult[]): ModelRole | null {
  const score = scoreOf(results)
  return score >= DECISIVE ? 'capable' : score <= -DECISIVE ? 'efficient' : null
}

/** Above 0 for the capable model, below 0 for the efficient one. */
function scoreOf(results: readonly ToolResult[]): number {
  let score = 0
  let searches = 0
  const failures = new Set<string>()
  for (const { name, text } of results.slice(-RESULTS_MAX)) {
    const isFailure = FAILURE.test(text.replace(NO_FAILURE, ''))
    searches = SEARCHING.test(name) && !isFailure ? searches + 1 : 0
    if (isFailure) {
      const key = text.slice(0, 200)
      score += failures.has(key) ? 2 : 1
      failures.add(key)
    } else if (PASSED.test(text)) score -= 2
    else if (LANDED.test(text)) score -= 1
    if (searches === SEARCHES) score += DECISIVE
  }
  return score
}
