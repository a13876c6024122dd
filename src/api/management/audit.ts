/** Audit records: written with each change by a management operation, and listed by GET /audit. */

import { isoInstant } from '../../base/clock.ts'
import type { AuditAction, AuditObject, AuditRecord } from '../../storage/audit.ts'
import type { Store, StoreVerbs } from '../../storage/store.ts'
import type { ApiRequest, Handler } from '../operation.ts'
import { pageOf } from './paging.ts'
import type { ManagementParts } from './parts.ts'

/** The part of a request that audit records contain. */
interface AuditedRequest extends Pick<ApiRequest, 'key'> {
  readonly context: Pick<ApiRequest['context'], 'address'>
}

/**
 * Makes a change for a request, and stores the audit record in the same transaction. `objectOf` names the changed
 * object; null: nothing was changed. `change` must await nothing but Store operations.
 */
export function audited<T>(
  { store, clock }: Pick<ManagementParts, 'clock'> & { readonly store: Pick<Store, 'audited'> },
  { key, context }: AuditedRequest,
  action: AuditAction,
  change: (verbs: StoreVerbs) => Promise<T>,
  objectOf: (result: T) => AuditObject | null,
): Promise<T> {
  return store.audited(change, result => {
    const object = objectOf(result)
    if (object === null) return null
    return {
      organizationId: key.organizationId,
      createdAt: isoInstant(clock.nowMs()),
      action,
      actor: key.identity ?? key.label,
      object,
      address: context.address,
    }
  })
}

export function listAudit({ store }: { readonly store: Pick<Store, 'audit'> }): Handler {
  return async (request, reply) => {
    const { items, total } = await store.audit.page(request.key.organizationId, pageOf(request.query))
    reply.json(200, { data: items.map(toDocument), total_count: total })
  }
}

function toDocument({ id, createdAt, action, actor, object, address }: AuditRecord) {
  return { id, time: createdAt, action, actor_label: actor, object, client_address: address }
}
