/** Spans of attempts. Called only while the request is traced. */

import type { Clock } from '../../clock.ts'
import type { AttemptRecord, Exchange } from '../../exchange/exchange.ts'
import type { Usage } from '../../formats/format.ts'
import type { Metrics } from '../../metrics/metrics.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'
import type { CallFigures } from '../accounting/account.ts'
import type { RoutedExchange } from '../running.ts'

type TracedExchange = Pick<RoutedExchange, 'attempts' | 'bill' | 'spans'>

/** Begins the span of an attempt. `from`: the first one of the call; `isBeside`: it races with another one. */
export function openSpan(
  { attempts, bill, spans }: TracedExchange,
  record: AttemptRecord,
  from: number,
  isBeside: boolean,
  clock: Clock,
): void {
  if (spans === null) return
  const kind = isBeside ? 'hedge' : attempts.length > from + 1 ? 'again' : 'first'
  const how = { kind, isByok: record.isByok, turn: bill.turns } as const
  record.span = spans.attempt(record.endpoint, how, clock.monotonicMs())
}

/** Ends the span of an attempt whose figures are in the bill. */
export function closeSpan(
  { bill, spans }: TracedExchange,
  { span, status, error, upstreamId }: AttemptRecord,
  { usage, finish }: CallFigures,
  clock: Clock,
): void {
  if (span === undefined) return
  const cost = (bill.total?.cost ?? 0) - (bill.closed?.cost ?? 0)
  const end = {
    status,
    error: error?.code ?? null,
    isOutrun: false,
    upstreamId,
    finish: finish?.reason ?? null,
    usage: usage ?? null,
  }
  spans?.ended(span, end, cost, clock.monotonicMs())
}

// The OpenTelemetry GenAI metrics of an attempt, if enabled.

/** Counts an attempt that has ended. `usage`: null where the provider told none that can be. */
export function countGenAi(
  genAi: NonNullable<Metrics['genAi']>,
  { dialect }: Pick<Exchange, 'dialect'>,
  { endpoint, error, health }: AttemptRecord,
  usage: Usage | null,
  nowMs: number,
): void {
  // A stored reply has no times.
  if (health === undefined) return
  const { firstTokenMs, perTokenMs } = health
  genAi.observe({
    operation: DIALECT_ABILITIES[dialect].embeds ? 'embeddings' : 'chat',
    provider: endpoint.provider.slug,
    model: endpoint.modelId,
    seconds: (nowMs - health.beganMs) / 1000,
    error: error?.code ?? null,
    inputTokens: usage?.inputTokens ?? null,
    outputTokens: usage?.outputTokens ?? null,
    firstTokenSeconds: firstTokenMs === null ? null : firstTokenMs / 1000,
    perTokenSeconds: perTokenMs === null ? null : perTokenMs / 1000,
  })
}
