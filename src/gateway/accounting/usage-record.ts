/** The usage record of an exchange that is about to end. Pure. */

import { isoInstant } from '../../clock.ts'
import type { GatewayError } from '../../errors.ts'
import type { UsageOutcome, UsageRecord } from '../../storage/usage.ts'
import type { Exchange } from '../exchange.ts'

/** Texts of providers are kept to this length: ids and names are shorter, anything longer is not meant to be kept. */
const FOREIGN_MAX_CHARS = 256
/** Larger counts are no counts; sums of this many still fit in 63 bits for some million records. */
const COUNT_MAX = 1e12

/** `error` is why it failed; null when the reply ended well. */
export function usageRecord(exchange: Exchange, error: GatewayError | null, nowMs: number): UsageRecord {
  const { bill, caller, request, finish, firstTokenMs } = exchange
  const usage = bill.total?.usage
  const last = exchange.attempts.at(-1)
  const endpoint = last?.endpoint
  const cancelled = error?.code === 'client_closed' || left(exchange)
  return {
    id: exchange.id,
    createdAt: isoInstant(exchange.createdAt * 1000),
    organizationId: caller.organizationId,
    workspaceId: caller.workspaceId,
    keyHash: caller.keyHash,
    ...(caller.memberId === null ? {} : { memberId: caller.memberId }),
    ...(exchange.parent === undefined ? {} : { parent: exchange.parent }),
    model: endpoint?.modelId ?? null,
    provider: endpoint?.provider.slug ?? null,
    providerName: endpoint?.provider.name ?? null,
    upstreamId: foreign(last?.upstreamId ?? null),
    streamed: request.stream === true,
    outcome: outcomeOf(exchange, error, cancelled),
    cancelled,
    error: error?.code ?? null,
    finishReason: finish?.reason ?? null,
    nativeFinishReason: foreign(finish?.native ?? null),
    accounting: bill.accounting,
    inputTokens: count(usage?.inputTokens),
    cachedTokens: count(usage?.cachedTokens),
    cacheWriteTokens: count(usage?.cacheWriteTokens),
    outputTokens: count(usage?.outputTokens),
    reasoningTokens: count(usage?.reasoningTokens),
    webSearchRequests: count(usage?.webSearchRequests),
    cost: Math.min(bill.cost ?? 0, Number.MAX_SAFE_INTEGER),
    isByok: last?.isByok ?? false,
    serviceTier: foreign(finish?.serviceTier ?? null),
    dataRegion: exchange.dataRegion ?? endpoint?.region ?? null,
    endUser: request.user ?? null,
    sessionId: request.session_id ?? null,
    latencyMs: micros(nowMs - exchange.watch.startedMs),
    generationMs: firstTokenMs === null ? null : micros(nowMs - firstTokenMs),
    attempts: exchange.attempts.map(attempt => ({
      provider: attempt.endpoint.provider.slug,
      providerName: attempt.endpoint.provider.name,
      model: attempt.endpoint.modelId,
      status: attempt.status,
      error: attempt.error?.code ?? null,
      isByok: attempt.isByok,
    })),
  }
}

/** Whether the caller had gone by the time the reply was complete. */
function left(exchange: Exchange): boolean {
  const { signal } = exchange
  return signal.aborted && (signal.reason as GatewayError | undefined)?.code === 'client_closed'
}

function outcomeOf(exchange: Exchange, error: GatewayError | null, cancelled: boolean): UsageOutcome {
  if (cancelled) return 'aborted'
  if (error !== null) return 'failed'
  const reason = exchange.finish?.reason
  return reason === 'length' || reason === 'content_filter' ? 'incomplete' : 'completed'
}

/** A provider's text as every database can keep it. */
function foreign(text: string | null): string | null {
  return text === null ? null : text.slice(0, FOREIGN_MAX_CHARS).toWellFormed().replaceAll('\0', '\uFFFD')
}

function count(tokens: number | undefined): number {
  return Math.min(tokens ?? 0, COUNT_MAX)
}

/** Milliseconds to the microsecond. */
function micros(ms: number): number {
  return Math.round(ms * 1000) / 1000
}
