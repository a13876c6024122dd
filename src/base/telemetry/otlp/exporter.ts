/**
 * Sends kept traces to a collector over HTTP, in batches, one at a time. The queue is bounded: traces that do not fit,
 * or that the collector does not accept within a few tries, are dropped and counted. Main thread. Leaf.
 */
import { type IncomingMessage, Agent as PlainAgent, request as plainRequest } from 'node:http'
import { Agent as TlsAgent, request as tlsRequest } from 'node:https'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { Clock, Timer } from '../../clock.ts'
import { PieceCount, REPLY_PIECES } from '../../fairness/short-chunks.ts'
import type { Log } from '../../log/log.ts'
import type { EndedTrace } from '../ended-trace.ts'
import { rejectedSpans } from './answer.ts'
import { jsonOf } from './json.ts'
import { protobufOf } from './protobuf.ts'
import { type Span, spansOf } from './spans.ts'
import type { ExportTerms } from './terms.ts'

/** Label of `gateway_trace_spans_total`. */
export const SPAN_OUTCOMES = ['sent', 'refused', 'dropped'] as const

interface TraceExporterDeps {
  readonly clock: Clock
  readonly log: Log
  readonly counts: { count(outcome: (typeof SPAN_OUTCOMES)[number], spans: number): void }
}

/** Maximum of waiting spans, about 20 MB. */
const MAX_WAITING_SPANS = 16_384
/** Spans per request to the collector, about 500 KB. */
const MAX_BATCH_SPANS = 512
/** How long to wait for a batch to fill. */
const BATCH_DELAY_MS = 1_000
/** Delay between two tries of a batch, doubled each time. */
const RETRY_DELAY_MS = 1_000
const RETRY_DELAY_MAX_MS = 30_000
const MAX_ATTEMPTS = 4
/** Time limit at the end of the process for sending all waiting spans. */
const CLOSE_TIMEOUT_MS = 2_000
/** Maximum bytes of an answer that are read. */
const ANSWER_MAX_BYTES = 65_536
/** Statuses after which the protocol allows another try. */
const RETRYABLE_STATUSES: ReadonlySet<number> = new Set([429, 502, 503, 504])

/** The result of a batch: the number of rejected spans, or the delay before it may be sent again. */
type Verdict = { readonly rejected: number } | { readonly retryAfterMs: number | null }
const REFUSED: Verdict = { rejected: Number.POSITIVE_INFINITY }

export class TraceExporter {
  readonly #deps: TraceExporterDeps
  readonly #terms: ExportTerms
  readonly #agent: PlainAgent
  #waiting: Span[] = []
  #sending: Promise<void> | null = null
  #timer: Timer | null = null
  #isClosing = false
  /** Number of spans in the batch that is being sent, not counted yet. */
  #unsettledSpans = 0
  /** True while the collector is down, which was logged. */
  #isUnreachable = false

  constructor(deps: TraceExporterDeps, terms: ExportTerms) {
    this.#deps = deps
    this.#terms = terms
    const agentOptions = { keepAlive: true, maxSockets: 1 }
    this.#agent = terms.url.protocol === 'https:' ? new TlsAgent(agentOptions) : new PlainAgent(agentOptions)
  }

  /** Number of waiting spans. */
  get waiting(): number {
    return this.#waiting.length
  }

  /** Adds traces of a thread; `dropped`: number of further traces that it had no room for. */
  add(traces: readonly EndedTrace[], dropped: number): void {
    let droppedSpans = dropped
    for (const trace of traces) {
      if (this.#waiting.length >= MAX_WAITING_SPANS) {
        droppedSpans +=
          1 + trace.exchanges.reduce((sum, { attempts, tools }) => sum + attempts.length + tools.length, 0)
      } else this.#waiting.push(...spansOf(trace))
    }
    this.#count('dropped', droppedSpans)
    if (this.#sending !== null || this.#waiting.length === 0) return
    if (this.#waiting.length >= MAX_BATCH_SPANS) this.#send()
    else this.#timer ??= this.#deps.clock.after(BATCH_DELAY_MS, () => this.#send())
  }

  /** Sends what waits, within two seconds. */
  async close(): Promise<void> {
    this.#isClosing = true
    const late = Promise.withResolvers<void>()
    const timer = this.#deps.clock.after(CLOSE_TIMEOUT_MS, late.resolve)
    if (this.#sending === null && this.#waiting.length > 0) this.#send()
    await Promise.race([this.#sending, late.promise])
    timer.cancel()
    this.#timer?.cancel()
    this.#count('dropped', this.#waiting.splice(0).length + this.#unsettledSpans)
    this.#unsettledSpans = 0
    this.#agent.destroy()
  }

  #send(): void {
    this.#timer?.cancel()
    this.#timer = null
    this.#sending = this.#sendAll().finally(() => {
      this.#sending = null
    })
  }

  async #sendAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, MAX_BATCH_SPANS)
      await this.#sendBatch(batch)
      // A partial batch waits a moment for more, so that a batch is not a single trace.
      if (this.#waiting.length > 0 && this.#waiting.length < MAX_BATCH_SPANS && !this.#isClosing) {
        this.#timer = this.#deps.clock.after(BATCH_DELAY_MS, () => this.#send())
        return
      }
    }
  }

  async #sendBatch(batch: readonly Span[]): Promise<void> {
    this.#unsettledSpans = batch.length
    const body = await this.#bodyOf(batch).catch(() => null)
    if (body === null) {
      this.#settle('dropped')
      return
    }
    let pauseMs = RETRY_DELAY_MS
    for (let attemptsLeft = MAX_ATTEMPTS; attemptsLeft > 0; attemptsLeft--) {
      // Headers that are invalid in any request are only detected here.
      const verdict = await this.#try(body).catch(() => REFUSED)
      if ('rejected' in verdict) {
        const rejected = Math.min(verdict.rejected, this.#unsettledSpans)
        this.#count('refused', rejected)
        this.#unsettledSpans -= rejected
        this.#settle('sent')
        this.#logState(verdict === REFUSED)
        return
      }
      this.#logState(true)
      if (this.#isClosing || attemptsLeft === 1) break
      await this.#pause(Math.min(verdict.retryAfterMs ?? pauseMs, RETRY_DELAY_MAX_MS))
      pauseMs *= 2
    }
    this.#settle('dropped')
  }

  async #bodyOf(batch: readonly Span[]): Promise<Buffer> {
    const { protocol, resource, compression } = this.#terms
    const body = protocol === 'http/json' ? jsonOf(batch, resource) : protobufOf(batch, resource)
    return compression === 'gzip' ? await promisify(gzip)(body) : body
  }

  /** Logs one line for each change. */
  #logState(isUnreachable: boolean): void {
    if (isUnreachable === this.#isUnreachable) return
    this.#isUnreachable = isUnreachable
    const { host } = this.#terms.url
    this.#deps.log.notice(
      'tracing',
      isUnreachable
        ? 'cannot send traces to the collector; dropping them'
        : 'sending traces to the collector again',
      { host },
    )
  }

  /** Counts the batch that was being sent, unless the process ended without it. */
  #settle(outcome: (typeof SPAN_OUTCOMES)[number]): void {
    this.#count(outcome, this.#unsettledSpans)
    this.#unsettledSpans = 0
  }

  #count(outcome: (typeof SPAN_OUTCOMES)[number], spans: number): void {
    if (spans > 0) this.#deps.counts.count(outcome, spans)
  }

  #pause(ms: number): Promise<void> {
    return new Promise(resolve => {
      this.#deps.clock.after(ms, resolve)
    })
  }

  /** Rejects if the settings do not allow a request. */
  #try(body: Buffer): Promise<Verdict> {
    const { url, headers, protocol, compression, timeoutMs } = this.#terms
    return new Promise(resolve => {
      const send = url.protocol === 'https:' ? tlsRequest : plainRequest
      const request = send(url, {
        method: 'POST',
        agent: this.#agent,
        headers: {
          ...headers,
          'content-type': protocol === 'http/json' ? 'application/json' : 'application/x-protobuf',
          'content-length': body.length,
          ...(compression === 'gzip' ? { 'content-encoding': 'gzip' } : {}),
        },
      })
      const timer = this.#deps.clock.after(timeoutMs, () => request.destroy(new Error('late')))
      request.on('error', () => {
        timer.cancel()
        resolve({ retryAfterMs: null })
      })
      request.on('response', answer => {
        void bodyOf(answer).then(text => {
          timer.cancel()
          resolve(verdictOf(answer, rejectedSpans(text, protocol)))
        })
      })
      request.end(body)
    })
  }
}

function verdictOf({ statusCode = 0, headers }: IncomingMessage, rejected: number): Verdict {
  if (statusCode >= 200 && statusCode < 300) return { rejected }
  if (!RETRYABLE_STATUSES.has(statusCode)) return REFUSED
  const seconds = Number(headers['retry-after'])
  return { retryAfterMs: Number.isFinite(seconds) && seconds >= 0 ? seconds * 1000 : null }
}

/** Reads an answer to its end, or drops the connection if the answer is too long or its chunks are too short. */
function bodyOf(answer: IncomingMessage): Promise<Buffer> {
  return new Promise(resolve => {
    const chunks: Buffer[] = []
    const count = new PieceCount(REPLY_PIECES)
    answer.on('data', (chunk: Buffer) => {
      chunks.push(chunk)
      if (!count.add(chunk.length) || count.bytes > ANSWER_MAX_BYTES) answer.destroy()
    })
    answer.on('close', () => resolve(Buffer.concat(chunks)))
  })
}
