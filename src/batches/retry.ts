/**
 * Decides what happens to a line whose request failed: it fails, it is retried, or it waits without using up a retry.
 * The field `line` of an error's row in `base/errors.ts` says which errors wait or are retried. Pure.
 */
import type { FailureCode, GatewayError } from '../base/errors.ts'
import { PROVIDER_STATUSES } from '../base/provider-statuses.ts'
import type { AttemptRecord } from '../exchange/exchange.ts'
import type { BatchWaitReason } from '../protocol/management/batches.ts'
import { isUnconnected } from '../providers/upstream/transport.ts'

/** Maximum of requests that are sent for one line if they fail in a temporary way. */
export const MAX_TRIES = 3

/** `again`: a counted try. `waits`: no provider was called, so nothing is counted. */
export type Fate = 'failed' | 'again' | 'waits'

/** `tryCount`: number of counted tries before this one. */
export function fateOf(error: GatewayError, attempts: readonly AttemptRecord[], tryCount: number): Fate {
  const { line } = error.meaning
  if (line === undefined) return 'failed'
  if (line === 'waits') return 'waits'
  // This error may repeat for ever, so it counts even if nothing was sent; otherwise the line would never end.
  if (line === 'counts') return tryAgain(tryCount)
  if (!attempts.some(wasSent)) return fitsNoMinute(error) ? 'failed' : 'waits'
  return refusesUs(error) ? 'failed' : tryAgain(tryCount)
}

function refusesUs({ meaning, metadata }: GatewayError): boolean {
  return (
    meaning.isOfAccount === true ||
    PROVIDER_STATUSES[Number(metadata?.['provider_status'])]?.refusesUs === true
  )
}

function tryAgain(tries: number): Fate {
  return tries + 1 < MAX_TRIES ? 'again' : 'failed'
}

/** True for a request that is larger than the whole limit of a minute. It was refused and used nothing. */
function fitsNoMinute({ headers }: GatewayError): boolean {
  const limit = headers?.['X-RateLimit-Limit']
  return limit !== undefined && limit === headers?.['X-RateLimit-Remaining']
}

/** True if no endpoint may be called now: breakers are open, or a Retry-After has not passed. */
export function isNoEndpointAvailable({ metadata }: GatewayError): boolean {
  const availability = metadata?.['availability']
  return (
    typeof availability === 'object' &&
    availability !== null &&
    Reflect.get(availability, 'retryable') === true
  )
}

/** The wait reasons of errors: if a provider caused the error, and if the gateway did. */
const WAIT_REASONS: Readonly<
  Partial<Record<FailureCode, { readonly provider: BatchWaitReason; readonly gateway: BatchWaitReason }>>
> = {
  rate_limit_exceeded: { provider: 'provider_rate_limit', gateway: 'key_limit' },
  provider_unavailable: { provider: 'provider_unavailable', gateway: 'provider_unavailable' },
  account_refused: { provider: 'provider_unavailable', gateway: 'provider_unavailable' },
  upstream_timeout: { provider: 'provider_unavailable', gateway: 'provider_unavailable' },
  upstream_overloaded: { provider: 'provider_unavailable', gateway: 'provider_unavailable' },
  service_unavailable: { provider: 'provider_unavailable', gateway: 'gateway_busy' },
  store_unavailable: { provider: 'gateway_busy', gateway: 'gateway_busy' },
  overloaded: { provider: 'gateway_busy', gateway: 'gateway_busy' },
}

/** The reason to wait after a line ended with this error; null: waiting does not help. */
export function waitReasonOf(
  error: GatewayError,
  attempts: readonly Pick<AttemptRecord, 'isStarted'>[],
): BatchWaitReason | null {
  const reasons = WAIT_REASONS[error.code]
  if (reasons === undefined) return null
  const isOfProvider = isNoEndpointAvailable(error) || attempts.some(({ isStarted }) => isStarted)
  return isOfProvider ? reasons.provider : reasons.gateway
}

/** True if the request of an attempt was sent to its provider. */
export function wasSent({ isStarted, status, error }: AttemptRecord): boolean {
  if (status !== null) return true
  if (!isStarted) return false
  return error === null || !isUnconnected(error)
}

const FIRST_BACKOFF_MS = 1_000
const MAX_BACKOFF_MS = 60_000

/**
 * Milliseconds until the next try. It doubles with each try; half of it is random, so that lines do not return at the
 * same time. It is never shorter than the requested wait. `random`: 0 to 1.
 */
export function backoffMs(tryCount: number, retryAfterSeconds: number | undefined, random: number): number {
  const maxMs = Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** tryCount)
  const ms = maxMs / 2 + (random * maxMs) / 2
  return Math.ceil(retryAfterSeconds === undefined ? ms : Math.max(ms, retryAfterSeconds * 1000 + ms / 2))
}
