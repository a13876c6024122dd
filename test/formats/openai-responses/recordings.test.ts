/**
 * Recorded replies of a dozen providers, decoded in every way they may arrive and compared with what the provider
 * itself said the whole reply was. The reading on that side shares no code with the decoder.
 */
import t, { type Test } from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import type { Delta } from '../../../src/formats/format.ts'
import { openaiResponses } from '../../../src/formats/openai-responses.ts'
import { decodeBody, decodeStream } from '../../support/decode-reply.ts'
import {
  arrivals,
  FAILURE_STATUSES,
  type Recording,
  recordings,
  withoutRecordings,
} from '../../support/recordings.ts'
import { type Collected, collect } from '../delta-items.ts'

type Json = Record<string, unknown>

/** Replies of other operations, and replies that only say that the work was queued: no answer to a request. */
const NO_REPLY = new Set(['response.compaction', 'response.input_tokens'])

/** The events of a stream by a reader of its own: lines, blocks, JSON; nothing incremental. */
function eventsOf(recording: Recording): Json[] {
  return recording
    .bytes()
    .toString('utf8')
    .split(/\r?\n\r?\n/)
    .map(block =>
      block
        .split(/\r?\n/)
        .filter(line => line.startsWith('data:'))
        .map(line => line.slice(5).trimStart())
        .join('\n'),
    )
    .filter(data => data !== '' && data !== '[DONE]')
    .map(data => JSON.parse(data) as Json)
}

interface Expected {
  readonly response: Json
  readonly items: readonly Json[]
}

/** What the provider says it said: the final response, or its finished items where that one is empty. */
function expectedOf(recording: Recording): Expected {
  if (!recording.streamed) {
    const response = JSON.parse(recording.bytes().toString('utf8')) as Json
    return { response, items: response['output'] as Json[] }
  }
  const events = eventsOf(recording)
  const response = events.findLast(event => event['response'] !== undefined)?.['response'] as Json
  const output = response['output'] as Json[]
  const done = events.filter(event => event['type'] === 'response.output_item.done')
  if (output.length === 0) return { response, items: done.map(event => event['item'] as Json) }
  return {
    response,
    items: output.map((item, index) =>
      sealedAs(
        item,
        done.find(event => event['output_index'] === index),
      ),
    ),
  }
}

/** Sealed fields are encrypted anew in every copy of an item; the finished item's is the one that was passed on. */
function sealedAs(item: Json, done: Json | undefined): Json {
  const finished = done?.['item'] as Json | undefined
  if (finished === undefined || finished['type'] !== item['type']) return item
  const sealed = ['encrypted_content', 'fingerprint'].filter(
    key => item[key] != null && finished[key] != null,
  )
  return { ...item, ...Object.fromEntries(sealed.map(key => [key, finished[key]])) }
}

/** Brings an item to the fields that must agree: no nulls, no empty lists, no name for whose reasoning it is. */
function comparable(item: Json, withId: boolean): Json {
  const without = new Set(['format', 'item_id', 'output_index', ...(withId ? [] : ['id'])])
  const kept = Object.entries(item).filter(
    ([key, value]) => value !== null && !without.has(key) && !isEmpty(value),
  )
  const fields: Json = Object.fromEntries(kept)
  if (Array.isArray(fields['content']))
    fields['content'] = (fields['content'] as Json[]).map(part => comparable(part, true))
  if (fields['type'] === 'message') delete fields['role']
  return fields
}

function isEmpty(value: unknown): boolean {
  return Array.isArray(value) && value.length === 0
}

function expectedUsage(response: Json, items: readonly Json[]): Json | null {
  const usage = response['usage'] as Json | null
  if (usage == null) return null
  const input = usage['input_tokens_details'] as Json | undefined
  const output = usage['output_tokens_details'] as Json | undefined
  const searches = items.filter(
    item =>
      item['type'] === 'web_search_call' &&
      ((item['action'] as Json | undefined)?.['type'] ?? 'search') === 'search',
  ).length
  const told =
    ((response['tool_usage'] as Json | undefined)?.['web_search'] as Json | undefined)?.['num_requests'] ??
    (usage['server_side_tool_usage_details'] as Json | undefined)?.['web_search_calls']
  return {
    inputTokens: usage['input_tokens'],
    cachedTokens: input?.['cached_tokens'] ?? 0,
    cacheWriteTokens: input?.['cache_write_tokens'] ?? 0,
    outputTokens: usage['output_tokens'],
    reasoningTokens: output?.['reasoning_tokens'] ?? 0,
    webSearchRequests: told ?? searches,
  }
}

function expectedFinish(response: Json, items: readonly Json[]): Json {
  const reason = (response['incomplete_details'] as Json | null | undefined)?.['reason']
  const serviceTier = response['service_tier'] ?? null
  if (reason !== undefined)
    return {
      reason: reason === 'max_output_tokens' ? 'length' : 'content_filter',
      native: reason,
      serviceTier,
    }
  const calls = items.some(item => item['type'] === 'function_call' || item['type'] === 'custom_tool_call')
  return { reason: calls ? 'tool_calls' : 'stop', native: response['status'] ?? 'completed', serviceTier }
}

function textsOf(items: readonly Json[], type: string, key: string): string {
  return items
    .flatMap(item => (Array.isArray(item['content']) ? (item['content'] as Json[]) : []))
    .filter(part => part['type'] === type)
    .map(part => part[key])
    .join('')
}

function reasoningOf(items: readonly Json[]): string {
  return items
    .filter(item => item['type'] === 'reasoning')
    .flatMap(item => [...((item['summary'] as Json[]) ?? []), ...((item['content'] as Json[]) ?? [])])
    .map(part => part['text'])
    .join('')
}

function compare(t: Test, collected: Collected, { response, items }: Expected, idsHold: boolean): void {
  t.strictSame(
    collected.items.map(item => comparable(item, idsHold)),
    items.map(item =>
      comparable(
        item['id'] === undefined && item['item_id'] !== undefined ? { ...item, id: item['item_id'] } : item,
        idsHold,
      ),
    ),
    'the items are those of the final response',
  )
  t.equal(collected.text, textsOf(items, 'output_text', 'text'), 'text')
  t.equal(collected.refusal, textsOf(items, 'refusal', 'refusal'), 'refusal')
  t.equal(collected.reasoning, reasoningOf(items), 'reasoning')
  t.strictSame(
    collected.calls,
    items
      .filter(item => item['type'] === 'function_call' || item['type'] === 'custom_tool_call')
      .map(item => ({
        callId: item['call_id'],
        name: item['name'],
        arguments: item['arguments'] ?? item['input'],
      })),
    'calls',
  )
  t.strictSame(collected.usage, expectedUsage(response, items), 'usage')
  t.strictSame(collected.finish, expectedFinish(response, items), 'finish')
  t.equal(collected.start?.model, response['model'], 'model')
}

function isReply(recording: Recording): boolean {
  if (recording.httpStatus !== 200) return false
  if (recording.streamed)
    return !eventsOf(recording).some(
      event => event['type'] === 'response.failed' || event['type'] === 'error',
    )
  const body = JSON.parse(recording.bytes().toString('utf8')) as Json
  return !NO_REPLY.has(String(body['object'])) && body['status'] !== 'queued' && body['error'] == null
}

t.test('recorded replies', { skip: withoutRecordings }, async t => {
  const all = recordings('openai-responses')
  const replies = all.filter(isReply)
  const others = all.filter(recording => !isReply(recording))

  await t.test('every recorded reply decodes to what its final object holds, however it arrives', async t => {
    let equal = 0
    for (const recording of replies) {
      await t.test(recording.name, async t => {
        const idsHold = !recording.features.includes('item-id-changes-added-to-done')
        const expected = expectedOf(recording)
        if (!recording.streamed) {
          compare(
            t,
            collect(decodeBody(openaiResponses, recording.bytes().toString('utf8'))),
            expected,
            idsHold,
          )
        } else {
          let first: Delta[] | null = null
          for (const { name, chunks } of arrivals(recording.bytes())) {
            const deltas = decodeStream(openaiResponses, chunks)
            if (first === null) first = deltas
            else t.strictSame(deltas, first, `${name}: the same deltas`)
          }
          compare(t, collect(first ?? []), expected, idsHold)
        }
        if (t.passing()) equal++
      })
    }
    t.comment(`decoded and equal to the final object: ${equal}/${replies.length}`)
    t.equal(equal, replies.length)
    t.ok(replies.length >= 150, 'the collection is there as a whole')
  })

  await t.test('every other recording is a failure that a client may see', async t => {
    let told = 0
    for (const recording of others) {
      await t.test(recording.name, async t => {
        const error = failureOf(recording)
        t.ok(error instanceof GatewayError, 'a GatewayError')
        if (!(error instanceof GatewayError)) return
        t.ok(FAILURE_STATUSES.has(error.status), `status ${error.status}`)
        t.not(error.message, '', 'says something')
        if (t.passing()) told++
      })
    }
    t.comment(`failures told: ${told}/${others.length}; all recordings: ${replies.length + others.length}`)
    t.equal(told, others.length)
  })

  await t.test('a recorded stream cut before its end is never a success', async t => {
    let cuts = 0
    for (const recording of replies.filter(one => one.streamed)) {
      const frames = recording
        .bytes()
        .toString('utf8')
        .split(/(?<=\n\r?\n)/)
      const terminal = frames.findIndex(frame => /"type":\s*"response\.(completed|incomplete)"/.test(frame))
      t.ok(terminal > 0, `${recording.name} has a terminal event`)
      // About a dozen places in each, and always the last: long streams have hundreds of like frames.
      const step = Math.max(1, Math.floor(terminal / 12))
      const places = Array.from({ length: Math.floor(terminal / step) }, (_, index) => index * step)
      for (const cut of [...places, terminal]) {
        t.throws(
          () => decodeStream(openaiResponses, [Buffer.from(frames.slice(0, cut).join(''))]),
          { code: 'provider_unavailable' },
          `${recording.name} after ${cut} frames`,
        )
        cuts++
      }
    }
    t.comment(`cuts refused: ${cuts}`)
  })
})

function failureOf(recording: Recording): unknown {
  const body = recording.bytes().toString('utf8')
  if (recording.httpStatus !== null && recording.httpStatus !== 200)
    return openaiResponses.failure(recording.httpStatus, body)
  try {
    if (recording.streamed) decodeStream(openaiResponses, [recording.bytes()])
    else decodeBody(openaiResponses, body)
    return null
  } catch (thrown) {
    return thrown
  }
}
