/**
 * One HTTP request from its copied head to its answer: head, key, share, rate, body, parse, handler. Independent of the
 * HTTP library. Code inside the library's callbacks only records state, and every answer is sent in a later turn,
 * unless the chunks of the body are too short. A phase returns a promise only if it has to wait. None but that of
 * compressed bodies is an async function, whose frame keeps the request while its stream is open.
 */

import type { ApiContext, ApiRequest, EndUserFields, Operation, Reply } from '../api/operation.ts'
import { PROOF_HEADER } from '../api/proof.ts'
import { GatewayError, overloadError, storeUnavailable, toGatewayError } from '../base/errors.ts'
import type { LoopShare, LoopWork } from '../base/fairness/loop-share.ts'
import {
  BODY_CUT_TOO_FINE,
  BODY_PIECES,
  DISCARDED_PIECES,
  PieceCount,
} from '../base/fairness/short-chunks.ts'
import { loggablePath } from '../base/log/loggable.ts'
import { isPending } from '../base/maybe-promise.ts'
import { callerRequestId } from '../base/telemetry/caller-names.ts'
import { type CallerContext, callerContext } from '../base/telemetry/trace-context.ts'
import { requireRole } from '../callers/key-roles.ts'
import type { ApiKeys } from '../callers/keys.ts'
import { type JsonWeigher, parseJson } from '../protocol/json/json.ts'
import type { KeyRecord } from '../protocol/management/keys.ts'
import { sha256 } from '../protocol/management/proof.ts'
import type { RateStatus } from '../protocol/rate-headers.ts'
import { StoreError } from '../storage/store-error.ts'
import type { AdmissionControl } from './admission/admission-control.ts'
import { AdmittedRequest } from './admission/admitted-request.ts'
import { type KeySlot, LARGE_BODY_BYTES } from './admission/key-shares.ts'
import { workInTurn } from './admission/large-body-queue.ts'
import { UNKNOWN_BYTES } from './admission/load.ts'
import { BodyBuffer, BodyStream } from './body.ts'
import { decode } from './content-coding.ts'
import { authorizationOf, type GateRules, inspect, METHODS, type RequestHead } from './head-checks.ts'
import { HttpReply, type ReplyOwner } from './reply.ts'
import type { ResponseSocket } from './response-socket.ts'
import { decodeParams, type RouteMatch, type Router } from './router.ts'
import { DISCARDED_MAX_BYTES, DiscardedUpload, KEY_REFUSALS, mismatch } from './unknown-path.ts'

/** Bytes that a client may still send after its answer, within LINGER_MS of `front.ts`. */
const LINGER_MAX_BYTES = 128 * 1024 * 1024
/** The methods in the answer to a preflight of an unknown path. */
const ALL_METHODS = 'GET, HEAD, POST, PATCH, DELETE, OPTIONS'

/** Label of paths that match no route, and of unknown methods. */
const OTHER_LABEL = 'other'
const NO_HEADERS: ReadonlyMap<string, string> = new Map()
/** Shared by all requests without a query. */
const NO_QUERY = new URLSearchParams()

/** Authenticates keys; synchronous for known ones. */
export type Authenticator = Pick<ApiKeys, 'authenticate'>

/** Counts requests per minute. */
export interface RequestCounter {
  /** True if every key has a limit; otherwise only keys with `rates` may have one. */
  readonly limitsAll: boolean
  /**
   * Counts one inference request of the key, and returns what remains of its limit; undefined if it has none. A promise
   * only if counters must be read first.
   * @throws (or rejects with) GatewayError `rate_limit_exceeded`, or `service_unavailable`
   */
  enter(key: KeyRecord): RateStatus | undefined | Promise<RateStatus | undefined>
  /** Counts nothing. @throws GatewayError `rate_limit_exceeded` if this thread knows that the minute is full */
  refuse(key: KeyRecord): void
}

export interface HttpRequestDeps extends GateRules {
  readonly router: Router
  readonly keys: Authenticator
  readonly admissions: AdmissionControl
  readonly loopShare: LoopShare
  /** Null if no key can have a limit. */
  readonly rate: RequestCounter | null
  /** Time limit from the acceptance of the key to the last byte of the body. */
  readonly uploadMs: number
  /** Once it has begun, every connection is closed after its answer. */
  readonly drain: { readonly hasBegun: boolean }
  /** True for one request per connection: for proxies that are not trusted to frame requests as this server does. */
  readonly closeAfterReply: boolean
}

/** Creates the operation's body from the transport's body. */
export interface BodyAdapter {
  /** Maximum number of bytes that it adds to the body: together they may be a large body. */
  readonly addsBytes: number
  /**
   * `weigher`: counts the memory of what is added.
   * @throws GatewayError
   */
  adapt(body: unknown, weigher: JsonWeigher): unknown
}

type KeyedOperation = Exclude<Operation, { key: 'none' }>
type BodyOperation = Exclude<KeyedOperation, { accept: 'raw' }>

interface HandlerOf<Body, Key> extends Pick<Operation, 'times'> {
  readonly handler: (request: ApiRequest<Body, Key>, reply: Reply) => void | Promise<void>
}

export class HttpRequest extends AdmittedRequest implements ApiContext, ReplyOwner, JsonWeigher, LoopWork {
  readonly method: string
  readonly address: string
  readonly route: string
  readonly path: string | undefined
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
  readonly #deps: HttpRequestDeps
  readonly #adapter: BodyAdapter | null
  readonly #query: string
  readonly #socket: ResponseSocket
  readonly #match: RouteMatch | null
  readonly #operation: Operation | undefined
  /** Dropped once the handler has them. */
  #headers: ReadonlyMap<string, string>
  /** Null if the head states no length. */
  readonly #contentLength: number | null
  /** Null if the body is not discarded. */
  #discarded: DiscardedUpload | null = null
  /** True if the connection closes after the answer. */
  readonly #closesConnection: boolean
  #isSent = false
  readonly #refusal: GatewayError | null
  /** Null if no body is read. */
  readonly #body: BodyBuffer | BodyStream | null
  /** How the body is compressed; null: it is not. */
  readonly #coding: string | null
  /** Bytes of the body that was compressed, until it is parsed. */
  #decodedBytes = 0
  /** SHA-256 of the body; null if nothing needs it. */
  #bodyDigest: string | null = null
  /** Null before the first chunk that is not the last one. */
  #pieces: PieceCount | null = null
  /** True if the rest of the body is read only so that the client sees the answer. */
  #isDiscarding: boolean
  /** True once the key has been looked up. */
  #isLookedUp = false
  /** Null before the key has been looked up, and if it was refused. */
  #keyLookup: KeyRecord | Promise<KeyRecord> | null = null
  /** Set if a limit has just refused requests of the key: the bytes of the body count before the request has a slot. */
  #earlyKey: KeyRecord | null = null
  #earlyBytes = 0
  #earlyFault: GatewayError | null = null
  /** Null before the key was accepted, and if none is needed. */
  #slot: KeySlot | null = null
  /** True once the handler was called, so that there has to be an answer. */
  #isHandled = false

  /**
   * Runs inside the library's callback: checks the head, but does not answer. Never throws for input.
   * @param adapter null: the operation uses the transport's body
   */
  constructor(
    deps: HttpRequestDeps,
    head: RequestHead,
    socket: ResponseSocket,
    adapter: BodyAdapter | null = null,
  ) {
    super(deps.admissions)
    this.#deps = deps
    this.#adapter = adapter
    this.#socket = socket
    this.#query = head.query
    this.address = socket.address
    this.bodiless = head.method === 'HEAD'
    this.method = METHODS.has(head.method) ? head.method : OTHER_LABEL

    const match = deps.router.find(head.path)
    const operation = match?.resource.operations.get(head.method)
    this.#match = match
    this.#operation = operation
    this.route = match?.resource.template ?? OTHER_LABEL
    this.path = match === null ? loggablePath(head.path) : undefined
    this.generates = match?.resource.generates === true
    this.isQuiet = match?.resource.isQuiet === true
    this.dialect = match === null ? deps.router.dialectAbove(head.path) : match.resource.dialect

    // The error for an upload to an unknown path is about the path, not about its media type.
    const anyMedia = match === null || (operation?.accept === 'raw' && operation.media === 'any')
    const verdict = deps.admissions.shed() ?? inspect(head, deps, match?.freeText, anyMedia)
    const accepted = verdict instanceof GatewayError ? null : verdict
    const isUsual =
      operation !== undefined &&
      head.query === '' &&
      (accepted?.contentLength ?? 0) <= operation.bodyLimitBytes
    if (verdict instanceof GatewayError) this.#refusal = verdict
    else this.#refusal = isUsual ? null : mismatch(head, verdict, match, deps.router)
    const headers = accepted?.headers ?? NO_HEADERS
    const requestId = headers.get('x-request-id')
    const parent = headers.get('traceparent')
    this.#headers = headers
    this.requestId = requestId === undefined ? undefined : callerRequestId(requestId)
    this.userAgent = headers.get('user-agent')
    this.callerContext = parent === undefined ? null : callerContext(parent, headers.get('tracestate'))
    if (this.callerContext !== null) this.trace?.request.join(this.callerContext)

    this.#contentLength = accepted?.contentLength ?? null
    this.#coding = accepted?.coding ?? null
    this.#closesConnection = accepted?.closesConnection ?? true
    this.hasBody = accepted?.hasBody === true
    this.#isDiscarding = this.#refusal !== null
    if (this.#isDiscarding || operation === undefined) this.#body = null
    else if (operation.accept === 'raw') {
      const bytes = this.hasBody ? this.#contentLength : 0
      this.#body = new BodyStream(socket, bytes, operation.bodyLimitBytes, this.held, this.#coding)
    } else if (this.hasBody) {
      this.#body = new BodyBuffer(this.#contentLength ?? operation.bodyLimitBytes, this.held)
    } else this.#body = null
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
    if (!isLast && !this.#acceptsPiece(bytes.length)) {
      this.#cutOff()
      return
    }
    this.#discarded?.push(bytes.length, isLast)
    const body = this.#body
    if (body === null) return
    if (!this.#isLookedUp && body.receivedBytes + bytes.length > UNKNOWN_BYTES) this.#lookUpKey(body)
    if (this.#earlyKey !== null) this.#addEarly(this.#earlyKey, body, bytes.length)
    body.push(bytes, isLast)
    if (this.#contentLength !== null || body instanceof BodyStream) return
    try {
      this.#slot?.add(bytes.length)
    } catch (thrown) {
      body.fail(toGatewayError(thrown))
    }
  }

  /** False if the chunks of the body are too short, or too many after the answer. */
  #acceptsPiece(bytes: number): boolean {
    if (this.reply.ended && !this.#isDiscarding) {
      this.#isDiscarding = true
      this.#pieces = null
    }
    this.#pieces ??= new PieceCount(this.#isDiscarding ? DISCARDED_PIECES : BODY_PIECES)
    return this.#pieces.add(bytes) && !(this.reply.ended && this.#pieces.bytes > LINGER_MAX_BYTES)
  }

  #cutOff(): void {
    const fault = this.#refusal ?? new GatewayError('invalid_request', BODY_CUT_TOO_FINE)
    this.#discarded?.end()
    this.#body?.fail(fault)
    this.#fail(fault)
    this.#socket.cutOff()
  }

  /** Looks up the key while a long body arrives: nothing more is kept for a caller whose key is not valid. */
  #lookUpKey(body: BodyBuffer | BodyStream): void {
    try {
      const key = this.#findKey()
      // Its failure is the answer of the request, in a later turn.
      if (isPending(key)) {
        key.catch(() => undefined)
        return
      }
      this.held.belongTo(key)
      if (this.#isRefused(key)) {
        this.#earlyKey = key
        this.#refuseFull(key)
      }
    } catch (thrown) {
      body.fail(toGatewayError(thrown))
    }
  }

  /** True if a limit has just refused requests of the key. */
  #isRefused(key: KeyRecord): boolean {
    const { refused } = this.#deps.admissions
    return refused.size > 0 && this.generates && refused.has(key.hash)
  }

  /** @throws GatewayError `rate_limit_exceeded` if this thread knows that the minute is full */
  #refuseFull(key: KeyRecord): void {
    const { rate } = this.#deps
    if (rate !== null && (rate.limitsAll || key.rates !== null)) rate.refuse(key)
  }

  #addEarly(key: KeyRecord, body: BodyBuffer | BodyStream, bytes: number): void {
    const added = body.receivedBytes + bytes - this.#earlyBytes
    try {
      this.#deps.admissions.shares.addEarly(key, added, this.#earlyBytes)
      this.#earlyBytes += added
    } catch (thrown) {
      this.#earlyFault = toGatewayError(thrown)
      body.fail(this.#earlyFault)
      this.#endEarly()
    }
  }

  /** @throws GatewayError of a limit that is known to refuse the request, or of bytes that have no room */
  #checkEarly(key: KeyRecord): void {
    if (this.#isRefused(key)) this.#refuseFull(key)
    if (this.#earlyFault !== null) throw this.#earlyFault
    this.#endEarly()
  }

  #endEarly(): void {
    if (this.#earlyKey !== null && this.#earlyBytes > 0)
      this.#deps.admissions.shares.addEarly(this.#earlyKey, -this.#earlyBytes, 0)
    this.#earlyKey = null
    this.#earlyBytes = 0
  }

  /** Looks up the key, once. @throws GatewayError `authentication` */
  #findKey(): KeyRecord | Promise<KeyRecord> {
    this.#isLookedUp = true
    this.#keyLookup ??= this.#deps.keys.authenticate(authorizationOf(this.#headers))
    return this.#keyLookup
  }

  /** Aborts the request because its connection is gone. Runs inside the library's callback. */
  override clientLeft(): void {
    this.#discarded?.end()
    super.clientLeft()
  }

  protected onAbort(reason: GatewayError): void {
    this.#body?.fail(reason)
    this.#slot?.giveUp(reason)
  }

  protected onRevoked(reason: GatewayError): void {
    // Before the handler, the abort itself is answered.
    if (this.#isHandled) this.reply.revoke(reason)
  }

  protected onGivenUp(reason: GatewayError): void {
    if (this.reply.ended) return
    if (this.reply.started) this.#socket.abort()
    else this.reply.failure(reason)
  }

  closesAfter(status: number): boolean {
    const { closeAfterReply, drain } = this.#deps
    if (this.#closesConnection || closeAfterReply || drain.hasBegun) return true
    // The parser would read the rest of an unread body as the next request, or drop it for minutes.
    return (this.hasBody && this.#body?.isComplete !== true) || status === 500
  }

  /** Counts the request for shedding and drain; the work starts in a later turn. */
  begin(): void {
    this.#deps.admissions.open.add(this)
    this.#deps.loopShare.add(this, 'start')
  }

  /** Called by the loop share after `begin`. */
  proceed(): void {
    try {
      const work = this.#serve()
      if (work === undefined) this.finish()
      else
        work.then(
          () => this.finish(),
          thrown => this.#failAndFinish(thrown),
        )
    } catch (thrown) {
      this.#failAndFinish(thrown)
    }
  }

  #failAndFinish(thrown: unknown): void {
    this.#fail(thrown)
    this.finish()
  }

  /** Releases everything that is counted for the request; answers it with an error if its handler has not. */
  override finish(): void {
    if (this.#isHandled && !this.reply.ended && !this.#socket.isEnded)
      this.#fail(new Error('handler ended without an answer'))
    this.#body?.release()
    if (this.#earlyKey !== null) this.#endEarly()
    this.#slot?.leave()
    const { key, reply } = this
    if (key !== null && this.generates && (reply.error !== null || this.#deps.admissions.refused.size > 0))
      if (reply.ended) this.#deps.admissions.refused.note(key.hash, reply.error)
    super.finish()
  }

  /** Answers a request whose head needs no key, and finds the key for any other. */
  #serve(): void | Promise<void> {
    if (this.#socket.isEnded) return
    if (this.#refusal !== null) return this.#refuse(this.#refusal)
    const operation = this.#operation
    if (this.method === 'OPTIONS') {
      this.reply.options(this.#match?.resource.allow ?? ALL_METHODS)
      return
    }
    if (operation === undefined) return
    const nowMs = this.#deps.admissions.deps.clock.monotonicMs()
    if (operation.key === 'none') return this.#handle(operation, undefined, nowMs)
    this.watch.enter('auth', nowMs)
    const key = this.#findKey()
    return key instanceof Promise
      ? key.then(record => this.#enter(operation, record))
      : this.#enter(operation, key)
  }

  /** Refuses immediately or, if an upload was sent to an unknown path, when it has arrived. @throws GatewayError */
  #refuse(refusal: GatewayError): Promise<void> {
    if (this.#match !== null || !this.isSending || (this.#contentLength ?? 0) > DISCARDED_MAX_BYTES)
      throw refusal
    this.#discarded = new DiscardedUpload(this.#deps.admissions.deps.clock, refusal)
    return this.#discarded.ended
  }

  /**
   * Refuses a key of the wrong kind or role, takes a slot among the requests of the key, and counts the request in this
   * minute.
   */
  #enter(operation: KeyedOperation, key: KeyRecord): void | Promise<void> {
    this.key = key
    if (this.trace !== null) this.trace.request.isTrusted = key.traceTrusted
    const need = operation.key
    if (need !== 'any' && key.kind !== need) throw new GatewayError('permission_denied', KEY_REFUSALS[need])
    if (operation.key === 'management') requireRole(key, operation.role)
    this.held.belongTo(key)
    const buffer = this.#body instanceof BodyBuffer ? this.#body : null
    // Counts the length stated in the head or, if there is none, the bytes that have arrived.
    const announced = this.#contentLength ?? buffer?.receivedBytes ?? 0
    const mayWait = this.generates && buffer !== null
    if (this.#earlyKey !== null || this.#deps.admissions.refused.size > 0) this.#checkEarly(key)
    this.#slot = this.#deps.admissions.enter(key, operation.accept === 'raw' ? 0 : announced, mayWait)
    const { rate } = this.#deps
    const isCounted = this.generates && rate !== null && (rate.limitsAll || key.rates !== null)
    const rateRoom = isCounted ? rate.enter(key) : undefined
    return rateRoom instanceof Promise
      ? rateRoom.then(room => this.#receive(operation, room))
      : this.#receive(operation, rateRoom)
  }

  /** Receives the body: the next step waits until all of it has arrived, unless the handler reads it in pieces. */
  #receive(operation: KeyedOperation, room: RateStatus | undefined): void | Promise<void> {
    const { clock } = this.#deps.admissions.deps
    if (room !== undefined) this.reply.setRate('requests', room, clock.nowMs())
    const nowMs = clock.monotonicMs()
    this.watch.enter('upload', nowMs)
    const body = this.#body
    if (operation.accept === 'raw') {
      if (this.#socket.isEnded || !(body instanceof BodyStream)) return
      body.startDeadline(clock, Math.max(this.#deps.uploadMs, operation.times?.uploadMs ?? 0))
      return this.#handle(operation, body, nowMs)
    }
    if (!(body instanceof BodyBuffer)) return this.#read(operation, null, nowMs)
    if (this.#coding !== null) return this.#receiveCompressed(operation, body, this.#coding)
    // A short body has arrived together with its head.
    if (body.isComplete) return this.#read(operation, body.takeBytes(), nowMs)
    return body
      .collect(clock, this.#deps.uploadMs)
      .then(bytes => (this.#socket.isEnded ? undefined : this.#read(operation, bytes, clock.monotonicMs())))
  }

  async #receiveCompressed(operation: BodyOperation, body: BodyBuffer, coding: string): Promise<void> {
    const { clock } = this.#deps.admissions.deps
    const compressedBytes = body.isComplete
      ? body.takeBytes()
      : await body.collect(clock, this.#deps.uploadMs)
    const bytes = await decode(compressedBytes, coding, operation.bodyLimitBytes, this.held)
    this.#decodedBytes = bytes.length
    if (this.#socket.isEnded) return
    // The key's share counts the memory that is held, not the bytes that were sent.
    this.#slot?.add(Math.max(0, bytes.length - compressedBytes.length))
    await this.#read(operation, bytes, clock.monotonicMs())
  }

  /**
   * Parses the body and calls the handler. The time until they return counts towards the key's share of the event loop.
   */
  #read(operation: BodyOperation, bytes: Uint8Array | null, sinceMs: number): void | Promise<void> {
    const slot = this.#slot as KeySlot
    if (bytes !== null && bytes.byteLength + (this.#adapter?.addsBytes ?? 0) >= LARGE_BODY_BYTES) {
      return workInTurn(slot, this.#deps.admissions.deps.clock, {
        isOver: () => this.#socket.isEnded,
        begin: startedMs => this.#parse(bytes, startedMs),
        finish: (body, startedMs) => this.#handle(operation, body, startedMs),
      })
    }
    try {
      return this.#handle(operation, this.#parse(bytes, sinceMs), sinceMs)
    } finally {
      slot.spend(sinceMs)
    }
  }

  #parse(bytes: Uint8Array | null, nowMs: number): unknown {
    let body: unknown
    if (bytes !== null) {
      this.watch.enter('parse', nowMs)
      if (this.#headers.has(PROOF_HEADER)) this.#bodyDigest = sha256(bytes)
      // An operation without a dialect stores its body, and the database cannot keep half characters and NUL.
      body = parseJson(bytes, this, this.#operation?.dialect == null ? 'stored' : 'text')
    }
    return this.#adapter === null ? body : this.#adapter.adapt(body, this)
  }

  /**
   * Counts the value of the body instead of its bytes. Refuses a value that could never fit, with its texts once more
   * for the provider.
   */
  weigh(valueBytes: number, textBytes: number): void {
    if (valueBytes + textBytes > this.#deps.admissions.load.largestBytes) {
      throw new GatewayError(
        'payload_too_large',
        'The request body needs more memory than a single request may use',
      )
    }
    this.#body?.release()
    if (this.#decodedBytes > 0) this.held.count(-this.#decodedBytes)
    this.#decodedBytes = 0
    if (!this.held.count(valueBytes)) throw overloadError()
  }

  /** Passes the request to its handler, which alone has the headers from here on. Returns the handler's own promise. */
  #handle<Body, Key>(
    { handler, times }: HandlerOf<Body, Key>,
    body: Body,
    nowMs: number,
  ): void | Promise<void> {
    const headers = this.#headers
    this.#headers = NO_HEADERS
    const params = this.#match?.params ?? NO_HEADERS
    const request: ApiRequest<Body, Key> = {
      context: this,
      headers,
      host: headers.get('host') ?? '',
      params: params.size === 0 ? params : decodeParams(params),
      query: this.#query === '' ? NO_QUERY : new URLSearchParams(this.#query),
      body,
      bodyDigest: this.#bodyDigest,
      // `#enter` has set it, for every operation that requires a key.
      key: this.key as Key,
    }
    this.startDeadline(times?.requestMs, nowMs)
    this.#isHandled = true
    return handler(request, this.reply)
  }

  waitForSlot({ user, safety_identifier }: EndUserFields): Promise<void> | null {
    const slot = this.#slot
    if (slot?.isLate !== true) return null
    const wait = slot.wait(safety_identifier ?? user ?? null, this.key?.organizationId ?? null)
    if (wait === null) return null
    const { clock } = this.#deps.admissions.deps
    this.watch.enter('queue', clock.monotonicMs())
    return wait.then(() => this.watch.enter('parse', clock.monotonicMs()))
  }

  #fail(thrown: unknown): void {
    const error = thrown instanceof StoreError ? storeUnavailable(thrown) : toGatewayError(thrown)
    const { log, metrics } = this.#deps.admissions.deps
    if (!(thrown instanceof GatewayError)) log.fault('server', 'request failed', thrown)
    if (error.code === 'overloaded') metrics.shed.inc({ reason: 'buffered' })
    if (this.isOver || this.#socket.isEnded || this.reply.ended) return
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
