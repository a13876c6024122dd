/** Bodies of a batch are refused as their endpoint would refuse them, and for what no batch can do. */
import t from 'tap'
import { BATCH_PARSERS } from '../../../src/dialects/parsers.ts'
import { checkBatchBodies } from '../../../src/features/tasks/check-batch-bodies.ts'
import { INFERENCE_BODY_MAX_BYTES, JSON_MAX_COMMAS, JSON_MAX_DEPTH } from '../../../src/protocol/limits.ts'
import { BATCH_ENDPOINTS, type BatchEndpoint } from '../../../src/protocol/management/batches.ts'
import { OFFERED } from '../../support/dialects.ts'

function check(endpoint: BatchEndpoint, bodies: readonly string[]) {
  const numbered = bodies.map((body, number) => ({ number: number + 7, body }))
  return checkBatchBodies({ endpoint, model: 'acme/fast-1', offered: OFFERED, bodies: numbered })
}

const CHAT = '/v1/chat/completions'

t.test('bodies that the endpoint takes are not refused, with or without a model', async t => {
  t.same(
    check('/v1/responses', [
      '{"input":"x"}',
      '{"input":"x","model":"acme/fast-1"}',
      '{"input":"x","model":null}',
    ]),
    [],
  )
  t.same(check(CHAT, ['{"messages":[{"role":"user","content":"x"}]}']), [])
  t.same(check(CHAT, ['{"messages":[{"role":"user","content":"x"}],"stream":false}']), [])
})

t.test('others are refused by their number, in the words of the endpoint', async t => {
  const deep = `{"input":"x","metadata":${'['.repeat(JSON_MAX_DEPTH)}${']'.repeat(JSON_MAX_DEPTH)}}`
  const wide = `{"input":"x","more":[${'1,'.repeat(JSON_MAX_COMMAS + 1)}1]}`
  const cases: readonly (readonly [
    name: string,
    endpoint: BatchEndpoint,
    body: string,
    message: RegExp,
    code?: string,
  ])[] = [
    ['no input', '/v1/responses', '{}', /^input: is required/],
    ['a body of the other endpoint', '/v1/responses', '{"messages":[]}', /^input: is required/],
    ['no messages', CHAT, '{"input":"x"}', /^messages: is required/],
    [
      'a wrong type',
      CHAT,
      '{"messages":[{"role":"user","content":"x"}],"temperature":"hot"}',
      /^temperature: must be/,
    ],
    ['a model that is no text', '/v1/responses', '{"input":"x","model":7}', /^model: must be a string/],
    ['a stream', '/v1/responses', '{"input":"x","stream":true}', /^stream: must be false: batch requests/],
    [
      'a stream of chat',
      CHAT,
      '{"messages":[{"role":"user","content":"x"}],"stream":true}',
      /^stream: must be false/,
    ],
    [
      'a prototype',
      '/v1/responses',
      '{"input":"x","__proto__":{}}',
      /__proto__: is not an allowed field name/,
    ],
    ['too deep', '/v1/responses', deep, /is nested deeper than/],
    ['too many values', '/v1/responses', wide, /has more than \d+ values/],
    [
      'a body that was too large to be kept',
      '/v1/responses',
      '',
      /at most 20971520 bytes/,
      'payload_too_large',
    ],
  ]
  for (const [name, endpoint, body, message, code = 'invalid_request'] of cases) {
    t.match(check(endpoint, ['{"input":"x","messages":[]}', body]).at(-1), { number: 8, code, message }, name)
  }
  t.equal(INFERENCE_BODY_MAX_BYTES, 20_971_520)
})

t.test('only what is wrong is told, in order, whatever is beside it', async t => {
  const bodies = Array.from({ length: 100 }, (_, number) => (number % 3 === 0 ? '{}' : '{"input":"x"}'))
  t.same(
    check('/v1/responses', bodies).map(({ number }) => number),
    Array.from({ length: 34 }, (_, at) => 3 * at + 7),
  )
})

t.test(
  'a body with a credential of an MCP server is refused by its path, and the credential is not told',
  async t => {
    const mcp = (fields: object) => ({
      type: 'mcp',
      server_label: 'a',
      server_url: 'https://a.example/mcp',
      require_approval: 'never',
      ...fields,
    })
    const within = (type: string, tool: object) => ({ type, parameters: { tools: [tool] } })
    const secret = 'mcp-secret-value'
    const cases: readonly (readonly [path: string, endpoint: BatchEndpoint, body: object])[] = [
      ['tools[0].authorization', '/v1/responses', { tools: [mcp({ authorization: secret })] }],
      ['tools[0].headers', '/v1/responses', { tools: [mcp({ headers: { 'X-Key': secret } })] }],
      ['tools[0].authorization', CHAT, { tools: [mcp({ authorization: secret })] }],
      ['tools[0].authorization', '/v1/messages', { tools: [mcp({ authorization: secret })] }],
      [
        'tools[1].parameters.tools[0].authorization',
        '/v1/responses',
        { tools: [mcp({}), within('gateway:subagent', mcp({ authorization: secret }))] },
      ],
      [
        'plugins[0].tools[0].headers',
        '/v1/responses',
        { plugins: [{ id: 'fusion', tools: [mcp({ headers: { A: secret } })] }] },
      ],
      [
        'mcp_servers[0].authorization_token',
        '/v1/messages',
        { mcp_servers: [{ type: 'url', name: 'a', url: 'https://a.example', authorization_token: secret }] },
      ],
    ]
    for (const [path, endpoint, body] of cases) {
      const [fault] = check(endpoint, [JSON.stringify({ input: 'x', messages: [], max_tokens: 9, ...body })])
      t.match(fault, { code: 'invalid_request' }, path)
      t.equal(fault?.message.startsWith(`${path}: must be left out`), true, path)
      t.notMatch(fault?.message, secret)
    }
    const free = [mcp({}), mcp({ server_label: 'b', headers: {}, authorization: null })]
    t.same(check('/v1/responses', [JSON.stringify({ input: 'x', tools: free })]), [])
    const schema = { type: 'function', name: 'f', parameters: { tools: [mcp({ authorization: 'x' })] } }
    t.same(
      check('/v1/responses', [JSON.stringify({ input: 'x', tools: [schema] })]),
      [],
      'a schema is no tool',
    )
  },
)

t.test('an endpoint without a parser refuses every body', async t => {
  for (const endpoint of BATCH_ENDPOINTS) {
    if (BATCH_PARSERS[endpoint] !== undefined) continue
    t.match(check(endpoint, ['{}']), [{ code: 'invalid_request', message: /^endpoint: .* is not offered/ }])
  }
  t.ok(Object.keys(BATCH_PARSERS).length > 0)
})
