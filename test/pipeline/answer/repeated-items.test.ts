/** Items of an earlier answer: the same content as items and as events, with ids of their own. */
import t from 'tap'
import { Answer } from '../../../src/pipeline/answer/answer.ts'
import { echoRequest } from '../../../src/pipeline/answer/response-object.ts'
import { FinalSink } from '../../../src/pipeline/answer/sink.ts'
import type { StreamEvent } from '../../../src/protocol/events.ts'
import type { OutputItem } from '../../../src/protocol/items.ts'

const ITEMS = [
  {
    id: 'rs_1',
    type: 'reasoning',
    status: 'completed',
    summary: [{ type: 'summary_text', text: 'short' }],
    content: [{ type: 'reasoning_text', text: 'long' }],
    encrypted_content: 'sealed',
  },
  {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    status: 'completed',
    content: [
      {
        type: 'output_text',
        text: 'See this.',
        annotations: [
          { type: 'url_citation', url: 'https://a.test', title: 'A', start_index: 0, end_index: 3 },
        ],
      },
      { type: 'refusal', refusal: 'No more.' },
    ],
  },
  {
    id: 'fc_1',
    type: 'function_call',
    status: 'completed',
    call_id: 'call_1',
    name: 'look',
    arguments: '{"a":1}',
    signature: 'mark',
  },
  { id: 'ctc_1', type: 'custom_tool_call', status: 'completed', call_id: 'call_2', name: 'run', input: 'ls' },
] as unknown as readonly OutputItem[]

const withoutId = ({ id: _id, ...item }: OutputItem) => item

function repeat(isLive: boolean) {
  const events: StreamEvent[] = []
  const sink = new FinalSink(isLive ? { listener: event => void events.push(structuredClone(event)) } : {})
  const answer = new Answer(
    sink,
    echoRequest({ model: 'm', input: 'hi' }, { id: 'gen-1-x', createdAt: 1, model: '' }),
  )
  answer.openTurn(false)
  answer.begin('m', null, [])
  for (const item of ITEMS) answer.repeatItem(item)
  return { answer, events }
}

for (const isLive of [true, false]) {
  t.test(`repeated items are as they were, ${isLive ? 'as events' : 'whole'}`, async t => {
    const { answer, events } = repeat(isLive)
    t.same(answer.output.map(withoutId), ITEMS.map(withoutId))
    t.equal(answer.output[0]?.id, 'rs_1', 'its maker may have sealed it under its id')
    for (const [at, item] of answer.output.entries()) if (at > 0) t.not(item.id, ITEMS[at]?.id)
    if (!isLive) return
    const done = events.flatMap(event => (event.type === 'response.output_item.done' ? [event.item] : []))
    t.same(done, answer.output)
    const again = repeat(false).answer
    const kept = events.filter(event => 'output_index' in event)
    const other = new Answer(
      new FinalSink(),
      echoRequest({ model: 'm', input: 'hi' }, { id: 'gen-1-y', createdAt: 1, model: '' }),
    )
    other.openTurn(false)
    other.begin('m', null, [])
    for (const event of kept) other.repeat(event as Parameters<Answer['repeat']>[0])
    t.same(other.output.map(withoutId), again.output.map(withoutId), 'from events too')
  })
}
