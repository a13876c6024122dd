/** Credentials of MCP servers are not in what a caller is shown of its tools. */
import t from 'tap'
import { blankSecrets, secretPath, withoutSecrets } from '../../src/protocol/tool-secrets.ts'

const mcp = {
  type: 'mcp',
  server_label: 'a',
  server_url: 'https://a.example',
  authorization: 'secret',
  headers: { A: 'secret' },
}
const shown = { type: 'mcp', server_label: 'a', server_url: 'https://a.example' }

t.test('an MCP server is shown without its credentials, also within a tool that asks models', async t => {
  t.same(withoutSecrets(mcp), shown)
  const datetime = { type: 'gateway:datetime' }
  t.same(withoutSecrets({ type: 'gateway:subagent', parameters: { name: 'a', tools: [datetime, mcp, 7] } }), {
    type: 'gateway:subagent',
    parameters: { name: 'a', tools: [datetime, shown, 7] },
  })
  t.same(withoutSecrets(datetime), datetime)
})

t.test('a schema of a function is shown as it is', async t => {
  const schema = { type: 'function', name: 'f', parameters: { tools: [mcp] } }
  t.equal(withoutSecrets(schema), schema)
})

t.test('a body loses the values of its credentials, and keeps their fields', async t => {
  const body = JSON.stringify({
    input: 'x',
    tools: [{ type: 'gateway:subagent', parameters: { tools: [mcp] } }],
    mcp_servers: [{ authorization_token: 'secret' }],
  })
  const blank = blankSecrets(body)
  t.notMatch(blank, 'secret')
  t.equal(secretPath(JSON.parse(blank)), 'tools[0].parameters.tools[0].authorization')
  t.match(JSON.parse(blank), { input: 'x', tools: [{ parameters: { tools: [shown] } }] })
  for (const text of [
    '{"input":"mcp \\"headers\\" ",  "a":1}',
    '{"headers":1,"mcp":',
    '[ "mcp", "headers" ]',
    '',
  ]) {
    t.equal(blankSecrets(text), text)
  }
})
