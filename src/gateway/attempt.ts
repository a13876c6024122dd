/**
 * One try at one endpoint: encode, send, decode, assemble, write. Hot path: from socket chunk to sink everything
 * is a plain synchronous call.
 *
 * The commit point is here: once the first content has been written to a live sink, the attempt can no longer be
 * replaced, and a failure has to be told in the stream.
 */
import type { Clock, Timer } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import type { Decoder, Delta, FinishReason, Format, Usage } from '../formats/format.ts'
import type { Log } from '../log/log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { Endpoint, FormatName } from '../providers/provider.ts'
import { TextBody } from '../upstream/body.ts'
import { failureInReply, holdsSecret, upstreamFailure } from '../upstream/failure.ts'
import { SseParser } from '../upstream/sse.ts'
import type { UpstreamCall, UpstreamClient, UpstreamHandler, UpstreamHead } from '../upstream/transport.ts'
import { Assembler, type Content } from './answer/assemble.ts'
import { echoRequest } from './answer/echo.ts'
import { Relay } from './answer/relay.ts'
import type { Sink } from './answer/sink.ts'
import { DRAIN_MAX_BYTES, DRAIN_MAX_MS, type Drains } from './drains.ts'
import type { Attempt, Exchange } from './exchange.ts'
import { OutputGuard, type ReplyGuarding } from './guard/reply.ts'
import { type ProviderRequestTools, secretsOf, upstreamRequest, wireRequest } from './provider-request.ts'
import { ERROR_MAX_BYTES, frameLimit, JSON_MAX_BYTES, replyKind } from './reply-kind.ts'

export interface AttemptTools extends ProviderRequestTools {
  readonly client: UpstreamClient
  readonly formats: Readonly<Record<FormatName, Format>>
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  readonly drains: Drains
}

/** What a finished attempt leaves for the terminal event. */
export interface Finish {
  readonly reason: FinishReason
  readonly native: string | null
  readonly serviceTier: string | null
}

/** After the finish the provider gets this long to end its body, so that the connection can be used again. */
const TRAILING_MS = 1_000

type Mode = 'undecided' | 'sse' | 'json' | 'error' | 'over'

export class AttemptRun implements UpstreamHandler {
  readonly assembler: Assembler
  readonly #tools: AttemptTools
  readonly #exchange: Exchange
  readonly #attempt: Attempt
  readonly #sink: Sink
  readonly #debug: Readonly<Record<string, unknown>>[]
  readonly #format: Format
  readonly #decoder: Decoder
  readonly #parser: SseParser
  /** Null where every frame has to be decoded. */
  readonly #relay: Relay | null
  /** Null where what the model says may leave unseen. */
  readonly #guard: OutputGuard | null
  readonly #body: TextBody
  #mode: Mode = 'undecided'
  /** The head of a reply that is an error. */
  #refusal: UpstreamHead | null = null
  #call: UpstreamCall | null = null
  #usage: Usage | null = null
  #trailing: Timer | null = null
  #ended = false
  /** The model has said all; guardrails may still be looking at it. */
  #said = false
  /** Bytes that may still come; finite once the caller has left and the reply is read on for its usage. */
  #drainBytes = Number.POSITIVE_INFINITY
  readonly #reply = Promise.withResolvers<Finish>()

  /** `debug` collects the upstream bodies to echo, over all attempts of the exchange. */
  constructor(
    tools: AttemptTools,
    exchange: Exchange,
    attempt: Attempt,
    sink: Sink,
    debug: Readonly<Record<string, unknown>>[],
    guarding: ReplyGuarding | null = null,
  ) {
    this.#tools = tools
    this.#exchange = exchange
    this.#attempt = attempt
    this.#sink = sink
    this.#debug = debug
    this.#format = tools.formats[attempt.endpoint.format]
    this.#decoder = this.#format.decoder(delta => this.#take(delta), attempt.endpoint)
    this.#parser = new SseParser(
      (event, data) => (this.#relay ?? this.#decoder).frame(event, data),
      frameLimit(exchange, attempt.endpoint),
    )
    this.#body = new TextBody(JSON_MAX_BYTES)
    const response = echoRequest(exchange.request, {
      id: exchange.id,
      createdAt: exchange.createdAt,
      model: attempt.endpoint.modelId,
    })
    this.assembler = new Assembler(response, event => {
      this.#relay?.note(event)
      if (!sink.write(event)) this.#call?.pause()
    })
    this.#guard = guarding === null ? null : this.#guarded(guarding)
    this.#relay =
      guarding === null && isRelayed(attempt.endpoint, sink)
        ? new Relay({
            parser: this.#parser,
            assembler: this.assembler,
            sink,
            decode: (event, data) => this.#decoder.frame(event, data),
          })
        : null
  }

  /** Whether the client has seen content of this attempt. */
  get committed(): boolean {
    return this.#sink.live && this.assembler.begun
  }

  get usage(): Usage | null {
    return this.#usage
  }

  /** Resolves when the model's reply is complete; rejects with a GatewayError otherwise. */
  run(): Promise<Finish> {
    const { signal } = this.#exchange
    try {
      signal.throwIfAborted()
      signal.addEventListener('abort', this.#onAbort, { once: true })
      this.#sink.onDrain(() => this.#call?.resume())
      this.#start()
    } catch (thrown) {
      // Not an own function for a try that fails at once: one that waits would live as long as the stream.
      this.#leave()
      this.#reply.reject(thrown)
    }
    return this.#reply.promise
  }

  readonly #giveUp = (): void => this.#fail(this.#exchange.signal.reason as GatewayError)

  readonly #onAbort = (): void => {
    if (!this.#drains(this.#exchange.signal.reason as GatewayError)) this.#giveUp()
  }

  /** The outcome is known: what could still change it is let go. */
  #leave(): void {
    this.#exchange.signal.removeEventListener('abort', this.#onAbort)
    this.#tools.drains.leave(this.#giveUp)
  }

  /** Reads on without the caller, where the provider's row says so and there is room. */
  #drains(reason: GatewayError): boolean {
    const { provider } = this.#attempt.endpoint
    if (provider.onAbort !== 'drain' || reason.code !== 'client_closed' || this.#isOver()) return false
    if (!this.#tools.drains.enter(this.#giveUp)) return false
    this.#drainBytes = DRAIN_MAX_BYTES
    this.#trailing = this.#tools.clock.after(DRAIN_MAX_MS, this.#giveUp)
    this.#call?.resume()
    return true
  }

  #start(): void {
    const exchange = this.#exchange
    const wire = wireRequest(this.#tools, exchange, this.#attempt, this.#format)
    if (exchange.request.debug?.echo_upstream_body === true && this.#attempt.again !== true)
      this.#debug.push(wire.body)
    const request = upstreamRequest(this.#tools, this.#attempt, wire)
    exchange.marks.sentMs = this.#tools.clock.monotonicMs()
    this.#call = this.#tools.client.start(request, this)
  }

  onHead(head: UpstreamHead): void {
    this.#attempt.status = head.status
    const { marks } = this.#exchange
    marks.headMs = this.#tools.clock.monotonicMs()
    const { latency } = this.#tools.metrics.ofProvider(this.#attempt.endpoint.provider.slug)
    latency.observe((marks.headMs - marks.sentMs) / 1000)
    if (head.status < 200 || head.status > 299) {
      this.#mode = 'error'
      this.#refusal = head
    } else if (this.#format.framing(this.#exchange.request.stream === true) === 'json') this.#mode = 'json'
  }

  onData(chunk: Buffer): void {
    this.#drainBytes -= chunk.length
    if (this.#drainBytes < 0) this.#fail(this.#exchange.signal.reason as GatewayError)
    this.#sink.hold()
    this.#guard?.resetBudget()
    try {
      if (this.#mode === 'undecided') this.#mode = replyKind(chunk)
      if (this.#mode === 'sse') this.#read(chunk)
      else if (this.#mode === 'json') this.#body.push(chunk)
      else if (this.#mode === 'error' && !this.#body.tryPush(chunk, ERROR_MAX_BYTES)) this.#failFromBody()
    } catch (thrown) {
      this.#notUnderstood(thrown)
    }
    if (this.#sink.flush() === false) this.#call?.pause()
  }

  #read(chunk: Buffer): void {
    if (this.#relay === null) this.#parser.push(chunk)
    else if (!this.#relay.push(chunk)) this.#call?.pause()
  }

  onEnd(): void {
    this.#ended = true
    this.#trailing?.cancel()
    if (this.#mode === 'over') return
    this.#sink.hold()
    try {
      this.#conclude()
    } catch (thrown) {
      this.#notUnderstood(thrown)
    }
    if (this.#sink.flush() === false) this.#call?.pause()
  }

  #conclude(): void {
    if (this.#mode === 'error') {
      this.#failFromBody()
      return
    }
    if (this.#mode === 'json') this.#decoder.frame('', this.#body.text())
    else this.#parser.end()
    this.#relay?.settle()
    this.#decoder.end()
    // A decoder that neither finished nor complained has not seen the end of the reply.
    if (!this.#isOver() && !this.#said) this.#fail(cutShort())
  }

  onError(error: GatewayError): void {
    this.#trailing?.cancel()
    if (!this.#said) this.#fail(error)
  }

  /** What a hostile reply makes decoder code throw is the provider's failure, never ours alone. */
  #notUnderstood(thrown: unknown): void {
    if (thrown instanceof GatewayError) {
      const { name: providerName } = this.#attempt.endpoint.provider
      this.#fail(failureInReply(thrown, { providerName, secrets: secretsOf(this.#attempt) }))
      return
    }
    this.#tools.log.fault('reply not understood', thrown)
    this.#fail(
      new GatewayError('provider_unavailable', 'The provider sent a reply that cannot be understood', {
        cause: thrown,
      }),
    )
  }

  #take(delta: Delta): void {
    switch (delta.kind) {
      case 'start':
        this.#exchange.upstreamId = this.#named(delta.upstreamId)
        break
      case 'usage':
        this.#usage = delta.usage
        break
      case 'finish':
        this.#finish({
          reason: delta.reason,
          native: this.#named(delta.native),
          serviceTier: this.#named(delta.serviceTier),
        })
        break
      default:
        if ('text' in delta) this.#exchange.outputCharacters += delta.text.length
        if (this.#guard === null) this.#deliver(delta)
        else this.#guard.take(delta)
    }
  }

  #deliver(delta: Content): void {
    if (!this.assembler.begun) this.#begin()
    this.assembler.take(delta)
  }

  #finish(finish: Finish): void {
    this.#said = true
    if (this.#guard === null) this.#complete(finish)
    else this.#guard.end(() => this.#complete(finish))
  }

  #guarded(guarding: ReplyGuarding): OutputGuard {
    const run = this
    return new OutputGuard(guarding, this.#exchange, {
      get committed() {
        return run.committed
      },
      deliver: delta => this.#deliver(delta),
      fail: error => this.#fail(error),
      turn: work => this.#turn(work),
      pause: () => this.#call?.pause(),
      resume: () => this.#call?.resume(),
    })
  }

  /** What was waited for, as if the provider had sent it now. */
  #turn(work: () => void): void {
    this.#sink.hold()
    try {
      work()
    } catch (thrown) {
      this.#notUnderstood(thrown)
    }
    if (this.#sink.flush() === false) this.#call?.pause()
  }

  #begin(): void {
    this.#exchange.firstTokenMs = this.#tools.clock.monotonicMs()
    this.#exchange.marks.firstTokenMs = this.#exchange.firstTokenMs
    this.assembler.begin(this.#exchange.request.stream === true ? this.#debug : [])
  }

  #complete(finish: Finish): void {
    if (this.#isOver()) return
    if (!this.assembler.begun) this.#begin()
    this.#mode = 'over'
    this.#trailing?.cancel()
    const { marks } = this.#exchange
    marks.finishedMs = this.#tools.clock.monotonicMs()
    marks.judgedMs = marks.finishedMs
    this.#leave()
    if (!this.#ended) this.#trailing = this.#tools.clock.after(TRAILING_MS, () => this.#call?.abort())
    this.#reply.resolve(finish)
  }

  #fail(error: GatewayError): void {
    if (this.#isOver()) return
    this.#mode = 'over'
    this.#trailing?.cancel()
    this.#leave()
    this.#attempt.error = error
    this.#guard?.close()
    this.#call?.abort()
    try {
      this.#relay?.settle()
    } catch (thrown) {
      this.#tools.log.fault('relayed events not understood', thrown)
    }
    this.#reply.reject(error)
  }

  #failFromBody(): void {
    const { provider } = this.#attempt.endpoint
    this.#fail(
      upstreamFailure({
        format: this.#format,
        status: this.#refusal?.status ?? 0,
        headers: this.#refusal?.headers ?? {},
        body: this.#body.text(),
        secrets: secretsOf(this.#attempt),
        providerName: provider.name,
        clock: this.#tools.clock,
      }),
    )
  }

  /** A name that the provider chose and we keep or show: none that repeats its key. */
  #named(name: string | null): string | null {
    return name === null || holdsSecret(name, secretsOf(this.#attempt)) ? null : name
  }

  #isOver(): boolean {
    return this.#mode === 'over'
  }
}

/** Relay or general way: bytes may go on as they are where provider and client speak alike and nobody has to look. */
function isRelayed(endpoint: Endpoint, sink: Sink): boolean {
  return (
    endpoint.format === 'openai-responses' &&
    sink.relays === 'responses' &&
    !endpoint.provider.quirks.includes('no-relay')
  )
}

function cutShort(): GatewayError {
  return new GatewayError('provider_unavailable', 'The provider ended its reply before it was complete')
}
