/** What an exchange used and cost, and the metrics of its attempts. Once per exchange, however it ended. */
import type { Clock } from '../clock.ts'
import type { GatewayError } from '../errors.ts'
import type { Attempt, Exchange } from '../exchange.ts'
import type { Usage } from '../formats/format.ts'
import type { Metrics } from '../metrics.ts'
import { toUsd } from '../money.ts'
import type { Finish } from './attempt.ts'
import { priceUsage, shownUsage } from './cost.ts'
import { estimateUsage } from './estimate.ts'
import type { Ledger } from './ledger.ts'
import type { ExchangeSummary, Outcome } from './sink.ts'
import { usageRecord } from './usage-record.ts'

/** Writes the result of the attempt that answered (or failed last) into the exchange. */
export function settle(
  exchange: Exchange,
  attempt: Attempt,
  usage: Usage | null,
  finish: Finish | null,
): void {
  exchange.finish = finish === null ? null : { reason: finish.reason, native: finish.native }
  exchange.serviceTier = finish?.serviceTier ?? null
  if (usage === null && finish === null && exchange.outputCharacters === 0) {
    waive(exchange)
    return
  }
  const exact = usage !== null && finish !== null
  const used = exact ? usage : estimateUsage(exchange.request, usage, exchange.outputCharacters)
  const cost = priceUsage(used, attempt.endpoint.pricing)
  exchange.accounting = exact ? 'exact' : 'estimated'
  exchange.usage = used
  exchange.cost = cost.total
  exchange.shownUsage = shownUsage(used, cost, attempt.isByok)
}

/** Nothing was delivered, so nothing is charged. */
export function waive(exchange: Exchange): void {
  exchange.accounting = 'none'
  exchange.usage = null
  exchange.cost = null
  exchange.shownUsage = null
}

/**
 * Writes the one usage record of the exchange and counts it; later calls do nothing. Comes before the end is told
 * to the caller. `error` is why it failed; null when the reply ended well.
 */
export function account(
  tools: { readonly metrics: Metrics; readonly ledger: Ledger; readonly clock: Clock },
  exchange: Exchange,
  error: GatewayError | null,
): void {
  if (exchange.accounted) return
  exchange.accounted = true
  const { metrics } = tools
  tools.ledger.append(usageRecord(exchange, error, tools.clock.monotonicMs()))
  metrics.usageRecords.inc({ accounting: exchange.accounting })
  for (const attempt of exchange.attempts) {
    metrics.upstreamRequests.inc({
      provider: metrics.provider(attempt.endpoint.provider.slug),
      outcome: attempt.error?.code ?? 'ok',
    })
  }
  if (exchange.firstTokenMs !== null) {
    metrics.timeToFirstToken.observe((exchange.firstTokenMs - exchange.startedMs) / 1000)
  }
  const modelId = exchange.attempts.at(-1)?.endpoint.modelId
  if (exchange.usage !== null && modelId !== undefined) {
    const model = metrics.model(modelId)
    metrics.tokens.inc({ direction: 'input', model }, exchange.usage.inputTokens)
    metrics.tokens.inc({ direction: 'output', model }, exchange.usage.outputTokens)
    if (exchange.cost !== null) metrics.cost.inc({ model }, toUsd(exchange.cost))
  }
}

/** What the log line of the exchange says of it. */
export function summarize(exchange: Exchange, outcome: Outcome): ExchangeSummary {
  const last = exchange.attempts.at(-1)
  return {
    firstTokenMs: exchange.firstTokenMs === null ? null : round(exchange.firstTokenMs - exchange.startedMs),
    model: last?.endpoint.modelId ?? null,
    provider: last?.endpoint.provider.slug ?? null,
    attempts: exchange.attempts.length,
    inputTokens: exchange.usage?.inputTokens ?? null,
    outputTokens: exchange.usage?.outputTokens ?? null,
    finish: exchange.finish?.reason ?? null,
    error: (outcome.answered ? last?.error?.code : outcome.error.code) ?? null,
  }
}

/** Log lines are read by people: a microsecond is fine enough. */
function round(ms: number): number {
  return Math.round(ms * 1000) / 1000
}
