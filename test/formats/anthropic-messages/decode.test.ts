/**
 * Goldens of the Messages decoder: `<case>.sse` or `<case>.reply.json` is what a provider sends, `<case>.expected.json`
 * what it means. One case for each behaviour, whether or not a recording of it exists.
 */
import fc from 'fast-check'
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { anthropicMessages } from '../../../src/formats/anthropic-messages.ts'
import type { Delta } from '../../../src/formats/format.ts'
import { STREAM_EVENT_TYPES } from '../../../src/protocol/events.ts'
import { decodeReply } from '../../support/decode-reply.ts'
import { goldens } from '../../support/goldens.ts'
import { arrivals } from '../../support/recordings.ts'
import { collect } from '../delta-items.ts'

const GOLDENS = goldens('anthropic-messages')
const STREAMS = GOLDENS.filter(golden => golden.streamed)

/** What a reply means: the collected items, or the failure it ends with. */
function meaning(chunks: readonly Buffer[], streamed: boolean): unknown {
  let deltas: Delta[]
  try {
    deltas = decodeReply(anthropicMessages, streamed, chunks)
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error
    const { code, status, message, metadata } = error
    return { error: { code, status, message, ...(metadata === undefined ? {} : { metadata }) } }
  }
  const { start, items, progress, usage, finish } = collect(deltas)
  return { start, items, progress, usage, finish }
}

/** Names and types of the API, for frames that are nearly right. */
const WORDS = [
  ...['message_start', 'message_delta', 'message_stop', 'content_block_start', 'content_block_delta'],
  ...[
    'content_block_stop',
    'message',
    'type',
    'index',
    'delta',
    'content_block',
    'content',
    'usage',
    'stop_reason',
  ],
  ...[
    'text',
    'text_delta',
    'thinking',
    'thinking_delta',
    'tool_use',
    'input',
    'input_json_delta',
    'partial_json',
  ],
  ...[
    'server_tool_use',
    'name',
    'id',
    'tool_use_id',
    'web_search',
    'web_search_tool_result',
    'code_execution',
  ],
  ...[
    'code_execution_tool_result',
    'citations',
    'citation',
    'end_turn',
    'refusal',
    'compaction',
    '__proto__',
  ],
]

function plain(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value))
}

t.ok(GOLDENS.length > 40, 'the goldens are there')

for (const { name, bytes, streamed, expected } of GOLDENS) {
  t.test(`golden ${name}`, async t => {
    t.same(plain(meaning([bytes], streamed)), expected)
    if (!streamed) return
    for (const arrival of arrivals(bytes))
      t.same(plain(meaning(arrival.chunks, true)), expected, arrival.name)
  })
}

t.test('progress events have documented names', async t => {
  const documented = new Set<string>(STREAM_EVENT_TYPES)
  let seen = 0
  for (const { bytes } of STREAMS) {
    const outcome = meaning([bytes], true) as { progress?: { name: string }[] }
    for (const { name } of outcome.progress ?? []) {
      seen++
      t.ok(documented.has(`response.${name}`), name)
    }
  }
  t.ok(seen > 20)
})

t.test('a decoder that has finished ignores what follows', async t => {
  const deltas: Delta[] = []
  const decoder = anthropicMessages.decoder(delta => deltas.push(delta))
  const body = { id: 'msg_1', type: 'message', role: 'assistant', content: [], stop_reason: 'end_turn' }
  decoder.frame('', JSON.stringify(body))
  const before = deltas.length
  decoder.frame('', '{"type":"error","error":{"type":"api_error","message":"late"}}')
  decoder.frame('', JSON.stringify(body))
  decoder.end()
  t.equal(deltas.length, before)
})

t.test('input nested beyond what can be written again is a failure of the provider', async t => {
  const deep = `${'['.repeat(200_000)}${']'.repeat(200_000)}`
  const block = `{"type":"tool_use","id":"toolu_1","name":"f","input":{"a":${deep}}}`
  const decoder = anthropicMessages.decoder(() => undefined)
  t.throws(
    () =>
      decoder.frame(
        '',
        `{"id":"m","type":"message","role":"assistant","content":[${block}],"stop_reason":"tool_use"}`,
      ),
    { name: 'GatewayError', code: 'provider_unavailable' },
  )
})

t.test('whatever frames come, the deltas keep their contract', async t => {
  const known = STREAMS.flatMap(({ bytes }) =>
    [...bytes.toString('utf8').matchAll(/^data: (\{.*\})\r?$/gm)].map(found => found[1] ?? ''),
  )
  const noise = fc
    .tuple(
      fc.constantFrom(...WORDS),
      fc.dictionary(fc.constantFrom(...WORDS), fc.jsonValue(), { maxKeys: 5 }),
    )
    .map(([type, fields]) => JSON.stringify({ ...fields, type }))
  const end = ['{"type":"message_delta","delta":{"stop_reason":"end_turn"}}', '{"type":"message_stop"}']
  let finished = 0
  fc.assert(
    fc.property(fc.array(fc.oneof({ arbitrary: fc.constantFrom(...known), weight: 5 }, noise)), frames => {
      const deltas: Delta[] = []
      try {
        const decoder = anthropicMessages.decoder(delta => deltas.push(delta))
        for (const frame of [...frames, ...end]) decoder.frame('', frame)
        decoder.end()
        finished++
      } catch (error) {
        if (!(error instanceof GatewayError)) throw error
        return true
      }
      const { start, finish } = collect(deltas)
      return start !== null && finish !== null
    }),
    { numRuns: 4000, seed: 11 },
  )
  t.ok(finished > 500, `${finished} of them were whole replies`)
})

t.test('names of the prototype are ordinary names', async t => {
  const deltas: Delta[] = []
  const decoder = anthropicMessages.decoder(delta => deltas.push(delta))
  decoder.frame('', '{"type":"__proto__"}')
  decoder.frame('constructor', '{"type":"constructor","__proto__":{"type":"message_stop"}}')
  decoder.frame(
    '',
    '{"type":"message_start","message":{"id":"m","content":[{"type":"constructor"},{"type":"__proto__"}]}}',
  )
  decoder.frame(
    '',
    '{"type":"message_delta","delta":{"stop_reason":"toString"},"usage":{"__proto__":{"input_tokens":9}}}',
  )
  decoder.frame('', '{"type":"message_stop"}')
  decoder.end()
  const { items, usage, finish } = collect(deltas)
  t.same(items, [])
  t.equal(usage?.inputTokens, 0)
  t.same(finish, { reason: 'other', native: 'toString', serviceTier: null })
})
