/**
 * Limits on one provider reply: size, nesting, parts and text, because every byte of it is untrusted. Its memory counts
 * as held bytes of the request. Hot path.
 */
import { GatewayError, overloaded } from '../../errors.ts'
import type { Exchange, Held } from '../../exchange/exchange.ts'
import { countJson, type JsonBounds, structureBytes, textBytes } from '../../protocol/json/json-bounds.ts'
import {
  LOGPROBS_MAX_COMMAS,
  LOGPROBS_MAX_PARTS,
  REPLY_MAX_COMMAS,
  REPLY_MAX_DEPTH,
  REPLY_MAX_PARTS,
} from '../../protocol/limits.ts'
import type { Endpoint } from '../../providers/provider.ts'
import { FRAME_MAX_BYTES } from '../../upstream/sse.ts'

/** A whole JSON reply of text: some four times the longest that a model writes, escapes included. */
const JSON_MAX_BYTES = 4 * 1024 * 1024
/** With log probabilities, of which every token has twenty. */
const LOGPROBS_JSON_MAX_BYTES = 32 * 1024 * 1024
/** With drawn images inside. */
const IMAGE_JSON_MAX_BYTES = 64 * 1024 * 1024
/** An event with a drawn image holds all of it: a few megabytes of base64. */
const IMAGE_FRAME_MAX_BYTES = 32 * 1024 * 1024

/** Characters that a token may have: words of code and of markup reach ten, runs of blanks and dashes more. */
const TOKEN_MAX_CHARS = 16
/** Characters that any reply may have: limits of a few tokens are not exact, and the shortest cap has to be far off. */
const TEXT_MIN_CHARS = 1024 * 1024
/** Characters that a reply may have where nobody says how many tokens: as many as the longest known limit gives. */
const TEXT_MAX_CHARS = 4 * 1024 * 1024

/** Shorter frames and replies need no check: they cannot nest deeper than any stack allows. */
export const SHORT_FRAME_CHARS = 2048

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

/** Said text: two bytes a character, in the answer and once more where a decoder needs it again. */
const CHAR_BYTES = 4
/** A frame with more than text in it, as objects. */
const RICH_BYTES = 3
/** Less than this is not told to the request's count: most replies never are. */
const TOLD_BYTES = 16 * 1024
/** The encoded text of a request counts from this length on, until the provider has answered. */
const LONG_REQUEST_CHARS = 16 * 1024

/** The bounds of one reply, and the count of what it holds. */
export class ReplyBounds {
  readonly frameBytes: number
  readonly jsonBytes: number
  /** Characters that the model may say in a stream. */
  readonly textChars: number
  /** The frame that is being decoded has brought more than text. */
  isRich = false
  readonly #json: JsonBounds
  readonly #held: Held
  /** Bytes that are counted with the request at present. */
  #told = 0
  #requestBytes = 0
  /** Of frames with more than text, and of a parsed reply. */
  #richBytes = 0

  constructor(exchange: Exchange, endpoint: Endpoint) {
    const { request } = exchange
    const draws =
      endpoint.drawsImages || request.tools?.some(tool => tool.type === 'image_generation') === true
    const hasLogprobs = request.top_logprobs != null
    this.frameBytes = draws ? IMAGE_FRAME_MAX_BYTES : FRAME_MAX_BYTES
    this.jsonBytes = draws ? IMAGE_JSON_MAX_BYTES : hasLogprobs ? LOGPROBS_JSON_MAX_BYTES : JSON_MAX_BYTES
    const tokens = Math.min(
      request.max_output_tokens ?? Number.POSITIVE_INFINITY,
      endpoint.maxOutputTokens ?? Number.POSITIVE_INFINITY,
    )
    this.textChars = Math.min(TEXT_MAX_CHARS, Math.max(TEXT_MIN_CHARS, tokens * TOKEN_MAX_CHARS))
    this.#json = hasLogprobs ? LOGPROBS_BOUNDS : PLAIN_BOUNDS
    this.#held = exchange.held
  }

  /** Counts the text of the request until the provider answers. @throws GatewayError `overloaded` */
  encoded(body: string): void {
    if (body.length < LONG_REQUEST_CHARS) return
    this.#requestBytes = Buffer.byteLength(body) === body.length ? body.length : 2 * body.length
    this.#told = this.#requestBytes
    if (this.#held.hold(this.#told)) return
    this.drop()
    throw overloaded()
  }

  /** The request has been sent. */
  answered(): void {
    if (this.#requestBytes === 0) return
    this.#tell(this.#told - this.#requestBytes)
    this.#requestBytes = 0
  }

  /**
   * Call before a frame is parsed that is not short.
   * @throws GatewayError `provider_unavailable` if it is nested too deeply or has too many parts
   */
  checkFrame(data: string): void {
    this.#check(Buffer.from(data))
  }

  /**
   * Call before a whole reply is parsed. `keptBytes`: of the document and of what was cut out of it.
   * @throws GatewayError as `checkFrame`, or `overloaded`
   */
  checkBody(bytes: Buffer, keptBytes: number): void {
    if (bytes.length <= SHORT_FRAME_CHARS) return
    const count = this.#check(bytes)
    this.#richBytes = textBytes(bytes, bytes.length) + structureBytes(count)
    this.#tell(keptBytes + this.#richBytes)
  }

  /** A frame brought more than text, of which the answer may keep all. */
  addRich(data: string): void {
    this.#richBytes += RICH_BYTES * data.length
  }

  /**
   * Counts what the reply holds: bytes that wait for the rest of their frame or body, and characters that were said.
   * @throws GatewayError `overloaded`
   */
  count(waitingBytes: number, saidChars: number): void {
    const bytes = this.#requestBytes + waitingBytes + this.#richBytes + CHAR_BYTES * saidChars
    if (Math.abs(bytes - this.#told) >= TOLD_BYTES) this.#tell(bytes)
  }

  /** Nothing of the reply is kept. */
  drop(): void {
    this.#requestBytes = 0
    this.#richBytes = 0
    this.#held.hold(-this.#told)
    this.#told = 0
  }

  #check(bytes: Buffer) {
    const count = countJson(bytes, this.#json)
    if (count.excess === null) return count
    throw new GatewayError(
      'provider_unavailable',
      count.excess === 'depth'
        ? 'The provider sent a value that is nested too deeply'
        : 'The provider sent a value with too many elements',
    )
  }

  #tell(bytes: number): void {
    const more = bytes - this.#told
    this.#told = bytes
    if (!this.#held.hold(more)) throw overloaded()
  }
}
