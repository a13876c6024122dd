/** What the simulated model says, before any format. Pure; long texts are made while they are sent. */

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

export type ReplyFinish = 'stop' | 'calls' | 'length' | 'refusal'

export interface Reply {
  readonly parts: readonly ReplyPart[]
  readonly finish: ReplyFinish
  /** Milliseconds before each token. */
  readonly paceMs: number
}

export interface Tally {
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
export function limited(reply: Reply, maxTokens: number | null): Reply {
  if (maxTokens === null || tokensOf(reply) <= maxTokens) return reply
  const parts: ReplyPart[] = []
  let left = maxTokens
  for (const part of reply.parts) {
    if (left <= 0 || (part.kind === 'call' && part.pieces.tokens > left)) break
    parts.push(part.pieces.tokens <= left ? part : { ...part, pieces: taken(part.pieces, left) })
    left -= part.pieces.tokens
  }
  return { ...reply, parts, finish: 'length' }
}

function taken(pieces: Pieces, tokens: number): Pieces {
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

function tokensOf(reply: Reply): number {
  return reply.parts.reduce((sum, part) => sum + part.pieces.tokens, 0)
}

/** Token counts as they are billed. */
export function tallyOf(reply: Reply, inputTokens: number): Tally {
  const reasoning = reply.parts
    .filter(part => part.kind === 'reasoning')
    .reduce((sum, part) => sum + part.pieces.tokens, 0)
  return { input: inputTokens, output: tokensOf(reply), reasoning }
}

/** A reply of one text. */
export function saying(text: string, paceMs = 0): Reply {
  return { parts: [{ kind: 'text', pieces: piecesOf(text) }], finish: 'stop', paceMs }
}
