/**
 * One HTTP request from its copied head to its answer: gate, route, key (its kind and role), body, handler. Independent
 * of the HTTP library. Code inside the library's callbacks only records state; every answer is sent in a later turn.
 */

import type { ApiRequest, Operation } from '../api/operation.ts'
import { PROOF_HEADER } from '../api/proof.ts'
import { GatewayError, overloaded, storeUnavailable, toGatewayError } from '../base/errors.ts'
import type { LoopWork } from '../base/fairness/loop-share.ts'
import { BODY_CUT_TOO_FINE, BODY_PIECES, DISCARDED_PIECES, PieceCount } from '../base/fairness/pieces.ts'
import { shownPath } from '../base/log/log.ts'
import { isPending } from '../base/maybe-promise.ts'
import { callerRequestId } from '../base/telemetry/caller-names.ts'
import type { RequestTrace } from '../base/telemetry/request-trace.ts'
import { type CallerContext, callerContext } from '../base/telemetry/trace-context.ts'
import { requireRole } from '../callers/key-roles.ts'
import { type JsonWeigher, parseJson } from '../protocol/json/json.ts'
import { sha256 } from '../protocol/management/proof.ts'
import type { RateRoom } from '../protocol/rate.ts'
import { type KeyRecord, StoreError } from '../storage/store.ts'
import { AcceptedRequest, OTHER, openBody, routeHead } from './accepted-request.ts'
import { Admission, type AdmissionOwner } from './admission/admission.ts'
import type { KeyPlace } from './admission/key-shares.ts'
import { workInTurn } from './admission/large-body-queue.ts'
import { HeldBytes, UNKNOWN_BYTES } from './admission/load.ts'
import { BodyBuffer, BodyStream } from './body.ts'
import { type AcceptedHead, authorizationOf, type RequestHead } from './head-checks.ts'
import type { AdaptBody, HttpRequestDeps } from './http-request-deps.ts'
import { HttpReply, type ReplyOwner } from './reply.ts'
import type { ResponseSocket } from './response-socket.ts'
import type { RouteMatch } from './router.ts'
import { DISCARDED_MAX_BYTES, DiscardedUpload, KEY_REFUSALS } from './unknown-path.ts'

/** Bytes that a client may still send after its answer (`LINGER_MS` of the front says for how long). */
const LINGER_MAX_BYTES = 128 * 1024 * 1024
/** The methods in the answer to a preflight of an unknown path. */
const ANY_METHOD = 'GET, HEAD, POST, PATCH, DELETE, OPTIONS'

type KeyedOperation = Exclude<Operation, { key: 'none' }>
type BodyOperation = Exclude<KeyedOperation, { accept: 'raw' }>

interface Accepted<Key> {
  readonly match: RouteMatch
  readonly accepted: AcceptedHead
  readonly key: Key
}
/** Facts of a request once its key is known. */
interface Known extends Accepted<KeyRecord> {
  readonly place: KeyPlace
}

export class HttpRequest implements AdmissionOwner, ReplyOwner, JsonWeigher, LoopWork {
  readonly id: string
  readonly method: string
  readonly client: string
  readonly route: string
  readonly path: string | undefined
  /** Null before the key was accepted. */
  key: KeyRecord | null = null
  readonly generates: boolean
  readonly isQuiet: boolean
  readonly dialect: Operation['dialect']
  readonly bodiless: boolean
  /** True if its body has to be passed to `chunk`, even if nothing reads it. */
  readonly hasBody: boolean
  readonly reply: HttpReply
  readonly isAwaited = true
  readonly requestId: string | undefined
  readonly userAgent: string | undefined
  readonly callerContext: CallerContext | null
  readonly trace: RequestTrace | null
  readonly #deps: HttpRequestDeps
  readonly #adapt: AdaptBody | null
  readonly #query: string
  readonly #socket: ResponseSocket
  readonly #admission: Admission
  readonly #held: HeldBytes
  readonly #match: RouteMatch | null
  readonly #operation: Operation | undefined
  /** Dropped once the handler has it. */
  #accepted: AcceptedHead | null
  /** Null if the body is not discarded. */
  #discarded: DiscardedUpload | null = null
  /** True if the connection closes after the answer. */
  readonly #isLast: boolean
  /** True if a body was announced, or may have been. */
  readonly #hasBody: boolean
  #isSent = false
  readonly #refusal: GatewayError | null
  readonly #body: BodyBuffer | BodyStream | null
  /** Null before the first chunk that is not the last one. */
  #pieces: PieceCount | null = null
  /** True if the rest of the body is read only so that the client sees the answer. */
  #isDiscarding: boolean
  /** True once the key has been looked up. */
  #isLookedUp = false
  /** Null before the key has been looked up, and if it was refused. */
  #found: KeyRecord | Promise<KeyRecord> | null = null
  /** Null before the key was accepted, and if none is needed. */
  #place: KeyPlace | null = null
  #bodyDigest: string | null = null
  /** True once the handler was called, so that there has to be an answer. */
  #handled = false

  /**
   * Runs inside the library's callback: checks the head, but does not answer. Never throws for input.
   * @param adapt null: the body of the operation is that of the transport
   */
  constructor(
    deps: HttpRequestDeps,
    head: RequestHead,
    socket: ResponseSocket,
    adapt: AdaptBody | null = null,
  ) {
    this.#deps = deps
    this.#adapt = adapt
    this.#query = head.query
    this.#socket = socket
    this.client = socket.address
    this.#admission = new Admission(deps.admissions, this)
    this.trace = this.#admission.trace
    this.#held = new HeldBytes(deps.admissions.load)
    const routed = routeHead(deps, head)
    this.method = routed.method
    this.#match = routed.match
    this.id = this.#admission.id
    this.route = this.#match?.resource.template ?? OTHER
    this.path = this.#match === null ? shownPath(head.path) : undefined
    this.generates = this.#match?.resource.generates === true
    this.isQuiet = this.#match?.resource.isQuiet === true
    this.dialect = this.#match === null ? deps.router.dialectAbove(head.path) : this.#match.resource.dialect
    this.bodiless = head.method === 'HEAD'
    this.#operation = routed.operation
    this.#accepted = routed.accepted
    this.#refusal = routed.refusal
    const headers = this.#accepted?.headers
    const requestId = headers?.get('x-request-id')
    const parent = headers?.get('traceparent')
    this.requestId = requestId === undefined ? undefined : callerRequestId(requestId)
    this.userAgent = headers?.get('user-agent')
    this.callerContext = parent === undefined ? null : callerContext(parent, headers?.get('tracestate'))
    if (this.callerContext !== null) this.#admission.trace?.join(this.callerContext)
    this.#isLast = this.#accepted?.closes ?? true
    this.#hasBody = this.#accepted?.hasBody ?? true
    this.hasBody = this.#accepted?.hasBody === true
    this.#body = openBody(routed, socket, this.#held)
    this.#isDiscarding = routed.refusal !== null
    this.reply = new HttpReply(socket, this)
  }

  /** True until the end of the body has arrived. */
  get isSending(): boolean {
    return this.hasBody && !this.#isSent
  }

  /**
   * Takes a chunk of the body, whose memory is valid only during the call. Runs inside the library's callback. If the
   * chunks become too short, it answers and drops the connection.
   */
  chunk(bytes: Uint8Array, isLast: boolean): void {
    this.#isSent ||= isLast
    if (!isLast && !this.#mayGoOn(bytes.length)) {
      this.#cut()
      return
    }
    this.#discarded?.push(bytes.length, isLast)
    const body = this.#body
    if (body === null) return
    if (!this.#isLookedUp && body.receivedBytes + bytes.length > UNKNOWN_BYTES) this.#knowKey(body)
    body.push(bytes, isLast)
    if (this.#accepted?.contentLength !== null || body instanceof BodyStream) return
    try {
      this.#place?.add(bytes.length)
    } catch (thrown) {
      body.fail(toGatewayError(thrown))
    }
  }

  /** False if the chunks of the body are too short, or too many after the answer. */
  #mayGoOn(bytes: number): boolean {
    if (this.reply.ended && !this.#isDiscarding) {
      this.#isDiscarding = true
      this.#pieces = null
    }
    this.#pieces ??= new PieceCount(this.#isDiscarding ? DISCARDED_PIECES : BODY_PIECES)
    return this.#pieces.add(bytes) && !(this.reply.ended && this.#pieces.bytes > LINGER_MAX_BYTES)
  }

  #cut(): void {
    const fault = this.#refusal ?? new GatewayError('invalid_request', BODY_CUT_TOO_FINE)
    this.#discarded?.end()
    this.#body?.fail(fault)
    this.#fail(fault)
    this.#socket.cut()
  }

  /** Nothing more of a long body is kept for a caller whose key is not valid. */
  #knowKey(body: BodyBuffer | BodyStream): void {
    if (this.#accepted === null) return
    try {
      const found = this.#findKey(this.#accepted)
      // Its failure is the answer of the request, in a later turn.
      if (isPending(found)) found.catch(() => undefined)
      else this.#held.belongTo(found)
    } catch (thrown) {
      body.fail(toGatewayError(thrown))
    }
  }

  /** Looks up the key, once. @throws GatewayError `authentication` */
  #findKey({ headers }: AcceptedHead): KeyRecord | Promise<KeyRecord> {
    this.#isLookedUp = true
    this.#found ??= this.#deps.keys.authenticate(authorizationOf(headers))
    return this.#found
  }

  /** Aborts the request because its connection is gone. Runs inside the library's callback. */
  gone(): void {
    this.#discarded?.end()
    this.#admission.clientGone()
  }

  onAbort(reason: GatewayError): void {
    this.#body?.fail(reason)
    this.#place?.giveUp(reason)
  }

  giveUp(): void {
    if (this.reply.started) this.#socket.abort()
    else {
      this.reply.failure(
        this.#admission.reason ?? new GatewayError('deadline_exceeded', 'Operation timed out'),
      )
    }
    this.#letGo()
  }

  closesAfter(status: number): boolean {
    if (this.#isLast || this.#deps.closing()) return true
    // The parser would read the rest of an unread body as the next request, or drop it for minutes.
    return (this.#hasBody && this.#body?.whole !== true) || status === 500
  }

  /** Counts the request for shedding and drain; the work starts in a later turn. */
  begin(): void {
    this.#deps.admissions.add(this.#admission)
    this.#deps.loopShare.add(this)
  }

  /**
   * Only for `begin`. Uses callbacks, because they need less memory than an async function that waits while the stream
   * is open.
   */
  proceed(): void {
    try {
      const serving = this.#serve()
      if (serving === undefined) this.#served()
      else
        serving.then(
          () => this.#served(),
          thrown => this.#failed(thrown),
        )
    } catch (thrown) {
      this.#failed(thrown)
    }
  }

  #served(): void {
    if (this.#handled && !this.reply.ended && !this.#socket.dead)
      this.#fail(new Error('handler ended without an answer'))
    this.#letGo()
    this.#admission.finish()
  }

  #failed(thrown: unknown): void {
    this.#fail(thrown)
    this.#letGo()
    this.#admission.finish()
  }

  /** The body is replaced by its value; its texts are needed once more for the provider. */
  weigh(valueBytes: number, textBytes: number): void {
    if (!this.#held.canHold(valueBytes + textBytes)) {
      throw new GatewayError(
        'payload_too_large',
        'The request body needs more memory than a single request may use',
      )
    }
    this.#body?.release()
    if (!this.#held.hold(valueBytes)) throw overloaded()
  }

  /** Releases everything that is counted for the request. */
  #letGo(): void {
    this.#body?.release()
    this.#held.release()
    this.#place?.leave()
  }

  /** Returns the handler's own promise, so that no frame keeps the request while it is answered. */
  #serve(): void | Promise<void> {
    if (this.#socket.dead) return
    if (this.#refusal !== null) return this.#refuse(this.#refusal)
    const match = this.#match
    const accepted = this.#accepted
    const operation = this.#operation
    if (accepted === null) return
    if (this.method === 'OPTIONS') {
      this.reply.options(match?.resource.allow ?? ANY_METHOD)
      return
    }
    if (match === null || operation === undefined) return
    const { clock } = this.#deps.admissions.deps
    const nowMs = clock.monotonicMs()
    if (operation.key === 'none') {
      this.#beginHandling(operation, nowMs)
      return operation.handler(this.#request({ match, accepted, key: null }, undefined), this.reply)
    }
    this.#admission.watch.enter('auth', nowMs)
    const key = this.#findKey(accepted)
    return key instanceof Promise
      ? key.then(found => this.#enter(operation, match, accepted, found))
      : this.#enter(operation, match, accepted, key)
  }

  /** Refuses immediately or, if an upload was sent to an unknown path, when it has arrived. @throws GatewayError */
  #refuse(refusal: GatewayError): Promise<void> {
    if (this.#match !== null || !this.isSending || (this.#accepted?.contentLength ?? 0) > DISCARDED_MAX_BYTES)
      throw refusal
    this.#discarded = new DiscardedUpload(this.#deps.admissions.deps.clock, refusal)
    return this.#discarded.ended
  }

  /** Takes a place among the requests of the key. */
  #enter(
    operation: KeyedOperation,
    match: RouteMatch,
    accepted: AcceptedHead,
    key: KeyRecord,
  ): void | Promise<void> {
    this.key = key
    if (this.trace !== null) this.trace.isTrusted = key.traceTrusted
    const need = operation.key
    if (need !== 'any' && key.kind !== need) throw new GatewayError('permission_denied', KEY_REFUSALS[need])
    if (operation.key === 'management') requireRole(key, operation.role)
    const mayWait = this.generates && this.#body instanceof BodyBuffer
    this.#held.belongTo(key)
    // Counts the length stated in the head or, if there is none, the bytes that have arrived.
    const announced =
      accepted.contentLength ?? (this.#body instanceof BodyBuffer ? this.#body.receivedBytes : 0)
    const place = this.#deps.admissions.enter(key, operation.accept === 'raw' ? 0 : announced, mayWait)
    this.#place = place
    const known: Known = { match, accepted, key, place }
    const counted = this.generates ? this.#deps.rate?.enter(key) : undefined
    return counted instanceof Promise
      ? counted.then(room => this.#takeBody(operation, known, room))
      : this.#takeBody(operation, known, counted)
  }

  #takeBody(operation: KeyedOperation, known: Known, room: RateRoom | undefined): void | Promise<void> {
    const { clock } = this.#deps.admissions.deps
    if (room !== undefined) this.reply.tellRate('requests', room, clock.nowMs())
    const nowMs = clock.monotonicMs()
    this.#admission.watch.enter('upload', nowMs)
    const body = this.#body
    if (operation.accept === 'raw') {
      if (this.#socket.dead || !(body instanceof BodyStream)) return
      body.startDeadline(clock, Math.max(this.#deps.uploadMs, operation.times?.uploadMs ?? 0))
      this.#beginHandling(operation, nowMs)
      return operation.handler(this.#request(known, body), this.reply)
    }
    if (!(body instanceof BodyBuffer)) {
      const adapted = this.#adapt === null ? undefined : this.#adapt(undefined, this)
      return this.#call(operation, known, adapted, nowMs)
    }
    // A short body has arrived together with its head.
    if (body.whole) return this.#handle(operation, known, body.take(), nowMs)
    return body
      .collect(clock, this.#deps.uploadMs)
      .then(bytes =>
        this.#socket.dead ? undefined : this.#handle(operation, known, bytes, clock.monotonicMs()),
      )
  }

  #handle(operation: BodyOperation, known: Known, bytes: Uint8Array, nowMs: number): void | Promise<void> {
    const turn = known.place.turn(bytes.byteLength + (this.#adapt?.addsBytes ?? 0))
    if (turn !== null) {
      return workInTurn(turn, known.place, this.#deps.admissions.deps.clock, {
        isOver: () => this.#socket.dead,
        begin: startedMs => this.#parse(bytes, known, startedMs),
        goOn: (body, startedMs) => this.#call(operation, known, body, startedMs),
      })
    }
    let body: unknown
    try {
      body = this.#parse(bytes, known, nowMs)
    } catch (thrown) {
      known.place.spend(nowMs)
      throw thrown
    }
    return this.#call(operation, known, body, nowMs)
  }

  #parse(bytes: Uint8Array, { accepted }: Known, nowMs: number): unknown {
    this.#admission.watch.enter('parse', nowMs)
    if (accepted.headers.has(PROOF_HEADER)) this.#bodyDigest = sha256(bytes)
    const body = parseJson(bytes, this)
    return this.#adapt === null ? body : this.#adapt(body, this)
  }

  /** Calls the handler. Its synchronous part, since `sinceMs`, counts towards the key's share of the event loop. */
  #call(operation: BodyOperation, known: Known, body: unknown, sinceMs: number): void | Promise<void> {
    try {
      this.#beginHandling(operation, sinceMs)
      return operation.handler(this.#request(known, body), this.reply)
    } finally {
      known.place.spend(sinceMs)
    }
  }

  #beginHandling({ times }: Operation, nowMs: number): void {
    this.#admission.startDeadline(times?.requestMs, nowMs)
    this.#handled = true
    this.#accepted = null
  }

  #request<Body, Key extends KeyRecord | null>(
    { match, accepted, key }: Accepted<Key>,
    body: Body,
  ): ApiRequest<Body, Key> {
    return new AcceptedRequest(
      this.#admission,
      this.#held,
      accepted.headers,
      match,
      this.#query,
      body,
      this.#bodyDigest,
      key,
      this.#socket.address,
      this.#place?.isLate === true ? this.#place : null,
      this.#deps.admissions.deps.clock,
      this.callerContext,
    )
  }

  #fail(thrown: unknown): void {
    const error = thrown instanceof StoreError ? storeUnavailable(thrown) : toGatewayError(thrown)
    if (!(thrown instanceof GatewayError))
      this.#deps.admissions.deps.log.fault('server', 'request failed', thrown)
    if (error.code === 'overloaded') this.#deps.admissions.deps.metrics.shed.inc({ reason: 'buffered' })
    if (this.#admission.over || this.#socket.dead) return
    if (this.reply.started) {
      this.reply.error = error
      this.#socket.abort()
      return
    }
    if (error.code === 'method_not_allowed' && this.#match !== null) {
      this.reply.header('Allow', this.#match.resource.allow)
    }
    this.reply.failure(error)
  }
}
