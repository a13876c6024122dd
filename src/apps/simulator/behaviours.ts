/**
 * Behaviours of the simulated provider's models. The name of a model chooses its behaviour, with numbers after dashes:
 * `write-200-20` writes 200 tokens, one every 20 ms. SIM_MODELS lists all models except those for embeddings, `embed`
 * and `embed-<dimensions>`. Pure.
 */
import { createHash } from 'node:crypto'
import { countWords, fieldsOf, listOf, numberOf, type SimAsk, type SimFields, textOf } from './ask.ts'
import { exampleOf } from './examples.ts'
import { piecesOf, type ReplyPart, type SimReply, textReply, writtenPieces } from './reply.ts'

interface SimModel {
  /** The name before any number. */
  readonly name: string
  /** Numbers that may follow, in order, with their defaults. */
  readonly numbers: readonly { readonly name: string; readonly byDefault: number; readonly max: number }[]
  readonly does: string
  /** Listed by a gateway in the Responses format. The others are for tests, except those that draw. */
  readonly listed?: true
  /** Creates images, in the formats that support them. */
  readonly draws?: true
}

const PACE_NUMBER = { name: 'ms before each token', byDefault: 0, max: 60_000 } as const

/** Every model that answers with text or images. */
export const SIM_MODELS = [
  { name: 'echo', numbers: [PACE_NUMBER], does: 'repeats the last user text', listed: true },
  {
    name: 'write',
    numbers: [{ name: 'tokens', byDefault: 200, max: 10_000_000 }, PACE_NUMBER],
    does: 'writes a text with a number of tokens; without a pause, as fast as the client reads',
    listed: true,
  },
  {
    name: 'call',
    numbers: [{ name: 'calls', byDefault: 1, max: 16 }],
    does: 'calls the first tool a number of times in parallel, then answers with the outputs',
    listed: true,
  },
  {
    name: 'search',
    numbers: [],
    does: 'uses the tool `web_search`, or else `web_fetch` with the first address of the user text, then answers with what it found and cites it',
    listed: true,
  },
  { name: 'reason', numbers: [PACE_NUMBER], does: 'thinks in raw text, then answers', listed: true },
  {
    name: 'reason-summary',
    numbers: [PACE_NUMBER],
    does: 'shows a summary of its thinking, then answers',
    listed: true,
  },
  { name: 'refuse', numbers: [], does: 'refuses', listed: true },
  {
    name: 'json',
    numbers: [],
    does: 'answers with a document that fits the JSON schema asked for',
    listed: true,
  },
  {
    name: 'judge',
    numbers: [],
    does: 'judges for the alignment plugin: a rule is broken if the message has a word that the rule quotes',
    listed: true,
  },
  {
    name: 'draw',
    numbers: [],
    does: 'makes an image: one grey pixel, whatever was asked for; in the formats of chat completions and Gemini',
    draws: true,
  },
  { name: 'judge-fenced', numbers: [], does: 'the same verdict in a code fence with prose before it' },
  { name: 'judge-short', numbers: [], does: 'a verdict with one number too few' },
] as const satisfies readonly SimModel[]

type SimModelName = (typeof SIM_MODELS)[number]['name']

const REPLIES_BY_MODEL: Readonly<
  Record<SimModelName, (ask: SimAsk, numbers: readonly number[]) => SimReply>
> = {
  echo: (ask, [paceMs = 0]) => textReply(lastText(ask), paceMs),
  write: (_, [tokens = 0, paceMs = 0]) => ({
    parts: [{ kind: 'text', pieces: writtenPieces(tokens) }],
    finish: 'stop',
    paceMs,
  }),
  call: (ask, [calls = 1]) => callTool(ask, calls),
  search: searchWeb,
  reason: (ask, [paceMs = 0]) => reason(ask, 'text', paceMs),
  'reason-summary': (ask, [paceMs = 0]) => reason(ask, 'summary', paceMs),
  refuse: () => ({
    parts: [{ kind: 'refusal', pieces: piecesOf('I cannot help with that request.') }],
    finish: 'refusal',
    paceMs: 0,
  }),
  json: ask => textReply(document(ask)),
  draw: () => ({
    parts: [{ kind: 'text', pieces: { tokens: 1, each: () => [GREY_PIXEL] }, isImage: true }],
    finish: 'stop',
    paceMs: 0,
  }),
  judge: ask => textReply(verdict(ask, all => all)),
  'judge-fenced': ask => textReply(`Here is my verdict:\n\`\`\`json\n${verdict(ask, all => all)}\n\`\`\``),
  'judge-short': ask => textReply(verdict(ask, all => all.slice(1))),
}

/** A PNG of one pixel. */
const GREY_PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=='

/** The behaviour of a model name; null for an unknown name. */
export function behaviourOf(model: string): ((ask: SimAsk) => SimReply) | null {
  const match = /^([a-z]+(?:-[a-z]+)*)((?:-\d{1,8})*)$/.exec(model)
  if (match === null) return null
  const row = SIM_MODELS.find(row => row.name === match[1])
  if (row === undefined) return null
  const figures = (match[2] ?? '').split('-').slice(1).map(Number)
  if (figures.length > row.numbers.length) return null
  const numbers = row.numbers.map((number, index) => Math.min(figures[index] ?? number.byDefault, number.max))
  return ask => REPLIES_BY_MODEL[row.name](ask, numbers)
}

function lastText(ask: SimAsk): string {
  return ask.lastUser === '' ? '(nothing was said)' : ask.lastUser
}

function firstWord(text: string): string {
  return /[\p{L}\p{N}]+/u.exec(text)?.[0] ?? 'something'
}

function callTool(ask: SimAsk, calls: number): SimReply {
  const tool = ask.tools[0]
  if (ask.toolOutputs.length > 0) return textReply(`The tool answered: ${ask.toolOutputs.join(' and ')}`)
  // Requested as a document, like the analyst of a fusion.
  if (tool === undefined && ask.json !== null) return textReply(document(ask))
  if (tool === undefined) return textReply('There is no tool that may be called.')
  const input = tool.custom ? lastText(ask) : JSON.stringify(exampleOf(tool.schema, firstWord(ask.lastUser)))
  const call: ReplyPart = { kind: 'call', name: tool.name, custom: tool.custom, pieces: piecesOf(input) }
  return { parts: Array.from({ length: calls }, () => call), finish: 'calls', paceMs: 0 }
}

/** Searches with the user's words, and repeats the first result from its source. */
function searchWeb(ask: SimAsk): SimReply {
  const [output] = ask.toolOutputs
  if (output !== undefined) return textReply(citationOf(output))
  const [tool] = ['web_search', 'web_fetch'].flatMap(
    name => ask.tools.find(offered => offered.name.startsWith(name)) ?? [],
  )
  if (tool === undefined) return textReply('There is no tool web_search or web_fetch that may be called.')
  const url = /https?:\/\/\S+/.exec(ask.lastUser)?.[0] ?? ''
  const input = JSON.stringify(tool.name.startsWith('web_search') ? { query: lastText(ask) } : { url })
  return {
    parts: [{ kind: 'call', name: tool.name, custom: tool.custom, pieces: piecesOf(input) }],
    finish: 'calls',
    paceMs: 0,
  }
}

function citationOf(output: string): string {
  const fields = fieldsOf(parseOrNull(output))
  const [first = fields] = listOf(fields['results']).map(fieldsOf)
  const url = textOf(first['url'])
  const text = textOf(first['text']) || textOf(first['content'])
  if (text === '' || !URL.canParse(url))
    return `It failed: ${textOf(fields['error']) || 'nothing was found'}.`
  return `The source says: ${text} [${new URL(url).hostname}](${url})`
}

function parseOrNull(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

function reason(ask: SimAsk, form: 'text' | 'summary', paceMs: number): SimReply {
  const thought = `They said something of ${ask.lastUser.length} characters. Repeating it is the right answer.`
  return {
    parts: [
      { kind: 'reasoning', form, pieces: piecesOf(thought) },
      { kind: 'text', pieces: piecesOf(lastText(ask)) },
    ],
    finish: 'stop',
    paceMs,
  }
}

function document(ask: SimAsk): string {
  if (ask.json === null || Object.keys(ask.json.schema).length === 0)
    return JSON.stringify({ answer: lastText(ask) })
  return JSON.stringify(exampleOf(ask.json.schema, firstWord(ask.lastUser)))
}

function verdict(ask: SimAsk, pick: (all: readonly number[]) => readonly number[]): string {
  // In a format whose schemas have no names, every requested document is taken for a verdict.
  if (ask.json === null || (ask.json.name !== VERDICT_SCHEMA && ask.json.name !== '')) return document(ask)
  return JSON.stringify({ probabilities: pick(probabilities(ask.system, ask.lastUser)) })
}

// Verdicts of the simulated evaluator of alignment, which reads numbered rules and a message. A rule with a marker
// `[[p=0.42]]` has that probability. Any other rule has 0.95 if the message contains a word that the rule quotes, and
// otherwise 0.02.

const BROKEN_PROBABILITY = 0.95
const KEPT_PROBABILITY = 0.02
const NUMBERED_LINE = /^\s*(\d{1,3})\s*[.):]\s*(.*)$/
const PROBABILITY_MARKER = /\[\[p=(\d(?:\.\d+)?)\]\]/
const QUOTED_WORD = /"([^"]+)"|“([^”]+)”|'([^']+)'(?!\w)|`([^`]+)`/gu

/** Name of the JSON schema of a verdict. */
const VERDICT_SCHEMA = 'alignment_verdict'

/** Probabilities in the order of the rules. If the rules are in the system text, the whole user text is the message. */
function probabilities(system: string, user: string): number[] {
  const inSystem = numberedRun(system)
  const numbered = inSystem.rules.length > 0 ? { rules: inSystem.rules, rest: user } : numberedRun(user)
  const message = numbered.rest.toLowerCase()
  return numbered.rules.map(rule => probability(rule, message))
}

/** The first run of lines numbered 1, 2, 3, … and the text around it. */
function numberedRun(text: string): { readonly rules: readonly string[]; readonly rest: string } {
  const rules: string[] = []
  const otherLines: string[] = []
  let hasEnded = false
  for (const line of text.split('\n')) {
    const match = hasEnded ? null : NUMBERED_LINE.exec(line)
    if (match !== null && Number(match[1]) === rules.length + 1) {
      rules.push(match[2] ?? '')
      continue
    }
    // A numbered list in the message must not be read as more rules.
    hasEnded ||= rules.length > 0 && line.trim() !== ''
    otherLines.push(line)
  }
  return { rules, rest: otherLines.join('\n') }
}

function probability(rule: string, message: string): number {
  const match = PROBABILITY_MARKER.exec(rule)
  if (match !== null) return Math.min(1, Number(match[1]))
  for (const match of rule.matchAll(QUOTED_WORD)) {
    const word = match[1] ?? match[2] ?? match[3] ?? match[4] ?? ''
    if (message.includes(word.toLowerCase())) return BROKEN_PROBABILITY
  }
  return KEPT_PROBABILITY
}

// Embeddings depend only on the text, so equal texts give equal vectors of length one

const DEFAULT_DIMENSIONS = 8
const MAX_DIMENSIONS = 4096

/** The reply to a request in OpenAI's format; null if `model` is not `embed` or `embed-<dimensions>`. */
export function embeddingsReply(model: string, body: SimFields): unknown {
  const match = /^embed(?:-(\d{1,4}))?$/.exec(model)
  if (match === null) return null
  const length = numberOf(body['dimensions']) ?? Number(match[1] ?? DEFAULT_DIMENSIONS)
  const dimensions = Math.min(Math.max(1, Math.floor(length)), MAX_DIMENSIONS)
  const input: unknown = body['input']
  // A list of numbers is one text as tokens.
  const texts = Array.isArray(input) && typeof input[0] !== 'number' ? input : [input]
  const words = texts.map(text =>
    typeof text === 'string' ? countWords(text) : Array.isArray(text) ? text.length : 0,
  )
  const total = words.reduce((sum, count) => sum + count, 0)
  return {
    object: 'list',
    model,
    data: texts.map((text, index) => ({
      object: 'embedding',
      index,
      embedding: encodeVector(
        vectorOf(typeof text === 'string' ? text : JSON.stringify(text), dimensions),
        body,
      ),
    })),
    usage: { prompt_tokens: total, total_tokens: total },
  }
}

function encodeVector(vector: Float32Array, body: SimFields): unknown {
  return body['encoding_format'] === 'base64'
    ? Buffer.from(vector.buffer).toString('base64')
    : Array.from(vector)
}

function vectorOf(text: string, dimensions: number): Float32Array {
  const vector = new Float32Array(dimensions)
  let squares = 0
  for (let index = 0; index < dimensions; index++) {
    const value = createHash('sha256').update(`${index}:${text}`).digest().readInt32LE(0) / 2 ** 31
    vector[index] = value
    squares += value * value
  }
  const length = Math.sqrt(squares)
  return vector.map(value => value / length)
}
