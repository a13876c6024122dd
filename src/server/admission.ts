/**
 * The life of one request, from its copied head to its log line: gate, route, key, body, handler, answer. Knows
 * nothing of the HTTP library. What runs inside the library's callbacks only takes notes; all answers leave later.
 */

import type { HttpRequest, Route } from '../api/handler.ts'
import { type Clock, type Timer, unixSeconds } from '../clock.ts'
import { GatewayError, serviceUnavailable, toGatewayError } from '../errors.ts'
import { generationId } from '../ids.ts'
import type { Log } from '../log/log.ts'
import { observeStages } from '../metrics/exchange-series.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { Stopwatch } from '../metrics/stages.ts'
import type { KeyRecord } from '../storage/store.ts'
import { isAway } from '../storage/store-error.ts'
import { type KeyRing, requireKind } from './authenticate.ts'
import { BodyBuffer, parseJson } from './body.ts'
import {
  type AcceptedHead,
  type GateRules,
  inspect,
  lengthFault,
  type RequestHead,
  tooLarge,
} from './gate.ts'
import { Reply } from './reply.ts'
import { decodeParams, type Match, type Router } from './router.ts'
import type { Wire } from './wire.ts'

export interface IntakeTools extends GateRules {
  readonly router: Router
  readonly keys: KeyRing
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  /** From the head to the last byte of the body. */
  readonly uploadMs: number
  /** From the head to the end of the answer. */
  readonly requestMs: number
  /** Whether every connection is closed after its answer. */
  readonly closing: () => boolean
  /** Whether there is room for the request; asked before any work is done on it. Null: there is. */
  readonly turnAway: () => GatewayError | null
  /** Counts bytes that are held in memory; negative when they are let go. */
  readonly hold: (bytes: number) => void
  /** Called once, when nothing more will happen for the request. */
  readonly onOver: (intake: Intake) => void
}

/** How long a handler may take to answer after its signal has fired, before the answer is taken out of its hands. */
const LAST_WORD_MS = 1000
/** Label of what matched no route, and method of what is none. */
const OTHER = 'other'
/** Label by the first digit of the status. */
const STATUS_CLASSES = ['0xx', '1xx', '2xx', '3xx', '4xx', '5xx']
const KNOWN_METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])

export class Intake {
  readonly #tools: IntakeTools
  readonly #method: string
  readonly #wire: Wire
  readonly #watch: Stopwatch
  readonly #id: string
  readonly #match: Match | null
  readonly #route: Route | undefined
  readonly #query: string
  /** Let go once the handler has it. */
  #accepted: AcceptedHead | null
  /** The connection ends with the answer, whatever that is. */
  readonly #lastOne: boolean
  readonly #refusal: GatewayError | null
  readonly #reply: Reply
  readonly #body: BodyBuffer | null
  #heldBytes = 0
  /** The handler was called, so there has to be an answer. */
  #handled = false
  #bodyWhole: boolean
  #bodyFault: GatewayError | null = null
  #wakeBody: (() => void) | null = null
  #abortion: AbortController | null = null
  #reason: GatewayError | null = null
  #deadline: Timer | null = null
  /** The client went before we had a reason to stop. */
  #left = false
  #over = false

  /** Runs inside the library's callback: takes notes and decides, answers nothing. Never throws for input. */
  constructor(tools: IntakeTools, head: RequestHead, wire: Wire) {
    this.#tools = tools
    this.#method = head.method
    this.#query = head.query
    this.#wire = wire
    this.#watch = new Stopwatch(tools.clock.monotonicMs())
    this.#id = generationId(unixSeconds(tools.clock))
    this.#match = tools.router.find(head.path)
    this.#route = this.#match?.resource.routes.get(head.method)
    const verdict = tools.turnAway() ?? inspect(head, tools, this.#match?.freeText)
    this.#accepted = verdict instanceof GatewayError ? null : verdict
    this.#lastOne = this.#accepted?.closes ?? true
    this.#refusal = verdict instanceof GatewayError ? verdict : this.#mismatch(verdict)
    const takesBody = this.#accepted?.hasBody === true && this.#refusal === null
    this.#body = takesBody ? new BodyBuffer(this.#route?.bodyLimitBytes ?? 0) : null
    this.#bodyWhole = this.#accepted?.hasBody === false
    this.#reply = new Reply(wire, {
      generationId: this.#match?.resource.generates === true ? this.#id : null,
      bodiless: head.method === 'HEAD',
      closes: status => this.#closes(status),
    })
  }

  /** There is a body that has to be handed to `chunk`. */
  get wantsBody(): boolean {
    return this.#body !== null
  }

  /** Takes a chunk of the body. Runs inside the library's callback. */
  chunk(bytes: ArrayBuffer, isLast: boolean): void {
    if (this.#body === null || this.#bodyFault !== null || this.#over) return
    this.#heldBytes += bytes.byteLength
    this.#tools.hold(bytes.byteLength)
    if (!this.#body.push(bytes)) this.#bodyFault = tooLarge(this.#route?.bodyLimitBytes ?? 0)
    else if (isLast) this.#bodyWhole = true
    else return
    this.#wake()
  }

  /** The connection is gone. Runs inside the library's callback. */
  gone(): void {
    // An answer that we broke off ourselves ends here too.
    this.#left = this.#reason === null && this.#reply.error === null
    this.abort(new GatewayError('client_closed', 'The client closed the connection'))
  }

  /** Ends the work on the request for this reason; the first reason counts. */
  abort(reason: GatewayError): void {
    if (this.#reason !== null) return
    this.#reason = reason
    this.#abortion?.abort(reason)
    this.#wake()
  }

  /** Gives up on a handler that does not answer: a last word where one is still possible, then the connection ends. */
  giveUp(): void {
    if (this.#over) return
    if (this.#reply.started) this.#wire.abort()
    else this.#reply.failure(this.#reason ?? new GatewayError('deadline_exceeded', 'Operation timed out'))
    this.#finish()
  }

  /** Does the request. Runs in a turn of its own, and never rejects. */
  async run(): Promise<void> {
    try {
      await this.#serve()
      if (this.#handled && !this.#reply.ended && !this.#wire.dead)
        throw new Error('handler ended without an answer')
    } catch (thrown) {
      this.#fail(thrown)
    }
    this.#finish()
  }

  /** Ends in the handler's own promise, so that nothing of the request is held here while it is answered. */
  async #serve(): Promise<void> {
    if (this.#wire.dead) return
    if (this.#refusal !== null) throw this.#refusal
    const match = this.#match
    const accepted = this.#accepted
    if (match === null || accepted === null) return
    if (this.#method === 'OPTIONS') {
      this.#reply.options(match.resource.allow)
      return
    }
    const route = this.#route
    if (route === undefined) return
    const { clock, keys } = this.#tools
    this.#watch.enter('auth', clock.monotonicMs())
    const pending = keys.authenticate(accepted.headers.get('authorization'))
    const key = pending instanceof Promise ? await pending : pending
    requireKind(key, route.key)
    this.#watch.enter('upload', clock.monotonicMs())
    const body = this.#body === null ? undefined : await this.#wholeBody(this.#body)
    if (this.#wire.dead) return
    this.#deadline = clock.after(this.#remainingMs(), this.#onDeadline)
    this.#handled = true
    this.#accepted = null
    return route.handler(this.#request(match, accepted, key, body), this.#reply)
  }

  #request(match: Match, accepted: AcceptedHead, key: KeyRecord, body: unknown): HttpRequest {
    const signal = (): AbortSignal => this.#signal()
    return {
      id: this.#id,
      headers: accepted.headers,
      host: accepted.headers.get('host') ?? '',
      params: decodeParams(match.params),
      query: new URLSearchParams(this.#query),
      body,
      key,
      watch: this.#watch,
      get signal() {
        return signal()
      },
    }
  }

  /** Made when first asked for: most requests never look at it. */
  #signal(): AbortSignal {
    if (this.#abortion === null) {
      this.#abortion = new AbortController()
      if (this.#reason !== null) this.#abortion.abort(this.#reason)
    }
    return this.#abortion.signal
  }

  async #wholeBody(body: BodyBuffer): Promise<unknown> {
    if (!this.#bodyWhole && this.#bodyFault === null && this.#reason === null) {
      const late = this.#tools.clock.after(this.#tools.uploadMs, () => {
        this.#bodyFault = new GatewayError('deadline_exceeded', 'The request body took too long to arrive')
        this.#wake()
      })
      await new Promise<void>(resolve => {
        this.#wakeBody = resolve
      })
      late.cancel()
    }
    if (this.#bodyFault !== null) throw this.#bodyFault
    if (this.#reason !== null) throw this.#reason
    this.#watch.enter('parse', this.#tools.clock.monotonicMs())
    return parseJson(body.take())
  }

  /** Whoever waits for the body goes on in a turn of its own: the parser has not yet looked at what follows it. */
  #wake(): void {
    if (this.#wakeBody !== null) setImmediate(this.#wakeBody)
    this.#wakeBody = null
  }

  #remainingMs(): number {
    return Math.max(0, this.#tools.requestMs - (this.#tools.clock.monotonicMs() - this.#watch.startedMs))
  }

  readonly #onDeadline = (): void => {
    this.abort(new GatewayError('deadline_exceeded', 'Operation timed out'))
    this.#deadline = this.#tools.clock.after(LAST_WORD_MS, () => this.giveUp())
  }

  /** What is wrong with a well-formed request: no such path, no such method there, too long a body. */
  #mismatch(accepted: AcceptedHead): GatewayError | null {
    if (this.#match === null) return new GatewayError('not_found', 'No such operation')
    if (this.#method === 'OPTIONS') return null
    if (this.#route === undefined) return new GatewayError('method_not_allowed', 'Method not allowed')
    return lengthFault(accepted, this.#route.bodyLimitBytes)
  }

  #closes(status: number): boolean {
    if (this.#lastOne || this.#tools.closing()) return true
    // What is left of an unread body would be taken for the next request, or swallowed for minutes.
    return !this.#bodyWhole || status === 500
  }

  #fail(thrown: unknown): void {
    const error = isAway(thrown) ? serviceUnavailable(thrown) : toGatewayError(thrown)
    if (!(thrown instanceof GatewayError)) this.#tools.log.fault('request failed', thrown)
    if (this.#over || this.#wire.dead) return
    if (this.#reply.started) {
      this.#reply.error = error
      this.#wire.abort()
      return
    }
    if (error.code === 'method_not_allowed' && this.#match !== null) {
      this.#reply.header('Allow', this.#match.resource.allow)
    }
    this.#reply.failure(error)
  }

  #finish(): void {
    if (this.#over) return
    this.#over = true
    this.#deadline?.cancel()
    // Until now: the body lives on as the parsed request.
    this.#tools.hold(-this.#heldBytes)
    const { clock, log, metrics } = this.#tools
    const endedMs = clock.monotonicMs()
    const durationMs = endedMs - this.#watch.startedMs
    const route = this.#match?.resource.template ?? OTHER
    const outcome = this.#outcome()
    const sent = this.#reply.status === 0 ? (this.#reason?.status ?? 500) : this.#reply.status
    const status = outcome === 'aborted' ? 499 : sent
    metrics.requests.of(route, STATUS_CLASSES[Math.floor(status / 100)], outcome).inc()
    metrics.requestDuration.of(route).observe(durationMs / 1000)
    observeStages(metrics, this.#watch, endedMs)
    const { summary } = this.#reply
    // Field by field: copying the summary over would look each of them up by name.
    log.exchange({
      id: this.#id,
      method: KNOWN_METHODS.has(this.#method) ? this.#method : OTHER,
      route,
      status,
      outcome,
      durationMs: Math.round(durationMs * 10) / 10,
      firstTokenMs: summary?.firstTokenMs,
      model: summary?.model,
      provider: summary?.provider,
      attempts: summary?.attempts,
      inputTokens: summary?.inputTokens,
      outputTokens: summary?.outputTokens,
      finish: summary?.finish,
      error: this.#reply.error?.code ?? summary?.error ?? null,
    })
    this.#tools.onOver(this)
  }

  #outcome(): 'completed' | 'failed' | 'refused' | 'aborted' {
    const { ended, status, error, summary } = this.#reply
    if (!ended && this.#left) return 'aborted'
    if (ended && error === null && (summary?.error ?? null) === null) return 'completed'
    return isRefusal(status) ? 'refused' : 'failed'
  }
}

/** Statuses that are the client's doing: not a request that took too long, but a method that nobody has. */
function isRefusal(status: number): boolean {
  return (status >= 400 && status <= 499 && status !== 408) || status === 501
}
