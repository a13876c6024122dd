/**
 * Results of a batch as JSON Lines files, in the form that OpenAI's batch clients read. They are generated on each
 * read, so nothing is stored twice.
 */

import { GatewayError } from '../../base/errors.ts'
import { SharedCache } from '../../base/fairness/shared-cache.ts'
import type { RequestSignal } from '../../base/signal.ts'
import { resultId } from '../../batches/ids.ts'
import { wholeResult } from '../../batches/result-line.ts'
import { isTerminal } from '../../batches/states.ts'
import type { BatchRecord, PageEnd, StoredResult } from '../../storage/batches.ts'
import type { Store } from '../../storage/store.ts'

type OutputKind = 'output' | 'errors'

/** A result as clients of batches read it. */
export interface ResultDocument {
  readonly response: { readonly body: unknown } | null
  readonly error: {
    readonly message: string
    readonly type: string
    readonly param: string | null
    readonly error_type: string
  } | null
}

/** A file of results that can be read. */
export interface BatchOutput {
  readonly batch: BatchRecord
  readonly id: string
  readonly filename: string
  /**
   * From the beginning, whole lines at a time, until the request ends. Throws `not_found` if the batch is deleted
   * meanwhile.
   */
  chunks(signal: RequestSignal): AsyncIterable<Uint8Array>
}

/** Of one read from the Store, which holds up the thread. */
const PAGE = { limit: 500, maxBytes: 256 * 1024 } as const
const ID = /^gw_batch_(output|errors)_([0-9A-Za-z]{24})$/
const BATCH = 'batch_'

/** The id of the file of one kind of results; null: there is no such result, or the batch has not ended. */
export function outputFileId(batch: BatchRecord, kind: OutputKind): string | null {
  const { id, status, inputFile, total, completed } = batch
  if (inputFile === null || !isTerminal(status)) return null
  const count = kind === 'output' ? completed : total - completed
  return count === 0 ? null : `gw_batch_${kind}_${id.slice(BATCH.length)}`
}

/** The batch and the kind of results that an id of a file names; null: it is that of another file. */
export function outputNameOf(fileId: string): { readonly batchId: string; readonly kind: OutputKind } | null {
  const [, kind, rest] = ID.exec(fileId) ?? []
  return kind === undefined ? null : { batchId: BATCH + rest, kind: kind as OutputKind }
}

/** Null: the batch has no such file. */
export function openOutput(
  store: Pick<Store, 'batches'>,
  batch: BatchRecord,
  kind: OutputKind,
): BatchOutput | null {
  const id = outputFileId(batch, kind)
  if (id === null) return null
  const chunks = (signal: RequestSignal): AsyncIterable<Uint8Array> =>
    resultChunks(store, batch, kind === 'output' ? ANSWERED : FAILED, signal)
  return { batch, id, filename: `${batch.id}_${kind}.jsonl`, chunks }
}

const SIZES_MAX = 1_000
const ENDLESS: RequestSignal = {
  aborted: false,
  reason: undefined,
  throwIfAborted: () => undefined,
  addEventListener: () => undefined,
  removeEventListener: () => undefined,
}

/**
 * Sizes of files of results. To learn one all results are read, so each is counted once, however many ask for it:
 * results of a batch that has ended do not change. One for each thread.
 */
export class OutputSizes {
  readonly #sizes = new SharedCache<Promise<number>>(SIZES_MAX)

  /** Rejects as `chunks` does; the next one who asks counts anew. */
  of(output: BatchOutput): Promise<number> {
    const { id, batch } = output
    const known = this.#sizes.get(id)
    if (known !== undefined) return known
    const counting = count(output)
    this.#sizes.set(batch.organizationId, id, counting)
    counting.catch(() => this.#sizes.delete(id))
    return counting
  }
}

async function count({ chunks }: BatchOutput): Promise<number> {
  let bytes = 0
  // Others may wait for it when the first one has left.
  for await (const chunk of chunks(ENDLESS)) bytes += chunk.byteLength
  return bytes
}

/** The file as OpenAI's clients read it. */
export async function outputDocument(output: BatchOutput, sizes: OutputSizes) {
  const { batch, id, filename } = output
  return {
    id,
    object: 'file',
    bytes: await sizes.of(output),
    created_at: Math.floor(Date.parse(batch.finalizedAt ?? batch.createdAt) / 1000),
    expires_at: null,
    filename,
    purpose: 'batch_output',
    status: 'processed',
    status_details: null,
  }
}

/** A page of results behind the line `after`, as clients read them; null: the batch is deleted. */
export async function readResults(
  { batches }: Pick<Store, 'batches'>,
  batchId: string,
  after: number,
  end: PageEnd,
): Promise<readonly StoredResult[] | null> {
  const page = await batches.results(batchId, after, end)
  return page?.map(stored => ({ ...stored, result: wholeResult(batchId, stored) })) ?? null
}

/** How results become lines. */
export interface ResultTexts {
  /** The line of a result without its line end; null: it is not in the file. */
  ofResult(result: StoredResult): string | null
  /** The line of a request that has no result, because its batch ended before; null: it is not in the file. */
  ofUnanswered(customId: string, number: number, batch: BatchRecord): string | null
}

const ANSWERED: ResultTexts = {
  ofResult: ({ customId, outcome, result }) =>
    outcome === 'completed' ? `{"custom_id":${JSON.stringify(customId)},${result.slice(1)}` : null,
  ofUnanswered: () => null,
}

const FAILED: ResultTexts = {
  ofResult({ customId, outcome, result }) {
    if (outcome === 'completed') return null
    const { error, ...line } = JSON.parse(result) as ResultDocument
    const shown = error === null ? null : { code: error.error_type, message: error.message }
    return JSON.stringify({ custom_id: customId, ...line, error: shown })
  },
  ofUnanswered(customId, number, { id, status }) {
    const error = {
      code: `batch_${status}`,
      message: `The batch was ${status} before the request was answered`,
    }
    return JSON.stringify({ id: resultId(id, number), custom_id: customId, response: null, error })
  },
}

/**
 * The lines of a batch that has ended: results in the order of the requests, then requests without one. Throws
 * `not_found` if the batch is deleted meanwhile, and the reason of the abort once nobody waits for them.
 */
export async function* resultChunks(
  store: Pick<Store, 'batches'>,
  batch: BatchRecord,
  texts: ResultTexts,
  signal: RequestSignal,
): AsyncGenerator<Uint8Array> {
  for (let last = -1; ; ) {
    const page = await readResults(store, batch.id, last, PAGE)
    // A file that was begun must not look complete.
    if (page === null) throw new GatewayError('not_found', 'Batch not found')
    const end = page.at(-1)
    if (end === undefined) break
    const text = joined(page.map(result => texts.ofResult(result)))
    if (text !== '') yield Buffer.from(text)
    last = end.number
    await breath()
    // Pages without a line in the file are read too, and nobody else would notice.
    signal.throwIfAborted()
  }
  if (batch.total === batch.completed + batch.failed) return
  for (let last = -1; ; ) {
    const page = await store.batches.unanswered(batch.id, last, PAGE.limit)
    if (page === null) break
    const text = joined(page.items.map(({ customId, number }) => texts.ofUnanswered(customId, number, batch)))
    if (text !== '') yield Buffer.from(text)
    last = page.last
    await breath()
    signal.throwIfAborted()
  }
}

function joined(lines: readonly (string | null)[]): string {
  let text = ''
  for (const line of lines) if (line !== null) text += `${line}\n`
  return text
}

/** Reading may take no turn of the event loop at all, and others wait. */
function breath(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve))
}
