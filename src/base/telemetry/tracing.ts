/**
 * Traces of one thread: starts one for each request, decides at its end whether to keep it (`tracing.share`), and
 * passes kept traces to the main thread in small batches. Exists only while tracing is on. Leaf.
 */
import type { Clock } from '../clock.ts'
import type { ExchangeLine } from '../log/log.ts'
import { type Stage, Stopwatch } from '../metrics/stages.ts'
import type { EndedTrace, StageNote } from './ended-trace.ts'
import { RequestTrace } from './request-trace.ts'
import { TraceIds } from './trace-context.ts'

/** When a caller's sampling flag counts. `keys`: for requests of trusted keys. */
export const TRACE_TRUST = ['keys', 'always', 'never'] as const

export interface TracingTerms {
  /** Share of the requests that neither failed nor were slow, from 0 to 1. */
  readonly share: number
  readonly keepSlowerThanMs: number
  readonly trust: (typeof TRACE_TRUST)[number]
}

interface TracingDeps {
  readonly clock: Clock
  /** Receives kept traces, and the number of further ones since the last call. */
  readonly send: (traces: readonly EndedTrace[], dropped: number) => void
}

/** Traces are not urgent, and a message for each would cost more than its content. */
const SEND_DELAY_MS = 250
/** Maximum per message: four thousand kept traces a second. */
const MAX_TRACES = 1_000
/** Maximum per message and key, beyond the random sample: failures, and ids that callers choose. */
const MAX_UNCHOSEN = 100
/** Maximum number of stages per request: enough for a few turns. */
const MAX_STAGES = 64

export class Tracing {
  readonly #deps: TracingDeps
  readonly #terms: TracingTerms
  readonly #ids = new TraceIds()
  #ended: EndedTrace[] = []
  #dropped = 0
  /** Kept traces outside the random sample, by key; undefined: no key was accepted. */
  readonly #unchosen = new Map<string | undefined, number>()
  #isFlushPending = false

  constructor(deps: TracingDeps, terms: TracingTerms) {
    this.#deps = deps
    this.#terms = terms
  }

  begin(): RequestTrace {
    return new RequestTrace(this.#ids, this.#isChosen)
  }

  /** Decides about a finished trace. Returns true if it is kept. */
  endTrace(trace: RequestTrace, line: ExchangeLine, watch: TracedStopwatch, endedMs: number): boolean {
    if (!this.#isKept(trace, line)) return false
    if (!this.#isFlushPending) {
      this.#isFlushPending = true
      this.#deps.clock.after(SEND_DELAY_MS, this.#flush)
    }
    if (this.#ended.length === MAX_TRACES || !this.#hasRoom(trace, line)) {
      this.#dropped++
      return false
    }
    this.#ended.push({
      traceId: trace.traceId,
      spanId: trace.spanId,
      parentId: trace.parentId,
      state: trace.state,
      isSampled: true,
      epochMs: this.#deps.clock.nowMs() - this.#deps.clock.monotonicMs(),
      startedMs: watch.startedMs,
      endedMs,
      line,
      stages: watch.notes,
      exchanges: trace.exchanges,
      leftOut: trace.leftOut,
    })
    return true
  }

  readonly #flush = (): void => {
    const ended = this.#ended
    const dropped = this.#dropped
    this.#ended = []
    this.#dropped = 0
    this.#isFlushPending = false
    this.#unchosen.clear()
    this.#deps.send(ended, dropped)
  }

  /** Sends waiting traces before the thread ends. */
  flush(): void {
    if (this.#isFlushPending) this.#flush()
  }

  /** Failed requests are kept, whatever the flag says; slow ones are not if a trusted flag says no. */
  #isKept(trace: RequestTrace, { error, outcome, durationMs }: ExchangeLine): boolean {
    if (outcome === 'failed' || outcome === 'refused' || error != null) return true
    const isHidden = trace.callerSampling === false && this.#trusts(trace)
    return !isHidden && (durationMs > this.#terms.keepSlowerThanMs || this.#isChosen(trace))
  }

  #hasRoom(trace: RequestTrace, { key }: ExchangeLine): boolean {
    // A caller that chooses the id could choose one that is always kept.
    const mayChoose = this.#terms.share === 1 || !trace.isOfCaller || this.#trusts(trace)
    if (mayChoose && this.#isChosen(trace)) return true
    const count = (this.#unchosen.get(key) ?? 0) + 1
    this.#unchosen.set(key, count)
    return count <= MAX_UNCHOSEN
  }

  /** All gateways choose the same traces: the last 52 bits of the id decide. */
  readonly #isChosen = (trace: RequestTrace): boolean => {
    const { traceId, callerSampling } = trace
    if (callerSampling !== null && this.#trusts(trace)) return callerSampling
    return Number.parseInt(traceId.slice(-13), 16) < this.#terms.share * 2 ** 52
  }

  #trusts({ isTrusted }: RequestTrace): boolean {
    const { trust } = this.#terms
    return trust === 'always' || (isTrusted && trust === 'keys')
  }
}

/** Records when each stage began. */
export class TracedStopwatch extends Stopwatch {
  readonly notes: StageNote[] = []

  override enter(stage: Stage, nowMs: number): void {
    super.enter(stage, nowMs)
    if (this.notes.length < MAX_STAGES) this.notes.push([stage, nowMs])
  }

  override skip(): void {
    super.skip()
    this.notes.pop()
  }
}
