/**
 * Accepts a batch: saves the upload to a file, checks its structure, admits it, stores its lines, and only then creates
 * the batch. If any of this fails, nothing visible is left behind. Serve threads; the work is done by task workers.
 */
import { type Clock, isoInstant } from '../base/clock.ts'
import { GatewayError, RETRY_AFTER_SECONDS, serviceUnavailable, storeUnavailable } from '../base/errors.ts'
import { holderOf } from '../base/fairness/held-share.ts'
import { batchId } from '../base/ids.ts'
import { abortSignalOf } from '../base/signal.ts'
import type { Candidate, ClientRequest } from '../exchange/exchange.ts'
import { BATCH_START, type BatchProgress, fileStart } from '../features/tasks/batches/batch-progress.ts'
import { requestPath } from '../features/tasks/batches/request-forms.ts'
import type { CheckedBatch } from '../features/tasks/check-batch.ts'
import type { GatewayTasks, RunOptions } from '../features/tasks/pool/pool.ts'
import { STORE_FAILED, type StoreBatchOutput, type StoreVerb } from '../features/tasks/store-batch.ts'
import type { TASKS } from '../features/tasks/table.ts'
import { type InputOf, type OutputOf, TaskError } from '../features/tasks/task.ts'
import { BATCH_WINDOW_HOURS } from '../protocol/limits.ts'
import type { BatchCreation } from '../protocol/management/batch-creation.ts'
import type { BatchEndpoint, BatchPreferences } from '../protocol/management/batches.ts'
import type { DialectName, ResponsesRequest } from '../protocol/request.ts'
import type { AcceptedBatch, BatchRecord, BatchRoom, OpeningBatch } from '../storage/batches.ts'
import { StoreError } from '../storage/store-error.ts'
import { AcceptanceSlots, idempotencyConflict } from './acceptance-slots.ts'
import type { ProbeService } from './services/service-probe.ts'
import type { BatchSettings } from './settings.ts'
import type { DecodeBody, ReadBody, Upload, Uploads } from './uploads.ts'

/** A request to create a batch, before its body is read. */
export interface IncomingBatch
  extends Pick<ClientRequest, 'context' | 'caller' | 'withMetadata' | 'dataRegion'> {
  readonly workspaceId: string
  /** Null: the caller sent no key. */
  readonly idempotencyKey: string | null
  readonly read: ReadBody
  /** The form of the requests in the body; absent: the form of POST /batches. */
  readonly form?: 'requests' | 'params'
  /** Opens a file of the workspace that contains the requests. @throws GatewayError if it cannot be used */
  readonly openFile: (id: string) => Promise<RequestFile>
  /** Length of the body as it is sent; null: unknown. */
  readonly announcedBytes: number | null
  /** Absent or null: the body is not compressed. */
  readonly decode?: DecodeBody | null
}

/** A file that contains the requests of a batch. */
export interface RequestFile {
  readonly bytes: number
  chunks(): AsyncIterable<Uint8Array>
}

type Table = typeof TASKS
type AcceptanceTask = 'hash-file' | 'check-batch' | 'store-batch'

interface CreatedBatch {
  readonly batch: BatchRecord
  /** True if an earlier request with this idempotency key created it. */
  readonly isReplayed: boolean
}

export interface AcceptDeps {
  readonly uploads: Uploads
  readonly tasks: Pick<GatewayTasks, 'run'>
  /** Rejects with the error that a live request for this model would get. */
  readonly admit: (request: ClientRequest) => Promise<Candidate | null>
  readonly probe: ProbeService
  readonly storageUrl: string
  readonly bounds: BatchBounds
  readonly clock: Clock
}

/** Bounds of one batch, and of all stored batches of a workspace. */
export type BatchBounds = Pick<BatchSettings, 'maxStored' | 'maxStoredRequests' | 'maxStoredBytes'>

const WINDOW_MS = BATCH_WINDOW_HOURS * 3_600_000
/** Jobs are short, so that the files of all keys get their turn. A single giant request takes longer. */
const JOB_BUDGET_MS = 300
/** Limit for one job: a database may be busy for ten seconds. */
const JOB_TIMEOUT_MS = 25_000
/** How long a job may wait for a worker. */
const JOB_WAIT_MS = 25_000
/** How long a batch that is being accepted does not count as abandoned. Each job that adds lines extends this lease. */
const LEASE_MS = 2 * (JOB_WAIT_MS + JOB_TIMEOUT_MS)
/** While the body is checked, the lease is extended once this much of it has passed. */
const LEASE_RENEWAL_MS = LEASE_MS / 4
const DIALECTS: Readonly<Record<BatchEndpoint, DialectName>> = {
  '/v1/responses': 'responses',
  '/v1/chat/completions': 'chat-completions',
  '/v1/messages': 'messages',
  '/v1/embeddings': 'embeddings',
}

export class BatchAcceptances {
  readonly #deps: AcceptDeps
  readonly #slots = new AcceptanceSlots()

  constructor(deps: AcceptDeps) {
    this.#deps = deps
  }

  /**
   * Reads the body and creates a batch from it, or finds the batch that was created from it before.
   * @throws GatewayError of the statuses 400, 402, 403, 404, 409, 413, 422, 429 and 503; the reason of the abort
   */
  async accept(incoming: IncomingBatch): Promise<CreatedBatch> {
    const leave = this.#slots.enter(incoming.caller.keyHash, incoming.idempotencyKey)
    try {
      const { caller, announcedBytes, decode = null, read } = incoming
      const owner = { key: holderOf(caller), announcedBytes, decode }
      const upload = await this.#deps.uploads.receive(owner, read)
      try {
        return await new Acceptance(this.#deps, incoming, upload).run()
      } finally {
        await upload.close()
      }
    } finally {
      leave()
    }
  }
}

/** The acceptance of one batch, from its complete body to its record. */
class Acceptance {
  readonly #deps: AcceptDeps
  readonly #incoming: IncomingBatch
  /** The uploaded body. */
  readonly #upload: Upload
  /** The file with the requests, if the body names one. */
  #lines: Upload | null = null
  readonly #id = batchId()
  /** Hash of the body; empty without an idempotency key. */
  #bodyHash = ''
  /** True if the batch may exist in the Store. */
  #isOpen = false
  #leaseUntilMs = 0

  constructor(deps: AcceptDeps, incoming: IncomingBatch, upload: Upload) {
    this.#deps = deps
    this.#incoming = incoming
    this.#upload = upload
  }

  async run(): Promise<CreatedBatch> {
    try {
      if (this.#incoming.idempotencyKey !== null) {
        this.#bodyHash = await this.#run('hash-file', this.#upload.file)
        const earlierBatch = await this.#open()
        if (earlierBatch !== null) return { batch: earlierBatch, isReplayed: true }
      }
      const checked = await this.#check()
      await this.#admit(checked)
      if (this.#isOpen) await this.#renewLease()
      else await this.#open()
      await this.#reserve(checked)
      await this.#addLines(checked)
      return { batch: await this.#accept(checked), isReplayed: false }
    } catch (thrown) {
      if (this.#isOpen) await this.#abandon()
      throw thrown
    } finally {
      await this.#lines?.close()
    }
  }

  /** Opens the batch and returns null, or returns the one that has the idempotency key. @throws GatewayError */
  async #open(): Promise<BatchRecord | null> {
    const { caller, idempotencyKey } = this.#incoming
    const nowMs = this.#deps.clock.nowMs()
    this.#leaseUntilMs = nowMs + LEASE_MS
    const batch: OpeningBatch = {
      id: this.#id,
      organizationId: caller.organizationId,
      keyHash: caller.keyHash,
      idempotencyKey,
      leaseUntilMs: this.#leaseUntilMs,
    }
    // Set before the call, because the batch may exist even if no answer comes.
    this.#isOpen = true
    const { opening } = expectOutcome('opening', await this.#store({ verb: 'open', batch, nowMs }))
    if (opening.outcome === 'opened') return null
    this.#isOpen = false
    if (opening.outcome === 'taken') throw idempotencyConflict()
    if (opening.bodyHash === this.#bodyHash) return opening.batch
    throw new GatewayError(
      'unprocessable',
      'Idempotency-Key: already used with another body: send the same body, or use another key',
    )
  }

  /** Extends the lease of the batch if enough of it has passed. @throws GatewayError */
  async #renewLease(): Promise<void> {
    const nowMs = this.#deps.clock.nowMs()
    if (this.#leaseUntilMs - nowMs > LEASE_MS - LEASE_RENEWAL_MS) return
    this.#leaseUntilMs = nowMs + LEASE_MS
    const renewal = { verb: 'renew', id: this.#id, leaseUntilMs: this.#leaseUntilMs } as const
    expectOutcome('renewed', await this.#store(renewal))
  }

  /** @throws GatewayError `invalid_request`, `unprocessable`, or the error of an unreadable file */
  async #check(): Promise<CheckedBatch> {
    const { form = 'requests' } = this.#incoming
    let progress: BatchProgress = { ...BATCH_START, form }
    for (;;) {
      if (this.#isOpen) await this.#renewLease()
      const { file } = this.#requests
      const checked = await this.#run('check-batch', { file, progress, budgetMs: JOB_BUDGET_MS })
      if (checked.outcome === 'fault') throw new GatewayError(checked.code, checked.message)
      if (checked.outcome === 'whole') return checked
      if (checked.outcome === 'by-file') {
        this.#lines = await this.#readFile(checked.fileId)
        progress = fileStart(checked.fields)
      } else progress = checked.progress
    }
  }

  /** The file with the requests. */
  get #requests(): Upload {
    return this.#lines ?? this.#upload
  }

  /** Copies the file to the folder of uploads, within the share of its key. @throws GatewayError */
  async #readFile(id: string): Promise<Upload> {
    const { caller, context, openFile } = this.#incoming
    const input = await openFile(id)
    const owner = { key: holderOf(caller), announcedBytes: input.bytes }
    return await this.#deps.uploads.receive(owner, async reader => {
      let position = 0
      for await (const chunk of input.chunks()) {
        context.signal.throwIfAborted()
        await reader.write(chunk, position)
        position += chunk.byteLength
      }
    })
  }

  /** @throws GatewayError if a live request could not be served, or if the batch service does not answer */
  async #admit({ fields, model }: CheckedBatch): Promise<void> {
    const { endpoint, provider } = fields
    const { context, caller, workspaceId, dataRegion } = this.#incoming
    const request: ResponsesRequest = { model, input: '', ...(provider == null ? {} : { provider }) }
    let first: Candidate | null = null
    try {
      first = await this.#deps.admit({
        context,
        caller,
        dialect: DIALECTS[endpoint],
        request,
        withMetadata: false,
        dataRegion,
      })
    } catch (error) {
      // The requests can wait for a busy limit, but not for spent money.
      if (!(error instanceof GatewayError) || error.code !== 'rate_limit_exceeded') throw error
    }
    const owner = { organizationId: caller.organizationId, workspaceId }
    const batch = { ...owner, model, preferences: preferencesOf(fields) }
    await this.#deps.probe(batch, first, abortSignalOf(context.signal))
  }

  /** Reserves room for the batch in its workspace, before the first line is stored. @throws GatewayError `conflict` */
  async #reserve({ requests }: CheckedBatch): Promise<void> {
    const { caller, workspaceId } = this.#incoming
    const { maxStored, maxStoredRequests, maxStoredBytes } = this.#deps.bounds
    const { organizationId } = caller
    const { bytes } = this.#requests.file
    const room = { batches: maxStored, requests: maxStoredRequests, bytes: maxStoredBytes }
    const batch = { id: this.#id, organizationId, workspaceId, requests, bytes }
    const { reservation } = expectOutcome('room', await this.#store({ verb: 'reserve', batch, room }))
    if (reservation !== 'reserved') throw noRoom(reservation, room)
  }

  /** @throws GatewayError `invalid_request`, `store_unavailable`, `service_unavailable` */
  async #addLines({ firstRequest }: CheckedBatch): Promise<void> {
    const { file } = this.#requests
    const form = this.#lines === null ? (this.#incoming.form ?? 'requests') : 'lines'
    let from = { position: firstRequest, number: 0 }
    for (;;) {
      const leaseUntilMs = this.#deps.clock.nowMs() + LEASE_MS
      const added = await this.#store({
        verb: 'add',
        id: this.#id,
        file,
        form,
        from,
        leaseUntilMs,
        budgetMs: JOB_BUDGET_MS,
      })
      if (added.outcome === 'repeated') {
        throw new GatewayError(
          'invalid_request',
          `${requestPath(form, added.number, 'custom_id')}: must be unique, but an earlier request in the batch uses the same one`,
        )
      }
      const { next } = expectOutcome('added', added)
      if (next === null) return
      from = next
    }
  }

  async #accept({ fields, model, requests }: CheckedBatch): Promise<BatchRecord> {
    const { caller, workspaceId, dataRegion, withMetadata } = this.#incoming
    const nowMs = this.#deps.clock.nowMs()
    const batch: AcceptedBatch = {
      id: this.#id,
      organizationId: caller.organizationId,
      workspaceId,
      keyHash: caller.keyHash,
      endpoint: fields.endpoint,
      model,
      preferences: preferencesOf(fields),
      dataRegion,
      withMetadata,
      inputFile:
        fields.input_file_id == null ? null : { id: fields.input_file_id, metadata: fields.metadata ?? null },
      total: requests,
      createdAt: isoInstant(nowMs),
      expiresAt: isoInstant(nowMs + WINDOW_MS),
      bodyHash: this.#bodyHash,
    }
    const accepted = expectOutcome('accepted', await this.#store({ verb: 'accept', batch }))
    this.#isOpen = false
    return accepted.batch
  }

  /** If this fails, the batch is removed when its lease expires. */
  async #abandon(): Promise<void> {
    const job = { verb: 'abandon', id: this.#id, storageUrl: this.#deps.storageUrl } as const
    await this.#deps.tasks.run('store-batch', job, this.#terms()).catch(() => undefined)
  }

  #store(verb: StoreVerb): Promise<StoreBatchOutput> {
    return this.#run('store-batch', { ...verb, storageUrl: this.#deps.storageUrl })
  }

  /** Runs a job, unless the caller has left. @throws GatewayError */
  async #run<Name extends AcceptanceTask>(
    name: Name,
    input: InputOf<Table[Name]>,
  ): Promise<OutputOf<Table[Name]>> {
    this.#incoming.context.signal.throwIfAborted()
    try {
      return await this.#deps.tasks.run(name, input, this.#terms())
    } catch (thrown) {
      throw failureOfTask(thrown)
    }
  }

  /** Without the signal, which would end the worker. Jobs are short. */
  #terms(): RunOptions {
    return { deadlineMs: JOB_TIMEOUT_MS, waitMs: JOB_WAIT_MS, key: this.#incoming.caller.keyHash, long: true }
  }
}

/** @param lacking the limit of the workspace that is reached */
function noRoom(lacking: keyof BatchRoom | 'removing', room: BatchRoom): GatewayError {
  if (lacking === 'removing') {
    return new GatewayError(
      'conflict',
      'Too many batches of this workspace were deleted recently: retry when they have been removed from disk',
      { retryAfterSeconds: RETRY_AFTER_SECONDS.removal },
    )
  }
  const limit = {
    batches: `${room.batches} batches`,
    requests: `${room.requests} batch requests`,
    bytes: `${room.bytes} bytes of batch requests and results`,
  }[lacking]
  return new GatewayError(
    'conflict',
    `This batch would exceed the limit of ${limit} per workspace: delete batches that are no longer needed`,
  )
}

function preferencesOf({ provider }: BatchCreation): BatchPreferences | null {
  if (provider == null) return null
  return { only: provider.only ?? null, allowFallbacks: provider.allow_fallbacks ?? true }
}

/** A job that found no worker or no Store may succeed later; other failures are faults of the gateway. */
function failureOfTask(thrown: unknown): unknown {
  if (!(thrown instanceof TaskError)) return thrown
  const { outcome, failure } = thrown
  if (outcome !== 'failed') return serviceUnavailable(thrown)
  if (failure?.code !== STORE_FAILED) return thrown
  const code = failure.message === '' ? null : failure.message
  return storeUnavailable(new StoreError('storage: a batch could not be stored', code))
}

/** @throws GatewayError `service_unavailable` for another outcome, because the batch counted as abandoned */
function expectOutcome<Outcome extends StoreBatchOutput['outcome']>(
  outcome: Outcome,
  output: StoreBatchOutput,
): Extract<StoreBatchOutput, { outcome: Outcome }> {
  if (output.outcome === outcome) return output as Extract<StoreBatchOutput, { outcome: Outcome }>
  throw serviceUnavailable()
}
