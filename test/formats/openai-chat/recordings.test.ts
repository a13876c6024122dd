/**
 * Every recorded Chat Completions reply against two independent readings: the official client's accumulator for
 * streams it can take, and a plain reader written here, which folds fields over all chunks at once.
 */
import { ChatCompletionStream } from 'openai/lib/ChatCompletionStream'
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import type { Delta } from '../../../src/formats/format.ts'
import { openaiChat } from '../../../src/formats/openai-chat.ts'
import { SseParser } from '../../../src/providers/upstream/sse.ts'
import { decodeReply } from '../../support/decode-reply.ts'
import {
  arrivals,
  checkFailures,
  type Recording,
  recordings,
  withoutRecordings,
} from '../../support/recordings.ts'
import { type Collected, collect } from '../delta-items.ts'

/** Recordings under 200 (or of unknown status) that are no whole reply, with what they become. */
const NO_REPLY: Readonly<Record<string, string>> = {
  // Ends in the middle with a line that is no event.
  'gpustack.rllm.chat-with-extended-thinking-gpustack-qwen3-streams-thinking-content-when.sse':
    'provider_unavailable',
  'groq.pai.groq-tool-use-failed-error-streaming-t1.sse': 'invalid_request',
  'openrouter.pai.openrouter-stream-error.sse': 'invalid_request',
  'openai.vai.reasoning-model-legacy-parameter-error.json': 'invalid_request',
  'invalid-server.pai.openai-text-response.txt': 'provider_unavailable',
}

const all = recordings('openai-chat')
const failed = all.filter(recording => recording.httpStatus !== null && recording.httpStatus !== 200)
const answered = all.filter(recording => !failed.includes(recording))
const replies = answered.filter(recording => NO_REPLY[recording.name] === undefined)

function decode(recording: Recording, chunks: readonly Buffer[]): Delta[] {
  return decodeReply(openaiChat, recording.streamed, chunks)
}

// The plain reader

interface Call {
  id?: string
  index?: number
  function?: { name?: string; arguments?: string }
}
interface Said {
  content?: string | { type: string; text?: string; thinking?: { text: string }[] }[] | null
  reasoning?: string | null
  reasoning_content?: string | null
  reasoning_details?: { text?: string; summary?: string; data?: string; signature?: string }[]
  refusal?: string | null
  extra_content?: { google?: { thought_signature?: string } }
  tool_calls?: Call[] | null
  function_call?: { name: string; arguments: string } | null
}
interface Choice {
  index?: number
  delta?: Said
  message?: Said
  finish_reason?: string | null
  logprobs?: { content?: { token: string }[] | null } | null
}
interface Tokens {
  prompt_tokens: number
  completion_tokens: number
  total_tokens: number
  prompt_tokens_details?: { cached_tokens?: number } | null
  completion_tokens_details?: { reasoning_tokens?: number } | null
}
interface Chunk {
  object?: string
  choices?: Choice[]
  usage?: Tokens | null
  x_groq?: { usage?: Tokens }
}

function chunksOf(recording: Recording): Chunk[] {
  const text = recording.bytes().toString('utf8')
  if (!recording.streamed) return [JSON.parse(text) as Chunk]
  return text
    .split(/\r\n|\r|\n/)
    .filter(line => line.startsWith('data:') && !line.includes('[DONE]'))
    .map(line => JSON.parse(line.slice(5)) as Chunk)
}

interface Reading {
  text: string
  reasoning: string
  refusal: string
  calls: { callId: string | null; name: string; arguments: string }[]
  finish: string
  tokens: { input: number; cached: number; output: number; reasoning: number } | null
  sealed: string[]
  logprobs: string
}

function read(recording: Recording): Reading {
  const chunks = chunksOf(recording)
  const choices = chunks.flatMap(chunk => chunk.choices ?? []).filter(choice => (choice.index ?? 0) === 0)
  const said = choices.map(choice => (recording.streamed ? choice.delta : choice.message) ?? {})
  const parts = said.flatMap(one => (Array.isArray(one.content) ? one.content : []))
  const details = said.flatMap(one => one.reasoning_details ?? [])
  const all = (...texts: (string | null | undefined)[]) => texts.map(text => text ?? '').join('')
  const words = all(...details.map(detail => detail.text ?? detail.summary))
  const finishes = choices
    .map(choice => choice.finish_reason)
    .filter(reason => typeof reason === 'string' && reason !== '')
  const usages = chunks.map(chunk => chunk.usage ?? chunk.x_groq?.usage).filter(usage => usage != null)
  return {
    text: all(
      ...said.map(one =>
        typeof one.content === 'string'
          ? one.content
          : all(...(one.content ?? []).map(part => (part.type === 'text' ? part.text : ''))),
      ),
    ),
    reasoning:
      words !== ''
        ? words
        : all(
            ...said.map(one => one.reasoning_content ?? one.reasoning),
            ...parts
              .flatMap(part => (part.type === 'thinking' ? (part.thinking ?? []) : []))
              .map(part => part.text),
          ),
    refusal: all(...said.map(one => one.refusal)),
    calls: callsOf(said),
    finish: finishes.at(-1) ?? '',
    tokens: tokensOf(usages.at(-1), recording),
    sealed: [
      ...details.flatMap(detail => [detail.signature, detail.data]),
      ...said.map(one => one.extra_content?.google?.thought_signature),
    ].filter(seal => typeof seal === 'string' && seal !== '') as string[],
    logprobs: all(...choices.flatMap(choice => choice.logprobs?.content ?? []).map(one => one.token)),
  }
}

/** A fragment with a name opens a call unless its id is known; any other belongs to the latest of its index. */
function callsOf(said: readonly Said[]): Reading['calls'] {
  const calls: { id: string; index: number | undefined; name: string; text: string }[] = []
  const fragments = said.flatMap(one => [
    ...(one.tool_calls ?? []),
    ...(one.function_call?.name ? [{ function: one.function_call }] : []),
  ]) as Call[]
  for (const { id = '', index, function: body } of fragments) {
    const known =
      calls.find(call => id !== '' && call.id === id) ??
      calls.findLast(call => id === '' && call.index === index)
    if (known === undefined || (id === '' && (body?.name ?? '') !== '' && known.name !== body?.name)) {
      calls.push({ id, index, name: body?.name ?? '', text: body?.arguments ?? '' })
    } else {
      known.text += body?.arguments ?? ''
    }
  }
  return calls.map(call => ({
    callId: call.id === '' ? null : call.id,
    name: call.name,
    arguments: call.text === '' ? '{}' : call.text,
  }))
}

/** What each vendor counts outside `prompt_tokens` and `completion_tokens`, found by reading its recordings. */
function tokensOf(usage: Tokens | undefined, recording: Recording): Reading['tokens'] {
  if (usage === undefined) return null
  const { prompt_tokens, completion_tokens, total_tokens } = usage
  const thought = usage.completion_tokens_details?.reasoning_tokens ?? 0
  const cached = Math.max(
    usage.prompt_tokens_details?.cached_tokens ?? 0,
    ...['prompt_cache_hit_tokens', 'cached_tokens', 'num_cached_tokens'].map(
      name => (usage as unknown as Record<string, number | undefined>)[name] ?? 0,
    ),
  )
  const row = { input: prompt_tokens, cached, output: completion_tokens, reasoning: thought }
  if (recording.provider === 'xai') row.output += thought
  if (recording.provider === 'google') {
    row.output = total_tokens - prompt_tokens
    row.reasoning = row.output - completion_tokens
  }
  if (recording.provider === 'mistral') row.input = total_tokens - completion_tokens
  row.cached = Math.min(row.cached, row.input)
  return row
}

const REASONS: Readonly<Record<string, string>> = {
  stop: 'stop',
  length: 'length',
  tool_calls: 'tool_calls',
  function_call: 'tool_calls',
  content_filter: 'content_filter',
}

function comparable(got: Collected): Omit<Reading, 'finish'> & { finish: string } {
  const items = got.items as Record<string, unknown>[]
  const reasoning = items.filter(item => item['type'] === 'reasoning')
  const usage = got.usage
  return {
    text: got.text,
    reasoning: got.reasoning,
    refusal: got.refusal,
    calls: [...got.calls],
    finish: got.finish?.reason ?? 'none',
    tokens:
      usage === null
        ? null
        : {
            input: usage.inputTokens,
            cached: usage.cachedTokens,
            output: usage.outputTokens,
            reasoning: usage.reasoningTokens,
          },
    sealed: reasoning
      .flatMap(item => [item['signature'], item['encrypted_content']])
      .filter(seal => typeof seal === 'string'),
    logprobs: items
      .flatMap(item =>
        item['type'] === 'message' ? (item['content'] as { logprobs?: { token: string }[] }[]) : [],
      )
      .flatMap(part => part.logprobs ?? [])
      .map(one => one.token)
      .join(''),
  }
}

t.test('the recordings are here', { skip: withoutRecordings }, async t => {
  t.equal(all.length, 189)
})

t.test('every reply equals the plain reading', { skip: withoutRecordings }, async t => {
  let equal = 0
  for (const recording of replies) {
    const expected = read(recording)
    const actual = comparable(collect(decode(recording, [recording.bytes()])))
    const wanted = {
      ...expected,
      finish: REASONS[expected.finish] ?? (expected.calls.length > 0 ? 'tool_calls' : 'stop'),
    }
    if (t.same(actual, wanted, recording.name)) equal++
  }
  t.comment(`${equal}/${replies.length} replies equal the plain reading`)
})

t.test('every reply is the same at every border', { skip: withoutRecordings }, async t => {
  let equal = 0
  for (const recording of replies) {
    const bytes = recording.bytes()
    const whole = decode(recording, [bytes])
    const differing = [...arrivals(bytes)].filter(
      arrival => JSON.stringify(decode(recording, arrival.chunks)) !== JSON.stringify(whole),
    )
    if (
      t.same(
        differing.map(arrival => arrival.name),
        [],
        recording.name,
      )
    )
      equal++
  }
  t.comment(`${equal}/${replies.length} replies are the same at every border`)
})

t.test('streams equal what the official client makes of them', { skip: withoutRecordings }, async t => {
  let equal = 0
  const refused: string[] = []
  const streams = replies.filter(recording => recording.streamed)
  for (const recording of streams) {
    const client = await officialReading(recording)
    if (client === null) {
      refused.push(recording.name)
      continue
    }
    const got = comparable(collect(decode(recording, [recording.bytes()])))
    const actual = {
      text: got.text,
      refusal: got.refusal,
      calls: got.calls.map(({ name, arguments: text }) => ({ name, arguments: text })),
      finish: got.finish,
    }
    if (t.same(actual, client, recording.name)) equal++
  }
  t.comment(
    `${equal}/${streams.length - refused.length} streams equal the official client; it refuses ${refused.length}:`,
  )
  for (const name of refused) t.comment(`  ${name}`)
  t.ok(equal > streams.length * 0.7, 'the official client takes most of them')
})

interface OfficialReading {
  text: string
  refusal: string
  calls: { name: string; arguments: string }[]
  finish: string
}

/** Null when the client cannot take the stream. */
async function officialReading(recording: Recording): Promise<OfficialReading | null> {
  const chunks = chunksOf(recording)
    .filter(chunk => Array.isArray(chunk.choices))
    .map(chunk => ({ ...chunk, choices: chunk.choices?.filter(choice => choice.index === 0) }))
  // The client drops content parts that are no text; those replies are left to the plain reader.
  if (chunks.some(chunk => chunk.choices?.some(choice => Array.isArray(choice.delta?.content)))) return null
  const lines = chunks.map(chunk => `${JSON.stringify(chunk)}\n`)
  const stream = new ReadableStream({
    start(controller) {
      for (const line of lines) controller.enqueue(new TextEncoder().encode(line))
      controller.close()
    },
  })
  try {
    const completion = await ChatCompletionStream.fromReadableStream(stream).finalChatCompletion()
    const choice = completion.choices[0]
    if (choice === undefined) return null
    const calls = (choice.message.tool_calls ?? []).flatMap(call =>
      call.type === 'function' ? [call.function] : [],
    )
    return {
      text: choice.message.content ?? '',
      refusal: choice.message.refusal ?? '',
      calls: calls.map(call => ({
        name: call.name,
        arguments: call.arguments === '' ? '{}' : call.arguments,
      })),
      finish: REASONS[choice.finish_reason] ?? 'other',
    }
  } catch {
    return null
  }
}

t.test('a recording that is no reply fails as it should', { skip: withoutRecordings }, async t => {
  for (const recording of answered.filter(one => NO_REPLY[one.name] !== undefined)) {
    for (const arrival of arrivals(recording.bytes())) {
      t.throws(
        () => decode(recording, arrival.chunks),
        { code: NO_REPLY[recording.name] },
        `${recording.name}, ${arrival.name}`,
      )
    }
  }
})

t.test(
  'a recorded stream cut anywhere before its finish is never a whole reply',
  { skip: withoutRecordings },
  async t => {
    let cuts = 0
    let wrong = 0
    for (const recording of replies.filter(one => one.streamed)) {
      const frames: string[] = []
      const parser = new SseParser((_event, data) => frames.push(data))
      parser.push(recording.bytes())
      parser.end()
      const decoder = openaiChat.decoder(() => undefined)
      const last = frames.findIndex(data => /"finish_reason": ?"[^"]/.test(data) || data === '[DONE]')
      for (let at = 0; at < last; at++) decoder.frame('', frames[at] ?? '')
      cuts += last
      try {
        decoder.end()
        wrong++
        t.fail(recording.name)
      } catch (thrown) {
        if (!(thrown instanceof GatewayError) || thrown.code !== 'provider_unavailable') throw thrown
      }
    }
    t.equal(wrong, 0)
    t.comment(`${cuts} frames before the finish`)
  },
)

t.test(
  'recorded HTTP errors become failures that the interface knows',
  { skip: withoutRecordings },
  async t => checkFailures(t, failed, () => openaiChat),
)
