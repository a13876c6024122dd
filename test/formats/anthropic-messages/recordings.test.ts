/**
 * Every recorded reply of the Messages API against an independent reading of it: the official client's own
 * accumulator for streams, the message itself for JSON bodies.
 */
import { MessageStream } from '@anthropic-ai/sdk/lib/MessageStream'
import type { Message } from '@anthropic-ai/sdk/resources/messages'
import { Stream } from '@anthropic-ai/sdk/streaming'
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { anthropicMessages } from '../../../src/formats/anthropic-messages.ts'
import type { Delta } from '../../../src/formats/format.ts'
import { SseParser } from '../../../src/providers/upstream/sse.ts'
import { decodeReply, decodeStream } from '../../support/decode-reply.ts'
import {
  arrivals,
  checkFailures,
  type Recording,
  recordings,
  withoutRecordings,
} from '../../support/recordings.ts'
import { type Collected, collect } from '../delta-items.ts'

/** Recordings under 200 that are no reply of the model, or one that must not pass; with what they become. */
const NO_REPLY: Readonly<Record<string, string>> = {
  'anthropic.asdk.refusal-response.sse': 'content_policy_violation',
  'anthropic.vai.anthropic-refusal-no-details.json': 'content_policy_violation',
  'anthropic.vai.spliced-message-start.chunks.jsonl': 'provider_unavailable',
  'anthropic.pai.anthropic-count-tokens-keeps-memory-tool.json': 'provider_unavailable',
  'anthropic.pai.anthropic-count-tokens-with-adaptive-thinking-and-output-tools-t1.json':
    'provider_unavailable',
  'anthropic.pai.anthropic-count-tokens-with-tool-search-replay.json': 'provider_unavailable',
  'anthropic.rllm.batch-with-anthropic-claude-haiku-4-5-answers-staged-chats-and-appends-t-t12.txt':
    'provider_unavailable',
}

const REASONS: Readonly<Record<string, string>> = {
  end_turn: 'stop',
  stop_sequence: 'stop',
  tool_use: 'tool_calls',
  max_tokens: 'length',
  refusal: 'content_filter',
  pause_turn: 'other',
}

const all = recordings('anthropic-messages')
const answered = all.filter(recording => recording.httpStatus === 200 || recording.httpStatus === null)
const replies = answered.filter(recording => NO_REPLY[recording.name] === undefined)

function decode(recording: Recording): Delta[] {
  return decodeReply(anthropicMessages, recording.streamed, [recording.bytes()])
}

/** The official client loses a last frame without its blank line and reads a `[DONE]` as JSON: it gets neither. */
function forOfficialClient(bytes: Buffer): Buffer {
  return Buffer.from(`${bytes.toString('utf8').replace(/event: data\ndata: \[DONE\]\s*$/, '')}\n\n`)
}

async function oracle(recording: Recording): Promise<Message> {
  if (!recording.streamed) return JSON.parse(recording.bytes().toString('utf8')) as Message
  const response = new Response(new Uint8Array(forOfficialClient(recording.bytes())))
  const events = Stream.fromSSEResponse<never>(response, new AbortController())
  return MessageStream.fromReadableStream(events.toReadableStream()).finalMessage()
}

interface Fields {
  readonly [name: string]: unknown
}

/** The message in the terms of what was collected; thinking, calls and text by blocks of the official types. */
function expected(message: Message, usage: Fields): Fields {
  const text = message.content.flatMap(block => (block.type === 'text' ? [block.text] : [])).join('')
  const reasoning = message.content
    .flatMap(block => (block.type === 'thinking' ? [block.thinking] : []))
    .join('')
  const proofs = message.content.flatMap(block =>
    block.type === 'thinking' ? [block.signature] : block.type === 'redacted_thinking' ? [block.data] : [],
  )
  const calls = message.content.flatMap(block =>
    block.type === 'tool_use' ? [{ callId: block.id, name: block.name, input: block.input }] : [],
  )
  const citations = message.content.flatMap(block =>
    block.type === 'text' ? (block.citations ?? []).map(one => one.cited_text) : [],
  ).length
  return {
    id: message.id,
    model: message.model,
    text,
    reasoning,
    proofs,
    calls,
    citations,
    native: message.stop_reason,
    reason: REASONS[message.stop_reason ?? ''],
    usage,
  }
}

function found(collected: Collected): Fields {
  const items = collected.items
  const reasoning = items.filter(item => item['type'] === 'reasoning')
  const parts = items.flatMap(item => (item['type'] === 'message' ? (item['content'] as Fields[]) : []))
  return {
    id: collected.start?.upstreamId,
    model: collected.start?.model,
    text: collected.text,
    reasoning: collected.reasoning,
    proofs: reasoning.map(item => item['signature'] ?? item['encrypted_content']),
    calls: collected.calls.map(call => ({
      callId: call.callId,
      name: call.name,
      input: JSON.parse(call.arguments) as unknown,
    })),
    citations: parts.flatMap(part => (part['annotations'] as unknown[] | undefined) ?? []).length,
    native: collected.finish?.native,
    reason: collected.finish?.reason,
    usage: { ...collected.usage },
  }
}

/** Usage by the plain rule from the objects on the wire: the last word on each count, compactions added. */
function plainUsage(recording: Recording): Fields {
  const body = recording.bytes().toString('utf8')
  const lines = recording.streamed
    ? body.split('\n').flatMap(line => /^data: (\{.*)/.exec(line)?.[1] ?? [])
    : [body]
  const frames = lines.map(line => JSON.parse(line) as { usage?: object; message?: { usage?: object } })
  const told = frames.map(frame => frame.usage ?? frame.message?.usage ?? {})
  const last = (name: string): unknown =>
    told.map(usage => (usage as Fields)[name]).findLast(value => value !== undefined && value !== null)
  const iterations = ((last('iterations') as Fields[] | undefined) ?? []).filter(
    one => one['type'] === 'compaction',
  )
  const sum = (name: string): number =>
    Number(last(name) ?? 0) + iterations.reduce((total, one) => total + Number(one[name] ?? 0), 0)
  const cachedTokens = sum('cache_read_input_tokens')
  const cacheWriteTokens = sum('cache_creation_input_tokens')
  return {
    inputTokens: sum('input_tokens') + cachedTokens + cacheWriteTokens,
    cachedTokens,
    cacheWriteTokens,
    outputTokens: sum('output_tokens'),
    reasoningTokens: Number((last('output_tokens_details') as Fields | undefined)?.['thinking_tokens'] ?? 0),
    webSearchRequests: Number((last('server_tool_use') as Fields | undefined)?.['web_search_requests'] ?? 0),
  }
}

function thrown(act: () => unknown): unknown {
  try {
    act()
    return null
  } catch (error) {
    return error
  }
}

const skip = withoutRecordings

t.test('every recorded reply decodes to what the official client makes of it', { skip }, async t => {
  let same = 0
  for (const recording of replies) {
    const collected = collect(decode(recording))
    const message = await oracle(recording)
    if (t.same(found(collected), expected(message, plainUsage(recording)), recording.name)) same++
  }
  t.comment(`${same}/${replies.length} recorded replies equal the independent reading`)
  t.equal(same, replies.length)
})

t.test('the usage the official client knows is ours too', { skip }, async t => {
  for (const recording of replies.filter(one => one.streamed && !one.features.includes('block:compaction'))) {
    const { usage } = await oracle(recording)
    const ours = collect(decode(recording)).usage
    const input =
      usage.input_tokens + (usage.cache_read_input_tokens ?? 0) + (usage.cache_creation_input_tokens ?? 0)
    t.same([ours?.inputTokens, ours?.outputTokens], [input, usage.output_tokens], recording.name)
  }
})

t.test('a stream gives the same deltas however its bytes arrive', { skip }, async t => {
  const streams = replies.filter(recording => recording.streamed)
  let same = 0
  for (const recording of streams) {
    const whole = JSON.stringify(decode(recording))
    let equal = true
    for (const arrival of arrivals(recording.bytes())) {
      if (JSON.stringify(decodeStream(anthropicMessages, arrival.chunks)) !== whole) {
        equal = false
        t.fail(`${recording.name}: ${arrival.name}`)
      }
    }
    if (equal) same++
  }
  t.comment(`${same}/${streams.length} streams decode alike whole, byte by byte and at random borders`)
  t.equal(same, streams.length)
})

t.test('a stream that is cut at any frame border is a failure', { skip }, async t => {
  const streams = replies.filter(recording => recording.streamed)
  let borders = 0
  for (const recording of streams) {
    const frames: [string, string][] = []
    const parser = new SseParser((event, data) => frames.push([event, data]))
    parser.push(recording.bytes())
    parser.end()
    const stop = frames.findIndex(([, data]) => data.includes('"message_stop"'))
    t.ok(stop > 0, `${recording.name} has an end`)
    const decoder = anthropicMessages.decoder(() => undefined)
    const end = frames.findLastIndex(([, data]) => data.includes('"message_delta"'))
    for (const [event, data] of frames.slice(0, end + 1)) {
      borders++
      const error = thrown(() => decoder.end())
      if (!(error instanceof GatewayError && error.code === 'provider_unavailable')) {
        t.fail(`${recording.name}: a cut reply passed for a whole one`)
        break
      }
      decoder.frame(event, data)
    }
    // Where the whole message is in its first event, the closing mark alone says that it is over.
    if (end === -1) t.throws(() => decoder.end(), { code: 'provider_unavailable' }, recording.name)
    else t.doesNotThrow(() => decoder.end(), `${recording.name}: only the closing mark is missing`)
  }
  t.comment(`${borders} borders of ${streams.length} streams`)
  t.ok(borders > 1000)
})

t.test('what is no reply of the model is a failure and never a success', { skip }, async t => {
  const others = answered.filter(recording => NO_REPLY[recording.name] !== undefined)
  t.equal(others.length, Object.keys(NO_REPLY).length)
  for (const recording of others) {
    const error = thrown(() => decode(recording))
    t.ok(error instanceof GatewayError, recording.name)
    if (error instanceof GatewayError) t.equal(error.code, NO_REPLY[recording.name], recording.name)
  }
  t.comment(`${replies.length} + ${others.length} of ${answered.length} bodies under 200`)
})

t.test('an error body is never our own failure', { skip }, async t => {
  const errors = all.filter(recording => recording.httpStatus !== null && recording.httpStatus >= 400)
  t.ok(errors.length > 0)
  checkFailures(t, errors, () => anthropicMessages)
  t.equal(errors.length + answered.length, all.length, 'every recording is looked at')
})
