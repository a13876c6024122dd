/**
 * The trace of one request while it runs: notes on its exchanges, attempts and tool calls, from which the main thread
 * builds spans. Exists only while tracing is on. Leaf.
 */
import { atFactor } from '../money.ts'
import type { AttemptNotes, ExchangeNotes, ToolNotes } from './ended-trace.ts'
import { type CallerContext, isSpanId, isTraceId, type TraceIds, traceParent } from './trace-context.ts'

/** Maximum spans of one request: a fusion of eight models with tools has about a hundred. */
const MAX_SPANS = 1_000

/** The part of an exchange that its notes need. */
interface NotedExchange {
  readonly id: string
  readonly watch: { readonly startedMs: number }
  readonly request: {
    readonly model?: string | undefined
    readonly stream?: boolean | null | undefined
    readonly temperature?: number | null | undefined
    readonly top_p?: number | null | undefined
    readonly max_output_tokens?: number | null | undefined
    readonly trace?: unknown
  }
}

/** The part of an endpoint that its notes need. */
interface NotedEndpoint {
  readonly provider: { readonly slug: string }
  readonly modelId: string
  readonly upstreamModel: string
  readonly region?: string | null | undefined
}

/** The outcome of an attempt. */
interface NotedEnd {
  readonly status: number | null
  readonly error: string | null
  readonly isOutrun: boolean
  readonly upstreamId: string | null
  readonly finish: string | null
  readonly usage: Readonly<
    Record<'inputTokens' | 'cachedTokens' | 'cacheWriteTokens' | 'outputTokens' | 'reasoningTokens', number>
  > | null
}

/** The parent of an exchange's spans: a request, and the span above. Null above: it is the client's own exchange. */
export interface TraceParent {
  readonly request: RequestTrace
  readonly parentId: string | null
}

/** One request, from its head to its end. */
export class RequestTrace {
  traceId: string
  /** Span of the request itself. */
  readonly spanId: string
  parentId: string | null = null
  state: string | null = null
  /** The caller's sampling flag; null: it sent none. */
  callerSampling: boolean | null = null
  /** True if the API key of the request may decide about sampling. */
  isTrusted = false
  /** True if the caller chose the trace id. */
  isOfCaller = false
  readonly exchanges: ExchangeNotes[] = []
  leftOut = 0
  readonly #ids: TraceIds
  readonly #isKept: (trace: RequestTrace) => boolean
  #spans = 1

  /** @param isKept returns true if the trace would be kept without a failure */
  constructor(ids: TraceIds, isKept: (trace: RequestTrace) => boolean) {
    this.#ids = ids
    this.#isKept = isKept
    this.traceId = ids.traceId()
    this.spanId = ids.spanId()
  }

  /** Joins the trace of a caller. */
  join({ traceId, spanId, state, isSampled }: CallerContext): void {
    this.traceId = traceId
    this.isOfCaller = true
    this.parentId = spanId
    this.state = state
    this.callerSampling = isSampled
  }

  /** The sampling flag for outgoing calls. */
  get isSampled(): boolean {
    return this.#isKept(this)
  }

  /** The header that tells a caller the span id of its request. */
  get response(): string {
    return traceParent(this.traceId, this.spanId, this.isSampled)
  }

  /** Begins an exchange. If it is the client's own (no `parentId`), the trace takes the ids in its field `trace`. */
  open(
    exchange: NotedExchange,
    operation: ExchangeNotes['operation'],
    parentId: string | null,
  ): ExchangeSpans {
    const { request } = exchange
    if (parentId === null) this.#adopt(request.trace)
    const spanId = parentId === null ? this.spanId : this.#ids.spanId()
    const notes: ExchangeNotes = {
      id: exchange.id,
      spanId,
      parentId,
      startedMs: exchange.watch.startedMs,
      endedMs: null,
      operation,
      requestedModel: plainOrNull(request.model),
      isStreamed: request.stream === true,
      temperature: request.temperature ?? null,
      topP: request.top_p ?? null,
      maxTokens: request.max_output_tokens ?? null,
      session: null,
      outcome: null,
      error: null,
      cost: 0,
      attempts: [],
      tools: [],
    }
    if (this.countSpan()) this.exchanges.push(notes)
    return new ExchangeSpans(this, this.#ids, notes)
  }

  /** Counts one more span. Returns false if the limit is reached. */
  countSpan(): boolean {
    if (this.#spans === MAX_SPANS) {
      this.leftOut++
      return false
    }
    this.#spans++
    return true
  }

  /** Valid ids in the field `trace` count if the headers contain none. */
  #adopt(field: unknown): void {
    if (typeof field !== 'object' || field === null || this.parentId !== null) return
    const { trace_id: traceId, parent_span_id: parentId } = field as Readonly<Record<string, unknown>>
    if (!isTraceId(traceId)) return
    this.traceId = traceId
    this.isOfCaller = true
    if (isSpanId(parentId)) this.parentId = parentId
  }
}

/** A name that a trace may contain: of models, functions, calls, replies of providers. */
const PLAIN_NAME = /^[\w.:/@+-]{1,128}$/
/** The gateway's keys, in case a client puts one here by mistake. */
const KEY = /sk-gw-/i

function plainOrNull(name: string | null | undefined): string | null {
  return name != null && PLAIN_NAME.test(name) && !KEY.test(name) ? name : null
}

/** The notes of one exchange. */
export class ExchangeSpans {
  readonly notes: ExchangeNotes
  readonly #request: RequestTrace
  readonly #ids: TraceIds
  /** Running tool calls, by their signals. */
  readonly #running = new Map<object, ToolNotes>()

  constructor(request: RequestTrace, ids: TraceIds, notes: ExchangeNotes) {
    this.#request = request
    this.#ids = ids
    this.notes = notes
  }

  /** Begins an attempt. */
  attempt(
    { provider, modelId, upstreamModel, region }: NotedEndpoint,
    how: { readonly kind: AttemptNotes['kind']; readonly isByok: boolean; readonly turn: number },
    nowMs: number,
  ): AttemptNotes {
    const notes: AttemptNotes = {
      spanId: this.#ids.spanId(),
      startedMs: nowMs,
      sentMs: null,
      headMs: null,
      firstMs: null,
      endedMs: null,
      firstTokenMs: null,
      ...how,
      provider: provider.slug,
      model: modelId,
      upstreamModel,
      region: region ?? null,
      host: null,
      port: null,
      status: null,
      error: null,
      isOutrun: false,
      upstreamId: null,
      finish: null,
      inputTokens: null,
      cachedTokens: null,
      cacheWriteTokens: null,
      outputTokens: null,
      reasoningTokens: null,
      cost: 0,
    }
    if (this.#request.countSpan()) this.notes.attempts.push(notes)
    return notes
  }

  /** Removes an attempt that was never sent. */
  drop(attempt: AttemptNotes): void {
    const index = this.notes.attempts.indexOf(attempt)
    if (index !== -1) this.notes.attempts.splice(index, 1)
  }

  /** The header for a provider with this attempt. */
  header({ spanId }: AttemptNotes): string {
    return traceParent(this.#request.traceId, spanId, this.#request.isSampled)
  }

  /** The caller's `tracestate`, for providers that take part in its trace. */
  get state(): string | null {
    return this.#request.state
  }

  /** Ends an attempt. `cost`: of the running turn, which its last attempt determines. */
  endAttempt(attempt: AttemptNotes, end: NotedEnd, cost: number, nowMs: number): void {
    const { usage } = end
    for (const other of this.notes.attempts) if (other.turn === attempt.turn) other.cost = 0
    attempt.endedMs = nowMs
    attempt.status = end.status
    attempt.error = end.error
    attempt.isOutrun = end.isOutrun
    attempt.upstreamId = plainOrNull(end.upstreamId)
    attempt.finish = end.finish
    attempt.cost = cost
    if (usage === null) return
    attempt.inputTokens = usage.inputTokens
    attempt.cachedTokens = usage.cachedTokens
    attempt.cacheWriteTokens = usage.cacheWriteTokens
    attempt.outputTokens = usage.outputTokens
    attempt.reasoningTokens = usage.reasoningTokens
  }

  /** Ends an attempt because another one answered first. */
  outrun(attempt: AttemptNotes, nowMs: number): void {
    attempt.isOutrun = true
    attempt.endedMs = nowMs
  }

  /** Starts a call of a server tool. `signal`: the signal of the tool, by which its own model calls are found. */
  tool(tool: string, name: string, callId: string, signal: object, nowMs: number): ToolNotes {
    const notes: ToolNotes = {
      spanId: this.#ids.spanId(),
      startedMs: nowMs,
      endedMs: null,
      tool,
      name: plainOrNull(name),
      callId: plainOrNull(callId),
      outcome: null,
      cost: 0,
    }
    if (this.#request.countSpan()) this.notes.tools.push(notes)
    this.#running.set(signal, notes)
    return notes
  }

  toolEnded(notes: ToolNotes, signal: object, outcome: string, cost: number, nowMs: number): void {
    this.#running.delete(signal)
    notes.outcome = outcome
    notes.cost = cost
    notes.endedMs = nowMs
  }

  /**
   * The parent of a model call for this exchange: the tool with this signal, else the newest running tool, else the
   * exchange.
   */
  inner(signal: object | undefined): TraceParent {
    return { request: this.#request, parentId: this.#toolWith(signal)?.spanId ?? this.notes.spanId }
  }

  /** The `traceparent` for calls of a tool. */
  toolHeader(signal: object): string {
    const spanId = this.#toolWith(signal)?.spanId ?? this.notes.spanId
    return traceParent(this.#request.traceId, spanId, this.#request.isSampled)
  }

  #toolWith(signal: object | undefined): ToolNotes | undefined {
    const tool = signal === undefined ? undefined : this.#running.get(signal)
    return tool ?? (this.#running.size === 0 ? undefined : [...this.#running.values()].at(-1))
  }

  /**
   * Ends the exchange with its usage record, and divides `total`, the cost of the record: attempts and tools get their
   * parts, to the last unit, and the exchange itself the rest.
   */
  charge(total: number, priceFactor: number, outcome: string, error: string | null, nowMs: number): void {
    const { notes } = this
    notes.endedMs = nowMs
    notes.outcome = outcome
    notes.error = error
    if (total === 0) {
      // Nobody pays, for example for a batch line that runs again.
      for (const part of [...notes.attempts, ...notes.tools]) part.cost = 0
      return
    }
    let remaining = total
    for (const tool of notes.tools) remaining -= tool.cost
    let last: AttemptNotes | null = null
    let charged = 0
    for (const attempt of notes.attempts) {
      if (attempt.cost === 0) continue
      attempt.cost = atFactor(attempt.cost, priceFactor)
      remaining -= attempt.cost
      charged++
      last = attempt
    }
    // Each part was rounded.
    if (last !== null && Math.abs(remaining) <= charged) {
      last.cost += remaining
      remaining = 0
    }
    notes.cost = remaining
  }
}
