/** Replies of absurdly many things: refused in every format, before they could keep the thread busy. */
import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { anthropicMessages } from '../../src/formats/anthropic-messages.ts'
import type { Delta, Format } from '../../src/formats/format.ts'
import { googleGemini } from '../../src/formats/google-gemini.ts'
import { openaiChat } from '../../src/formats/openai-chat.ts'
import { openaiResponses } from '../../src/formats/openai-responses.ts'
import { ITEMS_MAX } from '../../src/formats/withheld.ts'
import { endpointOf } from '../support/endpoint.ts'
import { lookedAt, walked } from '../support/walked.ts'

type Frame = Readonly<Record<string, unknown>>

function reader(format: Format) {
  const deltas: Delta[] = []
  const decoder = format.decoder(delta => deltas.push(delta), endpointOf('openai-chat'))
  return {
    deltas,
    frame: (frame: Frame) => decoder.frame(String(frame['type'] ?? ''), JSON.stringify(frame)),
    opened: () => deltas.filter(delta => delta.kind === 'open').length,
  }
}

const call = (at: number): Frame => ({ type: 'function_call', id: `fc_${at}`, call_id: `c_${at}`, name: 'f' })

/** The frame that makes the item of this number, of one kind after the other. */
const ITEM_FRAMES: readonly (readonly [name: string, format: Format, frame: (at: number) => Frame])[] = [
  [
    'responses, announced',
    openaiResponses,
    at => ({ type: 'response.output_item.added', output_index: at, item: call(at) }),
  ],
  [
    'responses, under one index',
    openaiResponses,
    at => ({ type: 'response.output_item.added', output_index: 0, item: call(at) }),
  ],
  [
    'messages, blocks that are never stopped',
    anthropicMessages,
    at => ({
      type: 'content_block_start',
      index: at,
      content_block: { type: 'tool_use', id: `t_${at}`, name: 'f', input: {} },
    }),
  ],
  [
    'messages, blocks under one index',
    anthropicMessages,
    () => ({ type: 'content_block_start', index: 0, content_block: { type: 'thinking', thinking: 'a' } }),
  ],
  [
    'messages, blocks of an unknown kind',
    anthropicMessages,
    at => ({ type: 'content_block_start', index: at, content_block: { type: 'unheard_of' } }),
  ],
  [
    'gemini',
    googleGemini,
    () => ({
      candidates: [{ content: { parts: [{ functionCall: { name: 'f', args: {} } }] }, index: 0 }],
      responseId: 'r',
    }),
  ],
  [
    'chat, images',
    openaiChat,
    () => ({
      id: 'r',
      choices: [{ index: 0, delta: { images: [{ image_url: { url: 'data:image/png;base64,AAAA' } }] } }],
    }),
  ],
  [
    'chat, executed tools',
    openaiChat,
    at => ({
      id: 'r',
      choices: [{ index: 0, delta: { executed_tools: [{ index: at, type: 'search', arguments: '{}' }] } }],
    }),
  ],
]

t.test('a reply of too many items is refused', async t => {
  for (const [name, format, frame] of ITEM_FRAMES) {
    const { frame: read, opened } = reader(format)
    for (let at = 0; at < ITEMS_MAX; at++) read(frame(at))
    t.throws(
      () => read(frame(ITEMS_MAX)),
      { name: 'GatewayError', code: 'reply_too_large', message: /^The provider sent more than \d+ / },
      name,
    )
    t.ok(opened() <= ITEMS_MAX, name)
  }
})

t.test('a final object of too many items is refused', async t => {
  const { frame, opened } = reader(openaiResponses)
  const output = Array.from({ length: 50_000 }, (_, at) => call(at))
  t.throws(() => frame({ type: 'response.completed', response: { id: 'r', output } }), GatewayError)
  t.equal(opened(), ITEMS_MAX)
})

t.test('a message of too many parts is refused', async t => {
  const { frame } = reader(openaiResponses)
  const told = (index: number) =>
    frame({ type: 'response.output_text.delta', output_index: 0, content_index: index, delta: 'a' })
  for (let part = 0; part < ITEMS_MAX; part++) told(part)
  told(0)
  t.throws(() => told(ITEMS_MAX), { code: 'reply_too_large', message: /more than \d+ content parts/ })
})

t.test('final items of another kind than all streamed ones are not compared with each of them', async t => {
  const { frame, opened } = reader(openaiResponses)
  const streamed = 2_000
  for (let at = 0; at < streamed; at++) {
    frame({
      type: 'response.output_item.added',
      output_index: at,
      item: { ...call(at), id: `streamed_${at}` },
    })
  }
  const output = Array.from({ length: streamed }, (_, at) => ({ type: 'reasoning', id: `rs_${at}` }))
  const count = walked(() => frame({ type: 'response.completed', response: { id: 'r', output } }))
  t.equal(opened(), 2 * streamed)
  t.ok(count < 50 * streamed, `${count} walked`)
})

t.test('an item that is known by its id alone is not looked for among all others', async t => {
  const { frame } = reader(openaiResponses)
  const items = 2_000
  for (let at = 0; at < items; at++) frame({ type: 'response.output_item.added', item: call(at) })
  const count = lookedAt(() => {
    for (let at = 0; at < items; at++) {
      frame({ type: 'response.function_call_arguments.delta', item_id: `fc_${at}`, delta: '{}' })
    }
  })
  t.ok(count < 50 * items, `${count} looked at`)
})

t.test('final items take the streamed ones of their type in order when nothing else tells', async t => {
  const { frame, deltas, opened } = reader(openaiResponses)
  const added = (type: string, id: string) =>
    frame({ type: 'response.output_item.added', item: { type, id, status: 'in_progress' } })
  added('web_search_call', 'a')
  added('code_interpreter_call', 'b')
  added('web_search_call', 'c')
  const output = [
    { type: 'code_interpreter_call', id: '1', status: 'completed', code: 'one' },
    { type: 'web_search_call', id: '2', status: 'completed', mark: 'two' },
    { type: 'web_search_call', id: '3', status: 'completed', mark: 'three' },
    { type: 'web_search_call', id: '4', status: 'completed', mark: 'four' },
  ]
  frame({ type: 'response.completed', response: { id: 'r', output } })
  t.equal(opened(), 4)
  t.match(
    deltas.filter(delta => delta.kind === 'close'),
    [
      { item: 1, fields: { code: 'one' } },
      { item: 0, fields: { mark: 'two' } },
      { item: 2, fields: { mark: 'three' } },
      { item: 3, fields: { mark: 'four' } },
    ],
  )
})

t.test('thoughts in many details of one frame are read in one pass', async t => {
  const details = Array.from({ length: 2_000 }, () => ({ type: 'reasoning.text', text: 'a' }))
  let asked = 0
  const { frame, deltas } = reader(openaiChat)
  const parse = JSON.parse
  // What the decoder reads of each detail is counted at the detail itself.
  JSON.parse = (text: string) => {
    const value = parse(text) as { choices: { delta: { reasoning_details: object[] } }[] }
    const [choice] = value.choices
    if (choice !== undefined) {
      choice.delta.reasoning_details = choice.delta.reasoning_details.map(
        detail =>
          new Proxy(detail, {
            get(target, key) {
              asked++
              return Reflect.get(target, key)
            },
          }),
      )
    }
    return value
  }
  try {
    frame({ id: 'r', choices: [{ index: 0, delta: { reasoning_details: details } }] })
  } finally {
    JSON.parse = parse
  }
  t.equal(deltas.filter(delta => delta.kind === 'reasoning').length, details.length)
  t.ok(asked < 50 * details.length, `${asked} asked`)
})

t.test('token probabilities that wait for their text are not copied with each chunk', async t => {
  const { frame, deltas } = reader(openaiChat)
  const chunks = 2_000
  const logprobs = { content: [{ token: 'a', logprob: -1, bytes: [97], top_logprobs: [] }] }
  const { concat } = Array.prototype
  let copied = 0
  Object.assign(Array.prototype, {
    concat(this: unknown[], ...more: unknown[]) {
      copied += this.length
      return concat.apply(this, more)
    },
  })
  try {
    for (let at = 0; at < chunks; at++) frame({ id: 'r', choices: [{ index: 0, delta: {}, logprobs }] })
    frame({ id: 'r', choices: [{ index: 0, delta: { content: 'a' } }] })
  } finally {
    Object.assign(Array.prototype, { concat })
  }
  t.match(deltas.at(-1), { kind: 'text', logprobs: { length: chunks } })
  t.ok(copied < 50 * chunks, `${copied} copied`)
})
