/**
 * Candidates: ways to serve a request, the candidates that routing left out, and the combined error when all have
 * failed. Pure.
 */

import { GatewayError, INTERNAL_MESSAGE } from '../../base/errors.ts'
import type { AttemptRecord, Candidate } from '../../exchange/exchange.ts'
import type { Exclusion } from '../../exchange/reasons.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { Credential } from '../../providers/credentials/catalog.ts'
import type { EndpointState } from '../../providers/health/health.ts'

export interface RouteCandidate extends Candidate {
  /** Null: the shared key. */
  readonly credential: Credential | null
  state?: EndpointState
}

/**
 * One error for all failed attempts: the last error that is not a rate limit, or the last one if all are rate limits.
 * `Retry-After` is the shortest of all attempts if each has one; otherwise that of the returned error.
 */
export function lastError(made: readonly AttemptRecord[]): GatewayError {
  const attempts = made.filter(({ isOutrun }) => isOutrun !== true)
  const errors = attempts.map(attempt => attempt.error).filter(error => error !== null)
  const last = errors.at(-1)
  if (last === undefined) return new GatewayError('internal', INTERNAL_MESSAGE)
  if (attempts.length === 1) return last
  const chosen = errors.findLast(error => error.code !== 'rate_limit_exceeded') ?? last
  const waits = errors.map(error => error.retryAfterSeconds)
  const retryAfterSeconds = waits.every(wait => wait !== undefined)
    ? Math.min(...waits)
    : chosen.retryAfterSeconds
  return new GatewayError(chosen.code, chosen.message, {
    metadata: {
      ...chosen.metadata,
      previous_errors: attempts.slice(0, -1).map(attempt => ({
        provider: attempt.endpoint.provider.name,
        code: attempt.error?.errorType ?? null,
        status: attempt.status,
        ...reasonOf(attempt.error),
      })),
    },
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
    cause: chosen,
  })
}

function reasonOf(error: GatewayError | null): { reason?: unknown } {
  const reason = error?.metadata?.['reason']
  return reason === undefined ? {} : { reason }
}

// Candidates that routing left out, each with its reason.

/** Candidates that are kept with their reason: more than people read. */
const KEPT_MAX = 64

export class Exclusions {
  /** Filters that left a candidate out, for the error of a request that no endpoint may serve. */
  readonly reasons = new Set<string>()
  readonly list: Exclusion[] = []

  /** Notes that a filter leaves out the candidate. */
  add(candidate: RouteCandidate, by: string): void {
    this.reasons.add(by)
    this.#note(candidate, by)
  }

  /**
   * Notes own credentials that are restricted to other models, API keys or users, so that they are not candidates at
   * all.
   */
  restrict(endpoint: Endpoint, credentials: readonly Credential[]): void {
    for (const credential of credentials) this.#note({ endpoint, credential }, 'credential_restricted')
  }

  #note({ endpoint, credential }: RouteCandidate, by: string): void {
    if (this.list.length < KEPT_MAX) this.list.push({ endpoint, credential, by })
  }

  /** Notes candidates that would have served too, but fit less well than others. */
  prefer(
    by: string,
    fits: (candidate: RouteCandidate) => boolean,
    ...groups: readonly (readonly RouteCandidate[])[]
  ): void {
    for (const group of groups) {
      for (const candidate of group) {
        if (!fits(candidate)) this.#note(candidate, by)
      }
    }
  }

  /** Called when candidates are listed again. */
  clear(): void {
    this.reasons.clear()
    this.list.length = 0
  }
}
