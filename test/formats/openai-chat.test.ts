/**
 * Own goldens of the Chat Completions format: one small reply for every way in which providers deviate. Each is
 * decoded at every kind of border, and cut before its end it must never pass for a whole reply.
 */
import * as fc from 'fast-check'
import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import type { Delta, Usage } from '../../src/formats/format.ts'
import { openaiChat } from '../../src/formats/openai-chat.ts'
import { SseParser } from '../../src/providers/upstream/sse.ts'
import { decodeReply } from '../support/decode-reply.ts'
import { type Golden, goldens } from '../support/goldens.ts'
import { arrivals } from '../support/recordings.ts'
import { type Collected, collect } from './delta-items.ts'

interface Expected {
  readonly error?: { readonly code: string; readonly status: number }
  readonly items?: readonly unknown[]
  readonly finish?: unknown
  readonly usage?: readonly number[] | null
}

const GOLDENS = goldens('openai-chat').map(golden => ({ ...golden, expected: golden.expected as Expected }))

function decode(golden: Golden, chunks: readonly Buffer[]): Delta[] {
  return decodeReply(openaiChat, golden.streamed, chunks)
}

function usageRow(usage: Usage | null): number[] | null {
  if (usage === null) return null
  const { inputTokens, cachedTokens, cacheWriteTokens, outputTokens, reasoningTokens, webSearchRequests } =
    usage
  return [inputTokens, cachedTokens, cacheWriteTokens, outputTokens, reasoningTokens, webSearchRequests]
}

type Row = Record<string, unknown>
type Texts = readonly { text?: string; refusal?: string; annotations?: unknown[]; logprobs?: unknown[] }[]

/** An item in the short form of the expectations; what is empty is left out. */
function brief(item: Row): Row {
  if (item['type'] === 'message') {
    const parts = item['content'] as Texts
    return short({
      message: parts.map(part => part.text ?? '').join(''),
      refusal: parts.map(part => part.refusal ?? '').join(''),
      annotations: parts.flatMap(part => part.annotations ?? []),
      logprobs: parts.flatMap(part => part.logprobs ?? []),
    })
  }
  if (item['type'] === 'reasoning') {
    const { id, format, signature, encrypted_content, detail_id } = item
    const summary = (item['summary'] as Texts).map(part => part.text).join('|')
    const reasoning = (item['content'] as Texts).map(part => part.text).join('|')
    return short({ reasoning, summary, id, format, signature, encrypted_content, detail_id })
  }
  if (item['type'] === 'function_call') {
    return {
      call: item['name'],
      id: item['call_id'],
      arguments: item['arguments'],
      ...short({ signature: item['signature'] }),
    }
  }
  if (item['type'] === 'custom_tool_call')
    return { custom: item['name'], id: item['call_id'], input: item['input'] }
  return { hosted: item }
}

function short(row: Row): Row {
  const entries = Object.entries(row).filter(
    ([name, value]) =>
      value !== undefined &&
      value !== null &&
      (value !== '' || name === 'message') &&
      !(Array.isArray(value) && value.length === 0),
  )
  return Object.fromEntries(entries)
}

t.test('every golden decodes to what it says, at any border', async t => {
  for (const golden of GOLDENS) {
    for (const arrival of arrivals(golden.bytes)) {
      const { error, items, finish, usage } = golden.expected
      if (error !== undefined) {
        try {
          decode(golden, arrival.chunks)
          t.fail(`${golden.name} should fail`)
        } catch (thrown) {
          t.ok(thrown instanceof GatewayError, `${golden.name}: a GatewayError`)
          const { code, status } = thrown as GatewayError
          t.same({ code, status }, error, `${golden.name}, ${arrival.name}`)
        }
        continue
      }
      let got: Collected
      try {
        got = collect(decode(golden, arrival.chunks))
      } catch (thrown) {
        t.fail(`${golden.name}, ${arrival.name}: ${String(thrown)}`)
        break
      }
      const actual = { items: got.items.map(brief), finish: got.finish, usage: usageRow(got.usage) }
      t.same(actual, { items, finish, usage }, `${golden.name}, ${arrival.name}`)
    }
  }
  t.comment(`${GOLDENS.length} goldens`)
})

t.test('a streamed golden cut before its end is never a whole reply', async t => {
  let cuts = 0
  for (const golden of GOLDENS.filter(one => one.streamed)) {
    const frames: [event: string, data: string][] = []
    const parser = new SseParser((event, data) => frames.push([event, data]))
    parser.push(golden.bytes)
    parser.end()
    for (let kept = 0; kept < frames.length; kept++) {
      const decoder = openaiChat.decoder(() => undefined)
      const left = frames.slice(0, kept)
      // Whole bodies and frames that tell the finish are complete as they are.
      if (left.some(([, data]) => /"finish_reason":"[^"]|"chat\.completion"/.test(data))) break
      if (left.some(([, data]) => data.includes('"error":{') || data.includes('"error":"'))) break
      for (const [event, data] of left) decoder.frame(event, data)
      t.throws(() => decoder.end(), { code: 'provider_unavailable' }, `${golden.name} after ${kept} frames`)
      cuts++
    }
  }
  t.ok(cuts > 250, 'there is something to cut')
  t.comment(`${cuts} cuts`)
})

t.test('the finish leaves with [DONE], not with the connection, and nothing follows it', async t => {
  const deltas: Delta[] = []
  const decoder = openaiChat.decoder(delta => deltas.push(delta))
  decoder.frame('', '{"id":"a","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}')
  t.notOk(
    deltas.some(delta => delta.kind === 'finish'),
    'more text might come',
  )
  decoder.frame('', '[DONE]')
  t.equal(deltas.at(-1)?.kind, 'finish')
  const before = deltas.length
  decoder.frame('', '{"choices":[{"index":0,"delta":{"content":"y"}}]}')
  decoder.end()
  t.equal(deltas.length, before)
})

t.test('usage told before a failure is reported first', async t => {
  const deltas: Delta[] = []
  const decoder = openaiChat.decoder(delta => deltas.push(delta))
  const frame = {
    id: 'a',
    error: { code: 502, message: 'gone' },
    choices: [],
    usage: { prompt_tokens: 3, completion_tokens: 1 },
  }
  t.throws(() => decoder.frame('', JSON.stringify(frame)), { code: 'provider_unavailable' })
  t.equal(deltas.at(-1)?.kind, 'usage')
})

t.test('the message of the finish is said once and the start comes first', async t => {
  for (const golden of GOLDENS.filter(one => one.expected.error === undefined)) {
    const deltas = decode(golden, [golden.bytes])
    t.equal(deltas.filter(delta => delta.kind === 'start').length, 1, golden.name)
    t.equal(deltas[0]?.kind, 'start', golden.name)
    t.equal(deltas.at(-1)?.kind, 'finish', golden.name)
  }
})

t.test('a reply of too many calls is refused', async t => {
  const decoder = openaiChat.decoder(() => undefined)
  const calls = Array.from({ length: 1025 }, (_, index) => ({
    index,
    id: `c${index}`,
    function: { name: 'f', arguments: '{}' },
  }))
  const frame = JSON.stringify({ id: 'a', choices: [{ index: 0, delta: { tool_calls: calls } }] })
  t.throws(() => decoder.frame('', frame), { code: 'provider_unavailable' })
})

/** Values of any type under the names that the decoder looks at. */
function hostile(): fc.Arbitrary<unknown> {
  const { frame } = fc.letrec(tie => ({
    leaf: fc.oneof(
      fc.string(),
      fc.integer(),
      fc.boolean(),
      fc.constant(null),
      fc.constant(''),
      fc.constant('stop'),
    ),
    frame: fc.oneof(
      { maxDepth: 5, depthSize: 'large' },
      tie('leaf'),
      fc.array(tie('frame'), { maxLength: 3 }),
      fc.dictionary(fc.constantFrom(...NAMES), tie('frame'), { maxKeys: 6 }),
    ),
  }))
  return frame
}

const NAMES = [
  ...[
    'id',
    'choices',
    'delta',
    'message',
    'index',
    'finish_reason',
    'content',
    'text',
    'type',
    'thinking',
    'refusal',
  ],
  ...[
    'reasoning',
    'reasoning_details',
    'summary',
    'data',
    'signature',
    'tool_calls',
    'function',
    'custom',
    'name',
  ],
  ...[
    'arguments',
    'usage',
    'prompt_tokens_details',
    'cached_tokens',
    'total_tokens',
    'error',
    'code',
    'images',
  ],
  ...[
    'image_url',
    'url',
    'executed_tools',
    'output',
    'annotations',
    'citations',
    'logprobs',
    'extra_content',
    'google',
  ],
  ...['thought_signature', '__proto__', 'constructor', 'toString'],
]

t.test(
  'whatever a provider sends, only a GatewayError comes out and the deltas keep their contract',
  async t => {
    let finished = 0
    const choice = fc.record({
      index: fc.constant(0),
      delta: hostile(),
      finish_reason: fc.constantFrom(null, '', 'stop'),
    })
    const frame = fc.oneof(
      hostile(),
      fc.record({ choices: fc.tuple(choice), usage: hostile(), citations: hostile() }),
    )
    fc.assert(
      fc.property(fc.array(frame, { maxLength: 6 }), frames => {
        const deltas: Delta[] = []
        const decoder = openaiChat.decoder(delta => deltas.push(delta))
        try {
          for (const one of frames) decoder.frame('', JSON.stringify(one))
          decoder.end()
          finished++
        } catch (thrown) {
          if (!(thrown instanceof GatewayError)) throw thrown
        }
        collect(deltas)
      }),
      { numRuns: 1000, seed: 7 },
    )
    t.ok(finished > 50, `${finished} of them were replies`)
    t.equal(Object.keys(Object.prototype).length, 0)
  },
)

t.test('nesting as deep as a frame can hold is survived', async t => {
  const deep = '['.repeat(200_000) + ']'.repeat(200_000)
  const frames = [
    deep,
    `{"error":${deep}}`,
    `{"detail":[{"loc":${deep},"msg":${deep}}]}`,
    `{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"c","function":{"name":"f","arguments":${deep}}}]}}]}`,
    `{"choices":[{"index":0,"delta":{"content":${deep},"reasoning_details":${deep}}}],"usage":${deep}}`,
  ]
  for (const frame of frames) {
    const decoder = openaiChat.decoder(() => undefined)
    t.throws(() => {
      decoder.frame('', frame)
      decoder.end()
    }, GatewayError)
    t.ok(openaiChat.failure(400, frame) instanceof GatewayError)
  }
})

t.test('framing follows the stream', async t => {
  t.equal(openaiChat.framing(true), 'sse')
  t.equal(openaiChat.framing(false), 'json')
})
