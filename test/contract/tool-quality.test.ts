/** Endpoints whose models make faulty tool calls come after the others, for requests with tools. */
import t, { type Test } from 'tap'
import { startGateway } from '../support/gateway.ts'
import { ScriptedProvider, type ScriptedReply } from '../support/provider.ts'
import { TestClock } from '../support/test-clock.ts'

const TOOLS = [{ type: 'function', name: 'weather', parameters: { type: 'object' } }]
const call = (name: string, args: string): ScriptedReply => ({ calls: [{ name, arguments: args }] })
const GOOD = call('weather', '{"city":"Rome"}')

async function start(t: Test) {
  const provider = new ScriptedProvider()
  const baseUrl = await provider.listen()
  const clock = new TestClock()
  const gateway = await startGateway({
    clock,
    providers: ['one', 'two'].map(slug => ({ slug, format: 'openai-chat' as const, baseUrl })),
    models: [
      { id: 'm/calls', endpoints: ['one', 'two'].map(slug => ({ provider: slug, upstreamModel: slug })) },
    ],
  })
  t.teardown(async () => {
    await gateway.close()
    await provider.close()
  })
  const ask = async (body: object, reply: ScriptedReply = GOOD) => {
    for (const model of ['one', 'two']) provider.script(model, [reply])
    const answer = await gateway.respond({ model: 'm/calls', input: 'Hi', ...body })
    await answer.text()
    return provider.asked.at(-1)?.model
  }
  const faults = async () => {
    const { values } = await gateway.serving.metrics.toolCallFaults.get()
    return values
      .filter(({ value }) => value > 0)
      .map(({ labels, value }) => [...Object.values(labels), value])
  }
  return { clock, ask, faults }
}

t.test('an endpoint with faulty calls comes last for requests with tools, until it is forgotten', async t => {
  for (const stream of [false, true]) {
    const { ask, faults, clock } = await start(t)
    const tools = { tools: TOOLS, stream }
    for (let at = 0; at < 5; at++) t.equal(await ask(tools, call('weather', '{"city":')), 'one')
    for (let at = 0; at < 5; at++) t.equal(await ask(tools, call('wether', '{}')), 'one')
    t.equal(await ask(tools), 'two')
    t.equal(await ask({ stream }), 'one', 'it writes texts as well as before')
    t.equal(await ask({ ...tools, provider: { order: ['one'] } }), 'one', 'an order of the caller stands')
    t.equal(await ask({ ...tools, provider: { sort: 'price' } }), 'one')
    t.same(await faults(), [
      ['one', 'invalid_json', 5],
      ['one', 'unknown_name', 5],
    ])
    clock.advance(600_000)
    t.equal(await ask(tools), 'one', 'it gets a second chance')
  }
})

t.test(
  'good calls, calls without arguments, and calls that were cut off count as good or not at all',
  async t => {
    const { ask, faults } = await start(t)
    for (const reply of [
      GOOD,
      call('weather', ''),
      { ...call('weather', '{"city":'), finish: 'length' },
      { text: '{' },
    ]) {
      for (let at = 0; at < 12; at++) t.equal(await ask({ tools: TOOLS }, reply), 'one')
    }
    t.same(await faults(), [])
  },
)
