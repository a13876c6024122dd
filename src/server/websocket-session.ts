/**
 * One client's open WebSocket: its messages become requests, one at a time. Silent sockets are pinged, and old ones are
 * closed. Unread output is counted and bounded, and so is the time that a message may take to arrive. Serve threads.
 */
import type { Clock, Timer } from '../base/clock.ts'
import { GatewayError } from '../base/errors.ts'
import type { Holder } from '../base/fairness/held-share.ts'
import { BODY_PIECES, PerSecond, PieceCount } from '../base/fairness/short-chunks.ts'
import { type JsonWeigher, parseJson } from '../protocol/json/json.ts'
import { isObject } from '../protocol/json/schema.ts'
import type { Peer } from './connections.ts'
import type { RequestHead } from './head-checks.ts'
import { HttpRequest, type HttpRequestDeps } from './http-request.ts'
import type { SocketObserver } from './response-socket.ts'
import { type AnsweringSocket, MessageAnswer, PREVIOUS_NOT_FOUND } from './websocket-answer.ts'
import {
  laneIn,
  mayContinue,
  NO_LANE,
  namesLane,
  type SocketMemories,
  type SocketMemory,
  withEarlier,
} from './websocket-memory.ts'

/** A socket is closed after this time, as the protocol states; a running response may end first. */
const LIFETIME_MS = 60 * 60_000
/**
 * Interval between two checks of a socket. The library collects a message without any notice, and a client cannot
 * answer a ping in the middle of a frame: a client that has sent nothing complete between two checks is pinged, and
 * then has the time of an upload.
 */
const CHECK_INTERVAL_MS = 30_000
/** Maximum number of pings and refused messages while a client does not read. After one more, the socket is dropped. */
const MAX_UNREAD_MESSAGES = 16
/**
 * Maximum number of frames in a second that begin no response: pings, pongs, reports and refused messages. Each has a
 * fixed cost, however short it is, and no limit of the key counts them.
 */
const IDLE_FRAMES_PER_SECOND = 200
/** Time of the event loop that one such frame takes, with its answer. */
const IDLE_FRAME_MS = 0.01
/** Maximum number of messages of lanes that wait for the response in flight, and maximum of their bytes together. */
const MAX_WAITING_MESSAGES = 8
const WAITING_MAX_BYTES = 8 * 1024 * 1024
/** Head of a frame of a client without an extended length. */
const CONTROL_HEAD_BYTES = 6
/** Memory of a read beside its bytes. */
const READ_OVERHEAD_BYTES = 256
/** A message that only reports on a response is shorter. */
const NOTE_MAX_BYTES = 1024
const LANE_MAX_CHARS = 256

/** Close codes of RFC 6455. */
const GOING_AWAY = 1001
const UNSUPPORTED_DATA = 1003
const POLICY_VIOLATION = 1008

/**
 * Headers of the handshake that do not apply to the requests in messages; an idempotency key would make all of them
 * one.
 */
const HANDSHAKE_ONLY_HEADERS =
  /^(?:connection|upgrade|sec-websocket-.*|content-.*|transfer-encoding|expect|keep-alive|idempotency-key)$/

/** The data that a socket has from its handshake. */
export interface Handshake {
  readonly path: string
  readonly headers: readonly string[]
  readonly address: string
  readonly key: Holder
  readonly peer: Peer | null
}

/** The socket of the HTTP library. */
export interface MessageSocket {
  send(text: string, isBinary: boolean): unknown
  ping(): unknown
  cork(send: () => void): unknown
  getBufferedAmount(): number
  end(code: number, reason: string): void
  close(): void
}

interface SocketSessionDeps {
  readonly clock: Clock
  readonly requests: HttpRequestDeps
  readonly observer: SocketObserver
  readonly memories: SocketMemories
}

/** The head of a request in a message: the head of the handshake, as a POST. */
export function messageHead(head: RequestHead, bytes: number): RequestHead {
  const headers: string[] = []
  for (let index = 0; index + 1 < head.headers.length; index += 2) {
    const name = head.headers[index] ?? ''
    if (!HANDSHAKE_ONLY_HEADERS.test(name)) headers.push(name, head.headers[index + 1] ?? '')
  }
  headers.push('content-type', 'application/json', 'content-length', String(bytes))
  return { method: 'POST', path: head.path, query: '', headers: headers }
}

/** One open socket. */
export class SocketSession implements AnsweringSocket {
  readonly key: Holder
  /** Like the next field, written only here. */
  isClosed = false
  unsentBytes = 0
  readonly #deps: SocketSessionDeps
  readonly #socket: MessageSocket
  readonly #handshake: Handshake
  readonly #lifetime: Timer
  readonly #memory: SocketMemory
  /** Messages of lanes, in order. */
  readonly #waiting: ArrayBuffer[] = []
  #waitingBytes = 0
  #watch: Timer
  /** The answer in flight, until it has been sent. */
  #running: MessageAnswer | null = null
  /** True if the socket closes after the answer in flight. */
  #isEnding = false
  /** Monotonic: the time since which bytes have been waiting without any progress. */
  #stuckMs = 0
  /** See MAX_UNREAD_MESSAGES. */
  #unreadMessages = 0
  /** Memory of the message that has begun, as far as the front reports its reads; null: no message has begun. */
  #arriving: PieceCount | null = null
  #arrivingBytes = 0
  /** A message has ended in the read that is being processed. */
  #hasEnded = false
  /** Bytes of control frames in that read. */
  #controlBytes = 0
  /** See IDLE_FRAMES_PER_SECOND. */
  readonly #idleFrames = new PerSecond(IDLE_FRAMES_PER_SECOND)
  /** Monotonic: time of the last whole message, ping or pong of the client. */
  #heardMs: number
  #isPinged = false

  constructor(deps: SocketSessionDeps, socket: MessageSocket, handshake: Handshake) {
    const { clock } = deps
    this.#deps = deps
    this.#socket = socket
    this.#handshake = handshake
    this.key = handshake.key
    this.#memory = deps.memories.open(handshake.key.hash)
    this.#heardMs = clock.monotonicMs()
    this.#watch = clock.after(CHECK_INTERVAL_MS, this.#checkIdle)
    this.#lifetime = clock.after(LIFETIME_MS, () => {
      this.#sendError(
        400,
        new GatewayError(
          'invalid_request',
          'The connection has reached its limit of 60 minutes; open a new one',
        ),
        'websocket_connection_limit_reached',
      )
      this.end()
    })
  }

  get address(): string {
    return this.#handshake.address
  }

  /** Takes a message of the client; its memory is valid only during the call. Runs inside the library's callback. */
  receive(message: ArrayBuffer, isBinary: boolean): void {
    if (this.isClosed) return
    this.#hasEnded = true
    this.#onActivity()
    if (isBinary) {
      this.#socket.end(UNSUPPORTED_DATA, 'Messages must be JSON text')
      return
    }
    if (isNote(message)) {
      this.#countIdle()
      return
    }
    // A client may be faster than the end of its last answer, which is counted in a later turn.
    if (this.#waiting.length === 0 && this.#running?.isComplete !== false) this.#start(message.slice(0))
    else if (namesLane(message)) this.#wait(message)
    else this.#refuse('A response is still in progress on this connection; wait for it to end', NO_LANE)
  }

  /**
   * Called after each read of a front that knows of them, when its frames have been handled. What a message without an
   * end has brought so far counts for the key; one that comes in too short pieces ends the socket.
   */
  read(bytes: number): void {
    const messageBytes = bytes - this.#controlBytes
    this.#controlBytes = 0
    if (this.#hasEnded) {
      this.#hasEnded = false
      this.#arriving = null
      this.#setArriving(0)
    } else if (messageBytes > 0) {
      this.#arriving ??= new PieceCount(BODY_PIECES)
      if (this.#arriving.add(messageBytes))
        this.#setArriving(this.#arrivingBytes + messageBytes + READ_OVERHEAD_BYTES)
      else this.drop()
    }
  }

  #setArriving(bytes: number): void {
    if (bytes === this.#arrivingBytes) return
    this.#deps.observer.countUnread(bytes - this.#arrivingBytes, this.key)
    this.#arrivingBytes = bytes
  }

  #wait(message: ArrayBuffer): void {
    const bytes = message.byteLength
    if (this.#waiting.length >= MAX_WAITING_MESSAGES || this.#waitingBytes + bytes > WAITING_MAX_BYTES) {
      this.#refuse(
        `${this.#waiting.length} messages are already waiting on this connection; wait for some of them to be answered`,
        laneIn(message),
      )
      return
    }
    this.#waiting.push(message.slice(0))
    this.#waitingBytes += bytes
    this.#deps.observer.countUnread(bytes, this.key)
  }

  #nextWaiting(): ArrayBuffer | null {
    const message = this.#waiting.shift()
    if (message === undefined) return null
    this.#waitingBytes -= message.byteLength
    this.#deps.observer.countUnread(-message.byteLength, this.key)
    return message
  }

  #refuse(message: string, lane: string): void {
    const error = new GatewayError('conflict', message)
    if (!this.#countIdle()) return
    this.#sendError(error.status, error, 'response_in_flight', lane)
    this.#boundUnread()
  }

  /** Counts a frame that begins no response, and charges the key for it. False if the socket has been closed. */
  #countIdle(): boolean {
    if (this.isClosed) return false
    const { clock, requests } = this.#deps
    const nowMs = clock.monotonicMs()
    requests.admissions.shares.charge(this.key, IDLE_FRAME_MS)
    if (this.#idleFrames.add(nowMs)) return true
    // Ends the callbacks for the frames that the library has already read.
    this.#socket.end(
      POLICY_VIOLATION,
      `Too many pings, pongs and refused messages: at most ${IDLE_FRAMES_PER_SECOND} a second`,
    )
    return false
  }

  /** Begins the request in a message; the message belongs to the session. */
  #start(message: ArrayBuffer): void {
    const { path, headers } = this.#handshake
    const head = messageHead({ method: 'GET', path, query: '', headers }, message.byteLength)
    const addsBytes = mayContinue(message) ? this.#memory.largestBytes : 0
    const answer = new MessageAnswer(this, this.#deps.observer, message, addsBytes)
    this.#running = answer
    const request = new HttpRequest(this.#deps.requests, head, answer, answer)
    answer.attach(request)
    if (request.hasBody) request.chunk(new Uint8Array(message), true)
    request.begin()
  }

  /**
   * The conversation is placed before the items of the message, so that everything that reads the request sees all of
   * it.
   */
  creationOf(body: unknown, answer: MessageAnswer, weigher: JsonWeigher): unknown {
    if (!isObject(body) || body['type'] !== 'response.create') {
      throw new GatewayError('invalid_request', 'type: must be response.create')
    }
    const { type: _type, stream_id: lane, previous_response_id: previous, generate, ...rest } = body
    answer.lane = laneNamed(lane)
    // The message is kept unchanged until the response has ended.
    weigher.weigh(answer.message.byteLength, 0)
    const generates = generate == null || generate === true
    const ownRequest = { ...rest, ...(generates ? {} : { generate }), stream: true }
    if (previous == null) return ownRequest
    answer.continued = typeof previous === 'string' ? this.#memory.continue(previous) : null
    if (answer.continued === null) throw noPrevious()
    return withEarlier(ownRequest, answer.continued, part => parseJson(part, weigher))
  }

  settled(answer: MessageAnswer): void {
    if (this.isClosed) return
    const { id, lane, message, lastEvent, continued } = answer
    if (lastEvent !== null) {
      this.#memory.remember(id, lane ?? NO_LANE, continued, new Uint8Array(message), lastEvent)
    }
    // The client will retry with the whole conversation.
    else if (continued !== null) this.#memory.forget(continued.id)
  }

  /** Called when a message has been refused: it began no response. */
  refused(): void {
    this.#countIdle()
  }

  /** Called when the client has sent a ping with this many bytes, which the library has answered. */
  pinged(bytes: number): void {
    this.#controlBytes += CONTROL_HEAD_BYTES + bytes
    if (!this.#countIdle()) return
    this.#onActivity()
    this.#boundUnread()
  }

  /** Called when the client has sent a pong. */
  ponged(bytes: number): void {
    this.#controlBytes += CONTROL_HEAD_BYTES + bytes
    if (this.#countIdle()) this.#onActivity()
  }

  over(answer: MessageAnswer): void {
    if (this.#running !== answer) return
    this.#running = null
    if (this.#isEnding) this.end()
    if (this.#isEnding || this.isClosed) return
    const next = this.#nextWaiting()
    if (next !== null) this.#start(next)
  }

  /** Sends the texts of events. */
  send(texts: readonly string[]): void {
    if (this.isClosed || texts.length === 0) return
    this.#socket.cork(() => {
      for (const text of texts) if (!this.isClosed) this.#socket.send(text, false)
    })
    this.#updateUnsent()
  }

  /** Called when some unsent bytes have been sent. */
  drained(): void {
    this.#unreadMessages = 0
    this.#stuckMs = this.#deps.clock.monotonicMs()
    this.#updateUnsent()
    this.#running?.progressed()
  }

  /** Closes the socket because its key is no longer valid; the response in flight reports that itself. */
  endKey(reason: GatewayError): void {
    if (this.#running === null) this.#sendError(reason.status, reason, reason.errorType)
    this.end()
  }

  /** Closes the socket as soon as no response is in flight. */
  end(): void {
    this.#isEnding = true
    if (this.#running === null && !this.isClosed)
      this.#socket.end(GOING_AWAY, 'The gateway is closing the connection')
  }

  /** Drops the connection. */
  drop(): void {
    if (!this.isClosed) this.#socket.close()
  }

  closed(): void {
    this.isClosed = true
    this.#lifetime.cancel()
    this.#watch.cancel()
    this.#handshake.peer?.countEnd(true)
    this.#setUnsent(0)
    this.#setArriving(0)
    this.#memory.clear()
    while (this.#nextWaiting() !== null);
    const running = this.#running
    this.#running = null
    running?.clientLeft()
  }

  /** Reports a failure outside of a response. */
  #sendError(status: number, { message }: GatewayError, code: string, lane = NO_LANE): void {
    const streamId = lane === NO_LANE ? {} : { stream_id: lane }
    this.send([JSON.stringify({ type: 'error', status, error: { code, message }, ...streamId })])
  }

  #onActivity(): void {
    this.#heardMs = this.#deps.clock.monotonicMs()
    this.#isPinged = false
  }

  /**
   * Drops a client that does not read: each of its pings and refused messages is answered, and the library sets no
   * limit.
   */
  #boundUnread(): void {
    this.#updateUnsent()
    if (this.unsentBytes === 0) this.#unreadMessages = 0
    else if (++this.#unreadMessages > MAX_UNREAD_MESSAGES) this.drop()
  }

  #updateUnsent(): void {
    if (!this.isClosed) this.#setUnsent(this.#socket.getBufferedAmount())
  }

  #setUnsent(bytes: number): void {
    if (bytes === this.unsentBytes) return
    if (this.unsentBytes === 0) this.#stuckMs = this.#deps.clock.monotonicMs()
    this.#deps.observer.countUnread(bytes - this.unsentBytes, this.key)
    this.unsentBytes = bytes
  }

  readonly #checkIdle = (): void => {
    const { clock, requests } = this.#deps
    const nowMs = clock.monotonicMs()
    this.#updateUnsent()
    const isUnread = this.unsentBytes > 0
    const silentMs = nowMs - this.#heardMs
    // An incomplete answer has its own deadline for slow readers.
    const isLeft = isUnread && this.#running?.isEnded !== false && nowMs - this.#stuckMs >= CHECK_INTERVAL_MS
    if (isLeft || silentMs >= CHECK_INTERVAL_MS + requests.uploadMs) {
      this.drop()
      return
    }
    if (silentMs >= CHECK_INTERVAL_MS && !isUnread && !this.#isPinged) {
      this.#isPinged = true
      this.#socket.ping()
    }
    this.#watch = clock.after(CHECK_INTERVAL_MS, this.#checkIdle)
  }
}

function laneNamed(lane: unknown): string {
  if (lane == null) return NO_LANE
  if (typeof lane === 'string' && lane !== '' && lane.length <= LANE_MAX_CHARS) return lane
  throw new GatewayError(
    'invalid_request',
    `stream_id: must be a string of 1 to ${LANE_MAX_CHARS} characters`,
  )
}

function noPrevious(): GatewayError {
  return new GatewayError(
    'invalid_request',
    'previous_response_id: this connection does not have that response; send the full history in input',
    { metadata: { reason: PREVIOUS_NOT_FOUND } },
  )
}

/** True for a message that reports what the client has done with a response, and needs no answer. */
function isNote(message: ArrayBuffer): boolean {
  if (message.byteLength > NOTE_MAX_BYTES) return false
  const bytes = Buffer.from(message)
  if (!bytes.includes('response.processed')) return false
  try {
    const body: unknown = JSON.parse(bytes.toString())
    return isObject(body) && body['type'] === 'response.processed'
  } catch {
    return false
  }
}
