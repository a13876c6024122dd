/**
 * Sends kept traces to a collector over HTTP, in batches, one at a time. The queue is bounded: traces that do not fit,
 * or that the collector does not accept within a few tries, are dropped and counted. Main thread. Leaf.
 */
import { type IncomingMessage, Agent as PlainAgent, request as plainRequest } from 'node:http'
import { Agent as TlsAgent, request as tlsRequest } from 'node:https'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { Clock, Timer } from '../../clock.ts'
import { PieceCount, REPLY_PIECES } from '../../fairness/pieces.ts'
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

/** Spans that wait, some 20 MB. */
const WAITING_MAX = 16_384
/** Spans of one request to the collector, some 500 KB. */
const BATCH_MAX = 512
/** A batch waits so long for more spans. */
const GATHER_MS = 1_000
/** Between two tries of a batch, doubled each time. */
const AGAIN_MS = 1_000
const AGAIN_MAX_MS = 30_000
const TRIES = 4
/** At the end of the process, all that waits has this long. */
const CLOSE_MS = 2_000
/** Bytes of an answer that are read. */
const ANSWER_MAX_BYTES = 65_536
/** Answers after which the protocol lets a client try again. */
const AGAIN_STATUSES: ReadonlySet<number> = new Set([429, 502, 503, 504])

/** Of a batch: the spans of it that the collector left out, or the time after which it may be sent again. */
type Verdict = { readonly rejected: number } | { readonly againMs: number | null }
const REFUSED: Verdict = { rejected: Number.POSITIVE_INFINITY }

export class TraceExporter {
  readonly #deps: TraceExporterDeps
  readonly #terms: ExportTerms
  readonly #agent: PlainAgent
  #waiting: Span[] = []
  #sending: Promise<void> | null = null
  #timer: Timer | null = null
  #isClosing = false
  /** Spans of the batch that is on its way, and not counted yet. */
  #onTheWay = 0
  /** The collector takes nothing now, which was logged. */
  #isAway = false

  constructor(deps: TraceExporterDeps, terms: ExportTerms) {
    this.#deps = deps
    this.#terms = terms
    const agentOptions = { keepAlive: true, maxSockets: 1 }
    this.#agent = terms.url.protocol === 'https:' ? new TlsAgent(agentOptions) : new PlainAgent(agentOptions)
  }

  /** Spans that wait. */
  get waiting(): number {
    return this.#waiting.length
  }

  /** Takes traces of a thread; `dropped`: it had no room for so many more. */
  add(traces: readonly EndedTrace[], dropped: number): void {
    let left = dropped
    for (const trace of traces) {
      if (this.#waiting.length >= WAITING_MAX) {
        left +=
          1 + trace.exchanges.reduce((sum, { attempts, tools }) => sum + attempts.length + tools.length, 0)
      } else this.#waiting.push(...spansOf(trace))
    }
    this.#count('dropped', left)
    if (this.#sending !== null || this.#waiting.length === 0) return
    if (this.#waiting.length >= BATCH_MAX) this.#send()
    else this.#timer ??= this.#deps.clock.after(GATHER_MS, () => this.#send())
  }

  /** Sends what waits, within two seconds. */
  async close(): Promise<void> {
    this.#isClosing = true
    const late = Promise.withResolvers<void>()
    const timer = this.#deps.clock.after(CLOSE_MS, late.resolve)
    if (this.#sending === null && this.#waiting.length > 0) this.#send()
    await Promise.race([this.#sending, late.promise])
    timer.cancel()
    this.#timer?.cancel()
    this.#count('dropped', this.#waiting.splice(0).length + this.#onTheWay)
    this.#onTheWay = 0
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
      const batch = this.#waiting.splice(0, BATCH_MAX)
      await this.#sendBatch(batch)
      // The rest of a moment waits for more, so that a batch is not one trace.
      if (this.#waiting.length > 0 && this.#waiting.length < BATCH_MAX && !this.#isClosing) {
        this.#timer = this.#deps.clock.after(GATHER_MS, () => this.#send())
        return
      }
    }
  }

  async #sendBatch(batch: readonly Span[]): Promise<void> {
    this.#onTheWay = batch.length
    const body = await this.#bodyOf(batch).catch(() => null)
    if (body === null) {
      this.#settle('dropped')
      return
    }
    let pauseMs = AGAIN_MS
    for (let left = TRIES; left > 0; left--) {
      // Headers that no request can have are found only here.
      const verdict = await this.#try(body).catch(() => REFUSED)
      if ('rejected' in verdict) {
        const rejected = Math.min(verdict.rejected, this.#onTheWay)
        this.#count('refused', rejected)
        this.#onTheWay -= rejected
        this.#settle('sent')
        this.#logState(verdict === REFUSED)
        return
      }
      this.#logState(true)
      if (this.#isClosing || left === 1) break
      await this.#pause(Math.min(verdict.againMs ?? pauseMs, AGAIN_MAX_MS))
      pauseMs *= 2
    }
    this.#settle('dropped')
  }

  async #bodyOf(batch: readonly Span[]): Promise<Buffer> {
    const { protocol, resource, compression } = this.#terms
    const body = protocol === 'http/json' ? jsonOf(batch, resource) : protobufOf(batch, resource)
    return compression === 'gzip' ? await promisify(gzip)(body) : body
  }

  /** One line for each change. */
  #logState(isAway: boolean): void {
    if (isAway === this.#isAway) return
    this.#isAway = isAway
    const { host } = this.#terms.url
    this.#deps.log.notice(
      'tracing',
      isAway ? 'cannot send traces to the collector; dropping them' : 'sending traces to the collector again',
      { host },
    )
  }

  /** The outcome of the batch that was on its way, unless the process ended without it. */
  #settle(outcome: (typeof SPAN_OUTCOMES)[number]): void {
    this.#count(outcome, this.#onTheWay)
    this.#onTheWay = 0
  }

  #count(outcome: (typeof SPAN_OUTCOMES)[number], spans: number): void {
    if (spans > 0) this.#deps.counts.count(outcome, spans)
  }

  #pause(ms: number): Promise<void> {
    return new Promise(resolve => {
      this.#deps.clock.after(ms, resolve)
    })
  }

  /** Rejects if no request can be made of the terms. */
  #try(body: Buffer): Promise<Verdict> {
    const { url, headers, protocol, compression, timeoutMs } = this.#terms
    return new Promise(resolve => {
      const ask = url.protocol === 'https:' ? tlsRequest : plainRequest
      const request = ask(url, {
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
        resolve({ againMs: null })
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
  if (!AGAIN_STATUSES.has(statusCode)) return REFUSED
  const seconds = Number(headers['retry-after'])
  return { againMs: Number.isFinite(seconds) && seconds >= 0 ? seconds * 1000 : null }
}

/** Reads an answer to its end, or drops a connection that sends more bytes or shorter chunks than any answer has. */
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
