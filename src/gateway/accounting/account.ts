/** Accounting of an exchange: reservation, charge, usage record and metrics. Public entry point of this module. */
import { type Clock, isoInstant } from '../../clock.ts'
import type { GatewayError } from '../../errors.ts'
import type { Bill } from '../../exchange/bill.ts'
import type { AttemptRecord, Exchange, Finish } from '../../exchange/exchange.ts'
import type { Usage } from '../../formats/format.ts'
import { BusyError, type Demand, type Quota } from '../../limits/quota.ts'
import type { ReservationQueue } from '../../limits/reservation-wait.ts'
import type { Log } from '../../log/log.ts'
import type { Metrics, ModelSeries } from '../../metrics/metrics.ts'
import { type PicoUsd, toUsd } from '../../money.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'
import type { Reservation } from '../../protocol/records.ts'
import { isPending } from '../../ready.ts'
import type { UsageAttempt, UsageOutcome, UsageRecord } from '../../storage/usage.ts'
import { appOf, boundedText, keptName, traceOf } from './client-fields.ts'
import { chargedTier, chargeOf, imagesIn } from './cost.ts'
import type { Said } from './estimate.ts'
import type { Ledger } from './ledger.ts'
import { TEXT_ESTIMATES, type UsageEstimates } from './plausible.ts'

export { admitCall, type CallTerms, demandOf, type Meter } from './allowance.ts'
export { keptName, traceOf } from './client-fields.ts'
export { byokFee, chargedTier, inputOf, toResponseUsage } from './cost.ts'
export { admitEmbedding, EMBEDDING_ESTIMATES, embeddingDemand } from './embeddings.ts'
export { estimateInput, inputTokensOf, isInputBelow, leastInputTokensOf, quartersIn } from './estimate.ts'
export { createLedger, type Ledger } from './ledger.ts'
export type { UsageEstimates } from './plausible.ts'
export { VisibleStreams } from './visible-streams.ts'

export interface ReserveDeps {
  readonly clock: Clock
  readonly quota: Quota
  /** Absent: no request waits for those that have reserved what is left. */
  readonly reservationWait?: ReservationQueue | undefined
}

/**
 * Reserves what the request may come to.
 * @throws GatewayError of Quota.admit; the exchange leaves no usage record then.
 */
export async function reserve(deps: ReserveDeps, exchange: Exchange, demand: Demand): Promise<void> {
  const { caller, rates } = exchange
  try {
    const reserved = deps.quota.admit(caller, demand)
    exchange.reservation = isPending(reserved) ? await reserved : reserved
  } catch (refused) {
    exchange.reservation = await reserveLater(deps, exchange, demand, refused)
  }
  const { tokens } = exchange.reservation
  if (tokens != null) rates?.tellRate('tokens', tokens, deps.clock.nowMs())
}

/** Lines of batches have a way to wait of their own. */
async function reserveLater(
  { quota, reservationWait }: ReserveDeps,
  exchange: Exchange,
  demand: Demand,
  refused: unknown,
): Promise<Reservation> {
  const { batch, caller, signal } = exchange
  try {
    if (!(refused instanceof BusyError) || reservationWait === undefined || batch !== undefined) throw refused
    return await reservationWait.reserve(() => quota.admit(caller, demand), caller, signal, refused)
  } catch (last) {
    exchange.overLimit = true
    throw last
  }
}

/** The figures of a model call that has ended, however it ended. */
export interface CallFigures extends Said {
  readonly finish: Finish | null
  /** Bytes of the request that was sent; 0: none was. */
  readonly sentBytes: number
  /** The gateway ended it, so what the provider reported may not be all. */
  readonly isCut: boolean
  /** It was not read when it ended, because its reader was slow. */
  readonly isStalled: boolean
  /** Its reader was slow once. */
  readonly wasPaused: boolean
  /** Most of its output that came at once, in quarters of tokens. */
  readonly pieceQuarters: number
}

/**
 * Writes the last model call into the exchange and the running turn of its bill. False: the provider reported usage
 * that cannot be, so another one was charged.
 */
export function settle(
  exchange: Exchange,
  attempt: AttemptRecord,
  figures: CallFigures,
  estimates: UsageEstimates = TEXT_ESTIMATES,
): boolean {
  const { usage, finish, isCut } = figures
  const { prompt, bill } = exchange
  exchange.finish = finish
  if (finish === null && !isCharged(exchange, attempt, figures)) {
    attempt.cost = bill.charge(null)
    return true
  }
  const { endpoint } = attempt
  const images = imagesIn(endpoint.pricing, prompt)
  if (usage === null || finish === null || isCut) {
    attempt.cost = bill.charge(
      chargeOf(estimates.estimate(prompt, figures, endpoint), endpoint.pricing, false, images),
    )
    return true
  }
  const plausible = estimates.plausible(usage, prompt, figures, endpoint)
  attempt.cost = bill.charge(chargeOf(plausible, endpoint.pricing, plausible === usage, images))
  return plausible === usage
}

/** Tells of a usage that cannot be. */
export function noteImplausible(
  { log, metrics }: { readonly log: Pick<Log, 'notice'>; readonly metrics: Metrics },
  { endpoint }: AttemptRecord,
): void {
  const { slug } = endpoint.provider
  metrics.usageImplausible.inc({ provider: slug })
  log.notice('gateway', 'provider reported implausible usage; a corrected usage was charged', {
    provider: slug,
    model: endpoint.modelId,
  })
}

/**
 * A reply that its provider broke costs nothing, unless it broke because it was not read. What was ended on this side
 * is billed by its provider all the same, as soon as it was sent.
 */
function isCharged(exchange: Exchange, attempt: AttemptRecord, figures: CallFigures): boolean {
  if (attempt.isRefused) return true
  if (exchange.signal.aborted) return figures.sentBytes > 0
  const hasSaid = figures.usage !== null || figures.outputQuarters > 0
  return hasSaid && (figures.isStalled || attempt.error?.meaning.paysSaid === true)
}

/**
 * Writes the one usage record of the exchange, settles its reservation and counts it. Called once, before the end of
 * the answer is written, so that every answered request is in the ledger. `error`: null when the reply ended well.
 */
export function account(
  deps: { readonly metrics: Metrics; readonly ledger: Ledger; readonly clock: Clock },
  exchange: Exchange,
  error: GatewayError | null,
): void {
  if (exchange.overLimit) return
  const { metrics } = deps
  const { spans } = exchange
  if (exchange.batch?.accounts(exchange, error) === false) {
    spans?.charged(0, exchange.bill.priceFactor, 'left', error?.code ?? null, deps.clock.monotonicMs())
    exchange.reservation?.settle(NOTHING_SPENT)
    countAttempts(metrics, exchange)
    return
  }
  const record = usageRecord(exchange, error, deps.clock.monotonicMs())
  deps.ledger.append(record)
  const { cost, isByok, inputTokens, outputTokens } = record
  const fees = isByok ? feesBeside(exchange.bill) : 0
  const tokens = inputTokens + outputTokens
  if (fees === 0) exchange.reservation?.settle({ cost, isByok, tokens })
  else {
    deps.ledger.append(feeRecord(record, fees))
    exchange.reservation?.settle({ cost, isByok, fees, tokens })
  }
  if (spans !== null) {
    spans.notes.session = keptName(exchange.request.session_id) ?? null
    const { outcome } = record
    spans.charged(cost + fees, exchange.bill.priceFactor, outcome, record.error, deps.clock.monotonicMs())
  }
  metrics.usageRecords.of(record.accounting).inc()
  countAttempts(metrics, exchange)
  // Requests of the gateway itself, and of batches, have no client who waits for a first token.
  if (exchange.firstTokenMs !== null && exchange.parent === undefined && exchange.batch === undefined) {
    metrics.firstToken.observe((exchange.firstTokenMs - exchange.watch.startedMs) / 1000)
  }
  const miss = exchange.prefix?.miss ?? null
  if (miss !== null) metrics.promptCacheMisses.of(miss.reason).inc()
  const endpoint = exchange.attempts.at(-1)?.endpoint
  const modelId = endpoint?.modelId
  const usage = exchange.bill.total?.usage
  if (usage !== undefined && modelId !== undefined) {
    const model = metrics.ofModel(modelId)
    model.inputTokens.inc(usage.inputTokens)
    model.outputTokens.inc(usage.outputTokens)
    model.cost.inc(toUsd(cost))
    if (endpoint !== undefined && endpoint.pricing.inputCacheRead !== null)
      countCache(metrics, endpoint.provider.slug, model, usage)
  }
}

/** Of endpoints that cache prompts, so that what is not in a cache is a loss. */
function countCache(
  metrics: Metrics,
  slug: string,
  { label }: ModelSeries,
  { inputTokens, cachedTokens, cacheWriteTokens }: Usage,
): void {
  const provider = metrics.ofProvider(slug).label
  const uncached = Math.max(0, inputTokens - cachedTokens - cacheWriteTokens)
  const kinds = { read: cachedTokens, write: cacheWriteTokens, uncached }
  for (const [kind, tokens] of Object.entries(kinds))
    if (tokens > 0) metrics.promptCacheTokens.of(provider, label, kind).inc(tokens)
}

/**
 * Fees of tools that the cost of the record leaves out: on a BYOK credential the service pays them, so that they count
 * as if no own credential were there.
 */
function feesBeside(bill: Bill): PicoUsd {
  return bill.tools.cost
}

/** The record of fees beside a record on a BYOK credential, which it names as its parent. */
function feeRecord(record: UsageRecord, fees: PicoUsd): UsageRecord {
  return {
    ...record,
    id: `${record.id}-fees`,
    parent: record.id,
    model: null,
    provider: null,
    providerName: null,
    upstreamId: null,
    inputTokens: 0,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    outputTokens: 0,
    reasoningTokens: 0,
    webSearchRequests: 0,
    cost: Math.min(fees, Number.MAX_SAFE_INTEGER),
    isByok: false,
    attempts: [],
  }
}

const NOTHING_SPENT = { cost: 0, isByok: false, tokens: 0 } as const

function countAttempts(metrics: Metrics, exchange: Exchange): void {
  for (const attempt of exchange.attempts) {
    const provider = metrics.ofProvider(attempt.endpoint.provider.slug)
    const counted = attempt.error === null ? provider.answered : provider.failed(attempt.error.code)
    counted.inc()
  }
}

/** Larger counts are no counts; sums of this many still fit in 63 bits for some million records. */
const COUNT_MAX = 1e12

type Writable<T> = { -readonly [Name in keyof T]: T[Name] }

/** `error` is why it failed; null when the reply ended well. */
export function usageRecord(exchange: Exchange, error: GatewayError | null, nowMs: number): UsageRecord {
  const { bill, caller, request, finish, firstTokenMs } = exchange
  const usage = bill.total?.usage
  const last = exchange.attempts.at(-1)
  const endpoint = last?.endpoint
  const isByok = last?.isByok === true
  // The caller may have left before a reply was complete that is told as a whole.
  const { signal } = exchange
  const cancelled =
    error?.code === 'client_closed' ||
    (signal.aborted && (signal.reason as GatewayError | undefined)?.code === 'client_closed')
  const tier = chargedTier(exchange)
  const record: Writable<UsageRecord> = {
    id: exchange.id,
    createdAt: isoInstant(exchange.createdAt * 1000),
    organizationId: caller.organizationId,
    workspaceId: caller.workspaceId,
    keyHash: caller.keyHash,
    model: endpoint?.modelId ?? null,
    provider: endpoint?.provider.slug ?? null,
    providerName: endpoint?.provider.name ?? null,
    upstreamId: last?.upstreamId == null ? null : cutForeign(last.upstreamId),
    streamed: request.stream === true,
    outcome: outcomeOf(exchange, error, cancelled),
    cancelled,
    error: error?.code ?? null,
    finishReason: finish?.reason ?? null,
    nativeFinishReason: finish?.native == null ? null : cutForeign(finish.native),
    accounting: bill.accounting,
    inputTokens: Math.min(usage?.inputTokens ?? 0, COUNT_MAX),
    cachedTokens: Math.min(usage?.cachedTokens ?? 0, COUNT_MAX),
    cacheWriteTokens: Math.min(usage?.cacheWriteTokens ?? 0, COUNT_MAX),
    outputTokens: Math.min(usage?.outputTokens ?? 0, COUNT_MAX),
    reasoningTokens: Math.min(usage?.reasoningTokens ?? 0, COUNT_MAX),
    webSearchRequests: Math.min((usage?.webSearchRequests ?? 0) + bill.searches, COUNT_MAX),
    cost: Math.min((bill.cost ?? 0) - (isByok ? feesBeside(bill) : 0), Number.MAX_SAFE_INTEGER),
    isByok,
    serviceTier: tier === null || tier === 'default' ? tier : cutForeign(tier),
    dataRegion: exchange.dataRegion ?? endpoint?.region ?? null,
    endUser: request.user ?? null,
    sessionId: request.session_id ?? null,
    // To the microsecond.
    latencyMs: Math.round((nowMs - exchange.watch.startedMs) * 1000) / 1000,
    generationMs: firstTokenMs === null ? null : Math.round((nowMs - firstTokenMs) * 1000) / 1000,
    attempts: exchange.attempts.map(usageAttempt),
  }
  if (caller.memberId !== null) record.memberId = caller.memberId
  if (exchange.parent !== undefined) record.parent = exchange.parent
  if (DIALECT_ABILITIES[exchange.dialect].embeds) record.apiType = 'embeddings'
  if (exchange.router !== null) record.router = exchange.router
  if (exchange.prefix?.miss != null) record.cacheMiss = exchange.prefix.miss
  const trace = request.trace === undefined ? undefined : traceOf(request)
  if (trace !== undefined) record.trace = trace
  const app = exchange.client === undefined ? undefined : appOf(exchange.client)
  if (app !== undefined) record.app = app
  if (exchange.client?.agent !== undefined) record.agent = keptName(exchange.client.agent)
  if (exchange.client?.parentAgent !== undefined) record.parentAgent = keptName(exchange.client.parentAgent)
  return record
}

function usageAttempt({ endpoint, status, error, isByok }: AttemptRecord): UsageAttempt {
  const { provider, modelId } = endpoint
  return {
    provider: provider.slug,
    providerName: provider.name,
    model: modelId,
    status,
    error: error?.code ?? null,
    isByok,
  }
}

function outcomeOf(exchange: Exchange, error: GatewayError | null, cancelled: boolean): UsageOutcome {
  if (cancelled) return 'aborted'
  if (error !== null) return 'failed'
  const reason = exchange.finish?.reason
  return reason === 'length' || reason === 'content_filter' ? 'incomplete' : 'completed'
}

/** A provider's text as every database can keep it. */
function cutForeign(text: string): string {
  return ORDINARY_TEXT.test(text) ? text : boundedText(text)
}

/** A text that every database keeps as it is. */
const ORDINARY_TEXT = /^[\x20-\x7e]{0,256}$/
