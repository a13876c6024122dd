/** Candidates: ways to serve a request, and those that routing left out, each with its reason. Pure. */

import { hash } from 'node:crypto'
import type { Candidate } from '../../exchange/exchange.ts'
import type { Exclusion } from '../../exchange/reasons.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { Credential } from '../../providers/credentials/catalog.ts'
import type { EndpointState } from '../../providers/health/health.ts'

export interface RouteCandidate extends Candidate {
  /** Null: the shared key. */
  readonly credential: Credential | null
  state?: EndpointState
}

const TAG_LENGTH = 10

/** Identifies who can read data that an endpoint encrypts: its provider, with this credential or the shared key. */
export function makerOf({ endpoint, credential }: Pick<Candidate, 'endpoint' | 'credential'>): string {
  const id = credential === null ? '' : credential.id
  return hash('sha256', `${endpoint.provider.slug}\n${id}`, 'base64url').slice(0, TAG_LENGTH)
}

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
