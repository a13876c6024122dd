/** Assigns a guardrail to an API key without the management operations. */
import type { GuardrailRecord } from '../../src/protocol/management/guardrails.ts'
import { DEFAULT_ORGANIZATION_ID, type Store } from '../../src/storage/store.ts'
import { someGuardrail } from '../storage/records.ts'

/** The key, of the default organization, has this guardrail too from here on. */
export async function giveGuardrail(
  { guardrails }: Pick<Store, 'guardrails'>,
  keyHash: string,
  rules: Partial<GuardrailRecord>,
): Promise<GuardrailRecord> {
  const record = someGuardrail({ organizationId: DEFAULT_ORGANIZATION_ID, name: 'of the test', ...rules })
  const { organizationId, createdAt } = record
  await guardrails.add(record)
  const place = { organizationId, guardrailId: record.id, kind: 'api-key' } as const
  await guardrails.assign(place, [keyHash], { assignedBy: null, createdAt })
  return record
}
