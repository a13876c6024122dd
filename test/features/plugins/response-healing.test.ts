/** What healing does where the pool or the end of the answer gets in its way; the rest is in test/contract. */
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import type { Turn } from '../../../src/exchange/exchange.ts'
import {
  createResponseHealing,
  type ResponseHealingDeps,
} from '../../../src/features/plugins/response-healing.ts'
import { repairJson } from '../../../src/features/tasks/repair-json.ts'
import { TaskError } from '../../../src/features/tasks/task.ts'
import type { OutputItem } from '../../../src/protocol/items.ts'
import { scriptedExchange, scriptedRecord } from '../../support/scripted-attempt.ts'

const attempt = scriptedRecord()

const turnOf = (text: string, more: Partial<Turn> = {}, fields: object = {}): Turn => ({
  attempt,
  output: [
    { type: 'reasoning', id: 'rs', summary: [] },
    {
      type: 'message',
      id: 'msg',
      role: 'assistant',
      status: 'completed',
      content: [
        { type: 'output_text', text, annotations: [], ...fields },
        { type: 'refusal', refusal: '{a: 1}' },
      ],
    },
  ],
  finish: 'stop',
  number: 1,
  ...more,
})

type Run = ResponseHealingDeps['tasks']['runInlineOr']
const repairing = (async (_: string, input: Parameters<typeof repairJson>[0]) => repairJson(input)) as Run

function activeOf(run: Run, settings: { id: 'response-healing' } | null = { id: 'response-healing' }) {
  const { request } = scriptedExchange()
  const text = { format: { type: 'json_object' as const } }
  return createResponseHealing({ tasks: { runInlineOr: run } }).activate(settings, {
    ...request,
    stream: false,
    text,
  })
}

async function heal(turn: Turn, run: Run = repairing) {
  const exchange = scriptedExchange()
  const output = (await activeOf(run)?.finish?.(turn, exchange)) ?? []
  return { output, pipeline: exchange.pipeline }
}

const partsOf = (output: readonly OutputItem[]) => {
  const item = output.at(-1)
  return item?.type === 'message' && Array.isArray(item.content) ? item.content : []
}

t.test('only texts of messages are healed', async t => {
  const { output, pipeline } = await heal(turnOf('{a: 1}'))
  t.match(partsOf(output), [{ text: '{"a": 1}' }, { refusal: '{a: 1}' }])
  t.match(output[0], { type: 'reasoning' })
  t.equal(pipeline.length, 1)
})

t.test('what pointed into the text before goes with it', async t => {
  const cited = { type: 'url_citation', url: 'http://a', title: '', start_index: 0, end_index: 3 }
  const file = { type: 'file', file: { hash: 'x', content: [] } }
  const fields = { annotations: [cited, file], logprobs: [{ token: 'a', logprob: -1 }] }
  const { output } = await heal(turnOf('{a: 1}', {}, fields))
  t.same(partsOf(output)[0], { type: 'output_text', text: '{"a": 1}', annotations: [file], logprobs: [] })
  const { output: same } = await heal(turnOf('{"a": 1}', {}, fields))
  t.match(partsOf(same)[0], fields)
})

for (const finish of ['length', 'content_filter'] as const) {
  t.test(`an answer that ended by ${finish} is not healed`, async t => {
    const { output, pipeline } = await heal(turnOf('{"a": 1, "b": ', { finish }))
    t.match(partsOf(output)[0], { text: '{"a": 1, "b": ' })
    t.same(pipeline, [])
  })
}

t.test('when the pool cannot, the answer leaves as it is and that is told', async t => {
  for (const outcome of ['timeout', 'overloaded', 'crashed'] as const) {
    const { output, pipeline } = await heal(turnOf('{a: 1}'), () => Promise.reject(new TaskError(outcome)))
    t.match(partsOf(output)[0], { text: '{a: 1}' })
    t.match(pipeline, [{ type: 'response_healing', data: { improved: false } }])
  }
})

t.test('healing ends with the exchange', async t => {
  const ending = new AbortController()
  const exchange = { ...scriptedExchange(), signal: ending.signal }
  const gone = new GatewayError('client_closed', 'gone')
  const run: Run = () => {
    ending.abort(gone)
    return Promise.reject(new TaskError('cancelled'))
  }
  await t.rejects(Promise.resolve(activeOf(run)?.finish?.(turnOf('{a: 1}'), exchange)), gone)
})

t.test('a request that does not ask for it is not healed', async t => {
  t.equal(activeOf(repairing, null), null)
})
