/**
 * Code shared by the calls of every transport: deadlines on the injected clock, back-pressure, the refusal of
 * compressed replies (`Content-Encoding`), and the rule that each call ends in exactly one of `onEnd`, `onError` and
 * `abort`. Hot path: each read costs one clock reading, and each chunk one call, with no allocation and no timer.
 */
import type { Clock, Timer } from '../../../base/clock.ts'
import { type GatewayError, toGatewayError } from '../../../base/errors.ts'
import type { Log } from '../../../base/log/log.ts'
import {
  type TimeoutKind,
  timeoutError,
  type UpstreamCall,
  type UpstreamHandler,
  type UpstreamHead,
  type UpstreamRequest,
  unavailable,
} from '../transport.ts'

interface CallDeps {
  readonly clock: Clock
  /** Logs the error of a handler whose `onError` throws. */
  readonly log: Pick<Log, 'fault'>
  /** Time limit for getting a connection: queueing, name lookup, TCP, proxy and TLS together. */
  readonly connectTimeoutMs: number
}

/** A running call. A transport's class adds the connection below it. */
export abstract class RunningCall implements UpstreamCall {
  readonly #deps: CallDeps
  readonly #idleTimeoutMs: number
  readonly #handler: UpstreamHandler
  #wasSent = false
  #hasHead = false
  #isBodyPaused = false
  #isEnded = false
  /** Monotonic deadline of the connection, then of the head, then of the next chunk. */
  #deadlineMs: number
  readonly #headDeadlineMs: number
  #timer: Timer | null = null
  #timerAtMs = 0

  /** @param nowMs monotonic; the deadlines begin then */
  constructor(
    deps: CallDeps,
    request: UpstreamRequest,
    handler: UpstreamHandler,
    nowMs = deps.clock.monotonicMs(),
  ) {
    this.#deps = deps
    this.#idleTimeoutMs = request.idleTimeoutMs
    this.#handler = handler
    this.#headDeadlineMs = nowMs + request.headersTimeoutMs
    this.#deadlineMs = nowMs + Math.min(request.headersTimeoutMs, deps.connectTimeoutMs)
    this.#setTimer(nowMs)
  }

  /** Stops reading the body. Called only after the head. */
  protected abstract holdBody(): void
  /** Resumes reading. Never calls back from inside. */
  protected abstract releaseBody(): void
  /** Gives up the connection immediately. Called once, unless `onDone` was called. */
  protected abstract dropConnection(): void

  get isOver(): boolean {
    return this.#isEnded
  }

  protected get isSent(): boolean {
    return this.#wasSent
  }

  protected get isPaused(): boolean {
    return this.#isBodyPaused
  }

  /** Called when the request is sent again on another connection; the deadline of the head stays. */
  protected beginAgain(): void {
    this.#wasSent = false
    const connectedByMs = this.#deps.clock.monotonicMs() + this.#deps.connectTimeoutMs
    this.#setDeadline(Math.min(this.#headDeadlineMs, connectedByMs))
  }

  pause(): void {
    this.#isBodyPaused = true
    // Only the body is held back, so a pause before the head takes effect after it.
    if (this.#hasHead && !this.#isEnded) this.holdBody()
  }

  resume(): void {
    if (!this.#isBodyPaused) return
    this.#isBodyPaused = false
    if (this.#isEnded) return
    if (this.#hasHead) this.#setDeadline(this.#deps.clock.monotonicMs() + this.#idleTimeoutMs)
    this.releaseBody()
  }

  abort(): void {
    if (!this.#isEnded) this.#endEarly()
  }

  /** Called when the request was written to a connection. */
  onSent(): void {
    this.#wasSent = true
    // The timer checks the deadline when it fires, and the deadline of a connection is usually the earlier one.
    if (this.#timer !== null && this.#timerAtMs <= this.#headDeadlineMs)
      this.#deadlineMs = this.#headDeadlineMs
    else this.#setDeadline(this.#headDeadlineMs)
  }

  onHead(head: UpstreamHead, readMs = this.#deps.clock.monotonicMs()): void {
    const encoding = head.headers['content-encoding']
    if (encoding !== undefined && head.status < 300 && isEncoded(encoding)) {
      this.fail(unavailable('The provider sent a compressed reply that was not asked for'))
      return
    }
    this.#hasHead = true
    const deadlineMs = readMs + this.#idleTimeoutMs
    // The timer checks the deadline when it fires.
    if (this.#timer !== null && this.#timerAtMs <= deadlineMs) this.#deadlineMs = deadlineMs
    else this.#setDeadline(deadlineMs)
    if (this.#isBodyPaused) this.holdBody()
    try {
      this.#handler.onHead(head, readMs)
    } catch (thrown) {
      this.fail(toGatewayError(thrown))
    }
  }

  onBody(bytes: Buffer, isLast = false, readMs = this.#deps.clock.monotonicMs()): void {
    // The timer checks the deadline when it fires, so it is not reset here.
    this.#deadlineMs = readMs + this.#idleTimeoutMs
    try {
      this.#handler.onData(bytes, isLast, readMs)
    } catch (thrown) {
      this.fail(toGatewayError(thrown))
    }
  }

  /** Called when the reply is complete, and the connection no longer belongs to this call. */
  onDone(readMs = this.#deps.clock.monotonicMs()): void {
    this.#isEnded = true
    this.#timer?.cancel()
    this.#timer = null
    try {
      this.#handler.onEnd(readMs)
    } catch (thrown) {
      this.#reportError(toGatewayError(thrown))
    }
  }

  protected fail(error: GatewayError): void {
    if (this.#isEnded) return
    this.#endEarly()
    this.#reportError(error)
  }

  #reportError(error: GatewayError): void {
    try {
      this.#handler.onError(error)
    } catch (thrown) {
      this.#deps.log.fault('upstream', 'the handler of a provider connection failed', thrown)
    }
  }

  #endEarly(): void {
    this.#isEnded = true
    this.#timer?.cancel()
    this.dropConnection()
  }

  /** Sets the deadline. Re-arms the timer only if it would fire too late. */
  #setDeadline(deadlineMs: number): void {
    this.#deadlineMs = deadlineMs
    if (this.#timer !== null && this.#timerAtMs <= deadlineMs) return
    this.#timer?.cancel()
    this.#setTimer(this.#deps.clock.monotonicMs())
  }

  #setTimer(nowMs: number): void {
    this.#timerAtMs = this.#deadlineMs
    // Timers may fire a fraction early; a delay of at least a millisecond avoids a busy loop.
    const delayMs = Math.max(1, Math.ceil(this.#deadlineMs - nowMs))
    this.#timer = this.#deps.clock.after(delayMs, () => this.#expired())
  }

  #expired(): void {
    this.#timer = null
    if (this.#isEnded) return
    // While reading of the body is paused, silence is not the provider's fault; `resume` sets a new deadline.
    if (this.#isBodyPaused && this.#hasHead) return
    const nowMs = this.#deps.clock.monotonicMs()
    if (nowMs < this.#deadlineMs) this.#setTimer(nowMs)
    else this.fail(timeoutError(this.#timeoutKind()))
  }

  #timeoutKind(): TimeoutKind {
    if (this.#hasHead) return 'IDLE_TIMEOUT'
    return this.#wasSent ? 'HEADERS_TIMEOUT' : 'CONNECT_TIMEOUT'
  }
}

function isEncoded(encoding: string): boolean {
  return encoding !== '' && encoding.toLowerCase() !== 'identity'
}
