/**
 * Extracts what a model said from an answer in the form of Google's API, in the vocabulary that all dialects share
 * (said.ts), and reports faults of a stream. Knows only the public shapes. Pure.
 */
import { type Fields, failed, fields, framesOf, isFailure, list, type Said, type Told, text } from './said.ts'
import { asMessagesSay } from './said-messages.ts'

/** @throws SyntaxError when a frame or body is no JSON */
export function saidInGemini(told: Told): Said {
  if (isFailure(told)) return failed(told)
  const chunks = told.streamed ? chunksIn(told.body) : [fields(JSON.parse(told.body))]
  const parts = chunks.flatMap(chunk => list(fields(candidateOf(chunk)['content'])['parts']))
  const ends = chunks.map(candidateOf).filter(candidate => 'finishReason' in candidate)
  const counted = chunks.filter(chunk => 'usageMetadata' in chunk).at(-1)
  const error = chunks.find(chunk => 'error' in chunk)
  const blocked = chunks.find(chunk => 'promptFeedback' in chunk)
  const calls = parts.filter(part => 'functionCall' in part).map(part => fields(part['functionCall']))
  const answer = {
    text: parts.map(part => (part['thought'] === true ? '' : text(part['text']))).join(''),
    reasoning: parts.map(part => (part['thought'] === true ? text(part['text']) : '')).join(''),
    refusal: text(ends.at(-1)?.['finishMessage']),
    calls: calls.map(call => ({ name: text(call['name']), text: JSON.stringify(call['args']) })),
    usage: counted === undefined ? null : tokens(fields(counted['usageMetadata'])),
    finish: finishOf(text(ends.at(-1)?.['finishReason']), calls.length > 0),
    error: null,
  } satisfies Said
  if (error !== undefined)
    return { ...answer, finish: 'error', error: text(fields(error['error'])['message']) }
  if (blocked === undefined) return answer
  const message = text(fields(blocked['promptFeedback'])['blockReasonMessage'])
  return { ...answer, finish: 'error', error: `400 ${message}` }
}

/** The last word of a stream that failed has no `data:`. */
function chunksIn(body: string): Fields[] {
  const last = /(?:^|\n)(\{"error":.*)$/.exec(body)?.[1]
  return [...framesOf(body), ...(last === undefined ? [] : [fields(JSON.parse(last))])]
}

function candidateOf(chunk: Fields): Fields {
  return list(chunk['candidates'])[0] ?? {}
}

/** What was said excludes thoughts here. */
function tokens(usage: Fields): [number, number, number] {
  const count = (name: string): number => Number(usage[name] ?? 0)
  const output = count('candidatesTokenCount') + count('thoughtsTokenCount')
  return [count('promptTokenCount') + count('toolUsePromptTokenCount'), output, count('totalTokenCount')]
}

const FINISHES: Readonly<Record<string, Said['finish']>> = { MAX_TOKENS: 'length', '': 'none' }
/** Words with which an answer has come to its own end; all others are those of a filter. */
const OWN_ENDS: ReadonlySet<string> = new Set([
  'STOP',
  'OTHER',
  'LANGUAGE',
  'MALFORMED_FUNCTION_CALL',
  'UNEXPECTED_TOOL_CALL',
  'TOO_MANY_TOOL_CALLS',
  'MISSING_THOUGHT_SIGNATURE',
  'MALFORMED_RESPONSE',
  'IMAGE_OTHER',
  'NO_IMAGE',
])

function finishOf(reason: string, calls: boolean): Said['finish'] {
  if (OWN_ENDS.has(reason)) return calls ? 'tool_calls' : 'stop'
  return FINISHES[reason] ?? 'content_filter'
}

/** The same in the words that the API has: they are those of messages. */
export const asGeminiSays = asMessagesSay

/** What is wrong with the order of a stream; empty: nothing. */
export function geminiStreamFlaws(told: Told): readonly string[] {
  if (!told.streamed || isFailure(told)) return []
  const flaws: string[] = []
  const isFailed = /(?:^|\n)\{"error":/.test(told.body)
  const frames = told.body.split('\n\n').filter(frame => frame !== '')
  const events = isFailed ? frames.slice(0, -1) : frames
  if (!events.every(frame => /^data: \{.*\}$/.test(frame))) flaws.push('a frame has more than its data')
  const chunks = framesOf(told.body).filter(chunk => !('debug' in chunk))
  const ends = chunks.filter(chunk => 'finishReason' in candidateOf(chunk))
  const isBlocked = chunks.some(chunk => 'promptFeedback' in chunk)
  if (!isFailed && !isBlocked && (ends.length !== 1 || ends[0] !== chunks.at(-1)))
    flaws.push('the last chunk has no sole finish')
  if (isFailed && ends.length > 0) flaws.push('a stream that failed has a finish')
  const empty = chunks.filter(chunk => list(fields(candidateOf(chunk)['content'])['parts']).length === 0)
  if (!isBlocked && empty.length > 0) flaws.push('a chunk has no part')
  for (const name of ['responseId', 'modelVersion'])
    if (!isBlocked && new Set(chunks.map(chunk => chunk[name])).size > 1)
      flaws.push(`${name} is not the same in all chunks`)
  return flaws
}
