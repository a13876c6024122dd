/** What guardrails have decided on one reply so far, and the account of it. One per attempt. */
import type { GatewayError } from '../../errors.ts'
import { strictest } from '../../guardrails/rules.ts'
import type { Metrics } from '../../metrics/metrics.ts'
import type { Exchange } from '../exchange.ts'
import type { WindowSeen } from './evaluate.ts'
import { blocked, countMatches, cutOff, type Match, stagesOf, unchecked, uncheckedStages } from './report.ts'
import type { GuardRules, RuleOwner } from './rules.ts'

export class Verdicts {
  readonly #rules: GuardRules
  readonly #metrics: Pick<Metrics, 'guardrailDecisions'>
  /** Who refuses what could not be looked at. */
  readonly #refusing: RuleOwner | undefined
  readonly #matches = new Map<string, Match>()
  #unchecked = false

  constructor(rules: GuardRules, metrics: Pick<Metrics, 'guardrailDecisions'>) {
    this.#rules = rules
    this.#metrics = metrics
    this.#refusing = rules.owners.find(({ failMode }) => failMode === 'closed')
  }

  /** Whether this lets nothing through. */
  isEnd({ findings, failure }: WindowSeen): boolean {
    return strictest(findings) === 'block' || (failure !== null && this.#refusing !== undefined)
  }

  /** Takes note of what was seen; the error with which the reply ends there, or null. */
  note({ findings, failure }: WindowSeen, committed: boolean): GatewayError | null {
    if (failure !== null) {
      this.#unchecked = true
      if (this.#refusing !== undefined) return unchecked(this.#refusing, 'reply', failure.cause)
    }
    for (const { rule, action, pattern, detector } of findings) {
      this.#matches.set(`${rule} ${pattern}`, { rule, action, pattern, detector })
    }
    if (strictest(findings) !== 'block') return null
    const matches = [...this.#matches.values()]
    return committed ? cutOff(matches) : blocked(matches, 'reply')
  }

  report({ pipeline }: Pick<Exchange, 'pipeline'>): void {
    const matches = [...this.#matches.values()]
    pipeline.push(...stagesOf(this.#rules, matches, 'reply'))
    countMatches(this.#metrics, this.#rules, matches)
    if (!this.#unchecked) return
    const refused = this.#refusing !== undefined
    if (!refused) pipeline.push(...uncheckedStages(this.#rules, 'reply'))
    const action = refused ? 'refused_unchecked' : 'passed_unchecked'
    this.#metrics.guardrailDecisions.inc({ guardrail: 'all', action })
  }
}
