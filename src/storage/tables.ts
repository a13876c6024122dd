/** The tables as queries see them. Column names are snake_case in the database and camelCase here (CamelCasePlugin). */
import type { KeyKind } from './store.ts'

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

export interface Tables {
  apiKeys: ApiKeysTable
}
