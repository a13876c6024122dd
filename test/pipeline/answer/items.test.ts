/** One item at a time: what each kind takes, and how it ends. The whole stream is in assemble.test.ts. */
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import type { ItemStart } from '../../../src/formats/format.ts'
import type { ItemBuilder } from '../../../src/pipeline/answer/items/item.ts'
import { buildItem } from '../../../src/pipeline/answer/items/open-items.ts'
import type { StreamEvent } from '../../../src/protocol/events.ts'
import { lookedAt, walked } from '../../support/walked.ts'

const CALL = { id: 'fc_1', callId: 'call_1', name: 'f', extra: null } as const
const STARTS: readonly ItemStart[] = [
  { type: 'message', id: 'msg_1', phase: null },
  { type: 'reasoning', id: 'rs_1', format: null },
  { type: 'function_call', ...CALL },
  { type: 'custom_tool_call', ...CALL },
  { type: 'hosted', item: { type: 'web_search_call', id: 'ws_1', status: 'in_progress' } },
]

/** The deltas by name, and the kinds of items that take them. */
const DELTAS: Readonly<
  Record<string, readonly [takers: readonly string[], give: (to: ItemBuilder) => void]>
> = {
  text: [['message'], to => to.text(0, 'a', null)],
  refusal: [['message'], to => to.refusal(0, 'a')],
  annotation: [
    ['message'],
    to => to.annotation(0, { type: 'url_citation', url: 'u', title: '', start_index: 0, end_index: 0 }),
  ],
  reasoning: [['reasoning'], to => to.reasoning('text', 0, 'a')],
  arguments: [['function_call', 'custom_tool_call'], to => to.arguments('a')],
  progress: [['hosted'], to => to.progress('web_search_call.searching', {})],
}

function built(start: ItemStart): { item: ItemBuilder; events: StreamEvent[] } {
  const events: StreamEvent[] = []
  return { item: buildItem(start, 3, event => events.push(event)), events }
}

t.test('an item takes the deltas of its kind and no others', async t => {
  for (const start of STARTS) {
    for (const [name, [takers, give]] of Object.entries(DELTAS)) {
      const { item, events } = built(start)
      if (takers.includes(start.type)) {
        give(item)
        t.match(events.at(-1), { item_id: item.id, output_index: 3, sequence_number: 0 }, name)
      } else {
        t.throws(() => give(item), GatewayError, `${name} for ${start.type}`)
        t.strictSame(events, [])
      }
    }
  }
})

t.test('a call that said nothing', async t => {
  const end = (type: 'function_call' | 'custom_tool_call', status: 'completed' | 'incomplete') => {
    const { item, events } = built({ type, ...CALL })
    return { item: item.close(null, status), types: events.map(event => event.type) }
  }
  const done = end('function_call', 'completed')
  t.match(done.item, { arguments: '{}', status: 'completed', call_id: 'call_1' })
  t.strictSame(done.types, [
    'response.function_call_arguments.delta',
    'response.function_call_arguments.done',
  ])
  t.match(end('function_call', 'incomplete').item, { arguments: '', status: 'incomplete' }, 'it was cut off')
  const custom = end('custom_tool_call', 'completed')
  t.match(custom.item, { input: '' })
  t.strictSame(custom.types, ['response.custom_tool_call_input.done'])
})

t.test('closing fields replace anything but the id', async t => {
  for (const start of STARTS) {
    const { item } = built(start)
    t.match(item.close({ id: 'other', status: 'failed' }, 'completed'), { id: item.id, status: 'failed' })
  }
})

t.test('an item without an id of the provider gets one', async t => {
  const ids = STARTS.map(start =>
    start.type === 'hosted' ? { type: start.type, item: { type: 'mcp_call' } } : { ...start, id: null },
  ).map(start => built(start).item.id)
  t.match(ids, [/^msg_\w{24}$/, /^rs_\w{24}$/, /^fc_\w{24}$/, /^ctc_\w{24}$/, /^st_\w{24}$/])
  const { item } = built({ type: 'function_call', ...CALL, callId: null })
  t.match(item.firstForm(), { call_id: /^call_\w{24}$/ })
})

t.test('token probabilities of a long text are kept without copying the earlier ones each time', async t => {
  const { item, events } = built({ type: 'message', id: 'msg_1', phase: null })
  const logprob = { token: 'a', logprob: -1, bytes: [97], top_logprobs: [] }
  const tokens = 2_000
  let closed: unknown
  const count = walked(() => {
    for (let token = 0; token < tokens; token++) item.text(0, 'a', [logprob])
    closed = item.close(null, 'completed')
  })
  t.ok(count < 20 * tokens, `${count} walked`)
  t.match(closed, { content: [{ logprobs: { length: tokens } }] })
  t.match(
    events.filter(event => event.type === 'response.output_text.delta').map(event => event.logprobs.length),
    Array.from({ length: tokens }, () => 1),
  )
})

t.test('what an event shows of token probabilities stays as it was shown', async t => {
  const { item, events } = built({ type: 'message', id: 'msg_1', phase: null })
  const given = [{ token: 'a', logprob: -1, bytes: [97], top_logprobs: [] }]
  item.text(0, 'a', given)
  const logprobs = () =>
    events.flatMap(event => {
      if (event.type === 'response.output_text.delta') return [event.logprobs]
      if (event.type === 'response.output_text.done') return [event.logprobs]
      return event.type === 'response.content_part.done' && 'logprobs' in event.part
        ? [event.part.logprobs ?? []]
        : []
    })
  item.text(0, 'b', [{ token: 'b', logprob: -2, bytes: [98], top_logprobs: [] }])
  t.equal(given.length, 1, 'what the decoder gave is its own')
  t.same(
    logprobs().map(each => each.length),
    [1, 1],
  )
  const closed = item.close(null, 'completed')
  const shown = [...logprobs(), (closed as { content: { logprobs: unknown[] }[] }).content[0]?.logprobs ?? []]
  t.same(
    shown.map(each => each.length),
    [1, 1, 2, 2, 2],
  )
  t.equal(new Set(shown).size, shown.length, 'no two share a list')
})

t.test('many parts cost no more each than few', async t => {
  const parts = 2_000
  const reasoning = built({ type: 'reasoning', id: 'rs_1', format: null })
  const message = built({ type: 'message', id: 'msg_1', phase: null })
  const annotation = { type: 'url_citation', url: 'u', title: '', start_index: 0, end_index: 0 } as const
  const looked = lookedAt(() => {
    for (let part = 0; part < parts; part++) {
      reasoning.item.reasoning('summary', part, 'a')
      message.item.text(part, 'a', null)
      message.item.annotation(part, annotation)
    }
  })
  t.ok(looked < 20 * parts, `${looked} looked at`)
  const indexes = reasoning.events.flatMap(event =>
    event.type === 'response.reasoning_summary_part.added' ? [event.summary_index] : [],
  )
  t.same(
    indexes,
    Array.from({ length: parts }, (_, at) => at),
  )
})
