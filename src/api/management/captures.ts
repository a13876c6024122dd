/**
 * GET, POST /captures and GET, DELETE /captures/{id}: begins, lists and deletes captures. Their content is in sealed
 * files, which `sluice captures show` reads; no operation returns it.
 */

import { type Clock, isoInstant } from '../../base/clock.ts'
import { GatewayError, refuseField } from '../../base/errors.ts'
import { captureId, isCaptureId } from '../../base/ids.ts'
import { MAX_REQUEST_MS, removeFiles } from '../../features/captures/folder.ts'
import {
  CAPTURE,
  type CaptureCreation,
  type CaptureRecord,
  checkCaptureCreation,
} from '../../protocol/management/captures.ts'
import type { KeyRecord } from '../../protocol/management/keys.ts'
import type { CapturePart, NewCapture } from '../../storage/captures.ts'
import type { ApiRequest, Handler } from '../operation.ts'
import { audited } from './audit.ts'
import { pageOf } from './paging.ts'
import type { CaptureSettings, ManagementParts } from './parts.ts'

export const CAPTURE_BODY_MAX_BYTES = 4 * 1024
const MINUTE_MS = 60_000
/** From its creation to the deletion of its files. */
const RETENTION_MS = 24 * 60 * MINUTE_MS
/** Limits of one organization. Each capture may have `capture.maxBytes`. */
const CAPTURE_LIMITS = { running: 3, kept: 10 } as const

export function createCapture(deps: ManagementParts): Handler {
  const { store, clock, changes, captures } = deps
  return async (request, reply) => {
    const body = checkCaptureCreation(request.body)
    if (captures.running === null) {
      throw new GatewayError(
        'permission_denied',
        "Captures are turned off: the gateway's operator can turn them on with the setting capture.enabled",
      )
    }
    const record = await newCapture(deps, request.key, body)
    const now = isoInstant(clock.nowMs())
    const exceededLimit = await audited(
      deps,
      request,
      'capture.create',
      verbs => verbs.captures.add(record, CAPTURE_LIMITS, now),
      limit => (limit === null ? toObject(record) : null),
    )
    if (exceededLimit !== null) throw limitReached(exceededLimit)
    changes.publish({ kind: 'captures' })
    const storedRecord = await store.captures.find(record.organizationId, record.id)
    reply.json(201, { data: toDocument(requireFound(storedRecord), [], clock.nowMs()) })
  }
}

export function listCaptures({ store, clock }: ManagementParts): Handler {
  return async ({ key, query }, reply) => {
    const { items, total } = await store.captures.page(key.organizationId, pageOf(query))
    const nowMs = clock.nowMs()
    const current = items.filter(record => !isExpired(record, nowMs))
    const data: object[] = []
    for (const record of current) data.push(toDocument(record, await store.captures.parts(record.id), nowMs))
    reply.json(200, { data, total_count: total - (items.length - current.length) })
  }
}

export function findCapture({ store, clock }: ManagementParts): Handler {
  return async (request, reply) => {
    const record = await findNamed(store, clock, request)
    reply.json(200, { data: toDocument(record, await store.captures.parts(record.id), clock.nowMs()) })
  }
}

/** The files are removed at once on the node that answers, and within a second on others. */
export function deleteCapture(deps: ManagementParts): Handler {
  const { store, clock, changes, captures } = deps
  return async (request, reply) => {
    const record = await findNamed(store, clock, request)
    const removed = await audited(
      deps,
      request,
      'capture.delete',
      verbs => verbs.captures.remove(record.organizationId, record.id),
      isRemoved => (isRemoved ? toObject(record) : null),
    )
    if (!removed) throw notFound()
    removeFiles(captures.folder, record.id)
    changes.publish({ kind: 'captures' })
    reply.json(200, { deleted: true })
  }
}

/** The capture that records the requests of a key now, which GET /key shows; null: none. */
export function captureOf({ running }: CaptureSettings, key: KeyRecord) {
  const [first] = running?.capturesFor(key.organizationId, key.workspaceId, key.hash) ?? []
  return first === undefined ? null : { id: first.id, ends_at: isoInstant(first.endsAtMs) }
}

/** @throws GatewayError `invalid_request` */
async function newCapture(
  { store, clock, captures }: ManagementParts,
  { organizationId, label }: KeyRecord,
  body: CaptureCreation,
): Promise<NewCapture> {
  const keyHash = body.key_hash ?? null
  const workspaceId = body.workspace_id ?? null
  if ((keyHash === null) === (workspaceId === null)) {
    throw refuseField('key_hash', 'give either key_hash or workspace_id, but not both')
  }
  if (body.max_bytes != null && body.max_bytes > captures.maxBytes) {
    throw refuseField('max_bytes', `must be at most ${captures.maxBytes} (setting capture.maxBytes)`)
  }
  if (keyHash !== null) {
    const key = await store.keys.findIn(organizationId, keyHash)
    if (key === null) throw refuseField('key_hash', 'is not a key of this organization')
    if (key.kind !== 'inference')
      throw refuseField('key_hash', 'is a management key, which cannot call models; name an API key')
  } else if (workspaceId !== null) {
    const isKnown = (await store.workspaces.find(organizationId, workspaceId)) !== null
    if (!isKnown) throw refuseField('workspace_id', 'is not a workspace of this organization')
  }
  const nowMs = clock.nowMs()
  return {
    id: captureId(),
    organizationId,
    keyHash,
    workspaceId,
    createdBy: label,
    maxBytes: body.max_bytes ?? captures.maxBytes,
    createdAt: isoInstant(nowMs),
    endsAt: isoInstant(nowMs + body.minutes * MINUTE_MS),
    expiresAt: isoInstant(nowMs + RETENTION_MS),
  }
}

function limitReached(limit: keyof typeof CAPTURE_LIMITS): GatewayError {
  const advice =
    limit === 'running'
      ? 'are already running: wait for one to end'
      : 'are already stored: wait for one to expire'
  return new GatewayError(
    'conflict',
    `${CAPTURE_LIMITS[limit]} captures of this organization ${advice}, or delete one with DELETE /captures/{id}`,
  )
}

async function findNamed(store: ManagementParts['store'], clock: Clock, { key, params }: ApiRequest) {
  const id = params.get('id') ?? ''
  if (!isCaptureId(id)) throw notFound()
  const record = requireFound(await store.captures.find(key.organizationId, id))
  if (isExpired(record, clock.nowMs())) throw notFound()
  return record
}

/** The row may exist for another minute. */
function isExpired({ expiresAt }: CaptureRecord, nowMs: number): boolean {
  return Date.parse(expiresAt) <= nowMs
}

function requireFound(record: CaptureRecord | null): CaptureRecord {
  if (record === null) throw notFound()
  return record
}

function notFound(): GatewayError {
  return new GatewayError('not_found', 'Capture not found')
}

function toObject({ id, keyHash, workspaceId }: NewCapture) {
  return { kind: 'capture', id, name: keyHash ?? workspaceId } as const
}

/** Requests that started in time may still be added after `ends_at`. */
function statusOf({ endsAt, endedAt }: CaptureRecord, nowMs: number): 'running' | 'ending' | 'ended' {
  const endMs = Date.parse(endsAt)
  if (endedAt !== null || nowMs >= endMs + MAX_REQUEST_MS) return 'ended'
  return nowMs < endMs ? 'running' : 'ending'
}

function toDocument(record: CaptureRecord, parts: readonly CapturePart[], nowMs: number) {
  return CAPTURE.toDocument(record, {
    status: statusOf(record, nowMs),
    parts: parts.map(({ node, host, bytes, requests, leftOut }) => ({
      node,
      host,
      bytes,
      requests,
      left_out: leftOut,
    })),
  })
}
