/**
 * An HTTP request as described by its head: its operation, the accepted head or the reason to refuse it, and its body.
 * Also the request in the form that its handler sees: the accepted fields, and its slot among the requests of its key.
 */

import type { ApiRequest, EndUserFields, Operation } from '../api/operation.ts'
import type { Clock } from '../base/clock.ts'
import { GatewayError } from '../base/errors.ts'
import type { Stopwatch } from '../base/metrics/stages.ts'
import type { RequestSignal } from '../base/signal.ts'
import type { TracePlace } from '../base/telemetry/request-trace.ts'
import type { CallerContext } from '../base/telemetry/trace-context.ts'
import type { KeyRecord } from '../storage/store.ts'
import type { Admission } from './admission/admission.ts'
import type { KeyPlace } from './admission/key-shares.ts'
import type { HeldBytes } from './admission/load.ts'
import { BodyBuffer, BodyStream, type ByteCount, type PausableSocket } from './body.ts'
import { type AcceptedHead, inspect, type RequestHead } from './head-checks.ts'
import type { HttpRequestDeps } from './http-request-deps.ts'
import { decodeParams, type RouteMatch } from './router.ts'
import { mismatch } from './unknown-path.ts'

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
  /** Null if the request already has its place, or needs none. */
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

  /** Created at each call, because few operations read it. */
  get query(): URLSearchParams {
    return new URLSearchParams(this.#query)
  }

  outlive(onLeft: () => void): void {
    this.#admission.outlive(onLeft)
  }
}

/** Label of paths that match no route, and method of unknown ones. */
export const OTHER = 'other'
const KNOWN_METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])

interface RoutedHead {
  /** One of a closed set. */
  readonly method: string
  /** Null if there is no such path. */
  readonly match: RouteMatch | null
  readonly operation: Operation | undefined
  /** Null if the head could not be accepted. A request with an accepted head may still be refused for its content. */
  readonly accepted: AcceptedHead | null
  readonly refusal: GatewayError | null
}

/** Finds the operation of a head and checks both. Never throws for input. */
export function routeHead(deps: HttpRequestDeps, head: RequestHead): RoutedHead {
  const match = deps.router.find(head.path)
  const operation = match?.resource.operations.get(head.method)
  const method = KNOWN_METHODS.has(head.method) ? head.method : OTHER
  // The error for an upload to an unknown path is about the path, not about its media type.
  const anyMedia = match === null || (operation?.accept === 'raw' && operation.media === 'any')
  const verdict = deps.admissions.shed() ?? inspect(head, deps, match?.freeText, anyMedia)
  if (verdict instanceof GatewayError) return { method, match, operation, accepted: null, refusal: verdict }
  const isUsual =
    operation !== undefined && head.query === '' && (verdict.contentLength ?? 0) <= operation.bodyLimitBytes
  const refusal = isUsual ? null : mismatch(head, verdict, match, deps.router)
  return { method, match, operation, accepted: verdict, refusal }
}

/** Null if no body is read. */
export function openBody(
  { operation, accepted, refusal }: RoutedHead,
  socket: PausableSocket,
  held: ByteCount,
): BodyBuffer | BodyStream | null {
  if (refusal !== null || accepted === null || operation === undefined) return null
  const { bodyLimitBytes } = operation
  if (operation.accept !== 'raw')
    return accepted.hasBody ? new BodyBuffer(accepted.contentLength ?? bodyLimitBytes, held) : null
  return new BodyStream(socket, accepted.hasBody ? accepted.contentLength : 0, bodyLimitBytes, held)
}
