/**
 * Replies of simulated models, independent of format, and the contract of a speaker, which writes a reply in one
 * format. Long texts come from generators while the provider sends them. Pure.
 */
import type { SimAsk } from './ask.ts'

/** Text in the pieces of its stream. */
export interface Pieces {
  /** Number of pieces; each counts as one token. */
  readonly tokens: number
  /** All pieces from the beginning; can be iterated several times. */
  each(): Iterable<string>
}

export type ReplyPart =
  /** `isImage`: the text is a PNG in base64, which formats with images show as an image. */
  | { readonly kind: 'text'; readonly pieces: Pieces; readonly isImage?: true }
  | { readonly kind: 'refusal'; readonly pieces: Pieces }
  /** `text`: raw thinking; `summary`: the provider's summary of it. */
  | { readonly kind: 'reasoning'; readonly form: 'text' | 'summary'; readonly pieces: Pieces }
  /** `pieces` are the arguments (JSON), or the input of a custom tool. */
  | { readonly kind: 'call'; readonly name: string; readonly custom: boolean; readonly pieces: Pieces }

type ReplyFinish = 'stop' | 'calls' | 'length' | 'refusal'

export interface SimReply {
  readonly parts: readonly ReplyPart[]
  readonly finish: ReplyFinish
  /** Milliseconds before each token. */
  readonly paceMs: number
}

interface Tally {
  readonly input: number
  readonly output: number
  readonly reasoning: number
}

/** Longest piece in code points; splits texts without spaces. */
const PIECE_CODE_POINTS = 24

/** Splits a text into word-sized pieces, never inside a code point. */
export function piecesOf(text: string): Pieces {
  const words = text === '' ? [] : text.split(/(?<=\s)(?=\S)/u).flatMap(cutLong)
  return { tokens: words.length, each: () => words }
}

function cutLong(word: string): string[] {
  if (word.length <= PIECE_CODE_POINTS) return [word]
  const points = Array.from(word)
  const pieces: string[] = []
  for (let start = 0; start < points.length; start += PIECE_CODE_POINTS) {
    pieces.push(points.slice(start, start + PIECE_CODE_POINTS).join(''))
  }
  return pieces
}

const VOCABULARY = 'the stream runs on over stones and under bridges past mills and meadows to the sea'.split(
  ' ',
)

/** A text of `tokens` words, generated on demand. */
export function writtenPieces(tokens: number): Pieces {
  return {
    tokens,
    *each() {
      for (let index = 0; index < tokens; index++) {
        const word = VOCABULARY[index % VOCABULARY.length] ?? ''
        yield index === tokens - 1 ? `${word}.` : `${word} `
      }
    },
  }
}

/** All pieces joined. */
export function wholeText(pieces: Pieces): string {
  let text = ''
  for (const piece of pieces.each()) text += piece
  return text
}

/** Cuts a reply after `maxTokens` tokens and sets its finish. Does not cut inside a call. */
export function limitReply(reply: SimReply, maxTokens: number | null): SimReply {
  if (maxTokens === null || tokensOf(reply) <= maxTokens) return reply
  const parts: ReplyPart[] = []
  let remaining = maxTokens
  for (const part of reply.parts) {
    if (remaining <= 0 || (part.kind === 'call' && part.pieces.tokens > remaining)) break
    parts.push(
      part.pieces.tokens <= remaining ? part : { ...part, pieces: takePieces(part.pieces, remaining) },
    )
    remaining -= part.pieces.tokens
  }
  return { ...reply, parts, finish: 'length' }
}

function takePieces(pieces: Pieces, tokens: number): Pieces {
  return {
    tokens,
    *each() {
      let remaining = tokens
      for (const piece of pieces.each()) {
        if (remaining-- <= 0) return
        yield piece
      }
    },
  }
}

function tokensOf(reply: SimReply): number {
  return reply.parts.reduce((sum, part) => sum + part.pieces.tokens, 0)
}

/** Token counts of a reply for its usage. */
export function tallyOf(reply: SimReply, inputTokens: number): Tally {
  const reasoning = reply.parts
    .filter(part => part.kind === 'reasoning')
    .reduce((sum, part) => sum + part.pieces.tokens, 0)
  return { input: inputTokens, output: tokensOf(reply), reasoning }
}

/** A reply of one text. */
export function textReply(text: string, paceMs = 0): SimReply {
  return { parts: [{ kind: 'text', pieces: piecesOf(text) }], finish: 'stop', paceMs }
}

// Speakers: one file for each format implements the contract

/** `token`: one piece of content; `finish`: the finish reason; `open`, `close`: frames around content. */
export interface Frame {
  readonly kind: 'open' | 'token' | 'close' | 'finish'
  /** The bytes with line ends and the closing blank line. */
  readonly text: string
}

/** A reply with the facts that its frames need. */
export interface Speech {
  readonly ask: SimAsk
  readonly reply: SimReply
  readonly tally: Tally
  /** Random part of the reply's ids. */
  readonly id: string
  readonly createdSeconds: number
}

/** A failure that is to be written in a format. */
export interface SimFailure {
  /** HTTP status; inside a stream, the status that an HTTP reply would have. */
  readonly status: number
  readonly message: string
}

/** Writes replies and failures in one format. */
export interface Speaker {
  frames(speech: Speech): Iterable<Frame>
  whole(speech: Speech): unknown
  /** The document without a finish reason. */
  unfinished(speech: Speech): unknown
  failure(trouble: SimFailure): unknown
  /** `framesBefore`: number of frames so far, for formats with numbered events. */
  failureFrame(trouble: SimFailure, framesBefore: number): string
}

/** An event with a name. */
export function namedFrame(kind: Frame['kind'], event: string, data: unknown): Frame {
  return { kind, text: `event: ${event}\ndata: ${JSON.stringify(data)}\n\n` }
}

/** An event without a name. */
export function plainFrame(kind: Frame['kind'], data: unknown): Frame {
  return { kind, text: `data: ${JSON.stringify(data)}\n\n` }
}

/** An error in OpenAI's shape. */
export function openaiError({ status, message }: SimFailure): { error: Record<string, unknown> } {
  const { type, code } = OPENAI_ERRORS[status] ?? {
    type: status < 500 ? 'invalid_request_error' : 'server_error',
    code: null,
  }
  return { error: { message, type, param: null, code } }
}

const OPENAI_ERRORS: Readonly<Record<number, { type: string; code: string | null }>> = {
  401: { type: 'invalid_request_error', code: 'invalid_api_key' },
  403: { type: 'permission_error', code: null },
  404: { type: 'invalid_request_error', code: 'model_not_found' },
  429: { type: 'requests', code: 'rate_limit_exceeded' },
  500: { type: 'server_error', code: 'server_error' },
  503: { type: 'server_error', code: 'service_unavailable' },
  529: { type: 'server_error', code: 'overloaded' },
}
