/** Candidates: ways to serve a request, and one error for all that have failed. Pure. */
import type { Credential } from '../../credentials/catalog.ts'
import { GatewayError, INTERNAL_MESSAGE } from '../../errors.ts'
import type { EndpointState } from '../../health/health.ts'
import type { AttemptRecord, Candidate } from '../exchange.ts'

export interface RouteCandidate extends Candidate {
  /** Null: the shared key. */
  readonly credential: Credential | null
  /** What was last known of the endpoint with this key; absent: nobody has asked. */
  state?: EndpointState
}

/**
 * One answer for all failed attempts: the last one's, except that a rate limit speaks for the request only when
 * every attempt met one; then the shortest of the hints to wait is passed on.
 */
export function lastError(attempts: readonly AttemptRecord[]): GatewayError {
  const errors = attempts.map(attempt => attempt.error).filter(error => error !== null)
  const last = errors.at(-1)
  if (last === undefined) return new GatewayError('internal', INTERNAL_MESSAGE)
  if (attempts.length === 1) return last
  const spokesman = errors.findLast(error => error.code !== 'rate_limit_exceeded') ?? last
  const waits = errors.map(error => error.retryAfterSeconds)
  const retryAfterSeconds = waits.every(wait => wait !== undefined)
    ? Math.min(...waits)
    : spokesman.retryAfterSeconds
  return new GatewayError(spokesman.code, spokesman.message, {
    metadata: {
      ...spokesman.metadata,
      previous_errors: attempts.slice(0, -1).map(attempt => ({
        provider: attempt.endpoint.provider.name,
        code: attempt.error?.errorType ?? null,
        status: attempt.status,
        ...reasonOf(attempt.error),
      })),
    },
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
    cause: spokesman,
  })
}

function reasonOf(error: GatewayError | null): { reason?: unknown } {
  const reason = error?.metadata?.['reason']
  return reason === undefined ? {} : { reason }
}
