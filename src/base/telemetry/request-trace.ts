/**
 * The trace of one request while it runs: notes on its exchanges, attempts and tool calls, from which the main thread
 * builds spans. Exists only while tracing is on. Leaf.
 */
import { atFactor } from '../money.ts'
import type { AttemptNotes, ExchangeNotes, ToolNotes } from './ended-trace.ts'
import { type CallerContext, isSpanId, isTraceId, type TraceIds, traceParent } from './trace-context.ts'

/** Spans of one request: a fusion of eight models with tools has some hundred. */
const SPANS_MAX = 1_000

/** The exchange as its notes need it. */
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

/** The endpoint of an attempt as its notes need it. */
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

/** The place of an exchange's spans: a request, and the span above. Null above: it is the client's own exchange. */
export interface TracePlace {
  readonly request: RequestTrace
  readonly parentId: string | null
}

/** One request, from its head to its end. */
export class RequestTrace {
  traceId: string
  /** Of the request itself. */
  readonly spanId: string
  parentId: string | null = null
  state: string | null = null
  /** The flag of the caller; null: it has said nothing. */
  askedFor: boolean | null = null
  /** The API key of the request may decide whether it is kept. */
  isTrusted = false
  /** The caller has chosen the id of the trace. */
  isOfCaller = false
  readonly exchanges: ExchangeNotes[] = []
  leftOut = 0
  readonly #ids: TraceIds
  readonly #isKept: (trace: RequestTrace) => boolean
  #spans = 1

  /** @param isKept tells whether the trace would be kept if nothing goes wrong */
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
    this.askedFor = isSampled
  }

  /** The flag that others are told. */
  get isSampled(): boolean {
    return this.#isKept(this)
  }

  /** The header that tells a caller of its span here. */
  get response(): string {
    return traceParent(this.traceId, this.spanId, this.isSampled)
  }

  /** Begins an exchange. */
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
      requestedModel: plain(request.model),
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
    if (this.takes()) this.exchanges.push(notes)
    return new ExchangeSpans(this, this.#ids, notes)
  }

  /** Counts one more span. False: there is no room for it. */
  takes(): boolean {
    if (this.#spans === SPANS_MAX) {
      this.leftOut++
      return false
    }
    this.#spans++
    return true
  }

  /** Well-formed ids of the field `trace` count where the headers have none. */
  #adopt(field: unknown): void {
    if (typeof field !== 'object' || field === null || this.parentId !== null) return
    const { trace_id: traceId, parent_span_id: parentId } = field as Readonly<Record<string, unknown>>
    if (!isTraceId(traceId)) return
    this.traceId = traceId
    this.isOfCaller = true
    if (isSpanId(parentId)) this.parentId = parentId
  }
}

/** A name that a trace can show: of models, functions, calls, answers of providers. */
const PLAIN_NAME = /^[\w.:/@+-]{1,128}$/
/** Our keys, wherever somebody has put one. */
const KEY = /sk-gw-/i

function plain(name: string | null | undefined): string | null {
  return name != null && PLAIN_NAME.test(name) && !KEY.test(name) ? name : null
}

/** The notes of one exchange. */
export class ExchangeSpans {
  readonly notes: ExchangeNotes
  readonly #request: RequestTrace
  readonly #ids: TraceIds
  /** Tool calls that run, by the signal that they were given. */
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
    if (this.#request.takes()) this.notes.attempts.push(notes)
    return notes
  }

  /** It was never asked. */
  drop(attempt: AttemptNotes): void {
    const at = this.notes.attempts.indexOf(attempt)
    if (at !== -1) this.notes.attempts.splice(at, 1)
  }

  /** The header that a provider gets with an attempt. */
  header({ spanId }: AttemptNotes): string {
    return traceParent(this.#request.traceId, spanId, this.#request.isSampled)
  }

  /** The `tracestate` of the caller, for providers that take part in its trace. */
  get state(): string | null {
    return this.#request.state
  }

  /** Ends an attempt. `cost`: of the running turn, which the last attempt of a turn decides. */
  ended(attempt: AttemptNotes, end: NotedEnd, cost: number, nowMs: number): void {
    const { usage } = end
    for (const other of this.notes.attempts) if (other.turn === attempt.turn) other.cost = 0
    attempt.endedMs = nowMs
    attempt.status = end.status
    attempt.error = end.error
    attempt.isOutrun = end.isOutrun
    attempt.upstreamId = plain(end.upstreamId)
    attempt.finish = end.finish
    attempt.cost = cost
    if (usage === null) return
    attempt.inputTokens = usage.inputTokens
    attempt.cachedTokens = usage.cachedTokens
    attempt.cacheWriteTokens = usage.cacheWriteTokens
    attempt.outputTokens = usage.outputTokens
    attempt.reasoningTokens = usage.reasoningTokens
  }

  /** Another attempt answered first. */
  outrun(attempt: AttemptNotes, nowMs: number): void {
    attempt.isOutrun = true
    attempt.endedMs = nowMs
  }

  /** Begins a call of a server tool. `signal`: the one that the tool gets, by which its own calls are found. */
  tool(tool: string, name: string, callId: string, signal: object, nowMs: number): ToolNotes {
    const notes: ToolNotes = {
      spanId: this.#ids.spanId(),
      startedMs: nowMs,
      endedMs: null,
      tool,
      name: plain(name),
      callId: plain(callId),
      outcome: null,
      cost: 0,
    }
    if (this.#request.takes()) this.notes.tools.push(notes)
    this.#running.set(signal, notes)
    return notes
  }

  toolEnded(notes: ToolNotes, signal: object, outcome: string, cost: number, nowMs: number): void {
    this.#running.delete(signal)
    notes.outcome = outcome
    notes.cost = cost
    notes.endedMs = nowMs
  }

  /** The place of a model call for this exchange: below the tool that has this signal, or the only one that runs. */
  inner(signal: object | undefined): TracePlace {
    return { request: this.#request, parentId: this.#toolWith(signal)?.spanId ?? this.notes.spanId }
  }

  /** The `traceparent` of what a tool asks. */
  toolHeader(signal: object): string {
    const spanId = this.#toolWith(signal)?.spanId ?? this.notes.spanId
    return traceParent(this.#request.traceId, spanId, this.#request.isSampled)
  }

  #toolWith(signal: object | undefined): ToolNotes | undefined {
    const known = signal === undefined ? undefined : this.#running.get(signal)
    return known ?? (this.#running.size === 0 ? undefined : [...this.#running.values()].at(-1))
  }

  /**
   * The exchange has its usage record, which costs `total`; attempts and tools get their parts, to the last unit, and
   * the exchange itself what neither has cost.
   */
  charged(total: number, priceFactor: number, outcome: string, error: string | null, nowMs: number): void {
    const { notes } = this
    notes.endedMs = nowMs
    notes.outcome = outcome
    notes.error = error
    if (total === 0) {
      // Nobody pays, as for a line of a batch that runs again.
      for (const part of [...notes.attempts, ...notes.tools]) part.cost = 0
      return
    }
    let rest = total
    for (const tool of notes.tools) rest -= tool.cost
    let last: AttemptNotes | null = null
    let charged = 0
    for (const attempt of notes.attempts) {
      if (attempt.cost === 0) continue
      attempt.cost = atFactor(attempt.cost, priceFactor)
      rest -= attempt.cost
      charged++
      last = attempt
    }
    // Each part was rounded.
    if (last !== null && Math.abs(rest) <= charged) {
      last.cost += rest
      rest = 0
    }
    notes.cost = rest
  }
}
