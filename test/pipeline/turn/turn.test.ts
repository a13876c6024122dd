/** One model call of an answer: who is asked first, and what the answer takes of the reply. */
import t from 'tap'
import { FinalSink } from '../../../src/pipeline/answer/sink.ts'
import type { ScriptedReply } from '../../support/provider.ts'
import { startAsking } from '../asking-gateway.ts'

const CLOCK: ScriptedReply = { calls: [{ name: 'datetime', arguments: '{"timezone":"UTC"}' }] }
const TOOL = { tools: [{ type: 'gateway:datetime' as const }] }

t.test('the next turn asks first who answered the one before', async t => {
  const { call, gateway, provider } = await startAsking(t)
  provider.script('side', [{ status: 503 }, { text: 'Not asked again' }])
  provider.script('kept', [CLOCK, { text: 'Noon' }])
  const sink = new FinalSink()
  await gateway.respond(call(TOOL), sink)
  t.same(
    provider.asked.map(({ model }) => model),
    ['side', 'kept', 'kept'],
  )
  t.match(sink.response?.output, [{ type: 'gateway:datetime' }, { content: [{ text: 'Noon' }] }])
})

t.test('a call of a server tool is taken out of the reply, one of the client is not', async t => {
  const { call, gateway, provider } = await startAsking(t)
  const own = { type: 'function' as const, name: 'own', parameters: { type: 'object' } }
  provider.script('side', [{ calls: [...(CLOCK.calls ?? []), { name: 'own', arguments: '{}' }] }])
  const sink = new FinalSink()
  await gateway.respond(call({ tools: [...TOOL.tools, own] }), sink)
  t.same(
    sink.response?.output.map(({ type }) => type),
    ['gateway:datetime', 'function_call'],
  )
  t.equal(provider.asked.length, 1, 'the client has to act first')
})

t.test('where an endpoint fails after its first words, no other one is asked', async t => {
  const { call, gateway, provider } = await startAsking(t)
  provider.script('side', [{ text: 'Half', breaks: true }])
  provider.script('kept', [{ text: 'Whole' }])
  const seen: string[] = []
  const outcome = await gateway.respond(
    call({ stream: true }),
    new FinalSink({ listener: ({ type }) => seen.push(type) }),
  )
  t.match(outcome, { answered: true }, 'its failure is told in the stream')
  t.equal(seen.at(-1), 'response.failed')
  t.equal(provider.asked.length, 1)
})
