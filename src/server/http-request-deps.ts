/** The parts of the process that HTTP requests depend on. Types only. */

import type { LoopShare } from '../base/fairness/loop-share.ts'
import type { ApiKeys } from '../callers/keys.ts'
import type { JsonWeigher } from '../protocol/json/json.ts'
import type { RateRoom } from '../protocol/rate.ts'
import type { KeyRecord } from '../storage/store.ts'
import type { AdmissionControl } from './admission/admission-control.ts'
import type { GateRules } from './head-checks.ts'
import type { Router } from './router.ts'

/** Authenticates keys; synchronous for known ones. */
export type Authenticator = Pick<ApiKeys, 'authenticate'>

/** Counts requests per minute. */
export interface RequestCounter {
  /**
   * Counts one inference request of the key, and returns the rest of its limit; undefined if it has none. A promise
   * only if counters have to be asked.
   * @throws (or rejects with) GatewayError `rate_limit_exceeded`, or `service_unavailable`
   */
  enter(key: KeyRecord): RateRoom | undefined | Promise<RateRoom | undefined>
}

export interface HttpRequestDeps extends GateRules {
  readonly router: Router
  readonly keys: Authenticator
  readonly admissions: AdmissionControl
  readonly loopShare: LoopShare
  /** Null if no key has a limit. */
  readonly rate: RequestCounter | null
  /** Time limit from the head to the last byte of the body. */
  readonly uploadMs: number
  /** True if every connection is closed after its answer. */
  readonly closing: () => boolean
}

/** Creates the body of the operation from the data of the transport. */
export interface AdaptBody {
  /**
   * `weigher`: counts memory in addition to that.
   * @throws GatewayError
   */
  (body: unknown, weigher: JsonWeigher): unknown
  /** Maximum number of bytes that it adds to the body: together they may be a large body. Absent: none. */
  readonly addsBytes?: number
}
