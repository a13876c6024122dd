/** The parts of the process that HTTP requests depend on. Types only. */
import type { ApiKeys } from '../access/keys.ts'
import type { AdmissionControl } from '../admission/admission-control.ts'
import type { LoopShare } from '../fairness/loop-share.ts'
import type { JsonWeigher } from '../protocol/json/json.ts'
import type { RateRoom } from '../protocol/rate.ts'
import type { KeyRecord } from '../storage/store.ts'
import type { GateRules } from './gate.ts'
import type { Router } from './router.ts'

/** Authenticates keys; synchronous for known ones. */
export type Authenticator = Pick<ApiKeys, 'authenticate'>

/** Counts requests per minute. */
export interface RequestCounter {
  /**
   * Counts one inference request of the key, and tells what is left of its limit; undefined: it has none. A promise
   * only when counters have to be asked.
   * @throws (or rejects with) GatewayError `rate_limit_exceeded`, or `service_unavailable`
   */
  enter(key: KeyRecord): RateRoom | undefined | Promise<RateRoom | undefined>
}

export interface HttpRequestDeps extends GateRules {
  readonly router: Router
  readonly keys: Authenticator
  readonly admissions: AdmissionControl
  readonly loopShare: LoopShare
  /** Null: no key has a limit. */
  readonly rate: RequestCounter | null
  /** From the head to the last byte of the body. */
  readonly uploadMs: number
  /** Every connection is closed after its answer. */
  readonly closing: () => boolean
}

/** Makes the body of the operation from what the transport brought. */
export interface AdaptBody {
  /**
   * `weigher`: counts what it holds beyond that.
   * @throws GatewayError
   */
  (body: unknown, weigher: JsonWeigher): unknown
  /** Bytes, at most, that it adds to the body: together they may be a large body. Absent: none. */
  readonly addsBytes?: number
}
