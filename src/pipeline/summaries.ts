/**
 * Encrypted summaries in an exchange: decrypts them before anything else reads the request, and creates one when
 * needed.
 */
import type { AskAs } from '../exchange/exchange.ts'
import type { Format } from '../formats/format.ts'
import { COMPACTS } from '../protocol/json/request-notes.ts'
import {
  type CompactionMode,
  type Endpoint,
  type FormatName,
  makesEmbeddings,
  textFormat,
} from '../protocol/provider.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { Catalog } from '../providers/catalog.ts'
import {
  newestItems,
  type SummarySeal,
  sealSummary,
  summaryIn,
  summaryRequest,
  thresholdOf,
  withOpenSummaries,
  withoutThreshold,
  withSummary,
} from './compaction.ts'
import { type RunningExchange, SKIPPED } from './exchange-stages.ts'
import { resolveModel } from './routing/names.ts'

export interface SummariesDeps {
  /** Absent: summaries are passed on unchanged. */
  readonly summaries?: Summaries
}

export interface Summaries {
  readonly seal: SummarySeal
  readonly askAs: AskAs
  /** Approximate tokens of a request. */
  readonly inputTokens: (request: ResponsesRequest) => number
  /** For providers whose row does not set it. */
  readonly mode: CompactionMode
}

type Formats = Readonly<Record<FormatName, Format>>

/** True if the endpoint's provider is to summarize conversations itself: its API can, and its row or `mode` says so. */
export function compactsItself(endpoint: Endpoint, formats: Formats, mode: CompactionMode): boolean {
  const { compaction } = formats[textFormat(endpoint)]
  if (compaction === undefined) return false
  const rowMode = endpoint.compaction ?? endpoint.provider.compaction
  return rowMode === undefined ? compaction.bySetting && mode === 'provider' : rowMode === 'provider'
}

/** Time limit for reading and summarizing a long conversation. */
const SUMMARY_TIMEOUT_MS = 300_000

/** The prompt with its summaries open. @throws GatewayError `invalid_request` for a summary that cannot be opened */
export function openSummaries(
  { summaries }: SummariesDeps,
  { caller, prompt }: RunningExchange,
): ResponsesRequest {
  return summaries === undefined ? prompt : (withOpenSummaries(prompt, caller, summaries.seal) ?? prompt)
}

/**
 * Replaces a conversation that is longer than its caller wants by a summary, or notes the wish for a summary if every
 * provider of the model creates it itself.
 */
export function compactIfLong(
  { summaries, catalog, formats }: SummariesDeps & { readonly catalog: Catalog; readonly formats: Formats },
  exchange: RunningExchange,
): typeof SKIPPED | Promise<void> {
  const threshold = summaries === undefined ? null : thresholdOf(exchange.prompt)
  if (summaries === undefined || threshold === null) return SKIPPED
  exchange.prompt = withoutThreshold(exchange.prompt)
  const { prompt } = exchange
  const model = resolveModel(prompt.model ?? prompt.models?.[0] ?? '', catalog, prompt.reasoning?.mode)?.model
  if (model !== undefined && !makesEmbeddings(model)) {
    if (model.endpoints.every(endpoint => compactsItself(endpoint, formats, summaries.mode))) {
      exchange.prompt = { ...prompt, [COMPACTS]: { threshold } } as ResponsesRequest
      return SKIPPED
    }
  }
  const newest = summaries.inputTokens(prompt) <= threshold ? null : newestItems(prompt)
  return newest === null ? SKIPPED : compact(summaries, exchange, newest)
}

async function compact(
  { seal, askAs }: Summaries,
  exchange: RunningExchange,
  newest: NonNullable<ReturnType<typeof newestItems>>,
): Promise<void> {
  const { answer, caller, masks, prompt, signal } = exchange
  const response = await askAs(exchange, summaryRequest(prompt), { deadlineMs: SUMMARY_TIMEOUT_MS })
  signal.throwIfAborted()
  const text = summaryIn(response)
  // The summary comes back sealed, and is masked again.
  const shownText = masks === null ? text : masks.unmask(text)
  answer.show({ ...sealSummary(seal, caller, { text: shownText, replaces: true }) })
  exchange.prompt = withSummary(prompt, text, newest)
}
