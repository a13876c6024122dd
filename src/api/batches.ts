/** /batches: creates, lists, shows, cancels and deletes the batches of the key's workspace. */
import { callerOf } from '../access/keys.ts'
import type { BatchAcceptances } from '../batches/accept.ts'
import { isTerminal, sourcesOf } from '../batches/states.ts'
import { type Clock, isoInstant } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import type { InvalidationBus } from '../invalidation/bus.ts'
import { type BatchStatus, TERMINAL_STATUSES } from '../protocol/management/batches.ts'
import { parseInstant } from '../protocol/management/management.ts'
import type { BatchFilter, BatchRecord } from '../storage/batches.ts'
import { DEFAULT_WORKSPACE_ID, type KeyRecord, type Store } from '../storage/store.ts'
import { batchDocument, newBatchDocument, resultJson } from './batch-documents.ts'
import { type DataRegionOf, wantsMetadata } from './client-call.ts'
import { limitOf, parameter, refuseField } from './management/paging.ts'
import type { ApiRequest, Handler, RawHandler, Reply } from './operation.ts'
import { refuseProof } from './proof.ts'
import { SlowReader } from './slow-reader.ts'

export interface BatchDeps {
  readonly acceptances: Pick<BatchAcceptances, 'accept'>
  readonly store: Pick<Store, 'batches'>
  readonly dataRegionOf: DataRegionOf
  readonly changes: InvalidationBus
  readonly clock: Clock
}

const LIST_DEFAULT = 20
/** Visible ASCII, as the bounds of similar interfaces. */
const IDEMPOTENCY_KEY = /^[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?$/
/** States that a list can be filtered by: a batch is in the others for moments only. */
const FILTER_STATUSES: readonly BatchStatus[] = ['validating', 'in_progress', ...TERMINAL_STATUSES]
const UNIX_SECONDS = /^\d{1,11}$/
/** Of one read from the Store, which holds up the thread. */
const PAGE = { limit: 500, maxBytes: 256 * 1024 } as const

export function createBatch({ acceptances, changes, dataRegionOf }: BatchDeps): RawHandler {
  return async (request, reply) => {
    const { id, body, key, headers, host, watch, held, signal } = request
    refuseProof(headers, 'batches')
    const { batch, isReplayed } = await acceptances.accept({
      id,
      caller: callerOf(key),
      workspaceId: workspaceOf(key),
      idempotencyKey: idempotencyKeyOf(headers),
      withMetadata: wantsMetadata(headers),
      dataRegion: dataRegionOf(host),
      read: reader => body.read(reader),
      announcedBytes: body.contentLength,
      watch,
      held,
      signal,
    })
    if (isReplayed) reply.header('Idempotent-Replayed', 'true')
    else changes.publish({ kind: 'batches' })
    reply.json(202, newBatchDocument(batch))
  }
}

/** @throws GatewayError `invalid_request` */
function idempotencyKeyOf(headers: ReadonlyMap<string, string>): string | null {
  const key = headers.get('idempotency-key')
  if (key === undefined) return null
  if (IDEMPOTENCY_KEY.test(key)) return key
  throw refuseField('Idempotency-Key', 'must have 1 to 255 visible ASCII characters')
}

export function listBatches({ store }: BatchDeps): Handler {
  return async ({ query, key }, reply) => {
    const limit = limitOf(query, LIST_DEFAULT)
    const page = await store.batches.list(filterOf(query, key), limit)
    if (page === null) throw refuseField('after', 'must be the id of a batch of this workspace')
    const data = page.items.map(batchDocument)
    reply.json(200, {
      object: 'list',
      data,
      first_id: data[0]?.id ?? null,
      last_id: data.at(-1)?.id ?? null,
      has_more: page.hasMore,
    })
  }
}

/** @throws GatewayError `invalid_request` */
function filterOf(query: URLSearchParams, key: KeyRecord): BatchFilter {
  const after = parameter(query, 'after')
  const statuses = query.getAll('status').map(statusOf)
  const afterMs = timeParameter(query, 'created_after')
  const beforeMs = timeParameter(query, 'created_before')
  if (afterMs !== null && beforeMs !== null && afterMs >= beforeMs) {
    throw refuseField('created_after', 'must be before created_before')
  }
  return {
    organizationId: key.organizationId,
    workspaceId: workspaceOf(key),
    ...(statuses.length === 0 ? {} : { statuses }),
    ...(after === undefined ? {} : { after }),
    // The second that `created_at` shows counts, not the rest behind it.
    ...(afterMs === null ? {} : { createdAfter: isoInstant(secondOf(afterMs) + 999) }),
    ...(beforeMs === null ? {} : { createdBefore: isoInstant(secondOf(beforeMs + 999)) }),
  }
}

function statusOf(text: string): BatchStatus {
  const status = FILTER_STATUSES.find(each => each === text)
  if (status !== undefined) return status
  throw refuseField('status', `must be one of ${FILTER_STATUSES.join(', ')}`)
}

/** Unix milliseconds; null: it is absent. @throws GatewayError `invalid_request` */
function timeParameter(query: URLSearchParams, name: string): number | null {
  const text = parameter(query, name)
  if (text === undefined) return null
  const ms = UNIX_SECONDS.test(text) ? Number(text) * 1000 : parseInstant(text)
  if (ms !== null && ms >= 0 && ms < LAST_MS) return ms
  throw refuseField(name, 'must be a time in Unix seconds, or in ISO 8601 with seconds and a zone')
}

/** The end of the year 9999. */
const LAST_MS = Date.UTC(9999, 11, 31)

function secondOf(ms: number): number {
  return Math.floor(ms / 1000) * 1000
}

export function findBatch(deps: BatchDeps): Handler {
  return async (request, reply) => {
    const batch = await found(deps, request)
    if (isTerminal(batch.status)) await streamBatch(deps, batch, request, reply)
    else reply.json(200, batchDocument(batch))
  }
}

/** Page by page, no faster than the client reads, so that results of any size fit. */
async function streamBatch(
  { store }: BatchDeps,
  batch: BatchRecord,
  { signal }: ApiRequest,
  reply: Reply,
): Promise<void> {
  const { results: _, ...document } = batchDocument(batch)
  const reader = new SlowReader(reply, signal)
  let flowing = reply.openStream(`${JSON.stringify(document).slice(0, -1)},"results":[`, 'application/json')
  let last = -1
  while (!reply.ended) {
    const page = await store.batches.results(batch.id, last, PAGE)
    signal.throwIfAborted()
    // An answer that has begun must not look complete.
    if (page === null) throw unknown()
    if (page.length === 0) {
      reply.endStream(']}')
      return
    }
    const json = page.map(resultJson).join(',')
    if (!flowing) await reader.drained()
    flowing = reply.writeStream(last === -1 ? json : `,${json}`)
    last = page.at(-1)?.number ?? last
    // Reading may take no turn of the event loop at all, and others wait.
    await new Promise(resolve => setImmediate(resolve))
  }
}

/** Repeating it changes nothing; a batch that has ended, or is about to, cannot be cancelled. */
export function cancelBatch(deps: BatchDeps): Handler {
  return async (request, reply) => {
    const batch = await found(deps, request)
    const { work } = deps.store.batches
    const at = isoInstant(deps.clock.nowMs())
    const cancelled = await work.move(batch.id, sourcesOf('cancelling'), 'cancelling', at)
    if (cancelled !== null) {
      deps.changes.publish({ kind: 'batches' })
      reply.json(200, batchDocument(cancelled))
      return
    }
    const now = await found(deps, request)
    if (now.status !== 'cancelling') {
      throw new GatewayError('conflict', `A batch cannot be cancelled when its status is ${now.status}`)
    }
    reply.json(200, batchDocument(now))
  }
}

export function deleteBatch(deps: BatchDeps): Handler {
  return async (request, reply) => {
    const { id, status, service } = await found(deps, request)
    const { organizationId } = request.key
    const outcome = await deps.store.batches.remove(organizationId, workspaceOf(request.key), id)
    if (outcome === 'unknown') throw unknown()
    if (outcome === 'running') {
      throw new GatewayError(
        'conflict',
        `A batch cannot be deleted when its status is ${status}: cancel it, and wait until it has ended`,
      )
    }
    // The provider keeps its copy of a batch by its own rules.
    const upstream =
      service === null ? {} : { upstream: { provider: service.provider, status: 'unsupported' } }
    reply.json(200, { id, object: 'batch', deleted: true, deletion: { gateway: 'deleted', ...upstream } })
  }
}

/** The batch that the path names. @throws GatewayError `not_found` */
async function found({ store }: BatchDeps, { params, key }: ApiRequest): Promise<BatchRecord> {
  const batch = await store.batches.find(key.organizationId, workspaceOf(key), params.get('id') ?? '')
  if (batch === null) throw unknown()
  return batch
}

function unknown(): GatewayError {
  return new GatewayError('not_found', 'Batch not found')
}

function workspaceOf({ workspaceId }: KeyRecord): string {
  return workspaceId ?? DEFAULT_WORKSPACE_ID
}
