/** /batches: creates, lists, shows, cancels and deletes the batches of the key's workspace. */

import { type Clock, isoInstant } from '../../base/clock.ts'
import { GatewayError, refuseField } from '../../base/errors.ts'
import type { BatchAcceptances, RequestFile } from '../../batches/accept.ts'
import { isTerminal, sourcesOf } from '../../batches/states.ts'
import { callerOf } from '../../callers/keys.ts'
import type { Files } from '../../features/files/files.ts'
import { CLIENT_LIST_DEFAULT } from '../../protocol/limits.ts'
import { type BatchStatus, FILTER_STATUSES } from '../../protocol/management/batches.ts'
import type { KeyRecord } from '../../protocol/management/keys.ts'
import { parseInstant } from '../../protocol/management/management.ts'
import type { BatchFilter, BatchRecord } from '../../storage/batches.ts'
import type { InvalidationBus } from '../../storage/invalidation/bus.ts'
import { DEFAULT_WORKSPACE_ID, type Store } from '../../storage/store.ts'
import { SlowReader } from '../chunk-stream.ts'
import type { FilesApiDeps } from '../files.ts'
import { audited } from '../management/audit.ts'
import { limitOf, listDocument, parameter } from '../management/paging.ts'
import { findNamedWorkspace } from '../management/workspaces.ts'
import type { ApiRequest, Handler, RawBody, RawHandler, Reply } from '../operation.ts'
import { refuseProof } from '../proof.ts'
import { type DataRegionOf, wantsMetadata } from '../request-facts.ts'
import { batchDocument, errorList, faultsOf, newBatchDocument } from './batch-documents.ts'
import { RESULT_PAGE, readResults, resultJson, yieldToLoop } from './batch-outputs.ts'

export interface BatchDeps {
  readonly acceptances: Pick<BatchAcceptances, 'accept'>
  readonly store: Pick<Store, 'batches'>
  readonly dataRegionOf: DataRegionOf
  /** Files of the workspace; one of them may contain the requests of a batch. */
  readonly files: FilesApiDeps['files']
  /** Maximum size of a batch body, and of a file with requests. */
  readonly batchMaxBytes: number
  readonly changes: InvalidationBus
  readonly clock: Clock
}

/** Dependencies of batch management. */
type ManagedBatchDeps = Pick<BatchDeps, 'changes' | 'clock'> & {
  readonly store: Pick<Store, 'batches' | 'workspaces' | 'audited'>
}

/** Purpose of files with requests. */
const BATCH_PURPOSE = 'batch'
/** Limits of the error list of a failed batch. */
const FAULT_PAGE = { limit: 100, maxBytes: 256 * 1024 } as const
/** Visible ASCII, with spaces inside, as in similar interfaces. */
const IDEMPOTENCY_KEY = /^[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?$/
const UNIX_SECONDS_FORM = /^\d{1,11}$/

export function createBatch(deps: BatchDeps): RawHandler {
  return async (request, reply) =>
    reply.json(202, newBatchDocument(await acceptBatch(deps, request, reply, 'requests')))
}

/** Creates the batch of a request. @param form the form of its body @throws GatewayError */
export async function acceptBatch(
  { acceptances, changes, dataRegionOf, files, batchMaxBytes }: BatchDeps,
  request: ApiRequest<RawBody>,
  reply: Reply,
  form: 'requests' | 'params',
): Promise<BatchRecord> {
  const { context, body, key, headers, host } = request
  refuseProof(headers, 'batches')
  const { batch, isReplayed } = await acceptances.accept({
    context,
    caller: callerOf(key),
    workspaceId: workspaceOf(key),
    idempotencyKey: idempotencyKeyOf(headers),
    withMetadata: wantsMetadata(headers),
    dataRegion: dataRegionOf(host),
    read: reader => body.read(reader),
    form,
    openFile: fileId => openInput(files, batchMaxBytes, key, fileId),
    announcedBytes: body.contentLength,
    decode: body.decode,
  })
  if (isReplayed) reply.header('Idempotent-Replayed', 'true')
  else changes.publish({ kind: 'batches' })
  return batch
}

/** @throws GatewayError `not_found`, `invalid_request`, `payload_too_large` */
async function openInput(
  files: Pick<Files, 'find' | 'read'>,
  maxBytes: number,
  key: KeyRecord,
  fileId: string,
): Promise<RequestFile> {
  const { organizationId, hash } = key
  const file = await files.find({ organizationId, workspaceId: workspaceOf(key) }, fileId)
  if (file === null) {
    throw new GatewayError(
      'not_found',
      'input_file_id: there is no such file in this workspace: upload it with POST /v1/files and purpose=batch',
    )
  }
  if (file.purpose !== BATCH_PURPOSE) {
    throw refuseField(
      'input_file_id',
      `must be the id of a file with the purpose ${BATCH_PURPOSE}, but this file has another purpose: upload it again with purpose=${BATCH_PURPOSE}`,
    )
  }
  if (file.bytes > maxBytes) {
    throw new GatewayError(
      'payload_too_large',
      `input_file_id: the file is too large: the limit for batches is ${maxBytes} bytes`,
    )
  }
  return { bytes: file.bytes, chunks: () => files.read(file, hash) }
}

/** @throws GatewayError `invalid_request` */
function idempotencyKeyOf(headers: ReadonlyMap<string, string>): string | null {
  const key = headers.get('idempotency-key')
  if (key === undefined) return null
  if (IDEMPOTENCY_KEY.test(key)) return key
  throw refuseField('Idempotency-Key', 'must be 1 to 255 visible ASCII characters')
}

export function listBatches({ store }: BatchDeps): Handler {
  return async ({ query, key }, reply) => {
    const limit = limitOf(query, CLIENT_LIST_DEFAULT)
    const page = await store.batches.list(filterOf(query, key), limit)
    if (page === null) throw refuseField('after', 'must be the id of a batch in this workspace')
    reply.json(200, { object: 'list', ...listDocument(page.items.map(batchDocument), page.hasMore) })
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
    // The precision is the second that `created_at` shows.
    ...(afterMs === null ? {} : { createdAfter: isoInstant(secondOf(afterMs) + 999) }),
    ...(beforeMs === null ? {} : { createdBefore: isoInstant(secondOf(beforeMs + 999)) }),
  }
}

function statusOf(text: string): BatchStatus {
  const status = FILTER_STATUSES.find(name => name === text)
  if (status !== undefined) return status
  throw refuseField('status', `must be one of ${FILTER_STATUSES.join(', ')}`)
}

/** Unix milliseconds; null if absent. @throws GatewayError `invalid_request` */
function timeParameter(query: URLSearchParams, name: string): number | null {
  const text = parameter(query, name)
  if (text === undefined) return null
  const ms = UNIX_SECONDS_FORM.test(text) ? Number(text) * 1000 : parseInstant(text)
  if (ms !== null && ms >= 0 && ms < MAX_TIME_MS) return ms
  throw refuseField(name, 'must be a time in Unix seconds, or in ISO 8601 with seconds and a zone')
}

/** Exclusive: times of later years have more than four digits. */
const MAX_TIME_MS = Date.UTC(9999, 11, 31)

function secondOf(ms: number): number {
  return Math.floor(ms / 1000) * 1000
}

export function findBatch(deps: BatchDeps): Handler {
  return async (request, reply) => {
    const batch = await requireBatch(deps, request)
    if (batch.inputFile !== null) reply.json(200, await documentByFile(deps, batch))
    else if (isTerminal(batch.status)) await streamBatch(deps, batch, request, reply)
    else reply.json(200, batchDocument(batch))
  }
}

/** The results are in files. Only the first errors of a failed batch are also in the document. */
async function documentByFile({ store }: BatchDeps, batch: BatchRecord) {
  const document = batchDocument(batch)
  if (batch.status !== 'failed') return document
  const faults = faultsOf((await readResults(store, batch.id, -1, FAULT_PAGE)) ?? [])
  return faults.length === 0 ? document : { ...document, errors: errorList(faults) }
}

/** Page by page, no faster than the client reads, so that results of any size can be sent. */
async function streamBatch(
  { store }: BatchDeps,
  batch: BatchRecord,
  { context: { signal } }: ApiRequest,
  reply: Reply,
): Promise<void> {
  const { results: _, ...document } = batchDocument(batch)
  const reader = new SlowReader(reply, signal)
  let isFlowing = reply.openStream(`${JSON.stringify(document).slice(0, -1)},"results":[`, 'application/json')
  let last = -1
  while (!reply.ended) {
    const page = await readResults(store, batch.id, last, RESULT_PAGE)
    signal.throwIfAborted()
    // An answer that has begun must not look complete.
    if (page === null) throw batchNotFound()
    if (page.length === 0) {
      reply.endStream(']}')
      return
    }
    const json = page.map(resultJson).join(',')
    if (!isFlowing) await reader.untilDrained()
    isFlowing = reply.writeStream(last === -1 ? json : `,${json}`)
    last = page.at(-1)?.number ?? last
    await yieldToLoop()
  }
}

/** Repeating it changes nothing. A batch that has ended, or is about to end, cannot be cancelled. */
export function cancelBatch(deps: BatchDeps): Handler {
  return async (request, reply) => reply.json(200, batchDocument(await cancelNamedBatch(deps, request)))
}

/** Returns the changed batch. @throws GatewayError `conflict`, `not_found` */
export async function cancelNamedBatch(deps: BatchDeps, request: ApiRequest): Promise<BatchRecord> {
  const batch = await requireBatch(deps, request)
  const { work } = deps.store.batches
  const cancelledAt = isoInstant(deps.clock.nowMs())
  const cancelled = await work.move(batch.id, sourcesOf('cancelling'), 'cancelling', cancelledAt)
  if (cancelled !== null) {
    deps.changes.publish({ kind: 'batches' })
    return cancelled
  }
  const current = await requireBatch(deps, request)
  if (current.status === 'cancelling') return current
  throw notCancelled(current)
}

/** For management: the path names a batch of the workspace. The key that created it need not exist any more. */
export function cancelBatchOfWorkspace(deps: ManagedBatchDeps): Handler {
  const { store, clock, changes } = deps
  return async (request, reply) => {
    const { organizationId } = request.key
    const { id: workspaceId } = await findNamedWorkspace(store, request)
    const id = request.params.get('id') ?? ''
    const find = async () => await store.batches.find(organizationId, workspaceId, id)
    const before = await find()
    if (before === null) throw batchNotFound()
    const cancelledAt = isoInstant(clock.nowMs())
    const cancelled = await audited(
      deps,
      request,
      'batch.cancel',
      ({ batches }) => batches.work.move(id, sourcesOf('cancelling'), 'cancelling', cancelledAt),
      cancelled => cancelled && { kind: 'batch', id, name: null },
    )
    if (cancelled !== null) changes.publish({ kind: 'batches' })
    const batch = cancelled ?? (await find())
    if (batch === null) throw batchNotFound()
    if (batch.status !== 'cancelling') throw notCancelled(batch)
    reply.json(200, { data: batchDocument(batch) })
  }
}

function notCancelled({ status }: BatchRecord): GatewayError {
  return new GatewayError('conflict', `A batch cannot be cancelled when its status is ${status}`)
}

export function deleteBatch(deps: BatchDeps): Handler {
  return async (request, reply) => {
    const batch = await requireBatch(deps, request)
    await removeBatch(deps, request, batch)
    const { id, service } = batch
    // The provider keeps its copy of a batch under its own rules.
    const upstream =
      service === null ? {} : { upstream: { provider: service.provider, status: 'unsupported' } }
    reply.json(200, { id, object: 'batch', deleted: true, deletion: { gateway: 'deleted', ...upstream } })
  }
}

/** @throws GatewayError `conflict` while the batch runs, `not_found` */
export async function removeBatch(
  { store }: BatchDeps,
  { key }: ApiRequest,
  { id, status }: BatchRecord,
): Promise<void> {
  const outcome = await store.batches.remove(key.organizationId, workspaceOf(key), id)
  if (outcome === 'unknown') throw batchNotFound()
  if (outcome === 'running') {
    throw new GatewayError(
      'conflict',
      `A batch cannot be deleted when its status is ${status}: cancel it, and wait until it has ended`,
    )
  }
}

/** Finds the batch of the path. @throws GatewayError `not_found` */
export async function requireBatch({ store }: BatchDeps, { params, key }: ApiRequest): Promise<BatchRecord> {
  const batch = await store.batches.find(key.organizationId, workspaceOf(key), params.get('id') ?? '')
  if (batch === null) throw batchNotFound()
  return batch
}

function batchNotFound(): GatewayError {
  return new GatewayError('not_found', 'Batch not found')
}

export function workspaceOf({ workspaceId }: KeyRecord): string {
  return workspaceId ?? DEFAULT_WORKSPACE_ID
}
