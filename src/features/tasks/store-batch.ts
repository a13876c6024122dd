/**
 * Writes a new batch to the Store, outside the event loops that serve requests: opens it, reserves space, adds its
 * lines from the body file, and accepts or discards it. Lines are added for a short time, in small transactions, so
 * that other writers and other callers' files get their turn. Task worker.
 */
import { INFERENCE_BODY_MAX_BYTES } from '../../protocol/limits.ts'
import { blankSecrets } from '../../protocol/tool-secrets.ts'
import type {
  AcceptedBatch,
  BatchRecord,
  BatchRoom,
  NewLine,
  Opening,
  OpeningBatch,
  ReservationOutcome,
  ReservingBatch,
} from '../../storage/batches.ts'
import { ConflictError, type Store } from '../../storage/store.ts'
import { StoreError } from '../../storage/store-error.ts'
import { BATCH_START, type FoundRequest } from './batches/batch-progress.ts'
import { BatchReader } from './batches/batch-reader.ts'
import { type FileBytes, fileSource } from './batches/file-source.ts'
import { type ByteSource, type JsonPosition, readFully } from './batches/json-scanner.ts'
import type { RequestFormName } from './batches/request-forms.ts'
import { TaskFailure } from './task.ts'

/** The position of a request in the file. */
export interface RequestPosition {
  readonly position: JsonPosition
  readonly number: number
}

interface VerbInputs {
  readonly open: { readonly batch: OpeningBatch; readonly nowMs: number }
  readonly add: {
    readonly id: string
    readonly file: FileBytes
    readonly form: RequestFormName
    /** The first request that is not added yet. */
    readonly from: RequestPosition
    readonly leaseUntilMs: number
    /** Time limit of this job. */
    readonly budgetMs: number
  }
  readonly reserve: { readonly batch: ReservingBatch; readonly room: BatchRoom }
  readonly renew: { readonly id: string; readonly leaseUntilMs: number }
  readonly accept: { readonly batch: AcceptedBatch }
  readonly abandon: { readonly id: string }
}

export type StoreVerb = {
  [Verb in keyof VerbInputs]: { readonly verb: Verb } & VerbInputs[Verb]
}[keyof VerbInputs]
type StoreBatchInput = StoreVerb & { readonly storageUrl: string }

export type StoreBatchOutput =
  | { readonly outcome: 'opening'; readonly opening: Opening }
  | { readonly outcome: 'room'; readonly reservation: Exclude<ReservationOutcome, 'lost'> }
  /** `next`: the first request that was not added; null: all are stored. */
  | { readonly outcome: 'added'; readonly next: RequestPosition | null }
  | { readonly outcome: 'renewed' }
  | { readonly outcome: 'accepted'; readonly batch: BatchRecord }
  | { readonly outcome: 'abandoned' }
  /** The `custom_id` of this request occurs in an earlier one. */
  | { readonly outcome: 'repeated'; readonly number: number }
  /** The lease has ended, and the batch counts as abandoned. */
  | { readonly outcome: 'lost' }

/** The Store cannot be used now. The message is the code of the cause, which may be empty. */
export const STORE_FAILED = 'store'

/** Maximum bytes of a transaction: a few milliseconds of disk time, for which other writers wait. */
const MAX_GROUP_BYTES = 1024 * 1024
const MAX_GROUP_REQUESTS = 1_000

/**
 * @param open opens a Store for one job. No Store stays open between jobs, because an idle worker does not notice a
 * lost connection.
 */
export function createBatchStoring(
  open: (url: string) => Promise<Pick<Store, 'batches' | 'close'>>,
): (input: StoreBatchInput) => Promise<StoreBatchOutput> {
  return async input => {
    try {
      const store = await open(input.storageUrl)
      try {
        return await runVerb(store.batches, input)
      } finally {
        await store.close()
      }
    } catch (thrown) {
      throw thrown instanceof StoreError ? new TaskFailure(STORE_FAILED, thrown.code ?? '') : thrown
    }
  }
}

async function runVerb(batches: Store['batches'], input: StoreBatchInput): Promise<StoreBatchOutput> {
  switch (input.verb) {
    case 'open':
      return { outcome: 'opening', opening: await batches.open(input.batch, input.nowMs) }
    case 'reserve': {
      const reservation = await batches.reserve(input.batch, input.room)
      return reservation === 'lost' ? { outcome: 'lost' } : { outcome: 'room', reservation }
    }
    case 'add':
      return await addLines(batches, input)
    case 'renew':
      return { outcome: (await batches.keepOpen(input.id, input.leaseUntilMs)) ? 'renewed' : 'lost' }
    case 'accept':
      return await accept(batches, input.batch)
    case 'abandon':
      await batches.abandon(input.id)
      return { outcome: 'abandoned' }
  }
}

async function accept(batches: Store['batches'], accepting: AcceptedBatch): Promise<StoreBatchOutput> {
  try {
    const batch = await batches.accept(accepting)
    return batch === null ? { outcome: 'lost' } : { outcome: 'accepted', batch }
  } catch (thrown) {
    // The batch may be accepted although the reply was lost.
    const batch = await batches.find(accepting.organizationId, accepting.workspaceId, accepting.id)
    if (batch === null) throw thrown
    return { outcome: 'accepted', batch }
  }
}

async function addLines(
  batches: Store['batches'],
  { id, file, form, from, leaseUntilMs, budgetMs }: VerbInputs['add'],
): Promise<StoreBatchOutput> {
  if (!(await batches.keepOpen(id, leaseUntilMs))) return { outcome: 'lost' }
  const stopAtMs = performance.now() + budgetMs
  const source = fileSource(file)
  let group: FoundRequest[] = []
  let bytes = 0
  const { position, number } = from
  const start = { ...BATCH_START, form, position, before: 'requests', requests: number } as const
  const reader = new BatchReader(source, start, {
    onRequest(request) {
      group.push(request)
      bytes += request.to - request.from
    },
    isEnough: () => bytes >= MAX_GROUP_BYTES || group.length >= MAX_GROUP_REQUESTS,
  })
  for (;;) {
    const progress = reader.read()
    const failure = await addGroup(batches, id, linesOf(source, group))
    if (failure !== null) return failure
    if (progress.before === 'end') return { outcome: 'added', next: null }
    if (performance.now() >= stopAtMs)
      return { outcome: 'added', next: { position: progress.position, number: progress.requests } }
    group = []
    bytes = 0
  }
}

/** Returns the outcome of a group that cannot be added; null if all lines are added. */
async function addGroup(
  batches: Store['batches'],
  id: string,
  lines: readonly NewLine[],
): Promise<StoreBatchOutput | null> {
  let remaining = lines
  let size = lines.length
  while (remaining.length > 0) {
    try {
      await batches.addLines(id, remaining.slice(0, size))
      remaining = remaining.slice(size)
    } catch (thrown) {
      if (!(thrown instanceof ConflictError)) throw thrown
      if (thrown.field === 'id') return { outcome: 'lost' }
      const [first] = remaining
      if (size === 1 && first !== undefined) return { outcome: 'repeated', number: first.number }
      // Smaller groups add all lines before the repeated one, which can then be named.
      size = Math.ceil(size / 2)
    }
  }
  return null
}

/**
 * The lines of consecutive requests. A body that is too large is left empty, because its check refuses it; a group ends
 * with it. Credentials of MCP servers are not stored, because their check refuses them too.
 */
function linesOf(source: ByteSource, group: readonly FoundRequest[]): readonly NewLine[] {
  const storable = group.filter(({ from, to }) => to - from <= INFERENCE_BODY_MAX_BYTES)
  const start = storable[0]?.from ?? 0
  const bytes = Buffer.allocUnsafe((storable.at(-1)?.to ?? 0) - start)
  readFully(source, bytes, start)
  return group.map(({ number, customId, from, to }) => ({
    number,
    customId,
    body:
      to - from > INFERENCE_BODY_MAX_BYTES
        ? ''
        : blankSecrets(bytes.toString('utf8', from - start, to - start)),
  }))
}
