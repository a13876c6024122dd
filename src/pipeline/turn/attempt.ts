/**
 * Attempt: one try at one endpoint. As the handler of its transport, it decodes the reply, passes the deltas to its
 * target, and ends with the first outcome. Spending limits, relays, hedging and abandoned replies are wrappers, which
 * most attempts do not have. Hot path: only plain synchronous calls between a socket read and the target.
 */
import type { Clock, Timer } from '../../base/clock.ts'
import type { GatewayError } from '../../base/errors.ts'
import { holderOf } from '../../base/fairness/held-share.ts'
import type { Log } from '../../base/log/log.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { AttemptNotes } from '../../base/telemetry/ended-trace.ts'
import type { AttemptRecord, Exchange, Finish } from '../../exchange/exchange.ts'
import { isKnownFinish } from '../../formats/finish-reasons.ts'
import type { Delta } from '../../formats/format.ts'
import { mergedUsage } from '../../formats/usage.ts'
import type { WholeMessage } from '../../formats/whole-message.ts'
import { providerRates } from '../../providers/upstream/provider-rates.ts'
import type {
  Transport,
  UpstreamCall,
  UpstreamHandler,
  UpstreamHead,
  UpstreamRequest,
} from '../../providers/upstream/transport.ts'
import type { Meter } from '../accounting/allowance.ts'
import type { DebugNotes } from '../answer/debug.ts'
import type { AbandonedReplies, AbandonedReply } from './abandoned-replies.ts'
import type { AttemptTarget } from './attempt-target.ts'
import { MeteredDeltas, type MeteredReply } from './metered-deltas.ts'
import { cutShortError, failureOf } from './provider-failure.ts'
import { harmlessName } from './provider-request.ts'
import {
  ErrorReply,
  finishOf,
  LONG_REQUEST_CHARS,
  type ReadingTerms,
  ReplyFigures,
  ReplyReading,
} from './reply-reading.ts'

/** The time for which the call stays open once the reply is complete; most providers end the call themselves. */
const TRAILING_MS = 1_000
/** The time in which the provider must end its reply after it has sent finish and usage. */
const SETTLED_MS = 250

export interface AttemptDeps {
  readonly client: Transport
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  readonly abandoned: AbandonedReplies
}

/** The way an attempt's reply is read, and its observers. */
interface AttemptTerms extends Pick<ReadingTerms, 'format' | 'body'> {
  /** True if messages of a whole reply may be passed to the target as such. */
  readonly takesMessages?: boolean
  /** Receives the times of the attempt; null if they were not requested. */
  readonly debug: DebugNotes | null
  /** Tracks the cost of the reply; null if the caller has no spending limit. */
  readonly meter: Meter | null
  /** Null: the usual one. */
  readonly transport: Transport | null
}

export class Attempt implements UpstreamHandler, MeteredReply {
  readonly figures = new ReplyFigures()
  readonly reader: ReplyReading
  /** True once the model has finished; guardrails may still be checking the output. */
  hasFinished = false
  /** True once the outcome is known. */
  isOver = false
  readonly #deps: AttemptDeps
  readonly #exchange: Exchange
  readonly #record: AttemptRecord
  readonly #debug: DebugNotes | null
  readonly #transport: Transport
  /** Null if there is no spending limit. */
  readonly #metered: MeteredDeltas | null
  readonly #reply = Promise.withResolvers<Finish>()
  #target: AttemptTarget | null = null
  #call: UpstreamCall | null = null
  #sentMs = 0
  /** Receives the time of the first bytes of the body; null if that is not needed, or they have arrived. */
  #firstBytesSpan: AttemptNotes | null = null
  #hasEnded = false
  /** True while the reader is slow, and has not taken everything that was read. */
  #isPaused = false
  /** Null while the caller is connected. */
  #abandoned: AbandonedReply | null = null
  #trailingTimer: Timer | null = null
  /** Runs once the reply has sent finish and usage. */
  #settlingTimer: Timer | null = null

  constructor(deps: AttemptDeps, exchange: Exchange, record: AttemptRecord, terms: AttemptTerms) {
    const { format, body, meter } = terms
    this.#deps = deps
    this.#exchange = exchange
    this.#record = record
    this.#debug = terms.debug
    this.#transport = terms.transport ?? deps.client
    this.#metered = meter === null ? null : new MeteredDeltas(meter, this)
    const takeMessage = terms.takesMessages === true ? this.#takeMessage : null
    const receive = this.#metered?.receive ?? this.receive
    this.reader = new ReplyReading(
      { format, body, takeMessage, clock: deps.clock },
      exchange,
      record,
      receive,
    )
  }

  /**
   * Sends the request. Resolves when the model's reply is complete; rejects with a GatewayError otherwise.
   * @throws the reason of the exchange's signal, and GatewayError `overloaded`
   */
  run(request: UpstreamRequest, target: AttemptTarget): Promise<Finish> {
    const { clock } = this.#deps
    const transport = this.#transport
    const { signal, watch } = this.#exchange
    const record = this.#record
    if (signal.aborted) throw signal.reason
    this.#target = target
    if (request.body.length >= LONG_REQUEST_CHARS) this.reader.countRequest(request.body)
    signal.addEventListener('abort', this.#onAbort, { once: true })
    record.isStarted = true
    this.figures.sentBytes = request.body.length
    // A stored reply needs no request.
    if (request.body !== '') {
      this.#sentMs = clock.monotonicMs()
      if (record.span !== undefined) record.span.sentMs = this.#sentMs
      if (record.health !== undefined) record.health.sentMs = this.#sentMs
      watch.enter('upstream_first_byte', this.#sentMs)
      this.#debug?.note('adapter_request', clock, watch.startedMs)
    }
    this.#call =
      request.body === '' ? transport.start(request, this) : transport.start(request, this, this.#sentMs)
    return this.#reply.promise
  }

  /** Replaces the target for everything that follows, which may be relayed. */
  lead(target: AttemptTarget): void {
    this.#target = target
    this.reader.mayRelay = true
  }

  pause(): void {
    this.#isPaused = true
    this.figures.wasPaused = true
    this.#call?.pause()
  }

  resume(): void {
    this.#isPaused = false
    if (this.#metered?.isHeld !== true) this.#call?.resume()
  }

  halt(): void {
    this.#call?.pause()
  }

  goOn(): void {
    if (!this.#isPaused && !this.isOver) this.#call?.resume()
  }

  /** Ends the attempt; the first outcome counts. */
  fail(error: GatewayError): void {
    if (this.isOver) return
    this.isOver = true
    this.figures.isStalled = this.#isPaused
    this.#leave()
    this.#record.error = error
    this.#target?.close()
    this.#call?.abort()
    this.reader.drop(this.#deps.log)
    this.#reply.reject(error)
  }

  /** Ends the attempt because the caller must not get the provider's output. */
  refuse(error: GatewayError): void {
    if (!this.isOver) this.#record.isRefused = this.#record.status !== null
    this.fail(error)
  }

  turn(work: () => void): void {
    this.#target?.sink?.cork()
    try {
      work()
    } catch (thrown) {
      this.#failBy(thrown)
    }
    if (this.#target?.sink?.flush() === false) this.pause()
  }

  onHead(head: UpstreamHead, readMs = this.#deps.clock.monotonicMs()): void {
    const { clock, metrics } = this.#deps
    const { watch } = this.#exchange
    this.#record.status = head.status
    // Rate limits of the gateway's own account are not shown to anyone.
    if (this.#record.credential !== null) this.#tellRates(head)
    const { span } = this.#record
    if (span !== undefined) span.headMs = readMs
    this.#firstBytesSpan = span ?? null
    watch.enter('first_token', readMs)
    this.#debug?.note('upstream_headers_received', clock, watch.startedMs)
    if (this.figures.sentBytes > 0) {
      metrics.ofProvider(this.#record.endpoint.provider.slug).latency.observe((readMs - this.#sentMs) / 1000)
    }
    this.reader.head(head)
  }

  #tellRates({ status, headers }: UpstreamHead): void {
    const rates = status < 300 ? providerRates(headers) : null
    if (rates !== null) this.#exchange.clientRequest.rates?.setProviderRates(rates)
  }

  /** Decodes or relays a read, counts the bytes that the reply holds, and ends a reply that exceeds its bounds. */
  onData(chunk: Buffer, isLast = false, readMs = this.#deps.clock.monotonicMs()): void {
    if (this.#abandoned?.read(chunk.length) === false) this.#giveUp()
    if (this.isOver) return
    if (this.#firstBytesSpan !== null) {
      this.#firstBytesSpan.firstMs = readMs
      this.#firstBytesSpan = null
    }
    const { figures, reader } = this
    const { relay } = reader
    figures.readMs = readMs
    this.#target?.sink?.cork()
    try {
      // If the end has to wait for counters, the memory of the chunk has other bytes by then.
      const staysValid = isLast && this.#metered === null
      if (!(relay === null ? reader.push(chunk, this.#target, staysValid) : relay.push(chunk))) this.pause()
      // Includes relayed texts that the decoder has not seen.
      const quarters = figures.outputQuarters + (reader.relay?.pendingTexts.length ?? 0)
      figures.pieceQuarters = Math.max(figures.pieceQuarters, quarters - figures.quartersBefore)
      figures.quartersBefore = quarters
      this.#metered?.noteRelayed(quarters)
      if (!this.isOver && reader.relay?.hasDecoded !== false) {
        reader.count(figures.outputCharacters)
        if (figures.outputCharacters > reader.textChars && !this.hasFinished) this.endHere()
        if (reader.decoder.isSettled === true && this.#settlingTimer === null && !this.hasFinished)
          this.#settlingTimer = this.#deps.clock.after(SETTLED_MS, this.#endSettled)
      }
    } catch (thrown) {
      this.#failBy(thrown)
    }
    if (this.#target?.sink?.flush() === false) this.pause()
    figures.readMs = 0
  }

  onEnd(readMs = this.#deps.clock.monotonicMs()): void {
    this.#hasEnded = true
    this.#trailingTimer?.cancel()
    if (this.isOver || this.#metered?.endReply() === true) return
    this.figures.readMs = readMs
    this.turn(this.conclude)
    this.figures.readMs = 0
  }

  onError(error: GatewayError): void {
    this.#trailingTimer?.cancel()
    if (this.hasFinished) return
    if (this.reader.decoder.isSettled === true) this.#endSettled()
    else this.fail(error)
  }

  readonly receive = (delta: Delta): void => {
    const { figures } = this
    if (figures.isCut) return
    switch (delta.kind) {
      case 'start':
        this.#record.upstreamId = harmlessName(delta.upstreamId, this.#record)
        return
      case 'usage':
        figures.usage = figures.usage === null ? delta.usage : mergedUsage(figures.usage, delta.usage)
        return
      case 'finish':
        this.hasFinished = true
        if (delta.reason === 'other' && delta.native !== null && !isKnownFinish(delta.native))
          this.#deps.metrics.unknownFinishes.inc({ format: this.#record.endpoint.format })
        this.#target?.end(() => this.#complete(finishOf(delta, this.#record)))
        return
    }
    if (!figures.add(delta)) this.reader.isRich = true
    this.#target?.receive(delta)
  }

  readonly #takeMessage = (message: WholeMessage): void => {
    this.figures.addText(message.text)
    this.#target?.message?.(message)
  }

  /** Ends a stream at the stop sequence. A document is read on, because its usage may follow. */
  stopAt(sequence: string): void {
    this.#record.stoppedBy = sequence
    if (this.#exchange.request.stream === true) this.endHere('stop')
  }

  endHere(reason: 'length' | 'stop' = 'length'): void {
    this.reader.relay?.settle()
    this.figures.isCut = true
    this.hasFinished = true
    this.#hasEnded = true
    this.#call?.abort()
    const finish = finishOf({ kind: 'finish', reason, native: null, serviceTier: null }, this.#record)
    this.#target?.end(() => this.#complete(finish))
  }

  /** Ends a reply that has sent finish and usage but is not ended by its provider. */
  readonly #endSettled = (): void => {
    this.#settlingTimer = null
    const { decoder } = this.reader
    if (this.isOver || this.hasFinished || decoder.isSettled !== true || this.#metered?.endReply() === true)
      return
    this.turn(this.conclude)
  }

  readonly conclude = (): void => {
    this.reader.end()
    // A single document arrives all at once.
    this.figures.pieceQuarters ||= this.figures.outputQuarters
    // If the decoder neither finished nor failed, it has not seen the end of the reply.
    if (!this.isOver && !this.hasFinished) this.fail(cutShortError())
  }

  readonly #giveUp = (): void => this.fail(this.#exchange.signal.reason as GatewayError)

  /**
   * After its caller has left, or has lost a right, an attempt may continue reading, as the provider's row allows.
   */
  readonly #onAbort = (): void => {
    const { code, meaning } = this.#exchange.signal.reason as GatewayError
    if ((code === 'client_closed' || meaning.isLostRight === true) && !this.isOver) {
      const hasContent = this.figures.outputQuarters + (this.reader.relay?.pendingTexts.length ?? 0) > 0
      const { onAbort } = this.#record.endpoint.provider
      const key = holderOf(this.#exchange.caller)
      this.#abandoned = this.#deps.abandoned.keepReading(
        onAbort,
        hasContent,
        key,
        this.#deps.clock,
        this.#giveUp,
      )
    }
    if (this.#abandoned === null) this.#giveUp()
    else {
      this.reader.endRelay()
      if (this.#target !== null && !this.hasFinished) this.#target = this.#abandoned.targetOf(this.#target)
      this.resume()
    }
  }

  /** Called once the outcome is known: releases everything that could still change it. */
  #leave(): void {
    this.#exchange.signal.removeEventListener('abort', this.#onAbort)
    this.#trailingTimer?.cancel()
    this.#settlingTimer?.cancel()
    this.#abandoned?.end()
  }

  #complete(finish: Finish): void {
    if (this.isOver) return
    this.isOver = true
    this.#leave()
    if (!this.#hasEnded) this.#trailingTimer = this.#deps.clock.after(TRAILING_MS, () => this.#call?.abort())
    this.figures.finish = finish
    this.#record.endedMs = this.figures.readMs || this.#deps.clock.monotonicMs()
    this.#debug?.note('upstream_body_ended', this.#deps.clock, this.#exchange.watch.startedMs)
    this.#reply.resolve(finish)
  }

  #failBy(thrown: unknown): void {
    const isRefusal = thrown instanceof ErrorReply
    this.fail(
      isRefusal ? thrown.error : failureOf(thrown, this.#record, this.#deps.log, this.reader.replyHead),
    )
  }
}
