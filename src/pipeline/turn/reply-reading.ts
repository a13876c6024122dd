/**
 * Reads one reply: from bytes to deltas, through frames or as one document, within bounds, because no byte of it is
 * trusted. Its memory counts as held bytes of the request; its figures count the output of the model. In a relay, frames
 * may bypass the decoder if the target of the attempt accepts them. Hot path.
 */
import type { Clock } from '../../base/clock.ts'
import { GatewayError, overloadError } from '../../base/errors.ts'
import type { Log } from '../../base/log/log.ts'
import type { AttemptRecord, Exchange, Finish, Held } from '../../exchange/exchange.ts'
import type { Decoder, Delta, Format, Usage } from '../../formats/format.ts'
import type { WholeMessage } from '../../formats/whole-message.ts'
import { countJson, type JsonBounds, structureBytes, textBytes } from '../../protocol/json/json.ts'
import {
  LOGPROBS_MAX_COMMAS,
  LOGPROBS_MAX_PARTS,
  REPLY_MAX_COMMAS,
  REPLY_MAX_DEPTH,
  REPLY_MAX_PARTS,
} from '../../protocol/limits.ts'
import { AwsEventParser } from '../../providers/upstream/aws-events.ts'
import { type ReplyBody, TextBody } from '../../providers/upstream/body.ts'
import { SseParser } from '../../providers/upstream/sse.ts'
import type { UpstreamHead } from '../../providers/upstream/transport.ts'
import type { CallFigures } from '../accounting/charge.ts'
import { quartersIn } from '../accounting/estimate.ts'
import type { Content } from '../answer/answer.ts'
import type { Relay } from '../answer/relay.ts'
import type { AttemptTarget } from './attempt-target.ts'
import { refusalIn } from './provider-failure.ts'
import { harmlessName } from './provider-request.ts'

/** An error page is read only for its message. */
const ERROR_MAX_BYTES = 64 * 1024

const EMPTY_BUFFER = Buffer.alloc(0)
const [SPACE, TAB, LF, CR, OPEN_BRACE, OPEN_BRACKET] = [32, 9, 10, 13, 123, 91]

/** The way a reply is read. */
export interface ReadingTerms {
  readonly format: Pick<Format, 'framing' | 'decoder' | 'failure'>
  /** Collects a reply that is one document; null: as text. */
  readonly body: ReplyBody | null
  /** Receives messages of a whole reply as such; null: their deltas are used. */
  readonly takeMessage: ((message: WholeMessage) => void) | null
  readonly clock: Clock
}

export class ReplyReading {
  /** Null: frames are decoded. */
  relay: Relay | null = null
  /** False if every frame has to be decoded from here on. */
  mayRelay = true
  /** The head of the reply; null until it has arrived. */
  replyHead: UpstreamHead | null = null
  /** The decoder, whose state is read too. */
  readonly decoder: Decoder
  /** Characters that the model may write in a stream. */
  readonly textChars: number
  /** True if the current frame contained more than text. */
  isRich = false
  readonly #terms: ReadingTerms
  readonly #record: AttemptRecord
  readonly #held: Held
  readonly #framing: ReturnType<Format['framing']>
  /** Limit of a whole reply. */
  readonly #jsonBytes: number
  readonly #json: JsonBounds
  /** Null until a stream begins. */
  #parser: SseParser | AwsEventParser | null = null
  #kind: 'undecided' | 'frames' | 'document' | 'refusal' = 'undecided'
  /** A document that came in one read, as most do; it stays valid until the end. */
  #document: Buffer | null = null
  /** Collects any other document, and an error page. Null until there is one. */
  #body: ReplyBody | null
  /** Bytes that are currently reported to the request's count. */
  #reportedBytes = 0
  #requestBytes = 0
  /** Bytes of the request that a provider may repeat in an event: its instructions and tools. */
  #repeatedBytes = 0
  /** Bytes of frames with more than text, and of a parsed reply. */
  #richBytes = 0

  /** `onDelta` receives the deltas. */
  constructor(
    terms: ReadingTerms,
    exchange: Pick<Exchange, 'held' | 'request'>,
    record: AttemptRecord,
    onDelta: (delta: Delta) => void,
  ) {
    const { format, body, takeMessage } = terms
    const { held, request } = exchange
    const { endpoint } = record
    this.#terms = terms
    this.#record = record
    this.#held = held
    this.#body = body
    this.decoder = format.decoder(onDelta, endpoint, takeMessage)
    this.#framing = format.framing(request.stream === true)
    const mayDraw =
      endpoint.drawsImages || request.tools?.some(tool => tool.type === 'image_generation') === true
    const hasLogprobs = request.top_logprobs != null
    this.#jsonBytes = mayDraw ? IMAGE_JSON_MAX_BYTES : hasLogprobs ? LOGPROBS_JSON_MAX_BYTES : JSON_MAX_BYTES
    const tokens = Math.min(
      request.max_output_tokens ?? Number.POSITIVE_INFINITY,
      endpoint.maxOutputTokens ?? Number.POSITIVE_INFINITY,
    )
    this.textChars = Math.min(TEXT_MAX_CHARS, Math.max(TEXT_MIN_CHARS, tokens * TOKEN_MAX_CHARS))
    this.#json = hasLogprobs ? LOGPROBS_BOUNDS : PLAIN_BOUNDS
  }

  /** True once a stream of frames has begun. */
  get isStream(): boolean {
    return this.#kind === 'frames'
  }

  /** Limit of one event, in bytes: a whole reply, plus the request, which an event may repeat. */
  get frameBytes(): number {
    return this.#jsonBytes + this.#repeatedBytes
  }

  /** Counts the text of a long request until the provider answers. @throws GatewayError `overloaded` */
  countRequest(body: string): void {
    this.#requestBytes = Buffer.byteLength(body) === body.length ? body.length : 2 * body.length
    this.#repeatedBytes = this.#requestBytes
    this.#reportedBytes = this.#requestBytes
    if (this.#held.count(this.#reportedBytes)) return
    this.#release()
    throw overloadError()
  }

  head(head: UpstreamHead): void {
    if (this.#requestBytes > 0) {
      this.#report(this.#reportedBytes - this.#requestBytes)
      this.#requestBytes = 0
    }
    this.replyHead = head
    if (head.status < 200 || head.status > 299) this.#kind = 'refusal'
    else if (this.#framing === 'json') this.#kind = 'document'
  }

  /**
   * Reads the next bytes. Returns false if the reader of the answer is slow. `target` may accept a relay. `staysValid`:
   * this is the last read, and its bytes stay valid until the end.
   * @throws the errors of decoding; and the refusal in an error reply that is too long to read on
   */
  push(chunk: Buffer, target: AttemptTarget | null, staysValid: boolean): boolean {
    if (this.#kind === 'undecided') this.#kind = kindOf(chunk)
    if (this.#kind === 'frames') {
      this.#parser ??= this.#openParser()
      if (this.mayRelay && this.relay === null) this.#openRelay(this.#parser, target)
      if (this.relay !== null) return this.relay.push(chunk)
      this.#parser.push(chunk)
    } else if (this.#kind === 'document') {
      if (staysValid && this.#body === null && chunk.length <= this.#jsonBytes) this.#document = chunk
      else {
        this.#body ??= new TextBody(this.#jsonBytes)
        this.#body.push(chunk)
      }
    } else if (this.#kind === 'refusal') {
      this.#body ??= new TextBody(this.#jsonBytes)
      if (!this.#body.tryPush(chunk, ERROR_MAX_BYTES)) throw new ErrorReply(this.#refusal())
    }
    return true
  }

  /** Called when the provider has ended its reply. @throws the same errors as `push` */
  end(): void {
    if (this.#kind === 'refusal') throw new ErrorReply(this.#refusal())
    if (this.#kind === 'document') {
      const bytes = this.#document ?? this.#body?.bytes() ?? EMPTY_BUFFER
      const keptBytes = this.#body?.lengthBytes ?? bytes.length
      const isLong = keptBytes > SHORT_FRAME_CHARS
      if (isLong) this.#checkBody(bytes, keptBytes)
      this.decoder.frame('', this.#body?.text() ?? bytes.toString(), true)
      if (isLong) this.count(0)
    } else {
      this.#parser ??= this.#openParser()
      this.#parser.end()
      this.relay?.settle()
    }
    this.decoder.end()
  }

  /** Ends the relay, and decodes every frame from here on. */
  endRelay(): void {
    this.relay?.settle()
    this.mayRelay = false
    this.relay = null
  }

  /**
   * Counts the memory of the reply: what waits for the rest of its frame or document, or in the decoder, and characters
   * of output.
   * @throws GatewayError `overloaded`
   */
  count(outputChars: number): void {
    const arrivingBytes =
      this.#parser === null
        ? (this.#document?.length ?? this.#body?.lengthBytes ?? 0)
        : this.#parser.waitingBytes
    const waitingBytes = arrivingBytes + this.decoder.withheld
    const bytes = this.#requestBytes + waitingBytes + this.#richBytes + CHAR_BYTES * outputChars
    if (Math.abs(bytes - this.#reportedBytes) >= REPORT_STEP_BYTES) this.#report(bytes)
  }

  /** Called when the attempt has failed: relayed texts are passed on, and nothing is kept. */
  drop(log: Pick<Log, 'fault'>): void {
    try {
      this.relay?.settle()
    } catch (thrown) {
      log.fault('gateway', 'cannot parse the events of a relayed stream', thrown)
    }
    this.#release()
  }

  #openParser(): SseParser | AwsEventParser {
    const { frameBytes } = this
    return this.#framing === 'aws-events'
      ? new AwsEventParser(this.#frame, frameBytes)
      : new SseParser(this.#frame, frameBytes)
  }

  /** Only for server-sent events: no dialect uses any other framing. */
  #openRelay(parser: SseParser | AwsEventParser, target: AttemptTarget | null): void {
    const decode = this.#decode
    if (parser instanceof SseParser) this.relay = target?.relay?.({ parser, decode }) ?? null
    this.mayRelay = this.relay !== null
  }

  #refusal(): GatewayError {
    return refusalIn(this.#body?.text() ?? '', this.replyHead, this.#terms, this.#record)
  }

  readonly #decode = (event: string, data: string): void => this.decoder.frame(event, data)

  readonly #frame = (event: string, data: string): void => {
    if (data.length > SHORT_FRAME_CHARS) this.#check(Buffer.from(data))
    this.isRich = false
    if (this.relay === null) this.decoder.frame(event, data)
    else this.relay.frame(event, data)
    // The answer may keep everything of a frame with more than text.
    if (this.isRich)
      this.#richBytes += RICH_BYTES * data.length + structureBytes(countJson(Buffer.from(data), this.#json))
  }

  /**
   * Checks a whole reply that is not short, before it is parsed. `keptBytes`: those of the document and of the parts cut
   * out of it.
   * @throws GatewayError as `#check`, or `overloaded`
   */
  #checkBody(bytes: Buffer, keptBytes: number): void {
    const count = this.#check(bytes)
    this.#richBytes = textBytes(bytes, bytes.length) + structureBytes(count)
    this.#report(keptBytes + this.#richBytes)
  }

  /** @throws GatewayError `reply_too_large` for a value that is nested too deeply or has too many parts */
  #check(bytes: Buffer) {
    const count = countJson(bytes, this.#json)
    if (count.excess === null) return count
    throw new GatewayError(
      'reply_too_large',
      count.excess === 'depth'
        ? 'The provider sent a value that is nested too deeply'
        : 'The provider sent a value with too many elements',
    )
  }

  #report(bytes: number): void {
    const addedBytes = bytes - this.#reportedBytes
    this.#reportedBytes = bytes
    if (!this.#held.count(addedBytes)) throw overloadError()
  }

  /** Releases everything that the reply holds. */
  #release(): void {
    this.#requestBytes = 0
    this.#richBytes = 0
    this.#held.count(-this.#reportedBytes)
    this.#reportedBytes = 0
  }
}

/** An error reply, thrown while a reply is read; its failure is complete, as refusalIn creates it. */
export class ErrorReply {
  readonly error: GatewayError

  constructor(error: GatewayError) {
    this.error = error
  }
}

/** Providers sometimes answer a streaming request with plain JSON, whatever their content type says. */
function kindOf(chunk: Buffer): 'undecided' | 'frames' | 'document' {
  for (const byte of chunk) {
    if (byte === SPACE || byte === TAB || byte === LF || byte === CR) continue
    return byte === OPEN_BRACE || byte === OPEN_BRACKET ? 'document' : 'frames'
  }
  return 'undecided'
}

/** Limit of a whole JSON reply of text: some four times the longest that models write, including escapes. */
const JSON_MAX_BYTES = 4 * 1024 * 1024
/** Limit with log probabilities, of which each token has twenty. */
const LOGPROBS_JSON_MAX_BYTES = 32 * 1024 * 1024
/** Limit with generated images inside. */
const IMAGE_JSON_MAX_BYTES = 64 * 1024 * 1024

/** Characters that a token may have: words in code and markup reach ten, runs of blanks and dashes more. */
const TOKEN_MAX_CHARS = 16
/**
 * Characters that any reply may have: limits of a few tokens are not exact, so even the smallest bound must be
 * generous.
 */
const TEXT_MIN_CHARS = 1024 * 1024
/** Characters that no reply may exceed: as many as the largest known token limit gives. */
const TEXT_MAX_CHARS = 4 * 1024 * 1024

/** Shorter frames and replies need no check: they cannot be nested too deeply for any stack. */
const SHORT_FRAME_CHARS = 2048

const PLAIN_BOUNDS: JsonBounds = {
  depth: REPLY_MAX_DEPTH,
  parts: REPLY_MAX_PARTS,
  commas: REPLY_MAX_COMMAS,
}
const LOGPROBS_BOUNDS: JsonBounds = {
  depth: REPLY_MAX_DEPTH,
  parts: LOGPROBS_MAX_PARTS,
  commas: LOGPROBS_MAX_COMMAS,
}

/** Memory per character of output: two bytes in the answer, and two more if a decoder needs it again. */
const CHAR_BYTES = 4
/** Memory per character of a frame that contains more than text, beside its structure. */
const RICH_BYTES = 3
/** Smaller amounts are not reported to the request's count; most replies never reach this. */
const REPORT_STEP_BYTES = 16 * 1024
/** From this length on, the encoded text of a request counts as held until the provider has answered. */
export const LONG_REQUEST_CHARS = 16 * 1024

/** The output of the model in one reply so far, and the state of its attempt. */
export class ReplyFigures implements CallFigures {
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
  /** Output before the last read, in quarters of tokens. */
  quartersBefore = 0
  /**
   * Monotonic milliseconds of the read that is being processed: its deltas arrived then. 0 for deltas that are
   * processed later.
   */
  readMs = 0

  addText(text: string): void {
    this.outputQuarters += quartersIn(text)
    this.outputCharacters += text.length
  }

  /** Counts output of the model. False if the delta contains more than text. */
  add(delta: Content): boolean {
    if (!('text' in delta)) return false
    this.addText(delta.text)
    if (delta.kind === 'reasoning' && delta.form === 'text') this.isThoughtSeen = true
    return delta.kind !== 'text' || delta.logprobs === null
  }
}

/** The figures of an attempt that did not begin. */
export const NO_FIGURES: CallFigures = new ReplyFigures()

/** The service tiers of the API. Any other value could be arbitrary text, which was not scanned. */
const KNOWN_TIERS: ReadonlySet<string> = new Set([
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

/** Values that providers usually send, which cannot contain a key. */
const USUAL_FINISH_NAMES: ReadonlySet<string> = new Set([
  'completed',
  'end_turn',
  'stop',
  'STOP',
  'length',
  'tool_calls',
  'tool_use',
])

/** The end of a reply, without names that repeat a key or could be arbitrary text. */
export function finishOf(
  { reason, native, serviceTier, stopSequence, appliedEdits }: Extract<Delta, { kind: 'finish' }>,
  record: AttemptRecord,
): Finish {
  // The gateway found this sequence, which the client wrote itself.
  const { stoppedBy } = record
  if (stoppedBy !== undefined)
    return { reason: 'stop', native: null, serviceTier: null, stopSequence: stoppedBy }
  return {
    reason,
    native: native !== null && USUAL_FINISH_NAMES.has(native) ? native : harmlessName(native, record),
    serviceTier: serviceTier !== null && KNOWN_TIERS.has(serviceTier) ? serviceTier : null,
    ...(stopSequence == null ? undefined : { stopSequence: harmlessName(stopSequence, record) }),
    ...(appliedEdits === undefined ? undefined : { appliedEdits }),
  }
}
