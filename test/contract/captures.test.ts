/** Captures over real HTTP: what is in one and what never is, who may begin it, and how it ends. */
import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { hashKey } from '../../src/callers/api-key.ts'
import { type GuardrailRules, NO_RULES } from '../../src/protocol/management/guardrails.ts'
import { openStore } from '../../src/storage/open.ts'
import { DEFAULT_ORGANIZATION_ID } from '../../src/storage/store.ts'
import { Scanner } from '../support/canary-scan.ts'
import { captured, captureFiles } from '../support/captured.ts'
import { startGateway, type TestGateway, type TestGatewayOptions } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'
import { addOrganization, type Caller, caller } from '../support/management.ts'
import { PRODUCT_ENVIRONMENT } from '../support/product.ts'
import { eventually as within } from '../support/stream-probe.ts'
import { tempFolder } from '../support/temp-folder.ts'
import { TestClock } from '../support/test-clock.ts'

const SHARED_KEY = `sk-canary-shared-${randomBytes(16).toString('hex')}`
const OWN_KEY = `sk-canary-own-${randomBytes(16).toString('hex')}`
const MODEL = 'acme/fast-1'
const DAY_MS = 86_400_000
/** Only a fault takes so long. */
const PATIENCE_MS = 30_000

const eventually = (holds: () => boolean | Promise<boolean>) => within(holds, PATIENCE_MS)

type Script = (request: IncomingMessage, body: string, response: ServerResponse) => void

interface World {
  readonly gateway: TestGateway
  readonly manage: Caller
  readonly clock: TestClock
  /** What the provider does next; default: it says Hello. */
  script: Script
  /** Begins a capture of the key of the gateway, and waits until it runs. */
  capture(fields?: object): Promise<string>
  ask(body?: object, path?: string, key?: string): Promise<Response>
  /** The records of a capture, once there are so many. */
  records(id: string, count: number): ReturnType<typeof captured>
}

const hello = (streamed: boolean): string => {
  const usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 }
  if (!streamed) {
    const message = { role: 'assistant', content: 'Hello canary-answer' }
    return JSON.stringify({
      id: 'c1',
      object: 'chat.completion',
      model: 'fast-1',
      choices: [{ index: 0, message, finish_reason: 'stop' }],
      usage,
    })
  }
  const chunk = (delta: object, more: object = {}) =>
    `data: ${JSON.stringify({ id: 'c1', object: 'chat.completion.chunk', model: 'fast-1', choices: [{ index: 0, delta, finish_reason: null, ...more }] })}\n\n`
  return `${chunk({ role: 'assistant', content: '' })}${['Hello', ' canary', '-answer', ' one', ' two'].map(content => chunk({ content })).join('')}${chunk({}, { finish_reason: 'stop' })}data: ${JSON.stringify({ id: 'c1', object: 'chat.completion.chunk', model: 'fast-1', choices: [], usage })}\n\ndata: [DONE]\n\n`
}

const sayHello: Script = (_, body, response) => {
  const streamed = body.includes('"stream":true')
  response.writeHead(200, {
    'content-type': streamed ? 'text/event-stream' : 'application/json',
    'x-request-id': 'req-1',
    'set-cookie': 'session=canary-cookie-0123456789',
  })
  response.end(hello(streamed))
}

async function start(t: Test, options: TestGatewayOptions = {}): Promise<World> {
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => world.script(request, Buffer.concat(chunks).toString(), response))
  })
  const { url } = await listening(server, t)
  const clock = new TestClock()
  const gateway = await startGateway({
    clock,
    capture: { enabled: true },
    storageUrl: `sqlite:${join(tempFolder(), 'gateway.db')}`,
    providers: [
      { slug: 'acme', format: 'openai-chat', baseUrl: `${url}/v1`, apiKey: SHARED_KEY },
      { slug: 'groq', baseUrl: `${url}/groq` },
    ],
    models: [
      { id: MODEL, endpoints: [{ provider: 'acme' }] },
      { id: 'acme/own', endpoints: [{ provider: 'groq' }] },
      { id: 'acme/vectors', endpoints: [{ provider: 'acme' }], outputModalities: ['embeddings'] },
    ] as never,
    ...options,
  })
  const manage = caller(gateway.url, gateway.managementKey)
  t.teardown(() => gateway.close())
  const world: World = {
    gateway,
    manage,
    clock,
    script: sayHello,
    async capture(fields = {}) {
      const asked = { key_hash: hashKey(gateway.apiKey), minutes: 5, ...fields }
      const { status, text, data } = await manage('POST', '/captures', asked)
      t.equal(status, 201, text)
      const runs = async () =>
        (await caller(gateway.url, gateway.apiKey)('GET', '/key')).data['capture'] !== null
      t.ok(await eventually(runs), 'it runs')
      return String(data['id'])
    },
    ask: (body = {}, path = '/responses', key = gateway.apiKey) =>
      fetch(gateway.url + path, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: MODEL, input: 'canary-prompt', ...body }),
      }),
    async records(id, count) {
      const told = async () => {
        const { data } = await manage('GET', `/captures/${id}`)
        return Number(data['requests']) + Number(data['left_out']) >= count
      }
      t.ok(await eventually(told), `${count} requests are counted`)
      const written = Number((await manage('GET', `/captures/${id}`)).data['requests'])
      // Room is counted first, and then written.
      const read = () => captured(gateway, id).catch(() => null)
      const isWritten = async () =>
        ((await read())?.records ?? []).filter(each => each.generation_id !== undefined).length >= written
      t.ok(await eventually(isWritten), `${written} requests are written`)
      return captured(gateway, id)
    },
  }
  return world
}

t.test('where captures are off, nobody begins one, and the error names the setting', async t => {
  const { gateway, manage } = await start(t, { capture: { enabled: false } })
  const refused = await manage('POST', '/captures', { key_hash: hashKey(gateway.apiKey), minutes: 5 })
  t.equal(refused.status, 403)
  t.match(refused.message, 'capture.enabled')
  t.match((await caller(gateway.url, gateway.apiKey)('GET', '/key')).data, { capture: null })
  t.match((await manage('GET', '/captures')).document, { data: [], total_count: 0 })
})

t.test('a capture has requests, calls and answers of its key, in every dialect', async t => {
  const world = await start(t)
  const { gateway, manage, ask } = world
  const id = await world.capture()
  const own = await caller(gateway.url, gateway.apiKey)('GET', '/key')
  t.match(own.data, { capture: { id, ends_at: /^2026-01-02T03:09:05/ } })
  const messages = [{ role: 'user', content: 'canary-prompt' }]
  await (await ask()).text()
  await (await ask({ stream: true })).text()
  await (await ask({ input: undefined, messages }, '/chat/completions')).text()
  await (await ask({ input: undefined, messages, stream: true }, '/chat/completions')).text()
  await (await ask({ input: undefined, messages, max_tokens: 9 }, '/messages')).text()
  await (await ask({ input: undefined, messages, max_tokens: 9, stream: true }, '/messages')).text()
  const { records, text } = await world.records(id, 6)
  t.same(
    records.map(({ dialect }) => dialect),
    ['responses', 'responses', 'chat-completions', 'chat-completions', 'messages', 'messages'],
  )
  for (const record of records) {
    t.match(record.generation_id, /^gen-/)
    t.match(JSON.stringify(record.request), 'canary-prompt')
    t.match(JSON.stringify(record.output), 'Hello canary-answer')
    t.equal(record.error, null)
    const [call, ...more] = record.calls
    t.same(more, [])
    t.match(call, { provider: 'acme', method: 'POST', path: '/v1/chat/completions', status: 200 })
    t.match(call?.body.text, '"canary-prompt"')
    t.equal(call?.reply.text, hello(call?.body.text?.includes('"stream":true') === true), 'as it came')
    t.same(
      call?.headers.map(([name]) => name).filter(name => /auth|key|cookie/.test(name)),
      [],
    )
  }
  t.notOk(text.includes('canary-cookie'))
  const { data } = await manage('GET', `/captures/${id}`)
  t.match(data, { status: 'running', requests: 6, left_out: 0, parts: [{ requests: 6, left_out: 0 }] })
  const [file, ...others] = captureFiles(gateway.storageUrl)
  t.same(others, [])
  t.equal(file?.mode, 0o600)
  t.notOk(file?.bytes.includes('canary'), 'sealed')
})

t.test(
  'embeddings, failures and second tries are in it; a model that is not there has no content',
  async t => {
    const world = await start(t)
    const id = await world.capture()
    world.script = (_, body, response) => {
      response.writeHead(500, { 'content-type': 'application/json' })
      response.end(JSON.stringify({ error: { message: `broken ${body.length}` } }))
    }
    t.equal((await world.ask()).status, 502)
    await (await world.ask({ model: 'acme/nothing' })).text()
    await (await world.ask({ model: 'acme/vectors' }, '/embeddings')).text()
    const { records } = await world.records(id, 3)
    const [failed, unknown, vectors] = records
    t.match(failed, { error: { type: 'provider_unavailable' }, output: null, calls: [{ status: 500 }] })
    t.match(failed?.calls[0]?.reply.text, 'broken')
    t.same(unknown?.calls, [])
    t.match(unknown?.request, { left_out: 'no provider was called' })
    t.match(vectors, { dialect: 'embeddings' })
  },
)

/** Repeats everything that it was sent, in many writings. */
const repeatAll: Script = (request, body, response) => {
  const headers = Object.values(request.headers).map(String)
  const secrets = [...headers, ...headers.map(each => each.replace(/^Bearer /, ''))]
  const said = secrets.flatMap(each => [
    each,
    each.toUpperCase(),
    encodeURIComponent(each),
    Buffer.from(each).toString('base64'),
    Buffer.from(`x${each}`).toString('base64url'),
    Buffer.from(each).toString('hex'),
    each.slice(0, each.length >> 1),
    JSON.stringify(each).replace(/[a-z]/g, letter => `\\u00${letter.charCodeAt(0).toString(16)}`),
  ])
  response.writeHead(200, { 'content-type': 'application/json', 'x-request-id': secrets.join(' ') })
  const reply = JSON.parse(hello(false)) as { choices: { message: { content: string } }[] }
  if (reply.choices[0] !== undefined) reply.choices[0].message.content = `${said.join(' ')} ${body}`
  response.end(JSON.stringify(reply))
}

t.test('credentials are never in it, whatever a provider repeats', async t => {
  const world = await start(t)
  const { gateway, manage } = world
  const added = await manage('POST', '/byok', { provider: 'groq', key: OWN_KEY })
  t.equal(added.status, 201, added.text)
  const id = await world.capture()
  world.script = repeatAll
  await (await world.ask()).text()
  await (await world.ask({ model: 'acme/own' })).text()
  const mcp = {
    type: 'mcp',
    server_label: 'x',
    server_url: 'https://mcp.example/x',
    authorization: 'canary-mcp-token-0123456789',
  }
  await (await world.ask({ tools: [mcp] })).text()
  world.script = (_, __, response) => {
    // Bytes that are no text.
    const bytes = Buffer.concat([Buffer.from([0xff, 0xfe, 0]), Buffer.from(SHARED_KEY), Buffer.from([0xc3])])
    response.writeHead(200, { 'content-type': 'application/octet-stream' })
    response.end(bytes)
  }
  await (await world.ask()).text()
  const { text, records } = await world.records(id, 4)
  const scanner = new Scanner([
    { name: 'shared', text: SHARED_KEY },
    { name: 'own', text: OWN_KEY },
    { name: 'mcp', text: 'canary-mcp-token-0123456789' },
  ])
  scanner.scan('capture', Buffer.from(text))
  for (const { path, bytes } of captureFiles(gateway.storageUrl)) scanner.scan(path, bytes)
  for (const { calls } of records) {
    for (const { reply } of calls)
      if (reply.base64 !== undefined) scanner.scan('base64', Buffer.from(reply.base64, 'base64'))
  }
  t.same(scanner.hits, [])
  t.match(text, '[redacted]')
  t.match(text, 'canary-prompt')
  t.ok(records.some(({ calls }) => calls.some(({ reply }) => reply.base64 !== undefined)))
})

t.test(
  'keys of the gateway that a caller wrote into its own request are cut out, in every writing',
  async t => {
    const world = await start(t)
    const { apiKey, managementKey } = world.gateway
    const id = await world.capture()
    world.script = repeatAll
    const input = `curl -H 'Authorization: Bearer ${apiKey}' canary-prompt`
    await (await world.ask({ input, metadata: { note: managementKey } })).text()
    const messages = [{ role: 'user', content: input }]
    await (await world.ask({ input: undefined, messages }, '/chat/completions')).text()
    const { text, records } = await world.records(id, 2)
    const scanner = new Scanner([
      { name: 'key', text: apiKey },
      { name: 'management', text: managementKey },
    ])
    scanner.scan('capture', Buffer.from(text))
    for (const { calls } of records)
      for (const { reply } of calls) scanner.scan('base64', Buffer.from(reply.base64 ?? '', 'base64'))
    t.same(scanner.hits, [])
    t.match(text, 'curl -H')
    t.match(text, 'canary-prompt')
  },
)

async function guard(world: World, rules: Partial<GuardrailRules>): Promise<void> {
  const { gateway } = world
  const store = await openStore(gateway.storageUrl)
  const organizationId = DEFAULT_ORGANIZATION_ID
  const id = randomBytes(8).toString('hex')
  const when = '2026-01-01T00:00:00.000Z'
  await store.guardrails.add({
    ...NO_RULES,
    id,
    organizationId,
    workspaceId: null,
    isWorkspaceDefault: false,
    name: 'of the test',
    description: null,
    limit: null,
    resetInterval: null,
    includeByokInBudgets: false,
    revision: 1,
    createdAt: when,
    updatedAt: when,
    ...rules,
  })
  const place = { organizationId, guardrailId: id, kind: 'api-key' } as const
  await store.guardrails.assign(place, [hashKey(gateway.apiKey)], { assignedBy: null, createdAt: when })
  await store.close()
  gateway.serving.invalidate({ kind: 'guardrails', organizationId })
}

t.test('what guardrails redact or block is never in it, nor what the provider said of it', async t => {
  const world = await start(t)
  const id = await world.capture()
  await guard(world, {
    contentFilterBuiltins: [{ slug: 'email', action: 'redact', scanScope: 'all_messages' }],
    contentFilters: [{ pattern: 'canary-blocked', action: 'block', label: null }],
  })
  const mail = 'canary-somebody@example.com'
  await (await world.ask({ input: `write to ${mail}` })).text()
  await (await world.ask({ input: `write to ${mail}`, stream: true })).text()
  t.equal((await world.ask({ input: `canary-blocked ${mail}` })).status, 403)
  const { text, records } = await world.records(id, 3)
  t.notOk(text.includes('canary-somebody'), 'redacted in the request')
  t.notOk(text.includes('canary-blocked'), 'blocked')
  t.match(text, 'write to ')
  t.match(records[2], { request: { left_out: 'no provider was called' }, calls: [] })
})

t.test('where a guardrail looks at replies, the bytes of providers are left out', async t => {
  const world = await start(t)
  const id = await world.capture()
  await guard(world, {
    output: {
      contentFilterBuiltins: [{ slug: 'email', action: 'redact', scanScope: 'all_messages' }],
      contentFilters: [],
      windowBytes: 4_096,
      overlapBytes: 256,
    },
  })
  world.script = (_, body, response) => {
    const streamed = body.includes('"stream":true')
    response.writeHead(200, { 'content-type': streamed ? 'text/event-stream' : 'application/json' })
    response.end(hello(streamed).replaceAll('Hello', 'canary-somebody@example.com says'))
  }
  await (await world.ask()).text()
  await (await world.ask({ stream: true })).text()
  const { text, records } = await world.records(id, 2)
  t.notOk(text.includes('canary-somebody'))
  for (const { calls } of records) t.match(calls[0]?.reply, { left_out: /guardrails/ })
  t.match(text, 'canary-prompt')
})

t.test('requests that forbid to keep data are never in it', async t => {
  const world = await start(t, {
    models: [{ id: MODEL, endpoints: [{ provider: 'acme', zdr: true }] }] as never,
  })
  const id = await world.capture()
  for (const provider of [{ zdr: true }, { data_collection: 'deny' }])
    await (await world.ask({ input: 'canary-private', provider })).text()
  await (await world.ask({ input: 'canary-public' })).text()
  await guard(world, {
    enforceZdr: { anthropic: true, openai: true, google: true, xai: true, other: true },
  })
  await (await world.ask({ input: 'canary-private' })).text()
  const { text, records } = await world.records(id, 1)
  t.match(text, 'canary-public')
  t.notOk(text.includes('canary-private'))
  t.ok(records.length >= 1)
})

t.test('other keys and other tenants are never in it', async t => {
  const world = await start(t)
  const { gateway, manage } = world
  const second = await addOrganization(gateway.storageUrl, 'org_second')
  const other = await manage('POST', '/keys', { name: 'other' })
  const id = await world.capture()
  await (await world.ask({ input: 'canary-foreign' }, '/responses', second.apiKey)).text()
  await (await world.ask({ input: 'canary-other' }, '/responses', String(other.document['key']))).text()
  await (await world.ask()).text()
  const { text } = await world.records(id, 1)
  t.notOk(text.includes('canary-foreign'))
  t.notOk(text.includes('canary-other'))
  const foreign = caller(gateway.url, second.managementKey)
  const asked = await foreign('POST', '/captures', { key_hash: hashKey(gateway.apiKey), minutes: 1 })
  t.equal(asked.status, 400)
  for (const method of ['GET', 'DELETE']) t.equal((await foreign(method, `/captures/${id}`)).status, 404)
  t.match((await foreign('GET', '/captures')).document, { total_count: 0 })
  const whole = await manage('POST', '/captures', { workspace_id: 'ws_default', minutes: 1 })
  t.equal(whole.status, 201, whole.text)
  const keyed = caller(gateway.url, String(other.document['key']))
  t.ok(await eventually(async () => (await keyed('GET', '/key')).data['capture'] !== null))
  await (await world.ask({ input: 'canary-foreign' }, '/responses', second.apiKey)).text()
  await (await world.ask({ input: 'canary-other' }, '/responses', String(other.document['key']))).text()
  await (await world.ask()).text()
  const ofWorkspace = await world.records(String(whole.data['id']), 2)
  t.match(ofWorkspace.text, 'canary-other')
  t.match(ofWorkspace.text, 'canary-prompt')
  t.notOk(ofWorkspace.text.includes('canary-foreign'))
  const both = await world.records(id, 2)
  t.notOk(both.text.includes('canary-other'), 'of two captures each has its own')
})

t.test('a management key asks for what there is, within the bounds', async t => {
  const { gateway, manage } = await start(t, { capture: { enabled: true, maxBytes: 100_000 } })
  const key_hash = hashKey(gateway.apiKey)
  for (const [body, field] of [
    [{}, 'minutes'],
    [{ minutes: 5 }, 'key_hash'],
    [{ key_hash, workspace_id: 'ws_default', minutes: 5 }, 'key_hash'],
    [{ key_hash: 'x', minutes: 5 }, 'key_hash'],
    [{ key_hash: '0'.repeat(64), minutes: 5 }, 'key_hash'],
    [{ key_hash: hashKey(gateway.managementKey), minutes: 5 }, 'key_hash'],
    [{ workspace_id: 'nothing', minutes: 5 }, 'workspace_id'],
    [{ key_hash, minutes: 0 }, 'minutes'],
    [{ key_hash, minutes: 61 }, 'minutes'],
    [{ key_hash, minutes: 1.5 }, 'minutes'],
    [{ key_hash, minutes: 5, max_bytes: 65_535 }, 'max_bytes'],
    [{ key_hash, minutes: 5, max_bytes: 100_001 }, 'max_bytes'],
    [{ key_hash, minutes: 5, ['__proto__x']: 1 }, '__proto__x'],
  ] as const) {
    const { status, message } = await manage('POST', '/captures', body)
    t.equal(status, 400, JSON.stringify(body))
    t.match(message, field, JSON.stringify(body))
  }
  t.equal((await caller(gateway.url, gateway.apiKey)('POST', '/captures', {})).status, 403)
  const ids: string[] = []
  for (let n = 0; n < 3; n++)
    ids.push(String((await manage('POST', '/captures', { key_hash, minutes: 5 })).data['id']))
  const more = await manage('POST', '/captures', { key_hash, minutes: 5 })
  t.equal(more.status, 409)
  t.match(more.message, 'DELETE /captures')
  t.equal((await manage('DELETE', `/captures/${ids[0]}`)).status, 200)
  t.equal((await manage('DELETE', `/captures/${ids[0]}`)).status, 404)
  t.equal((await manage('POST', '/captures', { key_hash, minutes: 5 })).status, 201)
  for (const id of ['x', `cap_${'x'.repeat(24)}`, '..%2F..', '%00']) {
    // Some are no paths at all.
    t.match((await manage('GET', `/captures/${id}`)).status, /^40[04]$/, id)
    t.match((await manage('DELETE', `/captures/${id}`)).status, /^40[04]$/, id)
  }
})

t.test('it ends by itself and by size, is gone after a day, and at once when it is deleted', async t => {
  const world = await start(t)
  const { gateway, manage, clock } = world
  const small = await world.capture({ max_bytes: 65_536 })
  const input = 'x'.repeat(12_000)
  for (let n = 0; n < 6; n++) await (await world.ask({ input })).text()
  const { isWhole } = await world.records(small, 3)
  t.equal(isWhole, true)
  const ended = (await manage('GET', `/captures/${small}`)).data
  t.match(ended, { status: 'ended', ended_by: 'size' })
  t.ok(Number(ended['requests']) > 0 && Number(ended['left_out']) > 0)
  const size = captureFiles(gateway.storageUrl).reduce((sum, { bytes }) => sum + bytes.length, 0)
  t.ok(size <= 65_536, `${size} bytes`)
  t.match((await caller(gateway.url, gateway.apiKey)('GET', '/key')).data, { capture: null })
  const id = await world.capture({ minutes: 1 })
  await (await world.ask()).text()
  await world.records(id, 1)
  clock.advance(60_000)
  await (await world.ask({ input: 'canary-late' })).text()
  t.match((await manage('GET', `/captures/${id}`)).data, { status: 'ending', requests: 1 })
  clock.advance(600_000)
  t.match((await manage('GET', `/captures/${id}`)).data, { status: 'ended', requests: 1 })
  t.notOk((await captured(gateway, id)).text.includes('canary-late'))
  const deleted = await manage('DELETE', `/captures/${small}`)
  t.match(deleted.document, { deleted: true })
  t.notOk(
    captureFiles(gateway.storageUrl).some(({ path }) => path.includes(small)),
    'at once',
  )
  clock.advance(DAY_MS)
  t.equal((await manage('GET', `/captures/${id}`)).status, 404)
  t.match((await manage('GET', '/captures')).document, { data: [] })
  t.ok(await eventually(() => captureFiles(gateway.storageUrl).length === 0), 'no file is left')
})

t.test('hostile replies: endless, binary, of odd names', async t => {
  const world = await start(t)
  const id = await world.capture()
  let poured = 0
  world.script = (_, __, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    const piece = Buffer.alloc(65_536, ': x\n')
    const pour = (): void => {
      while (!response.destroyed) {
        poured += piece.length
        if (!response.write(piece)) return void response.once('drain', pour)
      }
    }
    pour()
  }
  const abort = new AbortController()
  const endless = world.gateway
    .respond({ model: MODEL, input: 'x', stream: true }, { signal: abort.signal })
    .then(answer => answer.text())
    .catch(() => '')
  t.ok(await eventually(() => poured > 30_000_000))
  abort.abort()
  await endless
  world.script = (_, __, response) => {
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end('{"__proto__":{"polluted":1},"constructor":{"x":1},"choices":[{"__proto__":null}]}')
  }
  await (await world.ask()).text()
  world.script = (_, __, response) => {
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(Buffer.concat([Buffer.from('{"a":"'), randomBytes(3_000_000), Buffer.from('"}')]))
  }
  await (await world.ask()).text()
  world.script = sayHello
  await (await world.ask()).text()
  const { records } = await world.records(id, 4)
  const left = records.find(({ error }) => error?.type === 'cancelled')
  t.match(left?.calls[0]?.reply, { cut_after: 1_048_576 })
  t.equal(Reflect.get({}, 'polluted'), undefined)
  const odd = records.find(({ calls }) => calls[0]?.reply.text?.includes('__proto__') === true)
  t.ok(odd)
  const binary = records.find(({ calls }) => calls[0]?.reply.base64 !== undefined)
  t.equal(binary?.calls[0]?.reply.cut_after, 1_048_576)
  t.ok((binary?.calls[0]?.reply.bytes ?? 0) > 1_048_576)
})

t.test('the command line shows and deletes it; another vault key opens nothing', async t => {
  const world = await start(t, { clock: undefined as never })
  const { gateway, manage } = world
  const run = (vaultKeys: string, ...args: string[]) =>
    spawnSync(
      process.execPath,
      ['--disable-warning=ExperimentalWarning', join(import.meta.dirname, '../../src/cli.ts'), ...args],
      {
        encoding: 'utf8',
        env: { ...PRODUCT_ENVIRONMENT, DATABASE_URL: gateway.storageUrl, GATEWAY_VAULT_KEYS: vaultKeys },
      },
    )
  const id = await world.capture()
  await (await world.ask({ input: 'canary-prompt \u001b[31m\u009b2J\u202e' })).text()
  await world.records(id, 1)
  t.match(run(gateway.vaultKeys, 'captures', 'list').stdout, id)
  const shown = run(gateway.vaultKeys, 'captures', 'show', id)
  t.equal(shown.status, 0, shown.stderr)
  t.match(shown.stdout, 'canary-prompt')
  t.match(shown.stdout, 'Hello canary-answer')
  // biome-ignore lint/suspicious/noControlCharactersInRegex: none may be there
  t.notMatch(shown.stdout, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202e]/, 'nothing moves the cursor')
  t.match(shown.stderr, 'is incomplete', 'it still runs')
  const json = run(gateway.vaultKeys, 'captures', 'show', id, '--json')
  t.match(JSON.parse(json.stdout.trim()), { dialect: 'responses' })
  // biome-ignore lint/suspicious/noControlCharactersInRegex: none may be there
  t.notMatch(json.stdout, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202e]/)
  const stranger = run(`test:${randomBytes(32).toString('base64')}`, 'captures', 'show', id)
  t.equal(stranger.status, 1)
  t.match(stranger.stderr, 'cannot be opened')
  t.notMatch(stranger.stdout, 'canary')
  t.match(
    run(`k9:${randomBytes(32).toString('base64')}`, 'captures', 'show', id).stderr,
    'master key that is not configured here',
  )
  t.equal(run(gateway.vaultKeys, 'captures', 'show', 'cap_x').status, 1)
  t.equal(run(gateway.vaultKeys, 'captures', 'delete', id).status, 0)
  t.equal((await manage('GET', `/captures/${id}`)).status, 404)
  t.equal(captureFiles(gateway.storageUrl).length, 0)
  t.ok(
    await eventually(
      async () => (await caller(gateway.url, gateway.apiKey)('GET', '/key')).data['capture'] === null,
    ),
  )
  const [record] = (await manage('GET', '/audit?limit=1')).list
  t.match(record, { action: 'capture.delete', actor_label: 'command line', object: { kind: 'capture', id } })
  const database = gateway.storageUrl.slice('sqlite:'.length)
  for (const path of [database, `${database}-wal`])
    if (existsSync(path)) t.notOk(readFileSync(path).includes('canary-prompt'), 'no content in the database')
})
