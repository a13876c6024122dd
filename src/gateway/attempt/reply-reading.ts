/**
 * Reads one reply: from bytes to deltas, through frames or as one document. Frames may pass the decoder by, in a relay,
 * where the target of the attempt takes one. Hot path.
 */
import type { Clock } from '../../clock.ts'
import type { GatewayError } from '../../errors.ts'
import type { AttemptRecord, Exchange } from '../../exchange/exchange.ts'
import type { Decoder, Delta, Format } from '../../formats/format.ts'
import type { WholeMessage } from '../../formats/whole-message.ts'
import type { Log } from '../../log/log.ts'
import { AwsEventParser } from '../../upstream/aws-events.ts'
import { type ReplyBody, TextBody } from '../../upstream/body.ts'
import { SseParser } from '../../upstream/sse.ts'
import type { UpstreamHead } from '../../upstream/transport.ts'
import type { Relay } from '../answer/answer.ts'
import type { AttemptTarget } from './attempt-target.ts'
import { refusalIn } from './provider-failure.ts'
import { ReplyBounds, SHORT_FRAME_CHARS } from './reply-bounds.ts'

/** An error page is only read for its message. */
const ERROR_MAX_BYTES = 64 * 1024

const [SPACE, TAB, LF, CR, OPEN_BRACE, OPEN_BRACKET] = [32, 9, 10, 13, 123, 91]

/** How a reply is read. */
export interface ReadingTerms {
  readonly format: Pick<Format, 'framing' | 'decoder' | 'failure'>
  /** Collects a reply of one document; null: as text. */
  readonly body: ReplyBody | null
  /** Takes messages of a whole reply as such; null: as their deltas. */
  readonly takeMessage: ((message: WholeMessage) => void) | null
  readonly clock: Clock
}

export class ReplyReading {
  readonly bounds: ReplyBounds
  /** Null: frames are decoded. */
  relay: Relay | null = null
  /** False: every frame has to be decoded from here on. */
  relays = true
  readonly #terms: ReadingTerms
  readonly #record: AttemptRecord
  readonly #body: ReplyBody
  readonly #decoder: Decoder
  readonly #framing: ReturnType<Format['framing']>
  /** Null until a stream begins. */
  #parser: SseParser | AwsEventParser | null = null
  #kind: 'undecided' | 'frames' | 'document' | 'refusal' = 'undecided'
  #head: UpstreamHead | null = null

  /** `take` gets the deltas. */
  constructor(terms: ReadingTerms, exchange: Exchange, record: AttemptRecord, take: (delta: Delta) => void) {
    const { format, body, takeMessage } = terms
    this.#terms = terms
    this.#record = record
    this.bounds = new ReplyBounds(exchange, record.endpoint)
    this.#body = body ?? new TextBody(this.bounds.jsonBytes)
    this.#decoder = format.decoder(take, record.endpoint, takeMessage)
    this.#framing = format.framing(exchange.request.stream === true)
  }

  /** True once a stream of frames has begun. */
  get isStream(): boolean {
    return this.#kind === 'frames'
  }

  /** Bytes that wait for the rest of their frame or document. */
  get waitingBytes(): number {
    return this.#parser === null ? this.#body.lengthBytes : this.#parser.waitingBytes
  }

  head(head: UpstreamHead): void {
    this.bounds.answered()
    this.#head = head
    if (head.status < 200 || head.status > 299) this.#kind = 'refusal'
    else if (this.#framing === 'json') this.#kind = 'document'
  }

  /**
   * Takes a read. False: the reader of the answer is slow. `target`: may take a relay. `stays`: it is the last one, and
   * its bytes stay until the end.
   * @throws whatever decoding throws; and the refusal that an error reply tells, once it is too long to be read on
   */
  push(chunk: Buffer, target: AttemptTarget | null, stays: boolean): boolean {
    if (this.#kind === 'undecided') this.#kind = kindOf(chunk)
    if (this.#kind === 'frames') {
      this.#parser ??= this.#openParser()
      if (this.relays && this.relay === null) this.#openRelay(this.#parser, target)
      if (this.relay !== null) return this.relay.push(chunk)
      this.#parser.push(chunk)
    } else if (this.#kind === 'document') this.#body.push(chunk, stays)
    else if (this.#kind === 'refusal' && !this.#body.tryPush(chunk, ERROR_MAX_BYTES))
      throw new ErrorReply(this.#refusal())
    return true
  }

  /** The provider has ended its reply. @throws as `push` */
  end(): void {
    if (this.#kind === 'refusal') throw new ErrorReply(this.#refusal())
    if (this.#kind === 'document') {
      this.bounds.checkBody(this.#body.bytes(), this.#body.lengthBytes)
      this.#decoder.frame('', this.#body.text())
    } else {
      this.#parser ??= this.#openParser()
      this.#parser.end()
      this.relay?.settle()
    }
    this.#decoder.end()
  }

  /** Ends the relay, and decodes every frame from here on. */
  endRelay(): void {
    this.relay?.settle()
    this.relays = false
    this.relay = null
  }

  /** The attempt has failed: what was relayed is told, and nothing is kept. */
  drop(log: Pick<Log, 'fault'>): void {
    try {
      this.relay?.settle()
    } catch (thrown) {
      log.fault('gateway', 'cannot parse events that were relayed', thrown)
    }
    this.bounds.drop()
  }

  #openParser(): SseParser | AwsEventParser {
    const { frameBytes } = this.bounds
    return this.#framing === 'aws-events'
      ? new AwsEventParser(this.#frame, frameBytes)
      : new SseParser(this.#frame, frameBytes)
  }

  /** No dialect of clients has another framing. */
  #openRelay(parser: SseParser | AwsEventParser, target: AttemptTarget | null): void {
    const decode = this.#decode
    if (parser instanceof SseParser) this.relay = target?.relay?.({ parser, decode }) ?? null
    this.relays = this.relay !== null
  }

  #refusal(): GatewayError {
    return refusalIn(this.#body.text(), this.#head, this.#terms, this.#record)
  }

  readonly #decode = (event: string, data: string): void => this.#decoder.frame(event, data)

  readonly #frame = (event: string, data: string): void => {
    const { bounds } = this
    if (data.length > SHORT_FRAME_CHARS) bounds.checkFrame(data)
    bounds.isRich = false
    if (this.relay === null) this.#decoder.frame(event, data)
    else this.relay.frame(event, data)
    if (bounds.isRich) bounds.addRich(data)
  }
}

/** An error reply, thrown where a reply is read; its failure is whole, as refusalIn makes it. */
export class ErrorReply {
  readonly error: GatewayError

  constructor(error: GatewayError) {
    this.error = error
  }
}

/** Providers answer a streaming request with plain JSON now and then, whatever their content type says. */
function kindOf(chunk: Buffer): 'undecided' | 'frames' | 'document' {
  for (const byte of chunk) {
    if (byte === SPACE || byte === TAB || byte === LF || byte === CR) continue
    return byte === OPEN_BRACE || byte === OPEN_BRACKET ? 'document' : 'frames'
  }
  return 'undecided'
}
