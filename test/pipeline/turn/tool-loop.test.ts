/** The turns of one answer: the model is asked until it has nothing more to run. */
import t from 'tap'
import { FinalSink } from '../../../src/pipeline/answer/sink.ts'
import type { ScriptedReply } from '../../support/provider.ts'
import { startAsking } from '../asking-gateway.ts'

const CLOCK: ScriptedReply = { calls: [{ name: 'datetime', arguments: '{"timezone":"UTC"}' }] }
const TOOL = { tools: [{ type: 'gateway:datetime' as const }] }

t.test('each turn gets what the ones before have said and run, and all are paid for', async t => {
  const { call, gateway, provider, records } = await startAsking(t)
  provider.script('side', [CLOCK, CLOCK, { text: 'Noon' }])
  const sink = new FinalSink()
  await gateway.respond(call(TOOL), sink)
  const roles = provider.asked.map(({ body }) =>
    (body['messages'] as { role: string }[]).map(({ role }) => role),
  )
  t.same(roles, [['user'], ['user', 'assistant', 'tool'], ['user', 'assistant', 'tool', 'assistant', 'tool']])
  t.match(sink.response?.usage, { input_tokens: 21, output_tokens: 15 })
  t.match(await records(), [{ inputTokens: 21, outputTokens: 15 }])
})

t.test('a model that calls although it may not is not followed', async t => {
  const { call, gateway, provider } = await startAsking(t)
  provider.script('side', [CLOCK, { text: 'Not asked' }])
  await gateway.respond(call({ ...TOOL, tool_choice: 'none' }), new FinalSink())
  t.equal(provider.asked.length, 1)
})

t.test('the calls that a request allows end the tools, and the model has the last word', async t => {
  const { call, gateway, provider } = await startAsking(t)
  provider.script('side', [CLOCK, { text: 'Enough' }])
  const sink = new FinalSink()
  await gateway.respond(call({ ...TOOL, max_tool_calls: 1 }), sink)
  t.equal(provider.asked[1]?.body['tool_choice'] ?? 'none', 'none')
  t.match(sink.response?.output.at(-1), { content: [{ text: 'Enough' }] })
})

t.test('limits that leave no second call end the answer as one that met its output limit', async t => {
  const { call, gateway, provider } = await startAsking(t, 0.02)
  provider.script('side', [{ ...CLOCK, tokens: { input: 7, output: 20 } }, { text: 'Not asked' }])
  const sink = new FinalSink()
  await gateway.respond(call({ ...TOOL, max_output_tokens: 20 }), sink)
  t.equal(provider.asked.length, 1)
  t.match(sink.response, { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } })
})
