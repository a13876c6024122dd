/** The record of a key as the pipeline needs it. Pure. */
import type { Caller } from '../protocol/records.ts'
import type { KeyRecord } from '../storage/store.ts'

export function callerOf(key: KeyRecord): Caller {
  const { hash, organizationId, workspaceId, creatorUserId, limit, limitReset, includeByokInLimit } = key
  return {
    keyHash: hash,
    organizationId,
    workspaceId,
    memberId: creatorUserId,
    limit: limit === null ? null : { amount: limit, reset: limitReset, includeByok: includeByokInLimit },
  }
}
