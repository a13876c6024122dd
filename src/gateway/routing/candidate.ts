/** One way to serve a request, as routing sees it: an endpoint with the shared key, or with an own one. Types only. */
import type { Credential } from '../../credentials/catalog.ts'
import type { Candidate } from '../exchange.ts'

export interface RouteCandidate extends Candidate {
  /** Null: the shared key. */
  readonly credential: Credential | null
}
