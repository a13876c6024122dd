/**
 * An HTTP request in the form that its handler sees: the accepted fields, and its place among the requests of its key.
 */

import type { Admission } from '../admission/admission.ts'
import type { KeyPlace } from '../admission/key-shares.ts'
import type { HeldBytes } from '../admission/load.ts'
import type { ApiRequest, EndUserFields } from '../api/operation.ts'
import type { Clock } from '../clock.ts'
import type { Stopwatch } from '../metrics/stages.ts'
import type { RequestSignal } from '../signal.ts'
import type { KeyRecord } from '../storage/store.ts'
import type { TracePlace } from '../telemetry/request-trace.ts'
import type { CallerContext } from '../telemetry/trace-context.ts'
import { decodeParams, type RouteMatch } from './router.ts'

/** Has no reference to the connection. */
export class AcceptedRequest<Body, Key extends KeyRecord | null> implements ApiRequest<Body, Key> {
  readonly headers: ReadonlyMap<string, string>
  readonly params: ReadonlyMap<string, string>
  readonly body: Body
  readonly bodyDigest: string | null
  readonly key: Key
  readonly address: string
  readonly id: string
  readonly host: string
  readonly signal: RequestSignal
  readonly watch: Stopwatch
  readonly held: HeldBytes
  readonly callerContext: CallerContext | null
  readonly trace: TracePlace | null
  readonly #query: string
  readonly #admission: Admission
  /** Null where the request has its place, or needs none. */
  readonly #place: KeyPlace | null
  readonly #clock: Clock

  constructor(
    admission: Admission,
    held: HeldBytes,
    headers: ReadonlyMap<string, string>,
    match: RouteMatch,
    query: string,
    body: Body,
    bodyDigest: string | null,
    key: Key,
    address: string,
    place: KeyPlace | null,
    clock: Clock,
    callerContext: CallerContext | null,
  ) {
    this.#admission = admission
    this.id = admission.id
    this.watch = admission.watch
    this.signal = admission.signal
    this.held = held
    this.host = headers.get('host') ?? ''
    this.headers = headers
    this.params = match.params.size === 0 ? match.params : decodeParams(match.params)
    this.#query = query
    this.body = body
    this.bodyDigest = bodyDigest
    this.key = key
    this.address = address
    this.#place = place
    this.#clock = clock
    this.callerContext = callerContext
    this.trace = admission.trace === null ? null : { request: admission.trace, parentId: null }
  }

  waitForPlace({ user, safety_identifier }: EndUserFields): Promise<void> | null {
    if (this.#place === null) return null
    const endUser = safety_identifier ?? user ?? null
    const waiting = this.#place.wait(endUser, this.key?.organizationId ?? null)
    if (waiting === null) return null
    this.watch.enter('queue', this.#clock.monotonicMs())
    return waiting.then(() => this.watch.enter('parse', this.#clock.monotonicMs()))
  }

  /** Made anew each time it is asked for: few operations read it. */
  get query(): URLSearchParams {
    return new URLSearchParams(this.#query)
  }

  outlive(onLeft: () => void): void {
    this.#admission.outlive(onLeft)
  }
}
