/** GET /guardrails/{id}/budgets: how much each owner of a guardrail's budget has spent in the current period. */

import { isoInstant } from '../../base/clock.ts'
import { microToUsd, sumToUsd } from '../../base/money.ts'
import { periodEndMs } from '../../callers/limits/periods.ts'
import { budgetOrigin } from '../../callers/limits/quota-entries.ts'
import { ledgerSum, PICOS_PER_MICRO } from '../../callers/limits/spending.ts'
import type { Handler } from '../operation.ts'
import { findNamedGuardrail } from './guardrails.ts'
import { pageOf } from './paging.ts'
import type { ManagementParts } from './parts.ts'

/** Sums from the ledger, which lags replies by about a second. A guardrail without a budget has an empty list. */
export function listGuardrailBudgets({ store, clock }: ManagementParts): Handler {
  return async (request, reply) => {
    const page = pageOf(request.query)
    const guardrail = await findNamedGuardrail(store, request)
    const { organizationId, workspaceId, limit, resetInterval: reset } = guardrail
    if (limit === null || reset === null) return reply.json(200, { data: [], total_count: 0 })
    const nowMs = clock.nowMs()
    const budget = { workspaceId, reset, includeByok: guardrail.includeByokInBudgets }
    const limitPicos = BigInt(limit) * PICOS_PER_MICRO
    const { items, total } = await store.guardrails.budgetOwners(guardrail, page)
    const data = items.map(async ({ kind, id, name }) => {
      const owner = kind === 'member' ? { memberId: id } : { keyHash: id }
      const spentUsd = await ledgerSum(store, budgetOrigin(budget, organizationId, owner, nowMs))
      return {
        key_hash: kind === 'member' ? null : id,
        key_name: name,
        user_id: kind === 'member' ? id : null,
        limit_usd: microToUsd(limit),
        reset_interval: reset,
        spent_usd: sumToUsd(spentUsd),
        // The last request of a period may exceed the budget.
        remaining_usd: spentUsd < limitPicos ? sumToUsd(limitPicos - spentUsd) : 0,
        resets_at: isoInstant(periodEndMs(reset, nowMs)),
      }
    })
    reply.json(200, { data: await Promise.all(data), total_count: total })
  }
}
