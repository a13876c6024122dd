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

/** A result in the form that batch clients read. */
export interface ResultDocument {
  readonly response: { readonly body: unknown } | null
  readonly error: {
    readonly message: string
    readonly type: string
    readonly param: string | null
    readonly error_type: string
  } | null
}

/** A readable file of results. */
export interface BatchOutput {
  readonly batch: BatchRecord
  readonly id: string
  readonly filename: string
  /**
   * All lines from the beginning, until the request ends. Throws `not_found` if the batch is deleted in the meantime.
   */
  chunks(signal: RequestSignal): AsyncIterable<Uint8Array>
}

/** Limits of one read from the Store, which blocks the thread. */
export const RESULT_PAGE = { limit: 500, maxBytes: 256 * 1024 } as const
const OUTPUT_FILE_ID = /^gw_batch_(output|errors)_([0-9A-Za-z]{24})$/
const BATCH_ID_PREFIX = 'batch_'

/** The id of the file with one kind of results; null: the batch has no input file, no such result, or has not ended. */
export function outputFileId(batch: BatchRecord, kind: OutputKind): string | null {
  const { id, status, inputFile, total, completed } = batch
  if (inputFile === null || !isTerminal(status)) return null
  const count = kind === 'output' ? completed : total - completed
  return count === 0 ? null : `gw_batch_${kind}_${id.slice(BATCH_ID_PREFIX.length)}`
}

/** The batch and the kind of results that a file id names; null: it is the id of another file. */
export function outputNameOf(fileId: string): { readonly batchId: string; readonly kind: OutputKind } | null {
  const [, kind, idSuffix] = OUTPUT_FILE_ID.exec(fileId) ?? []
  return kind === undefined ? null : { batchId: BATCH_ID_PREFIX + idSuffix, kind: kind as OutputKind }
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
    resultChunks(store, batch, kind === 'output' ? OUTPUT_TEXTS : ERROR_TEXTS, signal)
  return { batch, id, filename: `${batch.id}_${kind}.jsonl`, chunks }
}

const MAX_CACHED_SIZES = 1_000
const NEVER_ABORTED: RequestSignal = {
  aborted: false,
  reason: undefined,
  throwIfAborted: () => undefined,
  addEventListener: () => undefined,
  removeEventListener: () => undefined,
}

/**
 * Sizes of result files. Finding a size means reading all results, so it is done once for all callers; results of an
 * ended batch do not change. One per thread.
 */
export class OutputSizes {
  readonly #sizes = new SharedCache<Promise<number>>(MAX_CACHED_SIZES)

  /** Rejects like `chunks`; then the next call counts again. */
  of(output: BatchOutput): Promise<number> {
    const { id, batch } = output
    const size = this.#sizes.get(id)
    if (size !== undefined) return size
    const count = countBytes(output)
    this.#sizes.set(batch.organizationId, id, count)
    count.catch(() => this.#sizes.delete(id))
    return count
  }
}

async function countBytes({ chunks }: BatchOutput): Promise<number> {
  let bytes = 0
  // Never aborted, because other callers may be waiting for the same count.
  for await (const chunk of chunks(NEVER_ABORTED)) bytes += chunk.byteLength
  return bytes
}

/** The file in the form of OpenAI's clients. */
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

/** A page of results after line `after`, in the form of clients; null: the batch is deleted. */
export async function readResults(
  { batches }: Pick<Store, 'batches'>,
  batchId: string,
  after: number,
  end: PageEnd,
): Promise<readonly StoredResult[] | null> {
  const page = await batches.results(batchId, after, end)
  return page?.map(stored => ({ ...stored, result: wholeResult(batchId, stored) })) ?? null
}

/** Converts results to lines. */
export interface ResultTexts {
  /** The line of a result without its line end; null: the file does not contain it. */
  ofResult(result: StoredResult): string | null
  /** The line of a request without a result, because its batch ended first; null: the file does not contain it. */
  ofUnanswered(customId: string, number: number, batch: BatchRecord): string | null
}

const OUTPUT_TEXTS: ResultTexts = {
  ofResult: ({ customId, outcome, result }) =>
    outcome === 'completed' ? resultJson({ customId, result }) : null,
  ofUnanswered: () => null,
}

const ERROR_TEXTS: ResultTexts = {
  ofResult({ customId, outcome, result }) {
    if (outcome === 'completed') return null
    const { error, ...line } = JSON.parse(result) as ResultDocument
    const publicError = error === null ? null : { code: error.error_type, message: error.message }
    return JSON.stringify({ custom_id: customId, ...line, error: publicError })
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
 * The lines of an ended batch: results in the order of the requests, then requests without one. Throws `not_found` if
 * the batch is deleted in the meantime, and the reason of the abort when no caller waits any more.
 */
export async function* resultChunks(
  store: Pick<Store, 'batches'>,
  batch: BatchRecord,
  texts: ResultTexts,
  signal: RequestSignal,
): AsyncGenerator<Uint8Array> {
  for (let last = -1; ; ) {
    const page = await readResults(store, batch.id, last, RESULT_PAGE)
    // A file that has begun must not look complete.
    if (page === null) throw batchGone()
    const end = page.at(-1)
    if (end === undefined) break
    const text = join(page.map(result => texts.ofResult(result)))
    if (text !== '') yield Buffer.from(text)
    last = end.number
    await yieldToLoop()
    // Pages without a line for this file are read too, so the abort is checked here.
    signal.throwIfAborted()
  }
  if (batch.total === batch.completed + batch.failed) return
  for (let last = -1; ; ) {
    const page = await store.batches.unansweredLines(batch.id, last, RESULT_PAGE.limit)
    if (page === null) {
      // The end of the lines, or a removed batch: only its results tell which.
      if ((await store.batches.results(batch.id, batch.total, RESULT_PAGE)) === null) throw batchGone()
      return
    }
    const text = join(page.items.map(({ customId, number }) => texts.ofUnanswered(customId, number, batch)))
    if (text !== '') yield Buffer.from(text)
    last = page.last
    await yieldToLoop()
    signal.throwIfAborted()
  }
}

function batchGone(): GatewayError {
  return new GatewayError('not_found', 'Batch not found')
}

/** One result as JSON. */
export function resultJson({ customId, result }: Pick<StoredResult, 'customId' | 'result'>): string {
  return `{"custom_id":${JSON.stringify(customId)},${result.slice(1)}`
}

function join(lines: readonly (string | null)[]): string {
  let text = ''
  for (const line of lines) if (line !== null) text += `${line}\n`
  return text
}

/** A read may finish synchronously, so this lets other work run. */
export function yieldToLoop(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve))
}
