/** The usage record of a row of the ledger. Pure. */
import type { Selectable } from 'kysely'
import { type UsageLine, wholeRecord } from '../spool/usage-line.ts'
import type { UsageTable } from '../tables.ts'
import type { UsageRecord } from '../usage.ts'

export function recordOf({
  details,
  memberId,
  inTotals,
  sessionId,
  agent,
  ...columns
}: Selectable<UsageTable>): UsageRecord {
  return wholeRecord({
    ...(JSON.parse(details) as Partial<UsageLine>),
    ...columns,
    ...(memberId === null ? {} : { memberId }),
    ...(sessionId === null ? {} : { sessionId }),
    ...(agent === null ? {} : { agent }),
    inputTokens: Number(columns.inputTokens),
    outputTokens: Number(columns.outputTokens),
    reasoningTokens: Number(columns.reasoningTokens),
    cost: Number(columns.cost),
    isByok: columns.isByok !== 0,
  })
}
