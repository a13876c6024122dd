/**
 * Tools that nobody here can run: in the spelling of a provider they are left out, and the caller is told; ours are
 * refused with what to configure.
 */
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { ScriptedProvider } from '../support/provider.ts'

t.test('tools that nobody here can run are left out in the spelling of a provider, and told', async t => {
  const provider = new ScriptedProvider()
  const baseUrl = await provider.listen()
  const gateway = await startGateway({
    providers: [{ slug: 'acme', format: 'openai-chat', baseUrl, apiKey: 'k' }],
    models: [{ id: 'acme/model', endpoints: [{ provider: 'acme', upstreamModel: 'model' }] }],
    sandbox: { engine: 'none' },
  })
  t.teardown(async () => {
    await gateway.close()
    await provider.close()
  })
  const ask = async (tools: readonly object[], more: object = {}) => {
    provider.asked.length = 0
    provider.script('model', [{ text: 'Fine' }])
    const answer = await gateway.respond(
      { model: 'acme/model', input: 'hi', tools, ...more },
      { headers: { 'x-gateway-metadata': 'enabled' } },
    )
    return { status: answer.status, text: await answer.text() }
  }
  const mine = { type: 'function', name: 'mine', parameters: { type: 'object' } }
  for (const tool of [
    { type: 'web_search' },
    { type: 'web_search_preview' },
    { type: 'code_interpreter', container: { type: 'auto' } },
    { type: 'shell' },
    { type: 'local_shell' },
  ]) {
    for (const stream of [false, true]) {
      const { type } = tool
      const told = await ask([tool], { stream, tool_choice: 'required' })
      t.equal(told.status, 200, `${type}: ${told.text}`)
      t.match(told.text, `"summary":"${type} was left out: `)
      t.match(told.text, `"tools":["${type}"]`)
      t.equal(provider.asked[0]?.body['tools'], undefined, 'an empty list is no list')
      t.equal(provider.asked[0]?.body['tool_choice'], undefined)
      await ask([tool, mine], { stream })
      t.match(provider.asked[0]?.body['tools'], [{ function: { name: 'mine' } }])
      t.equal((provider.asked[0]?.body['tools'] as unknown[] | undefined)?.length, 1)
    }
  }
  for (const [name, setting] of [
    ['web_search', /tools\.webSearch\.engines/],
    ['code_interpreter', /tools\.sandbox/],
    ['shell', /tools\.sandbox/],
  ] as const) {
    const refused = await ask([{ type: `gateway:${name}` }])
    t.equal(refused.status, 400, name)
    t.match(refused.text, setting)
  }
  const plugins = [{ id: 'web', engine: 'native' }]
  t.match(
    (await ask([mine], { plugins })).text,
    /plugins\[0\]\.engine: the provider of this model has no web search/,
  )
})
