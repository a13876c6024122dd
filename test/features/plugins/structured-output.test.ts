/** Which answers are checked, and what happens when they cannot be; the rest is in test/contract. */
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import type { Turn } from '../../../src/exchange/exchange.ts'
import {
  createStructuredOutput,
  type StructuredOutputDeps,
} from '../../../src/features/plugins/structured-output.ts'
import { checkSchema } from '../../../src/features/tasks/check-schema.ts'
import { TaskError } from '../../../src/features/tasks/task.ts'
import { scriptedEndpoint, scriptedExchange, scriptedRecord } from '../../support/scripted-attempt.ts'

type Run = StructuredOutputDeps['tasks']['run']
const checking = (async (_: string, input: Parameters<typeof checkSchema>[0]) => checkSchema(input)) as Run

const turnOf = (finish: Turn['finish'], supported: readonly string[] | null = []): Turn => ({
  attempt: scriptedRecord({
    endpoint: {
      ...scriptedEndpoint('openai-chat'),
      supportedParameters: supported === null ? null : new Set(supported),
    },
  }),
  output: [
    {
      type: 'message',
      id: 'msg',
      role: 'assistant',
      status: 'completed',
      content: [{ type: 'output_text', text: '{"a": 1', annotations: [] }],
    },
  ],
  finish,
  number: 1,
})

async function check(turn: Turn, run: Run = checking, exchange = scriptedExchange()) {
  const schema = { type: 'object' }
  const active = createStructuredOutput({ tasks: { run } }).activate(null, {
    ...exchange.request,
    stream: false,
    text: { format: { type: 'json_schema', name: 'a', strict: true, schema } },
  })
  let error: unknown = null
  try {
    await active?.finish?.(turn, exchange)
  } catch (thrown) {
    error = thrown
  }
  return { error, pipeline: exchange.pipeline }
}

t.test('an answer that is no JSON does not match', async t => {
  for (const supported of [[], ['response_format']]) {
    const { error } = await check(turnOf('stop', supported))
    t.match(error, { code: 'answer_mismatch', message: /at "" \(json\)$/ })
  }
  t.match((await check(turnOf('other'))).error, { code: 'answer_mismatch' })
})

t.test('what the provider enforces and what has not come to its end is not checked', async t => {
  const turns = [
    turnOf('stop', null),
    turnOf('stop', ['structured_outputs']),
    turnOf('length'),
    turnOf('content_filter'),
    turnOf('tool_calls'),
  ]
  for (const turn of turns) t.same(await check(turn), { error: null, pipeline: [] })
})

t.test('an answer that could not be checked leaves, and that is told', async t => {
  for (const outcome of ['timeout', 'overloaded', 'crashed'] as const) {
    const { error, pipeline } = await check(turnOf('stop'), () => Promise.reject(new TaskError(outcome)))
    t.equal(error, null)
    t.match(pipeline, [{ name: 'structured-output', data: { checked: false, reason: outcome } }])
  }
})

t.test('the check ends with the exchange', async t => {
  const gone = new GatewayError('client_closed', 'gone')
  const exchange = { ...scriptedExchange(), signal: AbortSignal.abort(gone) }
  const { error } = await check(turnOf('stop'), () => Promise.reject(new TaskError('cancelled')), exchange)
  t.equal(error, gone)
})

t.test('a request without a schema has nothing to check', async t => {
  const { request } = scriptedExchange()
  const plugin = createStructuredOutput({ tasks: { run: checking } })
  t.equal(plugin.activate(null, request), null)
  t.equal(plugin.activate(null, { ...request, text: { format: { type: 'json_object' } } }), null)
})
