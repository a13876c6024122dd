/** The tables as queries see them. Column names are snake_case in the database and camelCase here (CamelCasePlugin). */
import type { Accounting } from '../protocol/records.ts'
import type { KeyKind } from './store.ts'
import type { UsageOutcome } from './usage.ts'

/** Truth values are 0 and 1: one engine has no boolean type. Times are ISO 8601 UTC, so they sort as text. */
export interface ApiKeysTable {
  hash: string
  kind: KeyKind
  name: string
  label: string
  organizationId: string
  workspaceId: string | null
  disabled: number
  expiresAt: string | null
  createdAt: string
  updatedAt: string
}

/** What is searched or summed has a column; the rest of a record is JSON in `details`. Some engines read big integers as text. */
export interface UsageTable {
  id: string
  createdAt: string
  organizationId: string
  workspaceId: string | null
  keyHash: string
  model: string | null
  provider: string | null
  endUser: string | null
  outcome: UsageOutcome
  accounting: Accounting
  inputTokens: number | string
  outputTokens: number | string
  /** 1e-12 USD. */
  cost: number | string
  details: string
}

export interface Tables {
  apiKeys: ApiKeysTable
  usage: UsageTable
}
