/**
 * Why a request failed, for its caller and for the operator: real sockets that refuse, break, lie about their name or
 * say nothing, and the answer and the log line that follow.
 */
import { createServer as createHttpServer, type RequestListener } from 'node:http'
import { createServer } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import t from 'tap'
import { selfSigned } from '../providers/upstream/self-signed.ts'
import { freePort } from '../support/free-port.ts'
import { startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'
import { caller } from '../support/management.ts'

const answering = (listener: RequestListener) => createHttpServer(listener)
const refusing = (status: number, body: string) =>
  answering((_request, response) => {
    response.writeHead(status, { 'content-type': 'application/json' }).end(body)
  })

const { key, cert } = selfSigned(['localhost'], false)
const servers = {
  breaking: createServer(socket => socket.once('data', () => socket.resetAndDestroy())),
  closing: createServer(socket => socket.once('data', () => socket.end())),
  plain: createServer(socket => socket.once('data', () => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'))),
  impostor: createTlsServer({ key, cert }),
  silent: createServer(socket => socket.on('error', () => undefined)),
  unauthorized: refusing(
    401,
    '{"error":{"message":"Incorrect API key provided: sk-x","code":"invalid_api_key"}}',
  ),
  forbidden: refusing(403, '{"error":{"message":"Country not supported"}}'),
  wordless: refusing(401, ''),
}
const ports = Object.fromEntries(
  await Promise.all(
    Object.entries(servers).map(async ([name, server]) => [name, (await listening(server)).port] as const),
  ),
)
const gonePort = await freePort()

const provider = (slug: string, baseUrl: string) => ({
  slug,
  name: `${slug.slice(0, 1).toUpperCase()}${slug.slice(1)} AI`,
  format: 'openai-chat' as const,
  baseUrl,
  apiKey: 'shared-key-of-all',
})
const gateway = await startGateway({
  timeouts: { upstreamHeadersMs: 300 },
  providers: [
    provider('refused', `http://127.0.0.1:${gonePort}/v1`),
    provider('nowhere', 'http://no-such-host.invalid/v1'),
    provider('wrong-tls', `https://127.0.0.1:${ports['plain']}/v1`),
    ...Object.entries(ports).map(([slug, port]) =>
      provider(slug, `${slug === 'impostor' ? 'https' : 'http'}://127.0.0.1:${port}/v1`),
    ),
  ],
  models: [
    ...['refused', 'nowhere', 'wrong-tls', ...Object.keys(ports)].map(slug => ({
      id: `m/${slug}`,
      endpoints: [{ provider: slug }],
    })),
    { id: 'm/second', endpoints: [{ provider: 'refused' }, { provider: 'sim', upstreamModel: 'echo' }] },
    { id: 'm/both', endpoints: [{ provider: 'refused' }, { provider: 'forbidden' }] },
  ],
})
t.teardown(async () => {
  await gateway.close()
  for (const server of Object.values(servers)) {
    server.close()
    if ('closeAllConnections' in server) server.closeAllConnections()
  }
})

interface Envelope {
  readonly error: { readonly message: string; readonly metadata: Record<string, unknown> }
  readonly gateway_metadata?: { readonly attempts: readonly Record<string, unknown>[] }
}

async function ask(model: string, body: object = {}, headers: Record<string, string> = {}) {
  const before = gateway.lines.length
  const reply = await gateway.respond({ model, input: 'a private question', ...body }, { headers })
  const text = await reply.text()
  const id = reply.headers.get('x-request-id')
  const line = gateway.lines.slice(before).find(each => each['id'] === id) ?? {}
  return { status: reply.status, text, document: JSON.parse(text) as Envelope, line }
}

t.test(
  'a provider that cannot be reached is named, with the kind of failure, and the line has its code',
  async t => {
    const cases = [
      ['refused', 502, 'connection_refused', 'ECONNREFUSED'],
      ['nowhere', 502, 'dns_failure', /^(?:ENOTFOUND|EAI_AGAIN)$/],
      ['breaking', 502, 'connection_lost', 'ECONNRESET'],
      ['closing', 502, 'connection_lost', undefined],
      ['impostor', 502, 'tls_failure', 'DEPTH_ZERO_SELF_SIGNED_CERT'],
      ['wrong-tls', 502, 'tls_failure', /^(?:ERR_SSL_|EPROTO)/],
      ['silent', 524, 'timeout', 'HEADERS_TIMEOUT'],
    ] as const
    for (const [slug, status, reason, cause] of cases) {
      const { document, line, text, ...reply } = await ask(`m/${slug}`)
      t.equal(reply.status, status, slug)
      const name = `${slug.slice(0, 1).toUpperCase()}${slug.slice(1)} AI`
      t.match(document.error.metadata, { provider_name: name, reason }, slug)
      t.notMatch(text, /127\.0\.0\.1|no-such-host/, `${slug}: no address`)
      t.match(
        line,
        {
          level: 'error',
          status,
          provider: slug,
          ...(cause === undefined ? {} : { cause }),
          failedAttempts: [{ provider: slug, status: null, ...(cause === undefined ? {} : { cause }) }],
        },
        slug,
      )
    }
  },
)

t.test('a refused key is told as the key of the gateway, not of the caller', async t => {
  t.match(
    (await ask('m/unauthorized')).document.error.message,
    /^Unauthorized AI refused the gateway's key: Incorrect API key/,
  )
  t.match(
    (await ask('m/forbidden')).document.error.message,
    /^Forbidden AI refused the gateway's key.*: Country not supported$/,
  )
  t.equal((await ask('m/wordless')).document.error.message, "Wordless AI refused the gateway's key")
})

t.test("a refused key of the workspace's own is told by the name that its owner gave it", async t => {
  const manage = caller(gateway.url, gateway.managementKey)
  const made = await manage('POST', '/byok', {
    provider: 'unauthorized',
    name: 'Team Blue',
    key: 'own-key-of-team-blue',
    is_required: true,
  })
  t.equal(made.status, 201, made.text)
  const { document } = await ask('m/unauthorized')
  t.match(
    document.error.message,
    /^Unauthorized AI refused the workspace's own key Team Blue: Incorrect API key/,
  )
})

t.test('a fallback says who failed and why, also when the answer is good', async t => {
  const { status, line } = await ask('m/second')
  t.equal(status, 200)
  t.match(line, {
    level: 'info',
    outcome: 'completed',
    attempts: 2,
    provider: 'sim',
    failedAttempts: [
      { provider: 'refused', error: 'provider_unavailable', status: null, cause: 'ECONNREFUSED' },
    ],
  })
  const both = await ask('m/both', {}, { 'x-gateway-metadata': 'enabled' })
  t.match(both.document.error.metadata['previous_errors'], [
    { provider: 'Refused AI', code: 'provider_unavailable', status: null, reason: 'connection_refused' },
  ])
  t.match(both.document.gateway_metadata?.attempts, [
    { provider: 'Refused AI', status: null, reason: 'connection_refused' },
    { provider: 'Forbidden AI', status: 403 },
  ])
})

t.test('a refusal says in its line who asked for what, and which field was wrong', async t => {
  const who = { key: /^sk-gw-v1-...\.\.\....$/, client: '127.0.0.1', organization: String, workspace: String }
  t.match((await ask('m/unknwon')).line, {
    status: 400,
    level: 'info',
    requestedModel: 'm/unknwon',
    error: 'model_not_found',
    ...who,
  })
  t.match((await ask('m/refused', { temperature: 'hot' })).line, {
    status: 400,
    field: 'temperature',
    requestedModel: 'm/refused',
    ...who,
  })
  t.match((await ask('sim/echo')).line, { status: 200, level: 'info', model: 'sim/echo', ...who })
  t.notOk('requestedModel' in (await ask('sim/echo')).line, 'said once')
  t.notOk('failedAttempts' in (await ask('sim/echo')).line)
})

t.test('an unknown path is in its line, without what could be a secret and without its query', async t => {
  const before = gateway.lines.length
  const get = (path: string) => fetch(new URL(path, gateway.url), { headers: { authorization: 'Bearer x' } })
  await (await get('/v1/embedings/of?secret=query')).text()
  await (await get(`/v2/sk-gw-v1-${'a'.repeat(64)}/joe@example.com/%20/x${'9'.repeat(20)}`)).text()
  t.match(gateway.lines.slice(before), [
    { route: 'other', status: 404, path: '/v1/embedings/of', client: '127.0.0.1' },
    { route: 'other', status: 404, path: '/v2/*/*/*/*' },
  ])
  t.notMatch(JSON.stringify(gateway.lines), /private question|query|joe@/)
})

t.test('a model that does not exist is answered with what was probably meant', async t => {
  const message = async (model: string) => (await ask(model)).document.error.message
  t.equal(
    await message('sim/ecoh'),
    'sim/ecoh is not a valid model ID: did you mean sim/echo? GET /v1/models lists all ids',
  )
  t.match(await message('ehco'), /did you mean .*sim\/echo/)
  t.equal(
    await message('nobody/nothing-alike'),
    'nobody/nothing-alike is not a valid model ID: GET /v1/models lists all ids',
  )
  t.match(await message('sim/echo:nitrous'), /did you mean sim\/echo/)
  t.match(await message('~sim/ecoh-latest'), /did you mean sim\/echo/)
})

t.test('a fallback list goes on without the models that have left the catalogue', async t => {
  const reply = await gateway.respond(
    { models: ['gone/model', 'sim/echo'], input: 'hi' },
    { headers: { 'x-gateway-metadata': 'enabled' } },
  )
  const document = (await reply.json()) as Record<string, unknown>
  t.equal(reply.status, 200)
  t.match(document, { model: 'sim/echo', gateway_metadata: { skipped_models: ['gone/model'] } })
  const none = await gateway.respond({ models: ['gone/model', 'gone/too'], input: 'hi' })
  t.match(await none.json(), { error: { code: 400, message: /^gone\/model is not a valid/ } })
  const first = await gateway.respond({ model: 'gone/model', models: ['sim/echo'], input: 'hi' })
  t.match(await first.json(), { error: { code: 400, message: /^gone\/model is not a valid/ } })
})

t.test('what a newcomer gets wrong is answered with the way out', async t => {
  const message = async (body: object) => {
    const reply = await gateway.respond(body)
    return ((await reply.json()) as Envelope).error.message
  }
  const asked = { model: 'sim/echo', input: 'hi' }
  t.match(
    await message({ model: 'sim/echo', messages: [] }),
    /^input: .* send a body with messages to POST \/v1\/chat\/completions or POST \/v1\/messages$/,
  )
  const part = (type: string) => ({ ...asked, input: [{ role: 'user', content: [{ type, text: 'hi' }] }] })
  t.equal(
    await message(part('text')),
    'input[0].content[0].type: must be input_text here: text is its name in another API',
  )
  t.match(await message({ ...asked, input: [{ id: 'x' }] }), /^input\[0\]\.type: is required/)
  t.equal(
    await message({ ...asked, provider: { max_price: { prompt: 0 } } }),
    'No endpoint of sim/echo may serve this request: all cost more than provider.max_price.',
  )
  t.match(
    await message({ ...asked, provider: { data_colection: 'deny' } }),
    /^provider\.data_colection: is not a known/,
  )
  t.equal(
    await message({ ...asked, provider: { max_price: { prompt: 'cheap' } } }),
    'provider.max_price.prompt: must be a decimal number as a string',
  )
  t.equal(
    await message({ ...asked, user: 7 }),
    'user: must be a string of at most 256 characters; it must not contain NUL characters or broken Unicode',
  )
  t.match(await message({ ...asked, max_tool_calls: 31 }), /^max_tool_calls: must be an integer from 1 to 30/)
  const steps = {
    ...asked,
    max_tool_calls: 31,
    stop_server_tools_when: { type: 'step_count_is', step_count: 1 },
  }
  t.equal((await gateway.respond(steps)).status, 200, 'ignored beside a condition')
})

t.test('null means absent where a field has no null of its own', async t => {
  const fields = [
    ...['user', 'session_id', 'tools', 'tool_choice', 'text', 'models', 'plugins', 'modalities'],
    ...['cache_control', 'debug', 'trace', 'image_config', 'stop_server_tools_when'],
  ]
  for (const field of fields) {
    const reply = await gateway.respond({ model: 'sim/echo', input: 'hi', [field]: null })
    t.equal(reply.status, 200, `${field}: ${await reply.text()}`)
  }
  const all = Object.fromEntries(fields.map(field => [field, null]))
  const chat = await fetch(`${gateway.url}/chat/completions`, {
    method: 'POST',
    headers: { 'x-api-key': gateway.apiKey, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'sim/echo', messages: [{ role: 'user', content: 'hi' }], ...all }),
  })
  t.equal(chat.status, 200, await chat.text())
})
