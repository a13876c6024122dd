/** Reads batches from a gateway: pages of a list, and one batch with results that may not fit into memory. */
import type { Readable } from 'node:stream'
import { PAGE_MAX } from '../../../protocol/limits.ts'
import type { GatewayClient } from '../gateway-client.ts'
import { plain } from '../terminal/text.ts'
import { CutterError, ResultCutter } from './result-cutter.ts'
import type { ResultFile } from './result-file.ts'
import { type BatchView, batchList, batchView, type ResultCounts } from './view.ts'

export interface BatchWithResults {
  readonly batch: BatchView
  readonly results: ResultCounts
}

const NO_RESULTS: ResultCounts = { total: 0, errors: new Map() }
/** Maximum different error types. A gateway has fewer, so more come from something else. */
const MAX_ERROR_TYPES = 100
const LINE_FEED = 0x0a
const CARRIAGE_RETURN = 0x0d

/** The path of a batch. The id must already be checked. */
export function batchPath(id: string): string {
  return `/batches/${encodeURIComponent(id)}`
}

interface ResultReading {
  /** Receives the results; null: they are only counted. */
  readonly file?: ResultFile | null
  /** Called before the first result. If it returns true, all results are skipped. */
  readonly onResults: (batch: BatchView) => boolean
  readonly signal?: AbortSignal
}

/**
 * Reads a batch, and its results if it has ended.
 * @throws CommandError, usually a GatewayFault; UsageError; or the reason of the abort
 */
export function readBatch(
  client: GatewayClient,
  id: string,
  reading: ResultReading,
): Promise<BatchWithResults> {
  return client.read('GET', batchPath(id), reading.signal, async body => {
    try {
      return await readResults(body, reading)
    } catch (error) {
      if (error instanceof CutterError || error instanceof SyntaxError) throw client.notAGateway()
      throw error
    }
  })
}

/** @throws CutterError, SyntaxError, CommandError */
async function readResults(body: Readable, { file, onResults }: ResultReading): Promise<BatchWithResults> {
  const cutter = new ResultCutter()
  const errors = new Map<string, number>()
  let total = 0
  await file?.restart()
  for await (const chunk of body as AsyncIterable<Buffer>) {
    const results = cutter.push(chunk)
    if (results.length === 0) continue
    const batch = total === 0 ? batchView(cutter.head) : null
    if (batch !== null && onResults(batch)) return { batch, results: NO_RESULTS }
    total += results.length
    for (const result of results) countError(errors, result.toString('utf8'))
    await file?.add(results.map(onOneLine))
  }
  const batch = cutter.isWhole ? batchView(cutter.head) : null
  if (batch === null) throw new CutterError('no batch')
  const frequentFirst = [...errors].toSorted(([, a], [, b]) => b - a)
  return { batch, results: { total, errors: new Map(frequentFirst) } }
}

/** @throws SyntaxError */
function countError(errors: Map<string, number>, text: string): void {
  const { error } = JSON.parse(text) as { error?: { error_type?: unknown; type?: unknown } | null }
  if (error == null) return
  const errorType = [error.error_type, error.type].find(field => typeof field === 'string') ?? 'unknown'
  const plainType = plain(errorType)
  const type = errors.has(plainType) || errors.size < MAX_ERROR_TYPES ? plainType : 'other'
  errors.set(type, (errors.get(type) ?? 0) + 1)
}

/** Line breaks in JSON are only between tokens, so they can be replaced. */
function onOneLine(result: Buffer): Buffer {
  if (!result.includes(LINE_FEED) && !result.includes(CARRIAGE_RETURN)) return result
  return Buffer.from(
    result
      .toString('utf8')
      .trim()
      .replace(/[\r\n]+/g, ' '),
  )
}

/** The newest batches first, up to `limit`. @throws CommandError, usually a GatewayFault; UsageError */
export async function listBatches(
  client: GatewayClient,
  filter: URLSearchParams,
  limit: number,
): Promise<{ readonly batches: readonly BatchView[]; readonly hasMore: boolean }> {
  const batches: BatchView[] = []
  for (;;) {
    const query = new URLSearchParams(filter)
    query.set('limit', String(Math.min(PAGE_MAX, limit - batches.length)))
    const last = batches.at(-1)
    if (last !== undefined) query.set('after', last.id)
    const page = batchList(await client.json('GET', `/batches?${query}`))
    if (page === null) throw client.notAGateway()
    batches.push(...page.batches)
    if (!page.hasMore || page.batches.length === 0 || batches.length >= limit) {
      return { batches: batches.slice(0, limit), hasMore: page.hasMore }
    }
  }
}
