/** Exclusions: candidates that routing left out, each with its reason. Pure. */
import type { Credential } from '../../credentials/catalog.ts'
import type { Exclusion } from '../../exchange/reasons.ts'
import type { Endpoint } from '../../providers/provider.ts'
import type { RouteCandidate } from './candidate.ts'

/** Candidates that are kept with their reason: more than people read. */
const KEPT_MAX = 64

export class Exclusions {
  /** Filters that left a candidate out, for the error of a request that nobody may serve. */
  readonly reasons = new Set<string>()
  readonly list: Exclusion[] = []

  /** A filter leaves the candidate out. */
  add(candidate: RouteCandidate, by: string): void {
    this.reasons.add(by)
    this.#note(candidate, by)
  }

  /** Own credentials are for other models, API keys or users, so that they are no candidates at all. */
  restrict(endpoint: Endpoint, credentials: readonly Credential[]): void {
    for (const credential of credentials) this.#note({ endpoint, credential }, 'credential_restricted')
  }

  #note({ endpoint, credential }: RouteCandidate, by: string): void {
    if (this.list.length < KEPT_MAX) this.list.push({ endpoint, credential, by })
  }

  /** Others fit better than these candidates, which would have served too. */
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

  /** Candidates are listed anew. */
  clear(): void {
    this.reasons.clear()
    this.list.length = 0
  }
}
