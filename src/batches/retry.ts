/**
 * Decides what happens to a line whose request failed: it fails, it is retried, or it waits without using up a retry.
 * The field `line` of an error's row in `base/errors.ts` says which errors wait or are retried. Pure.
 */
import { type FailureCode, type GatewayError, isError, PROVIDER_STATUSES } from '../base/errors.ts'
import type { AttemptRecord } from '../exchange/exchange.ts'
import type { BatchWaitReason } from '../protocol/management/batches.ts'

/** Requests that are sent for one line, when they fail in a way that may pass. */
export const TRIES_MAX = 3

/** `again`: a try that counts. `waits`: nobody was asked, so nothing counts. */
export type Fate = 'failed' | 'again' | 'waits'

/** `tries`: those that count, before this one. */
export function fateOf(error: GatewayError, attempts: readonly AttemptRecord[], tries: number): Fate {
  const { line } = error.meaning
  if (line === undefined) return 'failed'
  if (line === 'waits') return 'waits'
  // One that a line may meet each time counts whether it was sent or not: it must not wait for ever.
  if (line === 'counts') return tryAgain(tries)
  if (!attempts.some(wasSent)) return fitsNoMinute(error) ? 'failed' : 'waits'
  return refusesUs(error) ? 'failed' : tryAgain(tries)
}

function refusesUs({ metadata }: GatewayError): boolean {
  return PROVIDER_STATUSES[Number(metadata?.['provider_status'])]?.refusesUs === true
}

function tryAgain(tries: number): Fate {
  return tries + 1 < TRIES_MAX ? 'again' : 'failed'
}

/** True for a request that is larger than the whole limit of a minute: nothing of it was used, and it was refused. */
function fitsNoMinute({ headers }: GatewayError): boolean {
  const limit = headers?.['X-RateLimit-Limit']
  return limit !== undefined && limit === headers?.['X-RateLimit-Remaining']
}

/** True if routing found that no endpoint may be asked now: breakers are open, or a Retry-After runs. */
export function isNobodyNow({ metadata }: GatewayError): boolean {
  const availability = metadata?.['availability']
  return (
    typeof availability === 'object' &&
    availability !== null &&
    Reflect.get(availability, 'retryable') === true
  )
}

/** Errors that let a batch wait: the reason if they are a provider's, and if they are the gateway's own. */
const WAIT_REASONS: Readonly<
  Partial<Record<FailureCode, { readonly provider: BatchWaitReason; readonly gateway: BatchWaitReason }>>
> = {
  rate_limit_exceeded: { provider: 'provider_rate_limit', gateway: 'key_limit' },
  provider_unavailable: { provider: 'provider_unavailable', gateway: 'provider_unavailable' },
  upstream_timeout: { provider: 'provider_unavailable', gateway: 'provider_unavailable' },
  upstream_overloaded: { provider: 'provider_unavailable', gateway: 'provider_unavailable' },
  service_unavailable: { provider: 'provider_unavailable', gateway: 'gateway_busy' },
  store_unavailable: { provider: 'gateway_busy', gateway: 'gateway_busy' },
  overloaded: { provider: 'gateway_busy', gateway: 'gateway_busy' },
}

/** Why a batch waits if one of its lines ended with this error; null: the error is not one that waiting mends. */
export function waitReasonOf(
  error: GatewayError,
  attempts: readonly Pick<AttemptRecord, 'isStarted'>[],
): BatchWaitReason | null {
  const reasons = WAIT_REASONS[error.code]
  if (reasons === undefined) return null
  const isOfProvider = isNobodyNow(error) || attempts.some(({ isStarted }) => isStarted)
  return isOfProvider ? reasons.provider : reasons.gateway
}

/** Why a connection did not come about: nothing was sent then. */
const UNCONNECTED: ReadonlySet<unknown> = new Set([
  'connection_refused',
  'dns_failure',
  'network_unreachable',
  'proxy_failure',
  'tls_failure',
])

/** True if the request of an attempt was sent to its provider. */
export function wasSent({ isStarted, status, error }: AttemptRecord): boolean {
  if (status !== null) return true
  if (!isStarted) return false
  return !UNCONNECTED.has(error?.metadata?.['reason']) && !isConnectTimeout(error)
}

function isConnectTimeout(error: GatewayError | null): boolean {
  const { cause } = error ?? {}
  return isError(cause) && Reflect.get(cause, 'code') === 'CONNECT_TIMEOUT'
}

const FIRST_MS = 1_000
const MAX_MS = 60_000

/**
 * Milliseconds until the next try: doubled with each try, half of it at random so that lines do not come back together,
 * and never earlier than asked for. `random`: 0 to 1.
 */
export function backoffMs(tries: number, retryAfterSeconds: number | undefined, random: number): number {
  const most = Math.min(MAX_MS, FIRST_MS * 2 ** tries)
  const ms = most / 2 + (random * most) / 2
  return Math.ceil(retryAfterSeconds === undefined ? ms : Math.max(ms, retryAfterSeconds * 1000 + ms / 2))
}
