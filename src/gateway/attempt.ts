/**
 * Attempt: one try at one endpoint. Sends the request, splits the reply into frames, and decodes them into deltas for
 * its target. Hot path: everything between a socket read and the target is a plain synchronous call.
 */
import type { Clock, Timer } from '../clock.ts'
import { GatewayError, toGatewayError } from '../errors.ts'
import type { Decoder, Delta, Format, Usage, WireRequest } from '../formats/format.ts'
import type { WholeMessage } from '../formats/whole-message.ts'
import type { Log } from '../log/log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { DebugTimings } from '../protocol/response.ts'
import { isPending } from '../ready.ts'
import { AwsEventParser } from '../upstream/aws-events.ts'
import { type ReplyBody, TextBody } from '../upstream/body.ts'
import { failureInReply, holdsSecret, upstreamFailure } from '../upstream/failure.ts'
import { SseParser } from '../upstream/sse.ts'
import type {
  Transport,
  UpstreamCall,
  UpstreamHandler,
  UpstreamHead,
  UpstreamRequest,
} from '../upstream/transport.ts'
import { type AbandonedReplies, LeftTarget, READING_ON } from './abandoned-replies.ts'
import { type CallFigures, type Meter, quartersIn } from './accounting/account.ts'
import { type Answer, type Content, type LearnFrame, Relay } from './answer/answer.ts'
import type { AttemptTarget } from './attempt-target.ts'
import type { DebugNotes } from './debug.ts'
import type { AttemptRecord, Exchange, Finish } from './exchange.ts'
import { keyOwner, type ProviderRequests, secretsOf } from './provider-request.ts'
import { ReplyBounds, SHORT_FRAME_CHARS } from './reply-bounds.ts'
import { replay } from './stored-reply.ts'

/** An error page is only read for its message. */
export const ERROR_MAX_BYTES = 64 * 1024

const [SPACE, TAB, LF, CR, OPEN_BRACE, OPEN_BRACKET] = [32, 9, 10, 13, 123, 91]

/** Providers answer a streaming request with plain JSON now and then, whatever their content type says. */
export function replyKind(chunk: Buffer): 'undecided' | 'sse' | 'json' {
  for (const byte of chunk) {
    if (byte === SPACE || byte === TAB || byte === LF || byte === CR) continue
    return byte === OPEN_BRACE || byte === OPEN_BRACKET ? 'json' : 'sse'
  }
  return 'undecided'
}

export interface AttemptDeps {
  readonly client: Transport
  readonly requests: ProviderRequests
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  readonly abandoned: AbandonedReplies
}

/** One call of an attempt: what is sent, how the reply is read, and what else watches it. */
export interface AttemptTerms {
  /** Makes the request. @throws GatewayError `unprocessable` */
  readonly encode: () => WireRequest
  /** Reads the reply. */
  readonly format: Pick<Format, 'framing' | 'decoder' | 'failure'>
  /** Collects a reply of one document; null: as text. */
  readonly body: ReplyBody | null
  /** True: messages of a whole reply may come to the target as such. */
  readonly takesMessages?: boolean
  /** Null: every frame is decoded. */
  readonly relay: { readonly to: Answer; readonly learn: LearnFrame } | null
  /** Takes the body that was sent, to echo; null: it is not echoed. */
  readonly echo: Readonly<Record<string, unknown>>[] | null
  /** Takes the times of the attempt; null: nobody asks. */
  readonly debug: DebugNotes | null
  /** Watches what the reply comes to; null: no limit of money holds for the caller. */
  readonly meter: Meter | null
}

/** After the finish the provider gets this long to end its body, so that the connection can be used again. */
const TRAILING_MS = 1_000

type Mode = 'undecided' | 'sse' | 'json' | 'error' | 'over'

export class Attempt implements UpstreamHandler, CallFigures {
  usage: Usage | null = null
  finish: Finish | null = null
  outputQuarters = 0
  /** Characters in text, reasoning and arguments. */
  outputCharacters = 0
  isThoughtSeen = false
  sentBytes = 0
  isCut = false
  isStalled = false
  wasPaused = false
  pieceQuarters = 0
  readonly #deps: AttemptDeps
  readonly #exchange: Exchange
  readonly #record: AttemptRecord
  readonly #terms: AttemptTerms
  readonly #format: AttemptTerms['format']
  readonly #decoder: Decoder
  readonly #parser: SseParser | AwsEventParser
  /** Null where every frame has to be decoded. */
  #relay: Relay | null
  readonly #body: ReplyBody
  readonly #bounds: ReplyBounds
  /** The frame that is being decoded has brought more than text. */
  #isRich = false
  #target: AttemptTarget | null = null
  #mode: Mode = 'undecided'
  /** The head of a reply that is an error. */
  #errorHead: UpstreamHead | null = null
  #call: UpstreamCall | null = null
  #sentMs: number | null = null
  #trailing: Timer | null = null
  #ended = false
  /** The model has said all; guardrails may still be looking at it. */
  #said = false
  /** Output before the last read, in quarters of tokens. */
  #saidBefore = 0
  /** Output, in quarters of tokens, at which more of the caller's limits has to be reserved. */
  #watchFrom: number
  /** The reader is slow, and has not taken all that was read. */
  #paused = false
  /** Deltas go no further: until the counters have answered, or for good, because the reply was cut. */
  #isHeld = false
  /** Said meanwhile; as much as one read brings. */
  #heldBack: Delta[] = []
  /** The provider has ended its reply meanwhile. */
  #endsLater = false
  /** Bytes that may still come; finite once the caller has left and the reply is read on for its usage. */
  #bytesLeft = Number.POSITIVE_INFINITY
  readonly #reply = Promise.withResolvers<Finish>()

  readonly #take = (delta: Delta): void => {
    if (this.#isHeld) {
      if (!this.isCut) this.#heldBack.push(delta)
      return
    }
    switch (delta.kind) {
      case 'start':
        this.#record.upstreamId = this.#harmless(delta.upstreamId)
        break
      case 'usage':
        this.usage = delta.usage
        break
      case 'finish':
        this.#said = true
        this.#target?.end(() =>
          this.#complete({
            reason: delta.reason,
            native: this.#harmless(delta.native),
            serviceTier: knownTier(delta.serviceTier),
            ...(delta.stopSequence == null
              ? undefined
              : { stopSequence: this.#harmless(delta.stopSequence) }),
            ...(delta.appliedEdits === undefined ? undefined : { appliedEdits: delta.appliedEdits }),
          }),
        )
        break
      case 'reasoning':
        if (delta.form === 'text') this.isThoughtSeen = true
        this.#say(delta)
        break
      default:
        if ('text' in delta) this.#say(delta)
        else {
          this.#isRich = true
          this.#target?.take(delta)
        }
    }
  }

  readonly #takeMessage = (message: WholeMessage): void => {
    this.outputQuarters += quartersIn(message.text)
    this.outputCharacters += message.text.length
    this.#target?.message(message)
  }

  #say(delta: Extract<Content, { readonly text: string }>): void {
    this.outputQuarters += quartersIn(delta.text)
    this.outputCharacters += delta.text.length
    if (delta.kind === 'text' && delta.logprobs !== null) this.#isRich = true
    this.#target?.take(delta)
    // A relay passes on a whole read, and is asked after it.
    if (this.outputQuarters >= this.#watchFrom && this.#relay === null) this.#reach()
  }

  constructor(deps: AttemptDeps, exchange: Exchange, record: AttemptRecord, terms: AttemptTerms) {
    this.#deps = deps
    this.#exchange = exchange
    this.#record = record
    this.#terms = terms
    this.#format = terms.format
    const takeMessage = terms.takesMessages === true ? this.#takeMessage : null
    this.#decoder = this.#format.decoder(this.#take, record.endpoint, takeMessage)
    this.#bounds = new ReplyBounds(exchange, record.endpoint)
    this.#parser =
      this.#format.framing(exchange.request.stream === true) === 'aws-events'
        ? new AwsEventParser(this.#frame, this.#bounds.frameBytes)
        : new SseParser(this.#frame, this.#bounds.frameBytes)
    this.#body = terms.body ?? new TextBody(this.#bounds.jsonBytes)
    this.#watchFrom = terms.meter?.nextAt ?? Number.POSITIVE_INFINITY
    this.#relay = this.#newRelay()
  }

  #newRelay(): Relay | null {
    const { relay } = this.#terms
    if (relay === null || this.#target instanceof LeftTarget) return null
    // No dialect of clients has another framing.
    if (!(this.#parser instanceof SseParser)) return null
    return new Relay({
      parser: this.#parser,
      answer: relay.to,
      learn: relay.learn,
      decode: (event, data) => this.#decoder.frame(event, data),
    })
  }

  /** Resolves when the model's reply is complete; rejects with a GatewayError otherwise. */
  run(target: AttemptTarget): Promise<Finish> {
    const { signal } = this.#exchange
    this.#target = target
    try {
      signal.throwIfAborted()
      signal.addEventListener('abort', this.#onAbort, { once: true })
      this.#start()
    } catch (thrown) {
      // Not an own function for a try that fails at once: one that waits would live as long as the stream.
      this.#leave()
      this.#bounds.drop()
      this.#reply.reject(thrown)
    }
    return this.#reply.promise
  }

  /** The answer takes the reply of this attempt, and of no other one from here on. */
  lead(): void {
    this.#relay?.listen()
  }

  pause(): void {
    this.#paused = true
    this.wasPaused = true
    this.#call?.pause()
  }

  resume(): void {
    this.#paused = false
    if (!this.#isHeld) this.#call?.resume()
  }

  /** Ends the attempt; the first outcome counts. */
  fail(error: GatewayError): void {
    if (this.#isOver()) return
    this.#mode = 'over'
    this.isStalled = this.#paused
    this.#trailing?.cancel()
    this.#leave()
    this.#record.error = error
    this.#target?.close()
    this.#call?.abort()
    try {
      this.#relay?.settle()
    } catch (thrown) {
      this.#deps.log.fault('relayed events not understood', thrown)
    }
    this.#bounds.drop()
    this.#reply.reject(error)
  }

  /** Ends the attempt because the caller must not have what the provider said. */
  refuse(error: GatewayError): void {
    if (!this.#isOver()) this.#record.isRefused = this.#record.status !== null
    this.fail(error)
  }

  /** Does work that had to wait as if the provider had sent it now. */
  turn(work: () => void): void {
    this.#target?.sink?.hold()
    try {
      work()
    } catch (thrown) {
      this.#notUnderstood(thrown)
    }
    if (this.#target?.sink?.flush() === false) this.pause()
  }

  onHead(head: UpstreamHead): void {
    this.#record.status = head.status
    this.#bounds.answered()
    const { clock, metrics } = this.#deps
    const nowMs = clock.monotonicMs()
    this.#exchange.watch.enter('first_token', nowMs)
    this.#noteTime('upstream_headers_received')
    // A stored reply was not sent for now.
    if (this.#sentMs !== null) {
      const { latency } = metrics.ofProvider(this.#record.endpoint.provider.slug)
      latency.observe((nowMs - this.#sentMs) / 1000)
    }
    if (head.status < 200 || head.status > 299) {
      this.#mode = 'error'
      this.#errorHead = head
    } else if (this.#format.framing(this.#exchange.request.stream === true) === 'json') this.#mode = 'json'
  }

  onData(chunk: Buffer): void {
    this.#bytesLeft -= chunk.length
    if (this.#bytesLeft < 0) this.fail(this.#exchange.signal.reason as GatewayError)
    this.#target?.sink?.hold()
    try {
      if (this.#mode === 'undecided') this.#mode = replyKind(chunk)
      if (this.#mode === 'sse') this.#read(chunk)
      else {
        if (this.#mode === 'json') this.#body.push(chunk)
        else if (this.#mode === 'error' && !this.#body.tryPush(chunk, ERROR_MAX_BYTES)) this.#failFromBody()
        this.#count()
      }
    } catch (thrown) {
      this.#notUnderstood(thrown)
    }
    if (this.#target?.sink?.flush() === false) this.pause()
  }

  onEnd(): void {
    this.#ended = true
    this.#trailing?.cancel()
    if (this.#mode === 'over') return
    if (this.#isHeld) this.#endsLater = true
    else this.turn(() => this.#conclude())
  }

  onError(error: GatewayError): void {
    this.#trailing?.cancel()
    if (!this.#said) this.fail(error)
  }

  /** Output so far, including relayed texts that the decoder has not seen. */
  #quarters(): number {
    return this.outputQuarters + (this.#relay?.untold.length ?? 0)
  }

  /** Reserves more of the caller's limits, or ends the reply where there is no more. */
  #reach(): void {
    const { meter } = this.#terms
    if (meter === null || this.#mode !== 'sse' || this.#said) return
    this.#relay?.settle()
    const next = meter.reach(this.#quarters(), this.#goOn)
    this.#watchFrom = meter.nextAt
    if (next === 'stop') this.#endHere()
    else if (next === 'wait') {
      this.#isHeld = true
      this.#call?.pause()
    }
    // A relay passes on a whole read, which may be more than is left.
    if (meter.isShort) this.#relay = null
  }

  /** The counters have answered. */
  readonly #goOn = (): void => {
    const { meter } = this.#terms
    if (meter === null || this.#isOver() || this.isCut) return
    this.#watchFrom = meter.nextAt
    if (!meter.isShort) this.#relay = this.#newRelay()
    if (!this.#isHeld) return
    this.#isHeld = false
    this.turn(() => this.#tellHeldBack())
    if (this.#isHeld || this.#paused || this.#isOver()) return
    this.#call?.resume()
  }

  #tellHeldBack(): void {
    if (this.#quarters() >= this.#watchFrom) this.#reach()
    // One of them may have to wait again, and those behind it.
    for (const delta of this.#heldBack.splice(0)) this.#take(delta)
    if (!this.#endsLater || this.#isHeld || this.#isOver()) return
    this.#endsLater = false
    this.#conclude()
  }

  #endRelay(): void {
    this.#relay?.settle()
    this.#relay = null
  }

  /** Ends the reply as one that has met its output limit. */
  #endHere(): void {
    this.#relay?.settle()
    this.isCut = true
    this.#isHeld = true
    this.#said = true
    this.#ended = true
    this.#call?.abort()
    this.#target?.end(() => this.#complete({ reason: 'length', native: null, serviceTier: null }))
  }

  readonly #giveUp = (): void => this.fail(this.#exchange.signal.reason as GatewayError)

  readonly #onAbort = (): void => {
    if (!this.#readsOn(this.#exchange.signal.reason as GatewayError)) this.#giveUp()
  }

  /** The outcome is known: lets go of what could still change it. */
  #leave(): void {
    this.#exchange.signal.removeEventListener('abort', this.#onAbort)
    this.#deps.abandoned.leave(this.#giveUp)
  }

  /** True if the attempt reads on without its caller, as the provider's row says. */
  #readsOn(reason: GatewayError): boolean {
    if (reason.code !== 'client_closed' || this.#isOver()) return false
    const policy = READING_ON[this.#record.endpoint.provider.onAbort]
    if (policy === null || (policy.needsContent && this.#quarters() === 0)) return false
    if (!this.#deps.abandoned.enter(this.#giveUp, policy.bounded)) return false
    this.#endRelay()
    if (policy.endsAtContent && this.#target !== null && !this.#said) {
      this.#target = new LeftTarget(this.#target, this.#giveUp)
    }
    this.#bytesLeft = policy.maxBytes
    this.#trailing = this.#deps.clock.after(policy.maxMs, this.#giveUp)
    this.resume()
    return true
  }

  #start(): void {
    const { requests } = this.#deps
    const { encode, echo } = this.#terms
    this.#bounds.begin()
    const service = this.#exchange.batch?.service
    if (service?.kind === 'collection') {
      this.#record.isStarted = true
      this.#call = replay(service.reply, this)
      return
    }
    const wire = encode()
    echo?.push(wire.body)
    const request = requests.address(this.#record, wire, this.#exchange.held.bytes)
    if (isPending(request)) {
      request.then(signed => this.#send(signed)).catch((thrown: unknown) => this.fail(toGatewayError(thrown)))
    } else this.#send(request)
  }

  #send(request: UpstreamRequest): void {
    // The caller may have left while the request was signed.
    if (this.#isOver()) return
    const { clock, client } = this.#deps
    this.#bounds.encoded(request.body)
    this.#sentMs = clock.monotonicMs()
    this.#exchange.watch.enter('upstream_first_byte', this.#sentMs)
    this.#noteTime('adapter_request')
    this.sentBytes = request.body.length
    this.#record.isStarted = true
    this.#call = client.start(request, this)
  }

  readonly #frame = (event: string, data: string): void => {
    if (data.length > SHORT_FRAME_CHARS) this.#bounds.checkFrame(data)
    this.#isRich = false
    if (this.#relay === null) this.#decoder.frame(event, data)
    else this.#relay.frame(event, data)
    if (this.#isRich) this.#bounds.addRich(data)
  }

  /** Counts what the reply holds, and ends one that says more than it may. */
  #count(): void {
    if (this.#mode === 'over') return
    this.#bounds.count(this.#body.lengthBytes + this.#parser.waitingBytes, this.outputCharacters)
    if (this.outputCharacters > this.#bounds.textChars && !this.#said) this.#endHere()
  }

  #read(chunk: Buffer): void {
    const relay = this.#relay
    if (relay === null) this.#parser.push(chunk)
    else if (!relay.push(chunk)) this.pause()
    const said = this.outputQuarters + (this.#relay?.untold.length ?? 0)
    const piece = said - this.#saidBefore
    this.#saidBefore = said
    if (piece > this.pieceQuarters) this.pieceQuarters = piece
    if (this.#relay !== null && said >= this.#watchFrom) this.#reach()
    if (relay === null || relay.hasDecoded) this.#count()
  }

  #conclude(): void {
    if (this.#mode === 'error') {
      this.#failFromBody()
      return
    }
    if (this.#mode === 'json') {
      this.#bounds.checkBody(this.#body.bytes(), this.#body.lengthBytes)
      this.#decoder.frame('', this.#body.text())
      this.pieceQuarters = this.outputQuarters
    } else this.#parser.end()
    this.#relay?.settle()
    this.#decoder.end()
    // A decoder that neither finished nor complained has not seen the end of the reply.
    if (!this.#isOver() && !this.#said) this.fail(cutShort())
  }

  /** A hostile reply that makes decoder code throw is the provider's failure, never ours alone. */
  #notUnderstood(thrown: unknown): void {
    if (thrown instanceof GatewayError) {
      if (thrown.code === 'overloaded') {
        this.fail(thrown)
        return
      }
      const { name: providerName } = this.#record.endpoint.provider
      this.fail(failureInReply(thrown, { providerName, secrets: secretsOf(this.#record) }))
      return
    }
    this.#deps.log.fault('reply not understood', thrown)
    this.fail(
      new GatewayError('provider_unavailable', 'The provider sent a reply that cannot be understood', {
        cause: thrown,
      }),
    )
  }

  #complete(finish: Finish): void {
    if (this.#isOver()) return
    this.#mode = 'over'
    this.#trailing?.cancel()
    this.#leave()
    if (!this.#ended) this.#trailing = this.#deps.clock.after(TRAILING_MS, () => this.#call?.abort())
    this.finish = finish
    this.#noteTime('upstream_body_ended')
    this.#reply.resolve(finish)
  }

  #noteTime(event: DebugTimings['event']): void {
    this.#terms.debug?.note(event, this.#deps.clock, this.#exchange.watch.startedMs)
  }

  #failFromBody(): void {
    const { provider } = this.#record.endpoint
    this.fail(
      upstreamFailure({
        format: this.#format,
        status: this.#errorHead?.status ?? 0,
        headers: this.#errorHead?.headers ?? {},
        body: this.#body.text(),
        secrets: secretsOf(this.#record),
        providerName: provider.name,
        keyOwner: keyOwner(this.#record),
        clock: this.#deps.clock,
      }),
    )
  }

  /** A name that the provider chose and we keep or show; null when it repeats the provider's key. */
  #harmless(name: string | null): string | null {
    return name === null || holdsSecret(name, secretsOf(this.#record)) ? null : name
  }

  #isOver(): boolean {
    return this.#mode === 'over'
  }
}

/** The tiers of the interface. Another word could be any text, which nobody has scanned. */
const TIERS: ReadonlySet<string> = new Set([
  'auto',
  'default',
  'standard',
  'on_demand',
  'fast',
  'flex',
  'priority',
  'scale',
  'ultrafast',
  'batch',
  'provisioned',
])

function knownTier(tier: string | null): string | null {
  return tier !== null && TIERS.has(tier) ? tier : null
}

function cutShort(): GatewayError {
  return new GatewayError('provider_unavailable', 'The provider ended its reply before it was complete')
}
