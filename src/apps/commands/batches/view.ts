/** Batches in the form that the command line shows, parsed from gateway replies. Pure. */
import { Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { TERMINAL_STATUSES } from '../../../protocol/management/batches.ts'
import { count, counted, duration, exactUsd, plain, roughly, shortUsd, table } from '../terminal/text.ts'

export interface BatchView {
  readonly id: string
  readonly status: string
  readonly isTerminal: boolean
  readonly endpoint: string
  readonly model: string
  /** Unix milliseconds, like all times here. */
  readonly createdMs: number
  readonly finalizedMs: number | null
  readonly total: number
  readonly completed: number
  readonly failed: number
  /** Null until the first request has ended. */
  readonly usage: {
    readonly inputTokens: number
    readonly cachedTokens: number
    readonly outputTokens: number
    /** US dollars. */
    readonly cost: number
  } | null
  /** The reason why the whole batch failed. */
  readonly error: string | null
  /** The reason why no request runs; null: requests run, or the batch has ended. */
  readonly waiting: { readonly reason: string; readonly sinceMs: number } | null
  /** The document from the gateway, without results. */
  readonly document: Readonly<Record<string, unknown>>
}

const Count = Type.Integer({ minimum: 0 })
const Amount = Type.Number({ minimum: 0 })
const BatchDocument = Type.Object({
  id: Type.String(),
  object: Type.Literal('batch'),
  endpoint: Type.String(),
  model: Type.String(),
  status: Type.String(),
  created_at: Amount,
  finalized_at: Type.Union([Amount, Type.Null()]),
  request_counts: Type.Object({ total: Count, completed: Count, failed: Count }),
  usage: Type.Union([
    Type.Object({
      prompt_tokens: Count,
      completion_tokens: Count,
      prompt_tokens_details: Type.Object({ cached_tokens: Count }),
      cost: Amount,
    }),
    Type.Null(),
  ]),
  error: Type.Union([Type.Object({ message: Type.String() }), Type.Null()]),
  // Gateways of older versions do not send it.
  waiting: Type.Optional(Type.Union([Type.Object({ reason: Type.String(), since: Amount }), Type.Null()])),
})
const BatchList = Type.Object({ data: Type.Array(BatchDocument), has_more: Type.Boolean() })

/** Null: the document is not a batch. */
export function batchView(document: unknown): BatchView | null {
  if (!Value.Check(BatchDocument, document)) return null
  const {
    id,
    status,
    endpoint,
    model,
    created_at,
    finalized_at,
    request_counts,
    usage,
    error,
    waiting = null,
  } = document
  const { results: _, ...fields } = document as typeof document & { results?: unknown }
  return {
    id: plain(id),
    status: plain(status),
    isTerminal: TERMINAL_STATUSES.some(name => name === status),
    endpoint: plain(endpoint),
    model: plain(model),
    createdMs: created_at * 1000,
    finalizedMs: finalized_at === null ? null : finalized_at * 1000,
    ...request_counts,
    usage:
      usage === null
        ? null
        : {
            inputTokens: usage.prompt_tokens,
            cachedTokens: usage.prompt_tokens_details.cached_tokens,
            outputTokens: usage.completion_tokens,
            cost: usage.cost,
          },
    error: error === null ? null : plain(error.message),
    waiting: waiting === null ? null : { reason: plain(waiting.reason), sinceMs: waiting.since * 1000 },
    document: fields,
  }
}

/** Null: the document is not a list of batches. */
export function batchList(document: unknown): { batches: BatchView[]; hasMore: boolean } | null {
  if (!Value.Check(BatchList, document)) return null
  const batches = document.data.map(batchView).filter(view => view !== null)
  return { batches, hasMore: document.has_more }
}

const COLUMNS = ['ID', 'STATUS', 'ENDPOINT', 'MODEL', 'DONE', 'FAILED', 'AGE', 'COST']
const NUMBER_COLUMNS = new Set([4, 5, 6, 7])

/** The lines of a table with its header. */
export function batchTable(batches: readonly BatchView[], nowMs: number): string[] {
  return table([COLUMNS, ...batches.map(batch => batchRow(batch, nowMs))], NUMBER_COLUMNS)
}

function batchRow(batch: BatchView, nowMs: number): string[] {
  const { id, status, endpoint, model, total, completed, failed, createdMs, usage } = batch
  return [
    id,
    status,
    endpoint,
    model,
    `${count(completed + failed)}/${count(total)}`,
    count(failed),
    roughly(nowMs - createdMs),
    usage === null ? '-' : shortUsd(usage.cost),
  ]
}

/** The known part of the results of a batch. */
export interface ResultCounts {
  readonly total: number
  /** Number of each error type, the most frequent first. */
  readonly errors: ReadonlyMap<string, number>
}

/** A summary of the batch in a few lines. @param output the file with its results; null: there is none */
export function batchSummary(
  batch: BatchView,
  { errors, total: lines }: ResultCounts,
  output: string | null,
): string[] {
  const { id, status, total, completed, failed, usage, error, createdMs, finalizedMs } = batch
  const unanswered = total - completed - failed
  const rows: [string, string][] = [
    [
      'requests',
      `${count(total)}: ${count(completed)} completed, ${count(failed)} failed${unanswered === 0 ? '' : `, ${count(unanswered)} without a result`}`,
    ],
  ]
  if (error !== null) rows.push(['error', error])
  if (errors.size > 0) {
    rows.push(['errors', [...errors].map(([type, times]) => `${count(times)} ${type}`).join(', ')])
  }
  if (usage !== null) {
    const cached = usage.cachedTokens === 0 ? '' : ` (${count(usage.cachedTokens)} cached)`
    rows.push(['tokens', `${count(usage.inputTokens)} in${cached}, ${count(usage.outputTokens)} out`])
    rows.push(['cost', exactUsd(usage.cost)])
  }
  if (output !== null) rows.push(['results', `${counted(lines, 'line')} in ${output}`])
  const durationText = finalizedMs === null ? '' : ` after ${duration(finalizedMs - createdMs)}`
  return [`${id} ${status}${durationText}`, ...rows.map(([name, text]) => `  ${name.padEnd(8)}  ${text}`)]
}
