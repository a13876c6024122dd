/**
 * Budgets: what guardrails let a member or an API key spend within a period. Each counts by itself, in a counter of its
 * own. Pure.
 */
import type { MicroUsd, PicoUsd } from '../money.ts'
import type { ResetInterval } from '../protocol/guardrails.ts'
import type { Caller } from '../protocol/records.ts'
import type { AppliedGuardrail, GuardrailScope } from '../storage/guardrails.ts'
import type { CounterEntry } from './counters.ts'
import { periodEndMs, periodStart } from './periods.ts'
import { microToNano, picoToNano } from './spending.ts'

export interface Budget {
  readonly guardrailId: string
  /** Name of the guardrail, for whom it refuses. */
  readonly name: string
  readonly scope: GuardrailScope
  /** Of the guardrail; null: what counts is what was spent in the whole organization. */
  readonly workspaceId: string | null
  readonly amount: MicroUsd
  readonly reset: ResetInterval
  /** Whether what runs on own provider credentials counts. */
  readonly includeByok: boolean
}

/** The budgets among what applies to a caller, the smallest first; null: there is none. */
export function budgetsOf(applied: readonly AppliedGuardrail[]): readonly Budget[] | null {
  const budgets = applied.flatMap(({ scope, guardrail }): Budget[] => {
    const { id, name, workspaceId, limit, resetInterval, includeByokInBudgets } = guardrail
    if (limit === null || resetInterval === null) return []
    return [
      {
        guardrailId: id,
        name,
        scope,
        workspaceId,
        amount: limit,
        reset: resetInterval,
        includeByok: includeByokInBudgets,
      },
    ]
  })
  return budgets.length === 0 ? null : budgets.sort((one, other) => one.amount - other.amount)
}

/**
 * Whose spending counts. The default guardrail of a workspace gives a budget to each member and to each key that is
 * nobody's, so that more keys do not make more money.
 */
export function spenderOf(budget: Pick<Budget, 'scope'>, caller: Pick<Caller, 'memberId'>): 'member' | 'key' {
  return budget.scope === 'api-key' || caller.memberId === null ? 'key' : 'member'
}

/** `estimate`: what the request may come to, and the same without own provider credentials. */
export function budgetEntry(
  budget: Budget,
  caller: Caller,
  estimate: { readonly cost: PicoUsd; readonly ownCost: PicoUsd },
  nowMs: number,
): CounterEntry {
  const { guardrailId, workspaceId, amount, reset, includeByok } = budget
  const { organizationId, keyHash, memberId } = caller
  const since = periodStart(reset, nowMs)
  const ofMember = spenderOf(budget, caller) === 'member' && memberId !== null
  const spender = ofMember ? `member/${memberId}` : `key/${keyHash}`
  return {
    id: `budget/${guardrailId}/${includeByok ? 'all' : 'own'}/${reset}/${since}/${spender}`,
    amount: picoToNano(includeByok ? estimate.cost : estimate.ownCost),
    ceiling: microToNano(amount),
    origin: {
      organizationId,
      keyHash: ofMember ? null : keyHash,
      ...(ofMember ? { memberId } : {}),
      ...(ofMember && workspaceId !== null ? { workspaceId } : {}),
      since,
      includeByok,
    },
    endsMs: periodEndMs(reset, nowMs),
  }
}
