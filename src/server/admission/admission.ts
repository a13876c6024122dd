/**
 * Admission of one request, whatever its source: total deadline, abort, metrics and the log line. An HTTP request is
 * one owner of an `Admission`; a WebSocket message or a line of a batch may be others. Hot path.
 */
import type { Reply } from '../../api/operation.ts'
import type { Clock, Timer } from '../../base/clock.ts'
import { GatewayError, shownFieldOf, systemCode } from '../../base/errors.ts'
import { generationId } from '../../base/ids.ts'
import type { ExchangeLine, Log } from '../../base/log/log.ts'
import { shownModel } from '../../base/log/shown.ts'
import { exemplify, type Metrics, observeStages } from '../../base/metrics/metrics.ts'
import { Stopwatch } from '../../base/metrics/stages.ts'
import { RequestAbort, type RequestSignal } from '../../base/signal.ts'
import { userAgentFamily } from '../../base/telemetry/caller-names.ts'
import type { RequestTrace } from '../../base/telemetry/request-trace.ts'
import type { CallerContext } from '../../base/telemetry/trace-context.ts'
import { TracedStopwatch, type Tracing } from '../../base/telemetry/tracing.ts'
import type { ExplanationWriter } from '../../features/explanations/writer.ts'
import type { KeyRecord } from '../../storage/store.ts'
import type { EndedRequests } from './ended-requests.ts'
import type { WeightsOfEndUsers } from './key-queue.ts'
import type { Chained } from './open-requests.ts'

/** The reply to an admitted request. */
export interface AdmittedReply extends Pick<Reply, 'error' | 'summary'> {
  /** The status that was sent; 0 if none was. */
  readonly status: number
  /** True once the reply is complete. */
  readonly ended: boolean
  readonly requestedModel?: string | undefined
}

/** The transport's side of an admitted request. Its properties are read once, when the request is over. */
export interface AdmissionOwner {
  /** Method for the log line, out of a closed set. */
  readonly method: string
  /** Template of the operation; label of metrics. */
  readonly route: string
  /** Path of an unknown route, for the log line; undefined for known ones. */
  readonly path: string | undefined
  /** Address of the client's connection; undefined where there is none. */
  readonly client: string | undefined
  /** As the caller gave it; absent if there is none, or none that is acceptable. */
  readonly requestId?: string | undefined
  /** The header that names the client program. */
  readonly userAgent?: string | undefined
  /** The place in the caller's own trace; null if the caller names none. */
  readonly callerContext?: CallerContext | null
  /** Null until the key has been accepted, and for operations without a key. */
  readonly key: Pick<
    KeyRecord,
    'hash' | 'kind' | 'label' | 'workspaceId' | 'organizationId' | 'expiresAt'
  > | null
  readonly reply: AdmittedReply
  /** True if a client waits for the answer, so that the times of its stages are observed. */
  readonly isAwaited: boolean
  /** True if the request has no line in the log. Absent: it has one. */
  readonly isQuiet?: boolean
  /** Ends the work on the request. Called once, with the first reason. */
  onAbort(reason: GatewayError): void
  /**
   * Ends a request whose handler does not answer: sends the reason if that is still possible, otherwise drops the
   * client.
   */
  giveUp(): void
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
  readonly ended?: EndedRequests
  /** Traces of requests. Absent: there are none. */
  readonly tracing?: Tracing
  /** Receives finished requests in order to explain them. Absent: no request is explained. */
  readonly explanations?: ExplanationWriter
}

/** The part of the thread's admission control that one request knows. */
interface OpenAdmissions {
  readonly deps: AdmissionDeps
  add(admission: Admission): void
  remove(admission: Admission): void
}

/** Maximum time that a handler may take to answer after its signal has fired. */
const LAST_WORD_MS = 1000
/** Label by the first digit of the status. */
const STATUS_CLASSES = ['0xx', '1xx', '2xx', '3xx', '4xx', '5xx']

/** One request from its head to its log line. */
export class Admission implements Chained<Admission> {
  earlier: Admission | null = null
  later: Admission | null = null
  /** Names the request in logs and answers; the generation id of inference requests. */
  readonly id: string
  readonly watch: Stopwatch
  /** Null while tracing is off. */
  readonly trace: RequestTrace | null
  readonly #control: OpenAdmissions
  readonly #owner: AdmissionOwner
  readonly #abort = new RequestAbort()
  readonly signal: RequestSignal = this.#abort
  #deadline: Timer | null = null
  /** True if the client left before the gateway had a reason to stop. */
  #left = false
  /** Called when the client leaves and the work continues; null: the work ends. */
  #onLeft: (() => void) | null = null
  #over = false

  /** @param id default: a new one */
  constructor(control: OpenAdmissions, owner: AdmissionOwner, id?: string) {
    const { clock, tracing } = control.deps
    const nowMs = clock.monotonicMs()
    this.watch = tracing === undefined ? new Stopwatch(nowMs) : new TracedStopwatch(nowMs)
    this.trace = tracing === undefined ? null : tracing.begin()
    this.id = id ?? generationId(clock.nowMs())
    this.#control = control
    this.#owner = owner
  }

  /** The reason to end the work; null while it may continue. */
  get reason(): GatewayError | null {
    return this.#abort.aborted ? (this.#abort.reason as GatewayError) : null
  }

  /** Null without an inference key: a request with a management key may delete that key itself. */
  get keyHash(): string | null {
    const { key } = this.#owner
    return key?.kind === 'inference' ? key.hash : null
  }

  get over(): boolean {
    return this.#over
  }

  /** Counts the request as open; it ends with `finish`. */
  open(): void {
    this.#control.add(this)
  }

  /**
   * Starts the total deadline: at least `leastMs` from the head of the request, or as long as the setting says; the key
   * may expire earlier. `atMs`: monotonic milliseconds of now.
   */
  startDeadline(leastMs = 0, atMs = this.#control.deps.clock.monotonicMs()): void {
    const { clock, requestMs } = this.#control.deps
    const passedMs = atMs - this.watch.startedMs
    const leftMs = Math.max(0, Math.max(requestMs, leastMs) - passedMs)
    const { key } = this.#owner
    if (key !== null && key.expiresAt !== null && this.keyHash !== null) {
      const validMs = Date.parse(key.expiresAt) - clock.nowMs()
      if (validMs < leftMs) {
        this.#deadline = clock.after(Math.max(0, validMs), this.#onExpiry)
        return
      }
    }
    this.#deadline = clock.after(leftMs, this.#onDeadline)
  }

  /** Call it after an abort: the request is given up if its handler does not answer. */
  expectEnd(): void {
    if (this.#over) return
    this.#deadline?.cancel()
    this.#deadline = this.#control.deps.clock.after(LAST_WORD_MS, () => this.giveUp())
  }

  /** Ends the work on the request for this reason; the first reason counts. */
  abort(reason: GatewayError): void {
    if (this.#abort.aborted) return
    this.#abort.abort(reason)
    this.#owner.onAbort(reason)
  }

  /** Lets the work continue without its client: `onLeft` is called instead of an abort. */
  outlive(onLeft: () => void): void {
    this.#onLeft = onLeft
  }

  /** Aborts because the client has disconnected, or was dropped by the gateway. */
  clientGone(): void {
    this.#left = !this.#abort.aborted && this.#owner.reply.error === null
    if (this.#onLeft !== null) {
      this.#onLeft()
      return
    }
    this.abort(new GatewayError('client_closed', 'The client closed the connection'))
  }

  giveUp(): void {
    if (this.#over) return
    this.#owner.giveUp()
    this.finish()
  }

  /** Ends the request without counting it, because another admission reports it. */
  drop(): void {
    if (this.#over) return
    this.#over = true
    this.#deadline?.cancel()
    this.#control.remove(this)
  }

  /** Counts and logs the request. Later calls do nothing. */
  finish(): void {
    if (this.#over) return
    this.#over = true
    this.#deadline?.cancel()
    const { clock, log, metrics, ended, tracing, explanations } = this.#control.deps
    const endedMs = clock.monotonicMs()
    const durationMs = endedMs - this.watch.startedMs
    const { method, route, path, reply, key, client, isAwaited } = this.#owner
    const { summary, error, status: sent } = reply
    const outcome = this.#outcome(reply, sent)
    const status = outcome === 'aborted' ? 499 : sent || (this.reason?.status ?? 500)
    metrics.requests.of(route, STATUS_CLASSES[Math.floor(status / 100)], outcome).inc()
    metrics.requestDuration.of(route).observe(durationMs / 1000)
    if (isAwaited) observeStages(metrics, this.watch, endedMs)
    // Field by field, because spreading an object looks up each field by name.
    const line: ExchangeLine = {
      id: this.id,
      requestId: this.#owner.requestId,
      traceId: this.trace?.traceId ?? this.#owner.callerContext?.traceId,
      spanId: this.trace?.spanId,
      method,
      route,
      path,
      status,
      outcome,
      durationMs: Math.round(durationMs * 10) / 10,
      firstTokenMs: summary?.firstTokenMs,
      model: summary?.model,
      requestedModel: summary === undefined ? shownOf(reply.requestedModel) : summary.requestedModel,
      provider: summary?.provider,
      attempts: summary?.attempts,
      failedAttempts: summary?.failedAttempts,
      inputTokens: summary?.inputTokens,
      outputTokens: summary?.outputTokens,
      finish: summary?.finish,
      cost: summary?.cost,
      error: error?.code ?? summary?.error ?? null,
      field: error === null ? undefined : shownFieldOf(error),
      message: error === null || (summary?.attempts ?? 0) > 0 ? undefined : refusalText(error),
      cause: summary?.cause ?? (error === null ? undefined : (systemCode(error) ?? undefined)),
      trace: summary?.trace,
      session: summary?.session,
      agent: summary?.agent,
      parentAgent: summary?.parentAgent,
      endUser: summary?.endUser,
      userAgent: userAgentFamily(this.#owner.userAgent),
      key: key?.label,
      workspace: key?.workspaceId ?? undefined,
      organization: key?.organizationId,
      client,
    }
    if (this.#owner.isQuiet !== true) log.exchange(line)
    if (ended?.isWatched === true) ended.add(line, this.watch, endedMs)
    explanations?.take(
      line,
      this.watch,
      endedMs,
      key?.hash ?? null,
      error ?? (this.#abort.aborted ? this.reason : null),
      summary?.exchange,
    )
    const { trace } = this
    if (trace !== null && tracing?.ended(trace, line, this.watch as TracedStopwatch, endedMs) === true)
      exemplify(metrics, trace, line, isAwaited, clock.nowMs())
    this.#control.remove(this)
  }

  readonly #onDeadline = (): void => {
    this.abort(new GatewayError('deadline_exceeded', 'Operation timed out'))
    this.expectEnd()
  }

  readonly #onExpiry = (): void => {
    this.abort(
      new GatewayError(
        'authentication',
        'The request was ended because its API key is no longer valid: This API key has expired',
      ),
    )
    this.expectEnd()
  }

  #outcome(
    { ended, error, summary }: AdmittedReply,
    status: number,
  ): 'completed' | 'failed' | 'refused' | 'aborted' {
    if (!ended && this.#left) return 'aborted'
    if (ended && error === null && (summary?.error ?? null) === null) return 'completed'
    return isRefusal(status) ? 'refused' : 'failed'
  }
}

function shownOf(model: string | undefined): string | undefined {
  return model === undefined ? undefined : shownModel(model)
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
