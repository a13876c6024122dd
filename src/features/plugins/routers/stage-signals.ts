/**
 * Signals in tool results: errors, repeated failures and searches favour the capable model; successful edits and
 * passing tests favour the efficient one. Pure.
 */
import type { ToolResult } from './conversation.ts'

export type ModelRole = 'efficient' | 'capable'

/** A score of at least this size, positive or negative, decides. */
const DECISIVE_SCORE = 2
/** Only the latest results count. */
const MAX_RESULTS = 8
/** This many search results in a row are a sign of difficulty. */
const SEARCHES_IN_A_ROW = 3

const FAILURE =
  /\b(?:error|exception|traceback|failed|failure|fatal|panic|not found|no such file|permission denied|timed out)\b|exit(?:ed with)? (?:code|status) [1-9]/i
/** Texts that report zero failures. */
const NO_FAILURE = /\b(?:0|no) (?:errors?|failures?|failed)\b/gi
const SUCCESS = /\b(?:tests? pass(?:ed)?|all tests? pass|\d+ pass(?:ed|ing)|build succeeded|exit code 0)\b/i
const EDIT_DONE =
  /\b(?:successfully|has been (?:updated|edited|created|written)|file (?:updated|created|written)|applied)\b/i
const SEARCH_TOOL = /(?:^|[_-])(?:search|grep|glob|find|list|ls|read|view|open|cat|fetch|browse)(?:$|[_-])/i

/** Null if the results do not decide. */
export function sideOf(results: readonly ToolResult[]): ModelRole | null {
  const score = scoreOf(results)
  return score >= DECISIVE_SCORE ? 'capable' : score <= -DECISIVE_SCORE ? 'efficient' : null
}

/** Above 0 for the capable model, below 0 for the efficient one. */
function scoreOf(results: readonly ToolResult[]): number {
  let score = 0
  let searches = 0
  const failures = new Set<string>()
  for (const { name, text } of results.slice(-MAX_RESULTS)) {
    const isFailure = FAILURE.test(text.replace(NO_FAILURE, ''))
    searches = SEARCH_TOOL.test(name) && !isFailure ? searches + 1 : 0
    if (isFailure) {
      const key = text.slice(0, 200)
      score += failures.has(key) ? 2 : 1
      failures.add(key)
    } else if (SUCCESS.test(text)) score -= 2
    else if (EDIT_DONE.test(text)) score -= 1
    if (searches === SEARCHES_IN_A_ROW) score += DECISIVE_SCORE
  }
  return score
}
