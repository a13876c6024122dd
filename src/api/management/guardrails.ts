/** /guardrails: an organization's rule sets. guardrail-assignments.ts assigns them. */

import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { isoInstant } from '../../base/clock.ts'
import { GatewayError, refuseField } from '../../base/errors.ts'
import { IDENTIFIER_MAX_CHARS } from '../../protocol/limits.ts'
import {
  checkGuardrailCreation,
  checkGuardrailUpdate,
  GUARDRAIL,
  type GuardrailRecord,
  type ZdrRules,
} from '../../protocol/management/guardrails.ts'
import type { AuditObject } from '../../storage/audit.ts'
import { ConflictError, type Store } from '../../storage/store.ts'
import type { ApiRequest, Handler } from '../operation.ts'
import { audited } from './audit.ts'
import { checkPatterns, newSettings, settingsAfter } from './guardrail-settings.ts'
import { pageOf, textParameter } from './paging.ts'
import type { ManagementParts } from './parts.ts'
import { workspaceOf } from './workspaces.ts'

const GUARDRAIL_ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** Without a workspace the guardrail belongs to the whole organization. */
export function createGuardrail(deps: ManagementParts): Handler {
  const { store } = deps
  return async (request, reply) => {
    const body = checkGuardrailCreation(request.body)
    await checkPatterns(deps.patternProblem, body)
    const { organizationId } = request.key
    const workspaceId = body.workspace_id ?? null
    if (workspaceId !== null) await workspaceOf(store, organizationId, workspaceId)
    const createdAt = isoNow(deps)
    const record: GuardrailRecord = {
      ...newSettings(deps, body),
      id: randomUUID(),
      organizationId,
      workspaceId,
      isWorkspaceDefault: false,
      revision: 1,
      createdAt,
      updatedAt: createdAt,
    }
    // The workspace may have been deleted in the meantime.
    const added = await audited(
      deps,
      request,
      'guardrail.create',
      ({ guardrails }) => guardrails.add(record),
      isNew => (isNew ? toObject(record) : null),
    )
    if (!added) throw refuseField('workspace_id', 'must be the id of a workspace')
    publish(deps, organizationId)
    reply.json(201, { data: toDocument(record, 0) })
  }
}

export function listGuardrails({ store }: ManagementParts): Handler {
  return async ({ query, key }, reply) => {
    const page = pageOf(query)
    const workspaceId = textParameter(query, 'workspace_id', IDENTIFIER_MAX_CHARS)
    const filter = {
      organizationId: key.organizationId,
      ...(workspaceId === undefined ? {} : { workspaceId }),
    }
    const { items, total } = await store.guardrails.page(filter, page)
    const assignedCounts = await store.guardrails.assignedCounts(
      key.organizationId,
      items.map(({ id }) => id),
    )
    const data = items.map(record => toDocument(record, assignedCounts.get(record.id) ?? 0))
    reply.json(200, { data, total_count: total })
  }
}

export function findGuardrail(deps: ManagementParts): Handler {
  return async (request, reply) =>
    reply.json(200, { data: await documentOf(deps, await findNamedGuardrail(deps.store, request)) })
}

export function changeGuardrail(deps: ManagementParts): Handler {
  return async (request, reply) => {
    const body = checkGuardrailUpdate(request.body)
    await checkPatterns(deps.patternProblem, body)
    const current = await findNamedGuardrail(deps.store, request)
    if (current.isWorkspaceDefault && body.name !== undefined && body.name !== current.name) {
      throw refuseField('name', 'cannot be changed for the default guardrail of a workspace')
    }
    const settings = settingsAfter(deps, current, body)
    if (isDeepStrictEqual({ ...current, ...settings }, current)) {
      reply.json(200, { data: await documentOf(deps, current) })
      return
    }
    const record = await rejectConflict(
      audited(
        deps,
        request,
        'guardrail.update',
        ({ guardrails }) => guardrails.change(current, settings, isoNow(deps)),
        record => record && toObject(record),
      ),
    )
    // Another request may have deleted it in the meantime.
    if (record === null) throw notFound()
    publish(deps, record.organizationId)
    reply.json(200, { data: await documentOf(deps, record) })
  }
}

export function deleteGuardrail(deps: ManagementParts): Handler {
  return async (request, reply) => {
    const guardrail = await findNamedGuardrail(deps.store, request)
    const { organizationId, id, isWorkspaceDefault } = guardrail
    if (isWorkspaceDefault) throw refuseField('id', 'must not be the default guardrail of a workspace')
    const removed = await audited(
      deps,
      request,
      'guardrail.delete',
      ({ guardrails }) => guardrails.remove(organizationId, id),
      isGone => (isGone ? toObject(guardrail) : null),
    )
    if (!removed) throw notFound()
    publish(deps, organizationId)
    reply.json(200, { deleted: true })
  }
}

/** Finds the guardrail of the path. @throws GatewayError `not_found` */
export async function findNamedGuardrail(
  store: Pick<Store, 'guardrails'>,
  { params, key }: ApiRequest,
): Promise<GuardrailRecord> {
  const id = params.get('id') ?? ''
  const record = GUARDRAIL_ID.test(id) ? await store.guardrails.find(key.organizationId, id) : null
  if (record === null) throw notFound()
  return record
}

/** @throws GatewayError `conflict` if the guardrail was changed after it was checked. */
async function rejectConflict<T>(writing: Promise<T>): Promise<T> {
  try {
    return await writing
  } catch (error) {
    if (!(error instanceof ConflictError)) throw error
    throw new GatewayError(
      'conflict',
      'The guardrail was changed by another request at the same time; try again',
      {
        cause: error,
      },
    )
  }
}

/** A guardrail in the form of audit records. */
export function toObject({ id, name }: Pick<GuardrailRecord, 'id' | 'name'>): AuditObject {
  return { kind: 'guardrail', id, name }
}

function notFound(): GatewayError {
  return new GatewayError('not_found', 'Guardrail not found')
}

function publish({ changes }: ManagementParts, organizationId: string): void {
  changes.publish({ kind: 'guardrails', organizationId })
}

function isoNow({ clock }: ManagementParts): string {
  return isoInstant(clock.nowMs())
}

async function documentOf({ store }: Pick<ManagementParts, 'store'>, record: GuardrailRecord) {
  const { organizationId, id } = record
  const assignedCounts = await store.guardrails.assignedCounts(organizationId, [id])
  return toDocument(record, assignedCounts.get(id) ?? 0)
}

function toDocument(guardrail: GuardrailRecord, assigned: number) {
  const { enforceZdr: zdr } = guardrail
  return GUARDRAIL.toDocument(guardrail, {
    assigned,
    enforce_zdr: commonValue(zdr),
    enforce_zdr_anthropic: zdr.anthropic,
    enforce_zdr_openai: zdr.openai,
    enforce_zdr_google: zdr.google,
    enforce_zdr_xai: zdr.xai,
    enforce_zdr_other: zdr.other,
  })
}

/** The older field without a vendor: the value that all vendors share, or null. */
function commonValue({ anthropic, openai, google, xai, other }: ZdrRules): boolean | null {
  return [openai, google, xai, other].every(value => value === anthropic) ? anthropic : null
}
