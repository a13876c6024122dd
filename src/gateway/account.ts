/** What an exchange used and cost, and the metrics of its attempts. Once per exchange, however it ended. */
import type { Attempt, Exchange } from '../exchange.ts'
import type { Usage } from '../formats/format.ts'
import type { Metrics } from '../metrics.ts'
import type { Finish } from './attempt.ts'
import { priceUsage, shownUsage } from './cost.ts'
import type { ExchangeSummary, Outcome } from './sink.ts'

/** Writes the result of the attempt that answered (or failed last) into the exchange. */
export function settle(
  exchange: Exchange,
  attempt: Attempt,
  usage: Usage | null,
  finish: Finish | null,
): void {
  exchange.finish = finish === null ? null : { reason: finish.reason, native: finish.native }
  exchange.serviceTier = finish?.serviceTier ?? null
  exchange.usage = usage
  if (usage === null) {
    exchange.cost = null
    exchange.shownUsage = null
    return
  }
  const cost = priceUsage(usage, attempt.endpoint.pricing)
  exchange.cost = cost.total
  exchange.shownUsage = shownUsage(usage, cost, attempt.isByok)
}

export function account(tools: { readonly metrics: Metrics }, exchange: Exchange): void {
  const { metrics } = tools
  for (const attempt of exchange.attempts) {
    metrics.upstreamRequests.inc({
      provider: attempt.endpoint.provider.slug,
      outcome: attempt.error?.code ?? 'ok',
    })
  }
  if (exchange.firstTokenMs !== null) {
    metrics.timeToFirstToken.observe((exchange.firstTokenMs - exchange.startedMs) / 1000)
  }
  const model = exchange.attempts.at(-1)?.endpoint.modelId
  if (exchange.usage !== null && model !== undefined) {
    metrics.tokens.inc({ direction: 'input', model }, exchange.usage.inputTokens)
    metrics.tokens.inc({ direction: 'output', model }, exchange.usage.outputTokens)
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
