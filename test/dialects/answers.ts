/** Answers as the gateway assembles them, for the tests of dialects: any deltas, and the events that they make. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import { GatewayError } from '../../src/base/errors.ts'
import type { FinishReason } from '../../src/formats/format.ts'
import type { Content } from '../../src/pipeline/answer/answer.ts'
import { Answer } from '../../src/pipeline/answer/answer.ts'
import { echoRequest } from '../../src/pipeline/answer/response-object.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponseResource, ResponseUsage } from '../../src/protocol/response.ts'
import { EventCollector } from '../support/event-collector.ts'

type Loose = Record<string, unknown>

export const USAGE: ResponseUsage = {
  input_tokens: 10,
  input_tokens_details: { cached_tokens: 4, cache_write_tokens: 2 },
  output_tokens: 7,
  output_tokens_details: { reasoning_tokens: 3 },
  total_tokens: 17,
  cost: 0.5,
  cost_details: {
    upstream_inference_cost: null,
    upstream_inference_input_cost: 0.2,
    upstream_inference_output_cost: 0.3,
  },
  is_byok: false,
}

type Ending = { usage?: ResponseUsage | null; debug?: Loose[]; more?: Partial<ResponseResource> }

/** The events of an answer; the response has a provider and the provider's word for the end. */
export function answer(
  deltas: readonly Content[],
  end: FinishReason | GatewayError,
  given: Ending = {},
): StreamEvent[] {
  const sink = new EventCollector()
  const response = echoRequest({ input: 'hi' }, { id: 'gen-1-x', createdAt: 1, model: 'acme/m' })
  const told = new Answer(sink, {
    ...response,
    provider: 'Acme',
    native_finish_reason: 'end_turn',
    ...given.more,
  })
  told.openTurn(false)
  told.begin('acme/m', null, given.debug ?? [])
  for (const delta of deltas) told.receive(delta)
  const ending = {
    completedAt: 2,
    usage: given.usage === undefined ? USAGE : given.usage,
    serviceTier: 'flex',
    metadata: null,
  }
  if (end instanceof GatewayError) told.fail(end, ending)
  else told.finish(end, ending)
  return sink.events
}

/** The response of the terminal event. */
export function finalOf(events: readonly StreamEvent[]): ResponseResource {
  const last = events.at(-1)
  assert(last !== undefined && 'response' in last)
  return last.response
}

/** A thought with its signature, a text, and a call in two pieces. */
export const THOUGHT_TEXT_CALL: readonly Content[] = [
  { kind: 'open', item: 0, start: { type: 'reasoning', id: 'rs_1', format: 'anthropic-claude-v1' } },
  { kind: 'reasoning', item: 0, form: 'text', part: 0, text: 'hm' },
  { kind: 'close', item: 0, fields: { signature: 's' } },
  { kind: 'open', item: 1, start: { type: 'message', id: 'msg_1', phase: null } },
  { kind: 'text', item: 1, part: 0, text: 'a\n"b"', logprobs: null },
  {
    kind: 'open',
    item: 2,
    start: { type: 'function_call', id: 'fc_1', callId: 'c1', name: 'f', extra: null },
  },
  { kind: 'arguments', item: 2, text: '{"x"' },
  { kind: 'arguments', item: 2, text: ':1}' },
]

/** A text that has only begun. */
export const TEXT: Content[] = [
  { kind: 'open', item: 0, start: { type: 'message', id: null, phase: null } },
  { kind: 'text', item: 0, part: 0, text: 'Hel', logprobs: null },
]

const words = fc.array(fc.string({ unit: 'grapheme', maxLength: 6 }), { maxLength: 4 })
const logprobs = fc.option(
  fc.array(fc.record({ token: fc.string(), logprob: fc.integer({ min: -9, max: 0 }) }), { maxLength: 2 }),
)
const annotation = fc.record({
  type: fc.constant('url_citation' as const),
  url: fc.webUrl(),
  title: fc.string(),
  start_index: fc.nat(9),
  end_index: fc.nat(9),
})
const name = fc.stringMatching(/^[a-z_]{1,8}$/)
const seal = fc.option(fc.string({ minLength: 1 }))

/** The deltas of one item, for a number that is known later. */
type Item = (item: number) => Content[]

const message: fc.Arbitrary<Item> = fc
  .array(
    fc.oneof(
      fc.record({
        kind: fc.constant('text' as const),
        words,
        logprobs,
        annotations: fc.array(annotation, { maxLength: 2 }),
      }),
      fc.record({ kind: fc.constant('refusal' as const), words }),
    ),
    { maxLength: 3 },
  )
  .map(parts => item => [
    { kind: 'open', item, start: { type: 'message', id: null, phase: null } },
    ...parts.flatMap((part, at): Content[] =>
      part.kind === 'refusal'
        ? part.words.map(text => ({ kind: 'refusal', item, part: at, text }))
        : [
            ...part.words.map(
              (text): Content => ({
                kind: 'text',
                item,
                part: at,
                text,
                logprobs: text === '' ? null : part.logprobs,
              }),
            ),
            ...part.annotations.map(
              (each): Content => ({
                kind: 'annotation',
                item,
                part: at,
                annotation: each,
              }),
            ),
          ],
    ),
  ])

const reasoning: fc.Arbitrary<Item> = fc
  .record({
    form: fc.constantFrom('text' as const, 'summary' as const),
    parts: fc.array(words, { maxLength: 3 }),
    format: fc.constantFrom('anthropic-claude-v1' as const, null),
    signature: seal,
    encrypted: seal,
  })
  .map(({ form, parts, format, signature, encrypted }) => item => [
    { kind: 'open', item, start: { type: 'reasoning', id: null, format } },
    ...parts.flatMap((pieces, part) =>
      pieces.map((text): Content => ({ kind: 'reasoning', item, form, part, text })),
    ),
    {
      kind: 'close',
      item,
      fields: {
        ...(signature === null ? {} : { signature }),
        ...(encrypted === null ? {} : { encrypted_content: encrypted }),
      },
    },
  ])

const call: fc.Arbitrary<Item> = fc
  .record({
    type: fc.constantFrom('function_call' as const, 'custom_tool_call' as const),
    callId: fc.string({ minLength: 1 }),
    name,
    words,
    signature: seal,
  })
  .map(({ type, callId, name, words, signature }) => item => [
    {
      kind: 'open',
      item,
      start: {
        type,
        id: null,
        callId: `${callId}${item}`,
        name,
        extra: signature === null ? null : { signature },
      },
    },
    ...words.map((text): Content => ({ kind: 'arguments', item, text })),
    { kind: 'close', item, fields: null },
  ])

const hosted: fc.Arbitrary<Item> = fc
  .constantFrom(
    { type: 'image_generation_call' as const, id: 'ig_1', status: 'completed', result: 'iVBOR' },
    {
      type: 'image_generation_call' as const,
      id: 'ig_2',
      status: 'completed',
      result: 'https://a.example/b',
    },
    {
      type: 'web_search_call' as const,
      id: 'ws_1',
      status: 'completed',
      action: { type: 'search', query: 'q' },
    },
    {
      type: 'mcp_call' as const,
      id: 'mcp_1',
      name: 'look',
      arguments: '{}',
      server_label: 'l',
      output: 'found',
    },
    { type: 'mcp_list_tools' as const, id: 'mcpl_1', server_label: 'l', tools: [] },
    {
      type: 'gateway:datetime' as const,
      id: 'st_1',
      status: 'completed',
      datetime: '2026-01-01T00:00:00Z',
      timezone: 'UTC',
    },
  )
  .map(start => item => [
    { kind: 'open', item, start: { type: 'hosted', item: start } },
    { kind: 'close', item, fields: null },
  ])

export const deltas = fc
  .array(fc.oneof(message, reasoning, call, hosted), { maxLength: 6 })
  .map(items => items.flatMap((item, at) => item(at)))
export const finish = fc.constantFrom<FinishReason>('stop', 'length', 'tool_calls', 'content_filter', 'other')

/** Signatures and sealed parts of items, sorted: a provider checks them when they come back. */
export function secrets(items: readonly object[]): unknown[] {
  return items
    .flatMap(item => {
      const { signature, encrypted_content: sealed } = item as Loose
      return [signature, sealed].filter(each => each !== undefined)
    })
    .toSorted()
}

/** A tool of the gateway begins to work, and says something. */
export const TOOL_TALK: readonly [StreamEvent, StreamEvent] = [
  {
    type: 'response.output_item.added',
    sequence_number: 2,
    output_index: 0,
    item: { type: 'gateway:advisor', id: 'st_1', status: 'in_progress' },
  },
  {
    type: 'response.output_text.delta',
    sequence_number: 3,
    item_id: 'st_1',
    output_index: 0,
    content_index: 0,
    delta: 'advice',
    logprobs: [],
  },
]
