/**
 * One admitted request, whatever its source: its facts, its total deadline and abort, metrics and the log line. An HTTP
 * request is one, also when it comes as a WebSocket message; a line of a batch is another. Hot path.
 */
import type { Reply } from '../../api/operation.ts'
import type { Clock, Timer } from '../../base/clock.ts'
import { GatewayError, loggableFieldOf, systemCode } from '../../base/errors.ts'
import { generationId } from '../../base/ids.ts'
import type { ExchangeLine, Log } from '../../base/log/log.ts'
import { loggableModel } from '../../base/log/loggable.ts'
import { exemplify, type Metrics } from '../../base/metrics/metrics.ts'
import { Distribution } from '../../base/metrics/series.ts'
import { Stopwatch } from '../../base/metrics/stages.ts'
import { RequestAbort } from '../../base/signal.ts'
import { userAgentFamily } from '../../base/telemetry/caller-names.ts'
import type { TraceParent } from '../../base/telemetry/request-trace.ts'
import type { CallerContext } from '../../base/telemetry/trace-context.ts'
import { TracedStopwatch, type Tracing } from '../../base/telemetry/tracing.ts'
import type { RequestContext, RequestEnd, RunningWork } from '../../exchange/exchange.ts'
import type { ExplanationWriter } from '../../features/explanations/writer.ts'
import type { KeyRecord } from '../../protocol/management/keys.ts'
import type { ConsoleFeed } from './console-feed.ts'
import type { WeightsOfEndUsers } from './key-queue.ts'
import { HeldBytes, type Load } from './load.ts'

/** The reply to an admitted request. */
export interface AdmittedReply extends Pick<Reply, 'error' | 'summary'> {
  /** The status that was sent; 0 if none was. */
  readonly status: number
  /** True once the reply is complete. */
  readonly ended: boolean
  readonly requestedModel?: string | undefined
  readonly replayOf?: string | undefined
}

export interface AdmissionDeps {
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  /** From the head of a request to the end of its answer. */
  readonly requestMs: number
  /** See KeySharesDeps. */
  readonly weights?: WeightsOfEndUsers
  /** Receives each finished request while somebody is watching. Absent: nobody can watch. */
  readonly consoleFeed?: ConsoleFeed
  /** Traces of requests. Absent: there are none. */
  readonly tracing?: Tracing
  /** Receives finished requests in order to explain them. Absent: no request is explained. */
  readonly explanations?: ExplanationWriter
}

/** The part of the thread's admission control that a request uses. */
interface OpenAdmissions {
  readonly deps: AdmissionDeps
  readonly load: Load
  readonly open: { remove(request: AdmittedRequest): void }
}

/** Maximum time that a handler may take to answer after its signal has fired. */
const ABORTED_HANDLER_MS = 1000
/** Maximum time after a right was lost: longer than a reply is read without its client, to get the provider's usage. */
const REVOKED_HANDLER_MS = 3_000
/** Label by the first digit of the status. */
const STATUS_CLASSES = ['0xx', '1xx', '2xx', '3xx', '4xx', '5xx']

/** One request from its head to its log line. Every fact of it is here, and nowhere else. */
export abstract class AdmittedRequest implements RequestContext {
  /** Its neighbours among the open requests. Written by `OpenRequests`. */
  earlier: AdmittedRequest | null = null
  later: AdmittedRequest | null = null
  readonly id: string
  readonly watch: Stopwatch
  readonly trace: TraceParent | null
  readonly held: HeldBytes
  readonly signal = new RequestAbort()
  /** Null until the key has been accepted, and for operations without a key. */
  key: KeyRecord | null = null
  /** True once the request was counted and logged. Written only here. */
  isOver = false
  running: RunningWork | undefined = undefined
  readonly #control: OpenAdmissions
  #deadline: Timer | null = null
  /** True if the client left before the gateway had a reason to stop. */
  #hasClientLeft = false
  /** Called when the client leaves and the work continues; null: the work ends. */
  #onLeft: (() => void) | null = null

  /** Method for the log line, out of a closed set. */
  abstract readonly method: string
  /** Template of the operation; label of metrics. */
  abstract readonly route: string
  /** Path of an unknown route, for the log line; undefined for known ones. */
  abstract readonly path: string | undefined
  /** Address of the client's connection; undefined where there is none. */
  abstract readonly address: string | undefined
  /** The id that the caller sent; undefined if there is none, or an invalid one. */
  abstract readonly requestId: string | undefined
  /** The header that names the client program. */
  abstract readonly userAgent: string | undefined
  abstract readonly callerContext: CallerContext | null
  abstract readonly reply: AdmittedReply
  /** True if a client waits for the answer, so that the times of its stages are observed. */
  abstract readonly isAwaited: boolean
  /** True if the request has no line in the log. */
  abstract readonly isQuiet: boolean

  /** @param id default: a new one */
  constructor(control: OpenAdmissions, id?: string) {
    const { clock, tracing } = control.deps
    const nowMs = clock.monotonicMs()
    this.watch = tracing === undefined ? new Stopwatch(nowMs) : new TracedStopwatch(nowMs)
    this.trace = tracing === undefined ? null : { request: tracing.begin(), parentId: null }
    this.id = id ?? generationId(clock.nowMs())
    this.held = new HeldBytes(control.load)
    this.#control = control
  }

  /** Ends the work on the request. Called once, with the first reason. */
  protected abstract onAbort(reason: GatewayError): void

  /**
   * Ends a request whose handler does not answer: sends the reason if that is still possible, otherwise drops the
   * client.
   */
  protected abstract onGivenUp(reason: GatewayError): void

  /** Sends the reason to the client. Called if the pipeline could not report it itself. */
  protected abstract onRevoked(reason: GatewayError): void

  /** Null without an inference key: a request with a management key may delete that key itself. */
  get keyHash(): string | null {
    return this.key?.kind === 'inference' ? this.key.hash : null
  }

  /**
   * Starts the total deadline, counted from the head of the request: `requestMs` of the settings, but at least `minMs`.
   * A key that expires earlier ends the request then. `nowMs`: monotonic.
   */
  startDeadline(minMs = 0, nowMs = this.#control.deps.clock.monotonicMs()): void {
    const { clock, requestMs } = this.#control.deps
    const leftMs = Math.max(requestMs, minMs) - (nowMs - this.watch.startedMs)
    const expiresAt = this.key?.kind === 'inference' ? this.key.expiresAt : null
    const validMs = expiresAt === null ? Number.POSITIVE_INFINITY : Date.parse(expiresAt) - clock.nowMs()
    this.#deadline = clock.after(
      Math.max(0, Math.min(leftMs, validMs)),
      validMs < leftMs
        ? () => this.revoke(new GatewayError('key_expired', KEY_EXPIRED))
        : () => this.end(new GatewayError(TIMED_OUT.code, TIMED_OUT.message)),
    )
  }

  /** Ends the work on the request for this reason; the first reason counts. */
  abort(reason: GatewayError): void {
    if (this.signal.aborted) return
    this.signal.abort(reason)
    this.onAbort(reason)
  }

  /** Aborts the request, and gives it up if its handler does not answer. */
  end(reason: GatewayError): void {
    this.abort(reason)
    if (this.isOver) return
    this.#deadline?.cancel()
    this.#deadline = this.#control.deps.clock.after(ABORTED_HANDLER_MS, () => this.giveUp())
  }

  /**
   * Ends the work because its key has lost a right. The client gets the error at once; the provider's usage may still
   * arrive.
   */
  revoke(reason: GatewayError): void {
    if (this.signal.aborted || this.isOver) return
    this.abort(reason)
    if (this.running?.tellLostRight?.(reason) !== true) this.onRevoked(reason)
    if (this.isOver) return
    this.#deadline?.cancel()
    this.#deadline = this.#control.deps.clock.after(REVOKED_HANDLER_MS, () => this.giveUp())
  }

  /** Lets the work continue without its client: `onLeft` is called instead of an abort. False if one was set before. */
  outlive(onLeft: () => void): boolean {
    if (this.#onLeft !== null) return false
    this.#onLeft = onLeft
    return true
  }

  /** Aborts because the client has disconnected, or was dropped by the gateway. */
  clientLeft(): void {
    this.#hasClientLeft = !this.signal.aborted && this.reply.error === null
    if (this.#onLeft !== null) {
      this.#onLeft()
      return
    }
    this.abort(new GatewayError('client_closed', 'The client closed the connection'))
  }

  giveUp(): void {
    if (this.isOver) return
    const { aborted, reason } = this.signal
    this.onGivenUp(aborted ? (reason as GatewayError) : new GatewayError(TIMED_OUT.code, TIMED_OUT.message))
    this.finish()
  }

  /** Ends the request without counting it, because another one reports it. */
  drop(): void {
    if (this.isOver) return
    this.isOver = true
    this.#deadline?.cancel()
    this.held.release()
    this.#control.open.remove(this)
  }

  /** Ends the request: releases what it holds, counts, logs and explains it. Later calls do nothing. */
  finish(): void {
    if (this.isOver) return
    this.isOver = true
    this.#deadline?.cancel()
    this.held.release()
    const { clock, log, metrics, consoleFeed, tracing, explanations } = this.#control.deps
    const endedMs = clock.monotonicMs()
    const durationMs = endedMs - this.watch.startedMs
    const { method, route, reply, key, isAwaited } = this
    const trace = this.trace?.request ?? null
    const { summary, error, status: sentStatus } = reply
    const reason = this.signal.aborted ? (this.signal.reason as GatewayError) : null
    const outcome = this.#outcome(reply, sentStatus)
    const status = outcome === 'aborted' ? 499 : sentStatus || (reason?.status ?? 500)
    metrics.requests.of(route, STATUS_CLASSES[Math.floor(status / 100)], outcome).inc()
    metrics.requestDuration.of(route).observe(durationMs / 1000)
    const { durations, spentMs } = metrics.stages
    this.watch.read(endedMs, spentMs)
    // A request that never became an exchange has no stages.
    if (isAwaited && this.watch.isExchange) Distribution.observeAll(durations, spentMs, 1000)
    // Field by field, because spreading an object looks up each field by name.
    const line: ExchangeLine = {
      id: this.id,
      requestId: this.requestId,
      traceId: trace?.traceId ?? this.callerContext?.traceId,
      spanId: trace?.spanId,
      method,
      route,
      path: this.path,
      status,
      outcome,
      durationMs: Math.round(durationMs * 10) / 10,
      firstTokenMs: summary?.firstTokenMs,
      model: summary?.model,
      requestedModel: summary === undefined ? loggableModelOf(reply.requestedModel) : summary.requestedModel,
      provider: summary?.provider,
      attempts: summary?.attempts,
      failedAttempts: summary?.failedAttempts,
      inputTokens: summary?.inputTokens,
      outputTokens: summary?.outputTokens,
      finish: summary?.finish,
      cost: summary?.cost,
      error: error?.code ?? summary?.error ?? null,
      field: error === null ? undefined : loggableFieldOf(error),
      message: error === null || (summary?.attempts ?? 0) > 0 ? undefined : refusalText(error),
      cause: summary?.cause ?? (error === null ? undefined : (systemCode(error) ?? undefined)),
      trace: summary?.trace,
      session: summary?.session,
      agent: summary?.agent,
      parentAgent: summary?.parentAgent,
      endUser: summary?.endUser,
      userAgent: this.userAgent === undefined ? undefined : userAgentFamily(this.userAgent),
      replayOf: reply.replayOf,
      key: key?.label,
      workspace: key?.workspaceId ?? undefined,
      organization: key?.organizationId,
      client: this.address,
    }
    if (!this.isQuiet) log.exchange(line)
    const end: RequestEnd = {
      line,
      watch: this.watch,
      endedMs,
      spentMs,
      keyHash: key?.hash ?? null,
      error: error ?? reason,
      exchange: summary?.exchange,
    }
    if (consoleFeed?.isWatched === true) consoleFeed.add(end)
    explanations?.write(end)
    if (trace !== null && tracing?.endTrace(trace, line, this.watch as TracedStopwatch, endedMs) === true)
      exemplify(metrics, trace, line, isAwaited, clock.nowMs())
    this.#control.open.remove(this)
  }

  #outcome(
    { ended, error, summary }: AdmittedReply,
    status: number,
  ): 'completed' | 'failed' | 'refused' | 'aborted' {
    if (!ended && this.#hasClientLeft) return 'aborted'
    if (ended && error === null && (summary?.error ?? null) === null) return 'completed'
    return isRefusal(status) ? 'refused' : 'failed'
  }
}

const TIMED_OUT = { code: 'deadline_exceeded', message: 'Operation timed out' } as const
const KEY_EXPIRED = 'The request was ended because its API key has expired'

function loggableModelOf(model: string | undefined): string | undefined {
  return model === undefined ? undefined : loggableModel(model)
}

/** Characters of an error message that a log line includes. */
const MESSAGE_MAX_CHARS = 300

/**
 * The message of one of our 4xx errors; undefined for other failures, and for provider texts, which may quote a prompt.
 */
function refusalText(error: GatewayError): string | undefined {
  if (!isRefusal(error.status) || error.metadata?.['provider_name'] !== undefined) return undefined
  return error.message.slice(0, MESSAGE_MAX_CHARS)
}

/** True for statuses that the client caused: an unknown method counts, a timeout does not. */
function isRefusal(status: number): boolean {
  return (status >= 400 && status <= 499 && status !== 408) || status === 501
}
