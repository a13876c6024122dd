/**
 * Requests that must be refused, over real HTTP: the right status, the envelope that names the field, never a 500,
 * and nothing of what was sent or kept secret in the answer.
 */
import { createHash } from 'node:crypto'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'

const gateway = await startGateway()
t.teardown(() => gateway.close())

/** Stands wherever a value may stand; no answer may repeat it. */
const CANARY = 'canary-7f3a'

interface Row {
  readonly name: string
  readonly status: number
  /** What the message begins with, or contains. */
  readonly says?: string
  /** JSON body, or raw text. */
  readonly body?: unknown
  readonly raw?: string | Buffer
  readonly headers?: Readonly<Record<string, string | null>>
  readonly method?: string
  readonly path?: string
}

const good = { model: 'sim/echo', input: 'hi' }
const user = (content: unknown) => ({ ...good, input: [{ role: 'user', content }] })
const item = (value: unknown) => ({ ...good, input: [value] })
const tool = (value: unknown) => ({ ...good, tools: [value] })
const plugin = (value: unknown) => ({ ...good, plugins: [value] })

/** Fields of the body with values that they refuse; the message begins with the field's name. */
const FIELDS: readonly (readonly [field: string, ...values: unknown[]])[] = [
  ['model', 7, null, '', {}, 'x'.repeat(2000)],
  ['models', CANARY, [7], ['']],
  ['input', 7, null, [], {}, true],
  ['instructions', 7, {}],
  ['max_output_tokens', 0, -1, 1.5, CANARY],
  ['max_tool_calls', 0, 31, CANARY],
  ['temperature', -0.1, 2.1, CANARY, [], true],
  ['top_p', -0.1, 1.1, CANARY],
  ['top_k', -1, 0.5, CANARY],
  ['top_logprobs', -1, 21, CANARY],
  ['frequency_penalty', -2.1, 2.1, CANARY],
  ['presence_penalty', -2.1, 2.1, CANARY],
  ['parallel_tool_calls', CANARY, 1],
  ['background', true, CANARY],
  ['store', true, CANARY],
  ['stream', CANARY, 1],
  ['previous_response_id', CANARY, 7, {}],
  ['include', CANARY, [CANARY]],
  [
    'metadata',
    CANARY,
    { [`[${CANARY}]`]: 'x' },
    { a: 7 },
    { a: 'x'.repeat(513) },
    { ['k'.repeat(65)]: 'x' },
    Object.fromEntries(Array.from({ length: 17 }, (_, at) => [`k${at}`, 'v'])),
  ],
  ['modalities', CANARY, [CANARY]],
  ['service_tier', CANARY, 7],
  ['session_id', 'x'.repeat(257), 7],
  ['user', 'x'.repeat(257), 7],
  ['prompt_cache_key', 7],
  ['prompt_cache_options', { mode: CANARY }, CANARY],
  ['cache_control', CANARY, {}, { type: CANARY }, { type: 'ephemeral', ttl: CANARY }],
  ['debug', CANARY, { echo_upstream_body: CANARY }],
  ['image_config', CANARY, { a: {} }],
  [
    'provider',
    CANARY,
    { order: CANARY },
    { sort: CANARY },
    { quantizations: [CANARY] },
    { max_price: { prompt: CANARY } },
    { zdr: CANARY },
    { data_collection: CANARY },
  ],
  ['reasoning', CANARY, { effort: CANARY }, { summary: CANARY }, { max_tokens: CANARY }],
  ['route', CANARY],
  ['prompt', { id: CANARY }, CANARY],
  ['preset', CANARY],
  ['stop_server_tools_when', [], CANARY, [{ type: CANARY }], [{ type: 'step_count_is' }]],
  [
    'text',
    CANARY,
    { format: { type: CANARY } },
    { format: { type: 'json_schema' } },
    { format: { type: 'json_schema', name: `${CANARY}!`, schema: {} } },
    { verbosity: CANARY },
  ],
  ['tool_choice', CANARY, 7, { type: CANARY }],
  ['truncation', CANARY],
  ['trace', CANARY],
]

const ROWS: readonly Row[] = [
  ...FIELDS.flatMap(([field, ...values]) =>
    values.map((value, at) => ({
      name: `${field} #${at + 1}`,
      status: 400,
      says: field,
      body: { ...good, [field]: value },
    })),
  ),
  { name: 'no model', status: 400, says: 'model', body: { input: 'hi' } },
  { name: 'no input', status: 400, says: 'input', body: { model: 'sim/echo' } },
  {
    name: 'unknown model',
    status: 400,
    says: 'is not a valid model ID',
    body: { model: 'acme/none', input: 'hi' },
  },
  {
    name: 'preferences that leave nothing',
    status: 404,
    says: 'provider.only',
    body: { ...good, provider: { only: ['nobody'] } },
  },
  {
    name: 'two routers',
    status: 400,
    says: 'models[0]',
    body: { model: 'gateway/auto', models: ['gateway/free'], input: 'hi' },
  },
  { name: 'preset as model', status: 400, says: 'model', body: { model: '@preset/x', input: 'hi' } },
  { name: 'item of unknown type', status: 400, says: 'input[0]', body: item({ type: CANARY }) },
  { name: 'item without type or role', status: 400, says: 'input[0]', body: item({ content: CANARY }) },
  { name: 'item that is no object', status: 400, says: 'input[0]', body: item(CANARY) },
  {
    name: 'message of unknown role',
    status: 400,
    says: 'input[0].role',
    body: item({ role: CANARY, content: 'x' }),
  },
  { name: 'message without content', status: 400, says: 'input[0].content', body: item({ role: 'user' }) },
  { name: 'part of unknown type', status: 400, says: 'input[0].content[0]', body: user([{ type: CANARY }]) },
  {
    name: 'text part without text',
    status: 400,
    says: 'input[0].content[0].text',
    body: user([{ type: 'input_text' }]),
  },
  {
    name: 'image part with a number',
    status: 400,
    says: 'input[0].content[0].image_url',
    body: user([{ type: 'input_image', image_url: 7 }]),
  },
  {
    name: 'image detail unknown',
    status: 400,
    says: 'input[0].content[0].detail',
    body: user([{ type: 'input_image', image_url: 'https://a.example/x.png', detail: CANARY }]),
  },
  {
    name: 'image part without source',
    status: 400,
    says: 'input[0].content[0]',
    body: user([{ type: 'input_image' }]),
  },
  {
    name: 'audio of unknown format',
    status: 400,
    says: 'input[0].content[0].input_audio',
    body: user([{ type: 'input_audio', input_audio: { data: '', format: CANARY } }]),
  },
  {
    name: 'item reference',
    status: 400,
    says: 'input[0]',
    body: item({ type: 'item_reference', id: CANARY }),
  },
  {
    name: 'call without arguments',
    status: 400,
    says: 'input[0].arguments',
    body: item({ type: 'function_call', call_id: 'c', name: 'f' }),
  },
  {
    name: 'call output without call_id',
    status: 400,
    says: 'input[0].call_id',
    body: item({ type: 'function_call_output', output: 'x' }),
  },
  { name: 'tool of unknown type', status: 400, says: 'tools[0]', body: tool({ type: CANARY }) },
  { name: 'tool that is no object', status: 400, says: 'tools[0]', body: tool(CANARY) },
  {
    name: 'function without name',
    status: 400,
    says: 'tools[0].name',
    body: tool({ type: 'function', parameters: {} }),
  },
  {
    name: 'function with a bad name',
    status: 400,
    says: 'tools[0].name',
    body: tool({ type: 'function', name: `${CANARY}!`, parameters: {} }),
  },
  {
    name: 'function with parameters of a wrong type',
    status: 400,
    says: 'tools[0].parameters',
    body: tool({ type: 'function', name: 'f', parameters: CANARY }),
  },
  {
    name: 'deferred search for deferred tools',
    status: 400,
    says: 'tools[0].defer_loading',
    body: tool({ type: 'tool_search', defer_loading: true }),
  },
  ...['gateway:browser_use', 'openrouter:nonsense'].map(type => ({
    name: `server tool ${type}`,
    status: 400,
    says: 'tools[0]',
    body: tool({ type }),
  })),
  { name: 'plugin of unknown id', status: 400, says: 'plugins[0]', body: plugin({ id: CANARY }) },
  { name: 'plugin without id', status: 400, says: 'plugins[0]', body: plugin({}) },
  {
    name: 'alignment without rules',
    status: 400,
    says: 'plugins[0].rules',
    body: plugin({ id: 'alignment' }),
  },
  {
    name: 'prototype key',
    status: 400,
    says: '__proto__',
    raw: '{"model":"sim/echo","input":"hi","__proto__":{"polluted":true}}',
  },
  {
    name: 'prototype key below',
    status: 400,
    says: 'metadata',
    raw: '{"model":"sim/echo","input":"hi","metadata":{"__proto__":"x"}}',
  },
  {
    name: 'constructor key',
    status: 400,
    says: 'constructor',
    raw: '{"model":"sim/echo","input":"hi","provider":{"constructor":{"prototype":{}}}}',
  },
  {
    name: 'lone surrogate in user',
    status: 400,
    says: 'user',
    raw: '{"model":"sim/echo","input":"hi","user":"\\ud800"}',
  },
  { name: 'empty body', status: 400, raw: '' },
  { name: 'no JSON', status: 400, raw: `{"model": ${CANARY}` },
  { name: 'JSON that is no object', status: 400, raw: '[]' },
  { name: 'JSON null', status: 400, raw: 'null' },
  { name: 'a number', status: 400, raw: '7' },
  { name: 'trailing garbage', status: 400, raw: '{"model":"sim/echo","input":"hi"} x' },
  {
    name: 'invalid UTF-8',
    status: 400,
    raw: Buffer.from([0x7b, 0x22, 0x61, 0x22, 0x3a, 0x22, 0xff, 0xfe, 0x22, 0x7d]),
  },
  { name: 'overlong UTF-8', status: 400, raw: Buffer.from([0x22, 0xc0, 0x80, 0x22]) },
  {
    name: 'nested too deep',
    status: 400,
    raw: `{"model":"sim/echo","input":${'['.repeat(65)}${']'.repeat(65)}}`,
  },
  { name: 'a depth bomb of arrays', status: 400, raw: '['.repeat(1_000_000) },
  { name: 'a depth bomb of objects', status: 400, raw: '{"a":'.repeat(200_000) },
  { name: 'over 20 MiB', status: 413, raw: Buffer.alloc(20 * 1024 * 1024 + 1, 0x20) },
  { name: 'no key', status: 401, body: good, headers: { authorization: null } },
  {
    name: 'a wrong key',
    status: 401,
    body: good,
    headers: { authorization: `Bearer sk-gw-v1-${'0'.repeat(64)}` },
  },
  { name: 'a malformed key', status: 401, body: good, headers: { authorization: `Bearer ${CANARY}` } },
  { name: 'another scheme', status: 401, body: good, headers: { authorization: `Basic ${CANARY}` } },
  {
    name: 'SQL in the key',
    status: 401,
    body: good,
    headers: { authorization: `Bearer ' OR 1=1; -- ${CANARY}` },
  },
  {
    name: 'a management key',
    status: 403,
    body: good,
    headers: { authorization: `Bearer ${gateway.managementKey}` },
  },
  { name: 'text/plain', status: 415, body: good, headers: { 'content-type': 'text/plain' } },
  { name: 'compressed', status: 415, body: good, headers: { 'content-encoding': 'compress' } },
  { name: 'GET', status: 405, method: 'GET' },
  { name: 'PUT', status: 405, method: 'PUT', body: good },
  { name: 'unknown path', status: 404, path: `/v1/${CANARY}`, body: good },
  { name: 'no base path', status: 404, path: '/responses', body: good },
  { name: 'metrics on the public port', status: 404, method: 'GET', path: '/metrics' },
  { name: 'dot segments', status: 404, method: 'GET', path: '/v1/models/../../metrics' },
  { name: 'encoded slash', status: 400, method: 'GET', path: '/v1/models/a%2f..%2fb/c/endpoints' },
  { name: 'bad escape', status: 400, method: 'GET', path: '/v1/models/%zz/c/endpoints' },
  {
    name: 'unknown model in a path',
    status: 404,
    method: 'GET',
    path: `/v1/models/acme/${CANARY}/endpoints`,
  },
  { name: 'bad page', status: 400, says: 'limit', method: 'GET', path: `/v1/models?limit=${CANARY}` },
]

t.test(`${ROWS.length} bad requests`, async t => {
  t.ok(ROWS.length >= 120)
  const before = Object.getOwnPropertyNames(Object.prototype).sort()
  const secrets = [
    CANARY,
    gateway.apiKey,
    gateway.managementKey,
    ...[gateway.apiKey, gateway.managementKey].map(key => createHash('sha256').update(key).digest('hex')),
  ]
  let right = 0
  for (const row of ROWS) {
    const headers = new Headers({ authorization: `Bearer ${gateway.apiKey}` })
    const payload = row.raw ?? (row.body === undefined ? undefined : JSON.stringify(row.body))
    if (payload !== undefined) headers.set('content-type', 'application/json')
    for (const [name, value] of Object.entries(row.headers ?? {})) {
      if (value === null) headers.delete(name)
      else headers.set(name, value)
    }
    const reply = await fetch(new URL(row.path ?? '/v1/responses', gateway.url), {
      method: row.method ?? 'POST',
      headers,
      ...(payload === undefined ? {} : { body: payload }),
    })
    const text = await reply.text()
    const answer = JSON.parse(text) as {
      error?: { code?: unknown; message?: unknown; metadata?: { error_type?: unknown } }
    }
    const fits =
      reply.status === row.status &&
      answer.error?.code === row.status &&
      typeof answer.error.message === 'string' &&
      answer.error.message.includes(row.says ?? '') &&
      typeof answer.error.metadata?.error_type === 'string'
    // A model id may be named in the answer: it is how the caller sees which of several was meant.
    const leaks = secrets.some(secret => text.includes(secret))
    if (fits && !leaks) right++
    else t.fail(`${row.name}: ${reply.status} ${text.slice(0, 300)}`)
  }
  t.equal(right, ROWS.length)
  t.comment(`${right}/${ROWS.length} bad requests answered as documented`)
  t.same(Object.getOwnPropertyNames(Object.prototype).sort(), before)
  t.equal(gateway.sim.state.requests, 0, 'no provider was called')
  // A line names the model that was asked for, and an unknown path, in plain words.
  const others = gateway.lines.map(({ requestedModel: _, path: __, ...line }) => line)
  t.notMatch(JSON.stringify(others), CANARY, 'nothing else of it is logged')
})

t.test('afterwards a good request is served', async t => {
  t.equal((await gateway.respond(good)).status, 200)
})
