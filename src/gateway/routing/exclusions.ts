/** Exclusions: candidates that routing left out, each with its reason. Pure. */
import type { Exclusion } from '../../exchange/reasons.ts'
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
    this.note(candidate, by)
  }

  /** An own credential is not for this request, so that it is no candidate at all. */
  note({ endpoint, credential }: RouteCandidate, by: string): void {
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
        if (!fits(candidate)) this.note(candidate, by)
      }
    }
  }

  /** Candidates are listed anew. */
  clear(): void {
    this.reasons.clear()
    this.list.length = 0
  }
}
