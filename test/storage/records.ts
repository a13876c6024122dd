/** Records for storage tests, each unlike all others. */
import { randomUUID } from 'node:crypto'
import { type GuardrailRecord, NO_RULES } from '../../src/protocol/management/guardrails.ts'
import type { KeyRecord } from '../../src/protocol/management/keys.ts'
import type { EndUserRecord, WorkspaceRecord } from '../../src/protocol/management/management.ts'
import { MIGRATIONS } from '../../src/storage/migrations/migrate.ts'
import type { CredentialRecord, CreditEntry, SealedSecret } from '../../src/storage/store.ts'
import { credentialOf } from '../support/own-keys.ts'

/** Text that breaks what quotes, folds or counts wrongly. */
export const ODD_TEXT = `O'Brien; DROP TABLE usage; -- "\u{1F511}" 日本 İı ẞ \\ % _ \n\t end`
export const ODD_IDS = ['', "' OR 1=1 --", '%', '_', 'x'.repeat(100_000)]

const DAY_ONE = '2026-01-01T00:00:00.000Z'
let made = 0

export function someKey(fields: Partial<KeyRecord> = {}): KeyRecord {
  made++
  return {
    hash: made.toString(16).padStart(64, '0'),
    kind: 'inference',
    name: `key ${made}`,
    label: 'sk-gw-v1-abc...123',
    organizationId: 'org_1',
    workspaceId: 'ws_1',
    disabled: false,
    expiresAt: null,
    secretExpiresAt: null,
    limit: null,
    limitReset: null,
    includeByokInLimit: false,
    creatorUserId: null,
    role: null,
    identity: null,
    traceTrusted: false,
    rateLimit: null,
    loops: null,
    cache: null,
    rates: null,
    loopPolicy: null,
    caching: null,
    createdAt: DAY_ONE,
    updatedAt: DAY_ONE,
    rotatedAt: null,
    ...fields,
  }
}

export function someWorkspace(fields: Partial<WorkspaceRecord> = {}): WorkspaceRecord {
  made++
  return {
    id: randomUUID(),
    organizationId: 'org_1',
    name: `Workspace ${made}`,
    slug: `workspace-${made}`,
    description: null,
    disabledTools: null,
    rateLimit: null,
    loops: null,
    cache: null,
    createdAt: DAY_ONE,
    updatedAt: DAY_ONE,
    ...fields,
  }
}

export function someEndUser(fields: Partial<EndUserRecord> = {}): EndUserRecord {
  made++
  return {
    organizationId: 'org_1',
    user: `user ${made}`,
    isActive: true,
    weight: 1,
    rateLimit: null,
    createdAt: DAY_ONE,
    updatedAt: DAY_ONE,
    ...fields,
  }
}

/** Nothing in it is a real seal: storage never looks inside. */
export function someSeal(fields: Partial<SealedSecret> = {}): SealedSecret {
  made++
  return { v: 1, keyId: 'k1', wrapped: `wrapped-${made}`, box: `box-${made}`, ...fields }
}

export function someCredential(fields: Partial<CredentialRecord> = {}): CredentialRecord {
  return {
    ...credentialOf('anthropic', {
      organizationId: 'org_1',
      workspaceId: 'ws_1',
      label: 'sk-...AbCd',
      createdAt: DAY_ONE,
      updatedAt: DAY_ONE,
    }),
    sealed: someSeal(),
    ...fields,
  }
}

export function someCredit(fields: Partial<CreditEntry> = {}): CreditEntry {
  return {
    id: randomUUID(),
    organizationId: 'org_1',
    amount: 1_000_000,
    note: null,
    createdAt: DAY_ONE,
    ...fields,
  }
}

/** Names of all migrations, in order. */
export function migrationNames(): readonly string[] {
  return Object.keys(MIGRATIONS).sort()
}

/** Of the whole organization; it rules nothing. */
export function someGuardrail(fields: Partial<GuardrailRecord> = {}): GuardrailRecord {
  made++
  return {
    ...NO_RULES,
    id: randomUUID(),
    organizationId: 'org_1',
    workspaceId: null,
    isWorkspaceDefault: false,
    name: `Guardrail ${made}`,
    description: null,
    limit: null,
    resetInterval: null,
    includeByokInBudgets: false,
    revision: 1,
    createdAt: DAY_ONE,
    updatedAt: DAY_ONE,
    ...fields,
  }
}
