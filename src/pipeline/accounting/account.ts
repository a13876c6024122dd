/** Accounting for an exchange: reservation, charge, usage record and metrics. */
import { type Clock, isoInstant } from '../../base/clock.ts'
import type { GatewayError } from '../../base/errors.ts'
import { loggableModel } from '../../base/log/loggable.ts'
import { isPending } from '../../base/maybe-promise.ts'
import type { Metrics, ModelSeries } from '../../base/metrics/metrics.ts'
import { type PicoUsd, toUsd } from '../../base/money.ts'
import type { Demand } from '../../callers/limits/demand.ts'
import { BusyError } from '../../callers/limits/limit-errors.ts'
import type { Quota, RatedRequest } from '../../callers/limits/quota.ts'
import type { ReservationQueue } from '../../callers/limits/reservation-wait.ts'
import type { AttemptRecord, EndedExchange, Exchange } from '../../exchange/exchange.ts'
import { type Usage, ZERO_USAGE } from '../../formats/format.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'
import type { Reservation } from '../../protocol/records.ts'
import type { LedgerStore } from '../../storage/ledger.ts'
import type { UsageSpool } from '../../storage/spool/spool.ts'
import { type UsageLine, wholeRecord } from '../../storage/spool/usage-line.ts'
import type { UsageAttempt, UsageOutcome, UsageRecord } from '../../storage/usage.ts'
import { settleReservation } from './allowance.ts'
import { appOf, boundedText, keptName, traceOf } from './client-fields.ts'

/**
 * The usage ledger of one serve thread: writes records to its spool, from which the supervisor ships them to the Store.
 * The spool keeps the latest records in memory, so that this thread can find them at once.
 */
export interface Ledger {
  /** Keeps the record, together with others of this turn of the event loop. Never throws. */
  append(record: UsageRecord): void
  /** Resolves when all records so far survive a kill of the process; null if they already do. Never rejects. */
  whenWritten(): Promise<void> | null
  /** Null if the organization has no record with this id. */
  find(id: string, organizationId: string): Promise<UsageRecord | null>
}

export function createLedger(spool: UsageSpool, store: LedgerStore): Ledger {
  return {
    append: spool.append.bind(spool),
    whenWritten: spool.whenWritten.bind(spool),
    async find(id, organizationId) {
      const line = spool.find(id)
      if (line === null) return store.find(id, organizationId)
      const record = wholeRecord(JSON.parse(line) as UsageLine)
      return record.organizationId === organizationId ? record : null
    },
  }
}

export interface ReserveDeps {
  readonly clock: Clock
  readonly quota: Quota
  /** Absent: the request is only checked: it does not wait until reserved amounts are released, and takes no slot. */
  readonly reservationWait?: ReservationQueue | undefined
}

/**
 * Reserves the possible cost of the request.
 * @throws GatewayError of Quota.admit; the exchange then leaves no usage record.
 */
export async function reserve(deps: ReserveDeps, exchange: Exchange, demand: Demand): Promise<void> {
  const { caller } = exchange
  const { rates } = exchange.clientRequest
  try {
    const reservationOrPromise = deps.quota.admit(caller, demand, ratedRequestOf(deps, exchange))
    exchange.reservation = isPending(reservationOrPromise) ? await reservationOrPromise : reservationOrPromise
  } catch (error) {
    exchange.reservation = await reserveLater(deps, exchange, demand, error)
  }
  if (rates === undefined) return
  const { rateStatuses } = exchange.reservation
  if (rateStatuses !== undefined)
    for (const [kind, room] of rateStatuses) rates.setRate(kind, room, deps.clock.nowMs())
}

/** A call within another request takes no slot of its own, nor does a line that a batch service may hold for hours. */
function ratedRequestOf(
  { reservationWait }: ReserveDeps,
  { parent, batch, request }: Exchange,
): RatedRequest {
  return {
    endUser: request.safety_identifier ?? request.user ?? null,
    isCounted: reservationWait !== undefined && parent === undefined && batch?.submit === undefined,
  }
}

/** Batch lines wait in their own queue. */
async function reserveLater(
  deps: ReserveDeps,
  exchange: Exchange,
  demand: Demand,
  refusal: unknown,
): Promise<Reservation> {
  const { quota, reservationWait } = deps
  const { batch, caller, signal } = exchange
  try {
    if (!(refusal instanceof BusyError) || reservationWait === undefined || batch !== undefined) throw refusal
    return await reservationWait.reserve(
      currentCaller => quota.admit(currentCaller, demand, ratedRequestOf(deps, exchange)),
      caller,
      signal,
      refusal,
    )
  } catch (thrown) {
    exchange.overLimit = true
    throw thrown
  }
}

/**
 * Writes the usage record of an exchange that is over, and one for fees on a BYOK credential; settles its reservation
 * and counts it. No record if a limit refused the request, or if its batch wants none. Called once, before the end of
 * the answer is written, so that every answered request is in the ledger.
 */
export function account(
  { ledger, metrics }: { readonly metrics: Metrics; readonly ledger: Ledger },
  end: EndedExchange,
): void {
  const { endedMs, error, exchange, fees, last } = end
  const { batch, bill, firstTokenMs, prefix, reservation, spans } = exchange
  if (exchange.overLimit) return
  if (batch?.accounts(end) === false) {
    spans?.charge(0, bill.priceFactor, 'left', error?.code ?? null, endedMs)
    if (reservation !== null) settleReservation(reservation, null)
    countAttempts(metrics, exchange)
    return
  }
  const record = usageRecord(end)
  const { cost } = record
  ledger.append(record)
  if (fees > 0) ledger.append(feeRecord(record, fees))
  // An earlier answer costs neither money nor tokens again.
  if (reservation !== null) settleReservation(reservation, bill.isCached ? null : record, fees)
  if (spans !== null) {
    spans.notes.session = keptName(exchange.request.session_id) ?? null
    spans.charge(cost + fees, bill.priceFactor, record.outcome, record.error, endedMs)
  }
  metrics.usageRecords.of(record.accounting).inc()
  countAttempts(metrics, exchange)
  // No client waits for the first token of a batch request, or of a request that the gateway makes for itself.
  if (firstTokenMs !== null && exchange.parent === undefined && batch === undefined) {
    metrics.firstToken.observe((firstTokenMs - exchange.watch.startedMs) / 1000)
  }
  const miss = prefix?.miss ?? null
  if (miss !== null) metrics.promptCacheMisses.of(miss.reason).inc()
  const usage = bill.total?.usage
  if (usage !== undefined && last !== undefined && !bill.isCached) {
    const { modelId, pricing, provider } = last.endpoint
    const model = metrics.ofModel(modelId)
    model.inputTokens.inc(usage.inputTokens)
    model.outputTokens.inc(usage.outputTokens)
    model.cost.inc(toUsd(cost))
    if (pricing.inputCacheRead !== null) countCache(metrics, provider.slug, model, usage)
  }
}

/** Counts only endpoints that cache prompts, so that every miss costs money. */
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

/** The record of the fees for a request on a BYOK credential. It names the record of that request as its parent. */
function feeRecord(record: UsageRecord, fees: PicoUsd): UsageRecord {
  return {
    ...record,
    id: `${record.id}-fees`,
    parent: record.id,
    model: null,
    provider: null,
    providerName: null,
    upstreamId: null,
    ...ZERO_USAGE,
    cost: Math.min(fees, Number.MAX_SAFE_INTEGER),
    isByok: false,
    attempts: [],
  }
}

function countAttempts(metrics: Metrics, exchange: Exchange): void {
  for (const attempt of exchange.attempts) {
    const provider = metrics.ofProvider(attempt.endpoint.provider.slug)
    const counter = attempt.error === null ? provider.answered : provider.failure(attempt.error.code)
    counter.inc()
  }
}

/** Larger counts are not plausible; the sum of some million such counts still fits in 63 bits. */
const MAX_RECORDED_COUNT = 1e12

type Writable<T> = { -readonly [Name in keyof T]: T[Name] }

/** Makes the usage record of an exchange that is over. */
export function usageRecord({
  cost,
  endedMs,
  error,
  exchange,
  isByok,
  last,
  serviceTier: tier,
}: EndedExchange): UsageRecord {
  const { bill, caller, request, finish, firstTokenMs, signal } = exchange
  const usage = bill.total?.usage
  const endpoint = last?.endpoint
  // The caller of a reply that is delivered as a whole may have left before it was complete.
  const isCancelled =
    error?.code === 'client_closed' ||
    (signal.aborted && (signal.reason as GatewayError | undefined)?.code === 'client_closed')
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
    outcome: outcomeOf(exchange, error, isCancelled),
    cancelled: isCancelled,
    error: error?.code ?? null,
    finishReason: finish?.reason ?? null,
    nativeFinishReason: finish?.native == null ? null : cutForeign(finish.native),
    accounting: bill.accounting,
    inputTokens: Math.min(usage?.inputTokens ?? 0, MAX_RECORDED_COUNT),
    cachedTokens: Math.min(usage?.cachedTokens ?? 0, MAX_RECORDED_COUNT),
    cacheWriteTokens: Math.min(usage?.cacheWriteTokens ?? 0, MAX_RECORDED_COUNT),
    outputTokens: Math.min(usage?.outputTokens ?? 0, MAX_RECORDED_COUNT),
    reasoningTokens: Math.min(usage?.reasoningTokens ?? 0, MAX_RECORDED_COUNT),
    webSearchRequests: Math.min((usage?.webSearchRequests ?? 0) + bill.searches, MAX_RECORDED_COUNT),
    cost: Math.min(cost, Number.MAX_SAFE_INTEGER),
    isByok,
    serviceTier: tier === null || tier === 'default' ? tier : cutForeign(tier),
    dataRegion: exchange.dataRegion ?? endpoint?.region ?? null,
    endUser: request.user ?? null,
    sessionId: request.session_id ?? null,
    // To the microsecond.
    latencyMs: Math.round((endedMs - exchange.watch.startedMs) * 1000) / 1000,
    generationMs: firstTokenMs === null ? null : Math.round((endedMs - firstTokenMs) * 1000) / 1000,
    attempts: exchange.attempts.map(usageAttempt),
  }
  if (caller.memberId !== null) record.memberId = caller.memberId
  if (exchange.parent !== undefined) record.parent = exchange.parent
  if (DIALECT_ABILITIES[exchange.dialect].embeds) record.apiType = 'embeddings'
  if (exchange.router !== null) record.router = exchange.router
  const { route } = exchange.ranking
  if (route !== undefined) record.requestedModel = route
  else if (record.model === null) {
    const requestedName = request.model ?? request.models?.[0]
    const model = requestedName === undefined ? null : shortName(loggableModel(requestedName))
    if (model !== null) record.requestedModel = model
  }
  if (exchange.rollout !== null) noteRollout(record, exchange)
  if (endpoint === undefined && record.cost === 0) {
    record.endUser = shortName(record.endUser)
    record.sessionId = shortName(record.sessionId)
    return record
  }
  if (exchange.repeated !== null) record.cachedFrom = exchange.repeated.source
  if (exchange.prefix?.miss != null) record.cacheMiss = exchange.prefix.miss
  const trace = request.trace === undefined ? undefined : traceOf(request)
  if (trace !== undefined) record.trace = trace
  const app = exchange.client === undefined ? undefined : appOf(exchange.client)
  if (app !== undefined) record.app = app
  if (exchange.client?.agent !== undefined) record.agent = keptName(exchange.client.agent)
  if (exchange.client?.parentAgent !== undefined) record.parentAgent = keptName(exchange.client.parentAgent)
  return record
}

/**
 * A caller who left, and a line of a batch, say nothing about the model, nor does a request that was refused before its
 * turn. A candidate whose breaker is open has failed. A refusal of the provider counts like any other
 * failure: the candidate may refuse what the base accepts.
 */
function noteRollout(record: Writable<UsageRecord>, exchange: Exchange): void {
  const { rollout, batch, candidates, attempts, passedOver } = exchange
  if (rollout === null || record.cancelled || batch !== undefined) return
  if (attempts.length + passedOver.length === 0) return
  const hasFailed = record.outcome === 'failed' || record.model !== candidates[0]?.endpoint.modelId
  const { candidate, step, arm } = rollout
  record.rollout = { candidate, step, arm, failed: hasFailed }
}

/**
 * If no model was called, longer names are not stored, nor are other facts that the client states about itself: such a
 * request costs the client nothing, but its record is kept for as long as others.
 */
const SHORT_NAME_CHARS = 64

function shortName(name: string | null): string | null {
  return name !== null && name.length > SHORT_NAME_CHARS ? null : name
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

function outcomeOf(exchange: Exchange, error: GatewayError | null, isCancelled: boolean): UsageOutcome {
  if (isCancelled) return 'aborted'
  if (error !== null) return 'failed'
  const reason = exchange.finish?.reason
  return reason === 'length' || reason === 'content_filter' ? 'incomplete' : 'completed'
}

/** Makes a provider's text safe to store in every database. */
function cutForeign(text: string): string {
  return ORDINARY_TEXT.test(text) ? text : boundedText(text)
}

/** A text that every database stores unchanged. */
const ORDINARY_TEXT = /^[\x20-\x7e]{0,256}$/
