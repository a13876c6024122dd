/** Accounts an exchange: its usage record, its charge and the metrics of its attempts. */
import type { Clock } from '../../clock.ts'
import type { GatewayError } from '../../errors.ts'
import type { Usage } from '../../formats/format.ts'
import type { Metrics } from '../../metrics/metrics.ts'
import { toUsd } from '../../money.ts'
import type { ExchangeSummary, Outcome } from '../answer/sink.ts'
import type { AttemptRecord, Exchange, Finish } from '../exchange.ts'
import { chargeOf } from './cost.ts'
import { estimateUsage } from './estimate.ts'
import type { Ledger } from './ledger.ts'
import { usageRecord } from './usage-record.ts'

/** The figures of a model call that has ended, however it ended. */
export interface CallFigures {
  /** As the provider told it; null when it did not. */
  readonly usage: Usage | null
  readonly finish: Finish | null
  /** Characters of text, reasoning and arguments that it has said: an estimate rests on them. */
  readonly outputCharacters: number
}

/** Writes the last model call into the exchange and the running turn of its bill. */
export function settle(exchange: Exchange, attempt: AttemptRecord, figures: CallFigures): void {
  const { usage, finish, outputCharacters } = figures
  exchange.finish = finish
  const isSilent = usage === null && finish === null && outputCharacters === 0
  if (isSilent && !isStoppedHere(attempt)) {
    exchange.bill.charge(null)
    return
  }
  const exact = usage !== null && finish !== null
  const used = exact ? usage : estimateUsage(exchange.prompt, usage, outputCharacters)
  exchange.bill.charge(chargeOf(used, attempt.endpoint.pricing, exact))
}

/**
 * True if a guardrail cut the reply short; its provider still bills it. No failure of a provider has these codes, and
 * before it has answered there is no status.
 */
export function isStoppedHere({ status, error }: AttemptRecord): boolean {
  if (status === null || error === null) return false
  return error.code === 'permission_denied' || error.code === 'guardrail_unavailable'
}

/**
 * Writes the one usage record of the exchange, settles its reservation and counts it. Called once, before the caller is
 * told the end, so that every answered request is in the ledger. `error`: null when the reply ended well.
 */
export function account(
  deps: { readonly metrics: Metrics; readonly ledger: Ledger; readonly clock: Clock },
  exchange: Exchange,
  error: GatewayError | null,
): void {
  if (exchange.overLimit) return
  const { metrics } = deps
  const record = usageRecord(exchange, error, deps.clock.monotonicMs())
  deps.ledger.append(record)
  const { cost, isByok, inputTokens, outputTokens } = record
  exchange.reservation?.settle({ cost, isByok, tokens: inputTokens + outputTokens })
  metrics.usageRecords.of(record.accounting).inc()
  for (const attempt of exchange.attempts) {
    const provider = metrics.ofProvider(attempt.endpoint.provider.slug)
    const counted = attempt.error === null ? provider.answered : provider.failed(attempt.error.code)
    counted.inc()
  }
  // What the gateway asked for itself has no client who waits for a first token.
  if (exchange.firstTokenMs !== null && exchange.parent === undefined) {
    metrics.timeToFirstToken.observe((exchange.firstTokenMs - exchange.watch.startedMs) / 1000)
  }
  const modelId = exchange.attempts.at(-1)?.endpoint.modelId
  const usage = exchange.bill.total?.usage
  if (usage !== undefined && modelId !== undefined) {
    const model = metrics.ofModel(modelId)
    model.inputTokens.inc(usage.inputTokens)
    model.outputTokens.inc(usage.outputTokens)
    model.cost.inc(toUsd(cost))
  }
}

/** What the log line of the exchange says of it. */
export function summarize(exchange: Exchange, outcome: Outcome): ExchangeSummary {
  const last = exchange.attempts.at(-1)
  const usage = exchange.bill.total?.usage
  return {
    firstTokenMs:
      exchange.firstTokenMs === null ? null : round(exchange.firstTokenMs - exchange.watch.startedMs),
    model: last?.endpoint.modelId ?? null,
    provider: last?.endpoint.provider.slug ?? null,
    attempts: exchange.attempts.length,
    inputTokens: usage?.inputTokens ?? null,
    outputTokens: usage?.outputTokens ?? null,
    finish: exchange.finish?.reason ?? null,
    error: (outcome.answered ? (outcome.refused ?? last?.error)?.code : outcome.error.code) ?? null,
  }
}

/** Log lines are read by people: a microsecond is fine enough. */
function round(ms: number): number {
  return Math.round(ms * 1000) / 1000
}
