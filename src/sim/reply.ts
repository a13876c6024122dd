/** What the simulated model says, before any format. Pure; long texts are made while they are sent. */
import type { SimAsk } from './ask.ts'

/** Text in the pieces in which it is streamed. */
export interface Pieces {
  /** Number of pieces; each counts as one token. */
  readonly tokens: number
  /** The pieces from the first on; may be asked for again. */
  each(): Iterable<string>
}

export type ReplyPart =
  | { readonly kind: 'text'; readonly pieces: Pieces }
  | { readonly kind: 'refusal'; readonly pieces: Pieces }
  /** `text` is raw thinking, `summary` what the provider calls a summary of it. */
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

/** Longest piece in code points: texts without spaces are streamed in parts too. */
const PIECE_CODE_POINTS = 24

/** Cuts a text into word-sized pieces that join to it again; never inside a code point. */
export function piecesOf(text: string): Pieces {
  const words = text === '' ? [] : text.split(/(?<=\s)(?=\S)/u).flatMap(cutLong)
  return { tokens: words.length, each: () => words }
}

function cutLong(word: string): string[] {
  if (word.length <= PIECE_CODE_POINTS) return [word]
  const points = Array.from(word)
  const cut: string[] = []
  for (let at = 0; at < points.length; at += PIECE_CODE_POINTS) {
    cut.push(points.slice(at, at + PIECE_CODE_POINTS).join(''))
  }
  return cut
}

const VOCABULARY = 'the stream runs on over stones and under bridges past mills and meadows to the sea'.split(
  ' ',
)

/** `tokens` words of text, made as they are taken. */
export function writtenPieces(tokens: number): Pieces {
  return {
    tokens,
    *each() {
      for (let at = 0; at < tokens; at++) {
        const word = VOCABULARY[at % VOCABULARY.length] ?? ''
        yield at === tokens - 1 ? `${word}.` : `${word} `
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

/** The reply cut after `maxTokens` tokens, with the finish that says so. A call is not cut in the middle. */
export function limitReply(reply: SimReply, maxTokens: number | null): SimReply {
  if (maxTokens === null || tokensOf(reply) <= maxTokens) return reply
  const parts: ReplyPart[] = []
  let left = maxTokens
  for (const part of reply.parts) {
    if (left <= 0 || (part.kind === 'call' && part.pieces.tokens > left)) break
    parts.push(part.pieces.tokens <= left ? part : { ...part, pieces: takePieces(part.pieces, left) })
    left -= part.pieces.tokens
  }
  return { ...reply, parts, finish: 'length' }
}

function takePieces(pieces: Pieces, tokens: number): Pieces {
  return {
    tokens,
    *each() {
      let left = tokens
      for (const piece of pieces.each()) {
        if (left-- <= 0) return
        yield piece
      }
    },
  }
}

function tokensOf(reply: SimReply): number {
  return reply.parts.reduce((sum, part) => sum + part.pieces.tokens, 0)
}

/** Token counts as they are billed. */
export function tallyOf(reply: SimReply, inputTokens: number): Tally {
  const reasoning = reply.parts
    .filter(part => part.kind === 'reasoning')
    .reduce((sum, part) => sum + part.pieces.tokens, 0)
  return { input: inputTokens, output: tokensOf(reply), reasoning }
}

/** A reply of one text. */
export function saying(text: string, paceMs = 0): SimReply {
  return { parts: [{ kind: 'text', pieces: piecesOf(text) }], finish: 'stop', paceMs }
}

// Speakers

/** `token`: one piece of content; `finish`: says how the reply ended; `open`, `close`: everything around. */
export interface Frame {
  readonly kind: 'open' | 'token' | 'close' | 'finish'
  /** With its line ends and closing blank line. */
  readonly text: string
}

export interface Speech {
  readonly ask: SimAsk
  readonly reply: SimReply
  readonly tally: Tally
  /** Random part of the reply's ids. */
  readonly id: string
  readonly createdSeconds: number
}

export interface Trouble {
  /** HTTP status; inside a stream the status it would have had. */
  readonly status: number
  readonly message: string
}

export interface Speaker {
  frames(speech: Speech): Iterable<Frame>
  whole(speech: Speech): unknown
  /** The document without any word about how it ended. */
  unfinished(speech: Speech): unknown
  failure(trouble: Trouble): unknown
  /** `framesBefore` counts what was streamed so far, for formats that number their events. */
  failureFrame(trouble: Trouble, framesBefore: number): string
}

/** An event with a name. */
export function namedFrame(kind: Frame['kind'], event: string, data: unknown): Frame {
  return { kind, text: `event: ${event}\ndata: ${JSON.stringify(data)}\n\n` }
}

/** An event without a name. */
export function plainFrame(kind: Frame['kind'], data: unknown): Frame {
  return { kind, text: `data: ${JSON.stringify(data)}\n\n` }
}

/** How OpenAI-shaped errors call a status. */
export function openaiError({ status, message }: Trouble): { error: Record<string, unknown> } {
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
