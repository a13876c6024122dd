/**
 * Recorded replies of the Gemini API and of Vertex, against a second reading of the same bytes that shares
 * nothing with the decoder.
 */
import t from 'tap'
import { FAILURES, type FailureCode, GatewayError } from '../../src/base/errors.ts'
import type { Delta } from '../../src/formats/format.ts'
import { googleGemini } from '../../src/formats/google-gemini.ts'
import type { Endpoint } from '../../src/protocol/provider.ts'
import { decodeStream } from '../support/decode-reply.ts'
import { parseResponsesRequest } from '../support/dialects.ts'
import {
  arrivals,
  FAILURE_STATUSES,
  type Recording,
  recordings,
  withoutRecordings,
} from '../support/recordings.ts'
import { collect } from './delta-items.ts'

interface WirePart {
  readonly text?: string
  readonly thought?: boolean
  readonly thoughtSignature?: string
  readonly functionCall?: {
    readonly name?: string
    readonly id?: string
    readonly args?: Record<string, unknown>
    readonly partialArgs?: readonly { readonly jsonPath: string; readonly stringValue: string }[]
  }
  readonly executableCode?: { readonly code: string }
  readonly codeExecutionResult?: { readonly output?: string }
  readonly inlineData?: { readonly data: string }
  readonly toolCall?: { readonly args?: { readonly queries?: readonly string[] } }
  readonly toolResponse?: unknown
}

interface WireCandidate {
  readonly content?: { readonly parts?: readonly WirePart[] }
  readonly finishReason?: string
  readonly groundingMetadata?: {
    readonly webSearchQueries?: readonly string[]
    readonly groundingSupports?: readonly {
      readonly segment: { readonly text: string }
      readonly groundingChunkIndices?: readonly number[]
    }[]
    /** One member each: `web`, `maps`, `retrievedContext`, … */
    readonly groundingChunks?: readonly Readonly<Record<string, { readonly uri?: string }>>[]
  }
  readonly urlContextMetadata?: { readonly urlMetadata?: readonly { readonly retrievedUrl?: string }[] }
}

interface WireChunk {
  readonly candidates?: readonly WireCandidate[]
  readonly usageMetadata?: Readonly<Record<string, number | undefined>>
  readonly modelVersion?: string
  readonly responseId?: string
}

interface SaidItem {
  readonly type: string
  readonly signature?: string
  readonly content?: readonly {
    readonly text: string
    readonly annotations: readonly {
      readonly type: string
      readonly start_index: number
      readonly end_index: number
    }[]
  }[]
  readonly action?: { readonly type: string; readonly url?: string; readonly queries?: readonly string[] }
  readonly code?: string
  readonly outputs?: readonly { readonly logs?: string }[]
  readonly result?: string
}

/** Recordings that are no answer: what must come of each. */
const REFUSED: Readonly<Record<string, FailureCode>> = {
  'google.fbs.streaming-failure-prompt-blocked-safety.sse': 'content_policy_violation',
  'google.fbs.unary-failure-only-prompt-feedback.json': 'content_policy_violation',
  'google.fbs.unary-failure-with-message-no-content.json': 'provider_unavailable',
  'google.vai.google-429-retry-info.json': 'rate_limit_exceeded',
  'vertex.fbs.streaming-failure-empty-content.sse': 'provider_unavailable',
  'vertex.fbs.streaming-failure-prompt-blocked-safety.sse': 'content_policy_violation',
  'vertex.pai.multimodal-tool-returns-multimodal-tool-return-matrix-direct-binary-audi-t1.json':
    'provider_unavailable',
  // Named a success by its source, but it stops without a finish reason: a cut reply is none.
  'vertex.fbs.streaming-success-quotes-escaped.sse': 'provider_unavailable',
  'vertex.fbs.unary-failure-invalid-response.json': 'provider_unavailable',
  'vertex.fbs.unary-failure-prompt-blocked-safety-with-message.json': 'content_policy_violation',
  'vertex.fbs.unary-failure-unknown-enum-prompt-blocked.json': 'content_policy_violation',
  // Answers of the token counter, not of the model.
  'vertex.fbs.unary-success-detailed-token-response.json': 'provider_unavailable',
  'vertex.fbs.unary-success-no-billable-characters.json': 'provider_unavailable',
}

/** Replies that end otherwise than with STOP. */
const ODD_ENDINGS: Readonly<Record<string, readonly [reason: string, native: string]>> = {
  'google.fbs.streaming-failure-recitation-no-content.sse': ['content_filter', 'RECITATION'],
  'google.pai.google-model-max-tokens-thinking-model-empty-response.json': ['length', 'MAX_TOKENS'],
  'google.pai.google-model-safety-settings.json': ['content_filter', 'SAFETY'],
  'google.rig.streaming-grammar-max-tokens-truncation.sse': ['length', 'MAX_TOKENS'],
  'vertex.fbs.streaming-failure-finish-reason-safety.sse': ['content_filter', 'SAFETY'],
  'vertex.fbs.streaming-failure-unknown-finish-enum.sse': ['other', 'FAKE_ENUM'],
  'vertex.fbs.unary-failure-finish-reason-safety.json': ['content_filter', 'SAFETY'],
  'vertex.fbs.unary-failure-unknown-enum-finish-reason.json': ['other', 'FAKE_NEW_FINISH_REASON'],
  'vertex.pai.google-model-armor-response-template-real-block.json': ['content_filter', 'MODEL_ARMOR'],
  'vertex.pai.multimodal-tool-returns-multimodal-tool-return-matrix-direct-binary-audi-t1.json': [
    'other',
    'UNEXPECTED_TOOL_CALL',
  ],
}

const all = recordings('google-gemini')
const isError = (one: Recording) => one.httpStatus !== null && one.httpStatus >= 400
const normal = all.filter(one => !isError(one) && REFUSED[one.name] === undefined)
const skip = withoutRecordings

/** SSE as it came; a JSON body as one event, so that it can arrive in pieces like the others. */
function asEvents(one: Recording): Buffer {
  if (!one.name.endsWith('.json')) return one.bytes()
  return Buffer.from(`data: ${JSON.stringify(JSON.parse(one.bytes().toString()))}\n\n`)
}

function decode(chunks: readonly Buffer[]): Delta[] {
  return decodeStream(googleGemini, chunks)
}

function decodeFrames(frames: readonly string[]): Delta[] {
  const deltas: Delta[] = []
  const decoder = googleGemini.decoder(delta => deltas.push(delta))
  for (const frame of frames) decoder.frame('', frame)
  decoder.end()
  return deltas
}

/** The chunks of a recording, by splitting the text. */
function chunksOf(one: Recording): WireChunk[] {
  const text = one.bytes().toString()
  if (one.name.endsWith('.json')) return [JSON.parse(text) as WireChunk]
  return text
    .split(/\r?\n/)
    .filter(line => line.startsWith('data:'))
    .map(line => JSON.parse(line.slice('data:'.length)) as WireChunk)
}

type Tree = Record<string, unknown>

/** Calls with their arguments; pieces are put in place by splitting their path. */
function callsOf(parts: readonly WirePart[]) {
  const calls: { name: string; id: string | null; args: Tree; signature: string | null }[] = []
  for (const { functionCall, thoughtSignature } of parts) {
    if (functionCall?.name !== undefined) {
      const { name, id = null, args = {} } = functionCall
      calls.push({ name, id, args, signature: thoughtSignature ?? null })
    }
    for (const piece of functionCall?.partialArgs ?? []) {
      const steps = piece.jsonPath.slice(2).replaceAll(']', '').split(/[.[]/)
      const last = steps.pop() ?? ''
      let at: Tree = calls.at(-1)?.args ?? {}
      for (const [depth, step] of steps.entries()) {
        at[step] ??= /^\d+$/.test(steps[depth + 1] ?? last) ? [] : {}
        at = at[step] as Tree
      }
      at[last] = String(at[last] ?? '') + piece.stringValue
    }
  }
  return calls
}

const hasAddress = (chunk: Readonly<Record<string, { readonly uri?: string }>> | undefined): boolean =>
  Object.values(chunk ?? {}).some(source => source.uri !== undefined)

/** The second reading: everything said, gathered over all parts of all chunks, without order between kinds. */
function reading(one: Recording) {
  const chunks = chunksOf(one)
  const candidates = chunks.map(chunk => (chunk.candidates ?? [])[0] ?? {})
  const parts = candidates.flatMap(candidate => candidate.content?.parts ?? [])
  const texts = parts.filter(part => part.text !== undefined)
  const calls = callsOf(parts)
  const usage = chunks
    .map(chunk => chunk.usageMetadata ?? {})
    .findLast(one => one['totalTokenCount'] !== undefined)
  const read = (usage?.['promptTokenCount'] ?? 0) + (usage?.['toolUsePromptTokenCount'] ?? 0)
  const queries = [
    ...parts.flatMap(part => part.toolCall?.args?.queries ?? []),
    ...candidates.flatMap(candidate => candidate.groundingMetadata?.webSearchQueries ?? []),
  ]
  const pages = candidates.flatMap(candidate => candidate.urlContextMetadata?.urlMetadata ?? [])
  return {
    text: texts.flatMap(part => (part.thought === true ? [] : part.text)).join(''),
    thoughts: texts.flatMap(part => (part.thought === true ? part.text : [])).join(''),
    calls: calls.map(({ name, id, args }) => ({ name, id, args })),
    callSignatures: calls.map(call => call.signature),
    otherSignatures: parts
      .filter(
        part =>
          part.functionCall === undefined && part.toolCall === undefined && part.toolResponse === undefined,
      )
      .flatMap(part => part.thoughtSignature ?? [])
      .sort(),
    code: parts.flatMap(part => part.executableCode?.code ?? []),
    logs: parts.flatMap(part => part.codeExecutionResult?.output ?? []),
    images: parts.flatMap(part => part.inlineData?.data ?? []),
    queries: [...new Set(queries.filter(query => query !== ''))],
    pages: [...new Set(pages.flatMap(page => page.retrievedUrl ?? []))],
    // A support that points at no page has no address to cite.
    quotes: candidates
      .flatMap(({ groundingMetadata: { groundingSupports = [], groundingChunks = [] } = {} }) =>
        groundingSupports.filter(({ groundingChunkIndices = [] }) =>
          groundingChunkIndices.some(index => hasAddress(groundingChunks[index])),
        ),
      )
      .map(support => support.segment.text),
    native: candidates.flatMap(candidate => candidate.finishReason ?? []).at(-1),
    usage: usage && {
      inputTokens: read,
      cachedTokens: usage['cachedContentTokenCount'] ?? 0,
      outputTokens: (usage['totalTokenCount'] ?? 0) - read,
      reasoningTokens: usage['thoughtsTokenCount'] ?? 0,
      audioTokens: audioIn(chunks),
      toolPromptTokens: usage['toolUsePromptTokenCount'] ?? 0,
    },
    model: chunks[0]?.modelVersion ?? null,
    responseId: chunks[0]?.responseId ?? null,
  }
}

/** The tokens of audio in the last counts that were told. */
function audioIn(chunks: readonly unknown[]): number {
  const counts = [...JSON.stringify(chunks).matchAll(/"promptTokensDetails":(\[.*?\])/g)].at(-1)?.[1]
  if (counts === undefined) return 0
  const details = JSON.parse(counts) as { modality?: string; tokenCount?: number }[]
  return details.find(({ modality }) => modality === 'AUDIO')?.tokenCount ?? 0
}

/** The same facts, out of what the decoder said. */
function facts(deltas: readonly Delta[]) {
  const whole = collect(deltas)
  const items = whole.items as unknown as readonly SaidItem[]
  const of = (type: string) => items.filter(item => item.type === type)
  const searches = of('web_search_call').flatMap(item => item.action ?? [])
  const code = of('code_interpreter_call')
  const { webSearchRequests: _searches, cacheWriteTokens: _writes, ...told } = whole.usage ?? {}
  const usage = whole.usage === null ? {} : { audioTokens: 0, toolPromptTokens: 0, ...told }
  return {
    text: whole.text,
    thoughts: whole.reasoning,
    calls: whole.calls.map(call => ({
      name: call.name,
      id: call.callId,
      args: JSON.parse(call.arguments) as Tree,
    })),
    callSignatures: of('function_call').map(call => call.signature ?? null),
    otherSignatures: items
      .filter(item => item.type !== 'function_call')
      .flatMap(item => item.signature ?? [])
      .sort(),
    code: code.map(item => item.code),
    logs: code.flatMap(item => item.outputs ?? []).map(output => output.logs),
    images: of('image_generation_call').map(item => item.result),
    queries: searches.find(action => action.type === 'search')?.queries ?? [],
    pages: searches.filter(action => action.type === 'open_page').map(action => action.url),
    quoted: of('message')
      .flatMap(item => item.content ?? [])
      .flatMap(part =>
        part.annotations
          .filter(annotation => annotation.type === 'url_citation')
          .map(annotation => part.text.slice(annotation.start_index, annotation.end_index)),
      ),
    native: whole.finish?.native,
    usage: whole.usage === null ? undefined : usage,
    model: whole.start?.model,
    responseId: whole.start?.upstreamId,
  }
}

t.test('every recorded answer decodes to what it says, however it arrives', { skip }, async t => {
  let checked = 0
  for (const one of normal) {
    const bytes = asEvents(one)
    let first: Delta[] | null = null
    for (const { name, chunks } of arrivals(bytes)) {
      const deltas = decode(chunks)
      if (first === null) {
        first = deltas
        const { quoted, ...found } = facts(deltas)
        const { quotes, ...expected } = reading(one)
        t.strictSame(found, expected, `${one.name} says the same to both readings`)
        const grounded = one.features.includes('citationMetadata') ? [] : quoted
        for (const quote of grounded) t.ok(quotes.includes(quote), `${one.name} cites a stretch it quotes`)
        const dropped = quotes.filter(quote => !grounded.includes(quote))
        t.same(dropped, [], `${one.name} cites every stretch that its provider supports`)
        const [reason, native] = ODD_ENDINGS[one.name] ?? [
          expected.calls.length > 0 ? 'tool_calls' : 'stop',
          'STOP',
        ]
        t.match(collect(deltas).finish, { reason, native }, `${one.name} ends with ${reason}`)
      } else {
        t.strictSame(deltas, first, `${one.name} arriving ${name}`)
      }
    }
    checked++
  }
  t.comment(`${checked}/${normal.length} recorded answers decode the same in every arrival`)
  t.equal(
    checked + Object.keys(REFUSED).length + all.filter(isError).length,
    all.length,
    'no recording is left out',
  )
})

t.test(
  'a recorded JSON body means the same alone, in an array and as a stream of its chunks',
  { skip },
  async t => {
    for (const one of normal) {
      const chunks = chunksOf(one).map(chunk => JSON.stringify(chunk))
      const whole = decodeFrames(chunks)
      t.strictSame(decodeFrames([`[${chunks.join(',\r\n')}]`]), whole, `${one.name} as one array`)
      if (one.name.endsWith('.json'))
        t.strictSame(decodeFrames([one.bytes().toString()]), whole, `${one.name} pretty-printed`)
    }
  },
)

/** Parts as a turn: thoughts and what only Google can use left out, texts in a row joined with their signature. */
function turnOf(parts: readonly WirePart[]): Record<string, unknown>[] {
  const turn: Record<string, unknown>[] = []
  for (const part of parts) {
    const { thoughtSignature, ...content } = part
    const signed = thoughtSignature === undefined ? {} : { thoughtSignature }
    if (part.thought === true || part.toolCall !== undefined || part.toolResponse !== undefined) continue
    const last = turn.at(-1)
    if (part.text !== undefined) {
      if (part.text === '' && thoughtSignature === undefined) continue
      if (typeof last?.['text'] === 'string') Object.assign(last, { text: last['text'] + part.text }, signed)
      else turn.push({ text: part.text, ...signed })
    } else if (part.functionCall !== undefined) {
      const { name, args = {} } = part.functionCall
      turn.push({ functionCall: { name, args }, ...signed })
    } else if (Object.keys(content).length > 0) {
      turn.push({ ...content, ...signed })
    }
  }
  return turn
}

t.test('a recorded answer, sent back as it was given, is what the provider said', { skip }, async t => {
  let signed = 0
  for (const one of normal) {
    const parts = chunksOf(one).flatMap(chunk => chunk.candidates?.[0]?.content?.parts ?? [])
    // Pieces of arguments are joined by the decoder; the other test compares them.
    if (parts.some(part => part.functionCall !== undefined && part.functionCall.name === undefined)) continue
    const expected = turnOf(parts)
    if (expected.length === 0) continue
    const output = collect(decode([asEvents(one)])).items.map((item, index) => ({
      ...item,
      id: item['id'] ?? `st_${index}`,
      ...(item['type'] === 'message' ? { role: 'assistant' } : {}),
      ...(item['type'] === 'function_call' ? { call_id: item['call_id'] ?? `call_${index}` } : {}),
    }))
    const request = parseResponsesRequest({ model: 'google/gemini', input: output })
    const endpoint = {
      upstreamModel: 'gemini-2.5-flash',
      maxOutputTokens: null,
      provider: { quirks: [] },
    } as unknown as Endpoint
    const { contents } = googleGemini.encode({ request, stream: true, endUser: null }, endpoint).body
    const all = contents as { role: string; parts: WirePart[] }[]
    // A call has to follow a turn of the user, so one stands before it.
    const [turn, ...more] = all[0]?.role === 'user' ? all.slice(1) : all
    t.same(more, [], `${one.name} is one turn`)
    t.equal(turn?.role, 'model')
    t.strictSame(turnOf(turn?.parts ?? []), expected, one.name)
    if (expected.some(part => part['thoughtSignature'] !== undefined)) signed++
  }
  t.comment(`${signed} turns with signatures`)
  t.ok(signed >= 30)
})

t.test('what is no answer becomes the failure it means', { skip }, async t => {
  for (const [name, code] of Object.entries(REFUSED)) {
    const one = all.find(recording => recording.name === name)
    t.ok(one, `${name} is there`)
    for (const { name: arrival, chunks } of arrivals(one === undefined ? Buffer.alloc(0) : asEvents(one))) {
      t.throws(() => decode(chunks), { name: 'GatewayError', code }, `${name} arriving ${arrival} is ${code}`)
    }
  }
})

t.test('a stream that is cut before its finish is never a success', { skip }, async t => {
  let cuts = 0
  for (const one of normal) {
    if (one.name.endsWith('.json')) continue
    const chunks = chunksOf(one)
    const finishing = chunks.map((chunk, index) => [index, chunk.candidates?.[0]?.finishReason] as const)
    const finishes = finishing.filter(([, reason]) => reason !== undefined).map(([index]) => index)
    for (let kept = 0; kept < chunks.length; kept++) {
      const seen = finishes.filter(index => index < kept)
      // After a finish only content can show that it was none.
      const last = seen.at(-1)
      const says = (chunk: WireChunk) => {
        const part = chunk.candidates?.[0]?.content?.parts?.[0]
        return part !== undefined && (part.text ?? 'x') !== ''
      }
      const finished = last !== undefined && !chunks.slice(last + 1, kept).some(says)
      if (finished) continue
      const frames = chunks.slice(0, kept).map(chunk => JSON.stringify(chunk))
      t.throws(
        () => decodeFrames(frames),
        { name: 'GatewayError', code: 'provider_unavailable' },
        `${one.name} cut after ${kept}`,
      )
      cuts++
    }
  }
  t.comment(`${cuts} cuts`)
  t.ok(cuts > 150)
})

t.test('recorded HTTP errors become statuses that a client of ours may see', { skip }, async t => {
  const errors = all.filter(isError)
  for (const one of errors) {
    const failure = googleGemini.failure(one.httpStatus ?? 0, one.bytes().toString())
    t.type(failure, GatewayError)
    t.ok(
      FAILURE_STATUSES.has(FAILURES[failure.code].status),
      `${one.name}: ${one.httpStatus} is ${failure.status}`,
    )
    t.notMatch(failure.message, /<html|<!doctype/i, `${one.name} shows no page`)
    t.equal(failure.metadata?.['provider_status'], one.httpStatus)
  }
  t.comment(`${errors.length} recorded errors`)
  t.ok(errors.length >= 14)
})
