/** What an exchange used and cost, and the metrics of its attempts. Once per exchange, however it ended. */
import type { Clock } from '../../clock.ts'
import type { GatewayError } from '../../errors.ts'
import type { Usage } from '../../formats/format.ts'
import type { Metrics } from '../../metrics/metrics.ts'
import { toUsd } from '../../money.ts'
import type { ExchangeSummary, Outcome } from '../answer/sink.ts'
import type { Finish } from '../attempt.ts'
import type { Attempt, Billed, Exchange } from '../exchange.ts'
import { priceUsage, shownUsage, withEarlier } from './cost.ts'
import { estimateUsage } from './estimate.ts'
import type { Ledger } from './ledger.ts'
import { usageRecord } from './usage-record.ts'

/**
 * Writes the result of the attempt that answered (or failed last) into the exchange, on top of what earlier calls
 * came to.
 */
export function settle(
  exchange: Exchange,
  attempt: Attempt,
  usage: Usage | null,
  finish: Finish | null,
  byokFeePercent: number,
): void {
  exchange.finish = finish === null ? null : { reason: finish.reason, native: finish.native }
  exchange.serviceTier = finish?.serviceTier ?? null
  const billed = billedOf(exchange, attempt, usage, finish)
  if (billed === null) {
    waive(exchange)
    return
  }
  const { usage: used, inputCost: input, outputCost: output, cost: total } = billed
  exchange.accounting = billed.exact ? 'exact' : 'estimated'
  exchange.usage = used
  exchange.cost = total
  exchange.shownUsage = shownUsage(used, { input, output, total }, attempt.isByok, byokFeePercent)
}

/** What the exchange has come to with this attempt, earlier calls included; null: to nothing. */
export function billedOf(
  exchange: Exchange,
  attempt: Attempt,
  usage: Usage | null,
  finish: Finish | null,
): Billed | null {
  const { earlier } = exchange
  const isSilent = usage === null && finish === null && exchange.outputCharacters === 0
  if (isSilent && !isStoppedHere(attempt)) return earlier
  const exact = usage !== null && finish !== null
  const used = exact ? usage : estimateUsage(exchange.prompt, usage, exchange.outputCharacters)
  const { input, output, total } = priceUsage(used, attempt.endpoint.pricing)
  const billed = { usage: used, inputCost: input, outputCost: output, cost: total, exact }
  return earlier === null ? billed : withEarlier(earlier, billed)
}

/**
 * Whether a guardrail has ended what the model was saying, which its provider bills all the same. No failure of a
 * provider has these codes, and before it has answered there is no status.
 */
export function isStoppedHere({ status, error }: Attempt): boolean {
  if (status === null || error === null) return false
  return error.code === 'permission_denied' || error.code === 'guardrail_unavailable'
}

/** Nothing was said or its provider failed, so nothing is charged. */
export function waive(exchange: Exchange): void {
  exchange.accounting = 'none'
  exchange.usage = null
  exchange.cost = null
  exchange.shownUsage = null
}

/**
 * Writes the one usage record of the exchange, settles what was set aside for it and counts it; later calls do nothing.
 * Comes before the end is told to the caller. `error` is why it failed; null when the reply ended well.
 */
export function account(
  tools: { readonly metrics: Metrics; readonly ledger: Ledger; readonly clock: Clock },
  exchange: Exchange,
  error: GatewayError | null,
): void {
  if (exchange.accounted) return
  exchange.accounted = true
  const { metrics } = tools
  const record = usageRecord(exchange, error, tools.clock.monotonicMs())
  tools.ledger.append(record)
  const { cost, isByok, inputTokens, outputTokens } = record
  exchange.reservation?.settle({ cost, isByok, tokens: inputTokens + outputTokens })
  metrics.usageRecords.of(exchange.accounting).inc()
  for (const attempt of exchange.attempts) {
    const provider = metrics.ofProvider(attempt.endpoint.provider.slug)
    const counted = attempt.error === null ? provider.answered : provider.failed(attempt.error.code)
    counted.inc()
  }
  // What the gateway asked for itself has no client who waits for a first token.
  if (exchange.firstTokenMs !== null && exchange.parent === undefined) {
    metrics.timeToFirstToken.observe((exchange.firstTokenMs - exchange.startedMs) / 1000)
  }
  const modelId = exchange.attempts.at(-1)?.endpoint.modelId
  if (exchange.usage !== null && modelId !== undefined) {
    const model = metrics.ofModel(modelId)
    model.inputTokens.inc(exchange.usage.inputTokens)
    model.outputTokens.inc(exchange.usage.outputTokens)
    if (exchange.cost !== null) model.cost.inc(toUsd(exchange.cost))
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
    error: (outcome.answered ? (outcome.refused ?? last?.error)?.code : outcome.error.code) ?? null,
  }
}

/** Log lines are read by people: a microsecond is fine enough. */
function round(ms: number): number {
  return Math.round(ms * 1000) / 1000
}
