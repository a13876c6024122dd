/** The server tool experimental__search_models over the catalogue of a gateway. */
import t from 'tap'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream } from '../support/gateway.ts'
import type { ScriptedReply } from '../support/provider.ts'
import { MODEL, startAligned } from '../support/world.ts'

const TOOL = { type: 'gateway:experimental__search_models' }
const calls = (args: object): ScriptedReply => ({
  calls: [{ name: 'experimental__search_models', arguments: JSON.stringify(args) }],
})
const ANSWERS: ScriptedReply = { text: 'These.' }

t.test('models are found by name and abilities', async t => {
  const world = await startAligned()
  t.teardown(world.close)
  const { gateway, provider } = world
  const ask = async (args: object, tool: object = TOOL, fields: object = {}) => {
    provider.asked.length = 0
    provider.script('model', [calls(args), ANSWERS])
    return await gateway.respond({ model: MODEL, input: 'Which?', tools: [tool], ...fields })
  }
  const found = async (args: object, tool?: object) => {
    const response = (await (await ask(args, tool)).json()) as ResponseResource
    t.match(response.output[0], { type: 'gateway:experimental__search_models', status: 'completed' })
    const told = ((provider.asked[1]?.body['messages'] ?? []) as { content: string }[]).at(-1)?.content ?? ''
    return JSON.parse(told) as { models: { id: string }[]; total_results: number; showing: number }
  }
  const ids = async (args: object) => (await found(args)).models.map(({ id }) => id)
  t.same(await ids({ query: 'JUDGE', series: 'acme' }), ['acme/judge'])
  t.same(await ids({ query: 'sim/echo' }), ['sim/echo'])
  t.same(await ids({ output_modalities: ['embeddings'], series: 'sim' }), ['sim/embed'])
  t.same(await ids({ query: 'judge', min_context_length: 2_000_000 }), [])
  t.same(
    await ids({ query: 7, input_modalities: 'text', series: null, min_context_length: 'x' }).then(
      all => all.length,
    ),
    5,
  )
  const all = await found({}, { ...TOOL, parameters: { max_results: 3 } })
  t.equal(all.showing, 3)
  t.ok(all.total_results > 10)
  t.match(all.models[0], {
    id: String,
    name: String,
    context_length: Number,
    input_modalities: ['text'],
    series: 'sim',
  })

  const events = parseEventStream(await (await ask({ query: 'echo' }, TOOL, { stream: true })).text())
  t.same(grammarViolations(events), [])
  const refused = await ask({}, { ...TOOL, parameters: { max_results: 21 } })
  t.equal(refused.status, 400)
})
