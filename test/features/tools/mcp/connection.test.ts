/** Connections to MCP servers over real HTTP: an honest server of the official library, and hostile ones. */
import type { RequestListener, ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import { type Clock, systemClock } from '../../../../src/base/clock.ts'
import {
  createMcpConnection,
  createOldServers,
  type McpConnection,
  type OldServers,
} from '../../../../src/features/tools/mcp/connection.ts'
import { McpFailure } from '../../../../src/features/tools/mcp/failure.ts'
import { McpLibrary } from '../../../../src/features/tools/mcp/library.ts'
import { listTools } from '../../../../src/features/tools/mcp/listing.ts'
import { type LinkRules, resolverOf } from '../../../../src/providers/upstream/pages/fetch-page.ts'
import { ReadTurns } from '../../../../src/providers/upstream/read-turns.ts'
import {
  afterOpening,
  type McpServerOptions,
  messageOf,
  type RunningServer,
  sendJson,
  sendResult,
  startHttp,
  startMcpServer,
} from '../../../support/mcp-server.ts'
import { TestClock } from '../../../support/test-clock.ts'

const OPEN: LinkRules = { allowHttp: true, allowPrivate: true }
const SECRET = 'Bearer a-very-secret-token'
const LIBRARY = new McpLibrary()
const live = () => new AbortController().signal

interface ConnectOptions {
  readonly clock?: Clock
  readonly rules?: LinkRules
  readonly oldServers?: OldServers
}

function connectTo(
  t: Test,
  url: string,
  { clock = systemClock, rules = OPEN, oldServers = createOldServers(clock) }: ConnectOptions = {},
): McpConnection {
  const connection = createMcpConnection(
    { clock, library: LIBRARY, rules, resolve: resolverOf(rules), turns: new ReadTurns(), oldServers },
    { url: new URL(url), headers: { authorization: SECRET, 'x-team': 'blue' }, secrets: [SECRET] },
  )
  t.teardown(() => connection.close(false))
  return connection
}

async function honest(t: Test, options: McpServerOptions): Promise<RunningServer> {
  const server = await startMcpServer(options)
  t.teardown(server.close)
  return server
}

async function hostile(t: Test, listener: RequestListener, host?: string): Promise<RunningServer> {
  const server = await startHttp(listener, host)
  t.teardown(server.close)
  return server
}

const listOf = (connection: McpConnection, signal = live()) =>
  listTools(
    cursor => connection.listPage(cursor, { limitMs: 5_000, signal }),
    () => true,
  )

const call = (connection: McpConnection, name: string, args = {}, signal = live()) =>
  connection.call({ name, input_schema: { type: 'object' } }, args, { limitMs: 5_000, signal })

/** The error as the item of the call says it. */
async function errorOf(work: Promise<unknown>): Promise<unknown> {
  try {
    await work
    return 'no error'
  } catch (thrown) {
    return thrown instanceof McpFailure ? thrown.item : thrown
  }
}

const named = (name: string) => ({ name })

for (const json of [false, true]) {
  t.test(
    `tools are listed over pages and called, with replies as ${json ? 'JSON' : 'event streams'}`,
    async t => {
      const tools = ['a', 'b', 'c', 'd', 'e'].map(named)
      const server = await honest(t, { tools, pageSize: 2, json })
      const connection = connectTo(t, server.url)
      t.same(
        (await listOf(connection)).map(({ name }) => name),
        ['a', 'b', 'c', 'd', 'e'],
      )
      t.match(await call(connection, 'c', { x: 1 }), { content: [{ type: 'text', text: 'c {"x":1}' }] })
      t.same(
        server.requests.map(({ rpc }) => rpc),
        [
          'server/discover',
          'initialize',
          'notifications/initialized',
          'tools/list',
          'tools/list',
          'tools/list',
          'tools/call',
        ],
      )
      t.ok(
        server.requests.every(
          ({ headers }) => headers.authorization === SECRET && headers['x-team'] === 'blue',
        ),
      )
      t.ok(server.requests.slice(2).every(({ headers }) => typeof headers['mcp-session-id'] === 'string'))
    },
  )
}

for (const json of [false, true]) {
  t.test(
    `a server of the newer protocol has no session; replies as ${json ? 'JSON' : 'streams'}`,
    async t => {
      const tools = ['a', 'b', 'c'].map(named)
      const server = await honest(t, { tools, pageSize: 2, json, isNew: true })
      const oldServers = createOldServers(systemClock)
      const connection = connectTo(t, server.url, { oldServers })
      t.same(
        (await listOf(connection)).map(({ name }) => name),
        ['a', 'b', 'c'],
      )
      t.match(await call(connection, 'c', { x: 1 }), { content: [{ type: 'text', text: 'c {"x":1}' }] })
      t.match(await errorOf(call(connection, 'nothing')), { type: 'mcp_protocol_error' })
      t.same(
        server.requests.map(({ rpc }) => rpc),
        ['server/discover', 'tools/list', 'tools/list', 'tools/call', 'tools/call'],
      )
      t.ok(server.requests.every(({ headers }) => headers['mcp-session-id'] === undefined))
      t.notOk(oldServers.has(server.url))
    },
  )
}

t.test('arguments that a schema asks for in the head are repeated there', async t => {
  const inputSchema = {
    type: 'object' as const,
    properties: { region: { type: 'string', 'x-mcp-header': 'Region' }, text: { type: 'string' } },
  }
  const server = await honest(t, { tools: [{ name: 'a', inputSchema }], isNew: true })
  const connection = connectTo(t, server.url)
  const [tool] = await listOf(connection)
  if (tool === undefined) throw new Error('no tool')
  await connection.call(tool, { region: 'eu', text: 'x' }, { limitMs: 5_000, signal: live() })
  t.match(server.requests.at(-1)?.headers, { 'mcp-param-region': 'eu', 'mcp-method': 'tools/call' })
})

for (const isNew of [false, true]) {
  t.test(`an abort ends a call at once with its reason (${isNew ? 'newer' : 'older'} protocol)`, async t => {
    const server = await honest(t, {
      tools: [
        {
          name: 'a',
          run: (_, signal) => new Promise((_, reject) => signal.addEventListener('abort', reject)),
        },
      ],
      isNew,
    })
    const connection = connectTo(t, server.url)
    const leaving = new AbortController()
    const waiting = errorOf(call(connection, 'a', {}, leaving.signal))
    while (!server.requests.some(({ rpc }) => rpc === 'tools/call')) await new Promise(setImmediate)
    const reason = new Error('the caller has left')
    leaving.abort(reason)
    t.equal(await waiting, reason)
    connection.close(false)
    while (server.open() > 0) await new Promise(setImmediate)
  })
}

t.test('a server that asks back gets no answer', async t => {
  const { url } = await hostile(t, (request, response) => {
    const message = messageOf(request)
    if (message.method === 'server/discover') {
      sendResult(response, message, {
        resultType: 'complete',
        supportedVersions: ['2026-07-28'],
        capabilities: { tools: {} },
        serverInfo: { name: 'asking', version: '1' },
        ttlMs: 0,
        cacheScope: 'private',
      })
    } else {
      const inputRequests = { who: { method: 'elicitation/create', params: { message: 'your name?' } } }
      sendResult(response, message, { resultType: 'input_required', inputRequests, requestState: 'x' })
    }
  })
  t.equal(
    await errorOf(call(connectTo(t, url), 'a')),
    'The server asks the user for more input, which the gateway cannot provide',
  )
})

const BAD_PROBES: Readonly<Record<string, (response: ServerResponse, id: unknown) => unknown>> = {
  'a failure': response => response.writeHead(500).end('unknown method'),
  'a refusal': response => response.writeHead(400).end(),
  'a page': response => response.writeHead(200, { 'content-type': 'text/html' }).end('<html>'),
  'half a document': response => response.writeHead(200, { 'content-type': 'application/json' }).end('{"id'),
  'the answer of another': response => sendResult(response, { id: 'another' }, {}),
  'an answer without content': (response, id) => sendJson(response, { jsonrpc: '2.0', id }),
  'an error': (response, id) =>
    sendJson(response, { jsonrpc: '2.0', id, error: { code: -32_601, message: 'unknown' } }),
  'an empty stream': response => response.writeHead(200, { 'content-type': 'text/event-stream' }).end(),
  'too much': response =>
    response.writeHead(200, { 'content-type': 'application/json' }).end('x'.repeat(3_000_000)),
}
const opens = afterOpening((message, response) => sendResult(response, message, { content: [] }))

for (const [name, answer] of Object.entries(BAD_PROBES)) {
  t.test(`a server that meets the newer protocol with ${name} is asked in the old way`, async t => {
    const { url } = await hostile(t, (request, response) => {
      const { method, id } = messageOf(request)
      if (method === 'server/discover') answer(response, id)
      else opens(request, response)
    })
    t.match(await call(connectTo(t, url), 'a'), { content: [] })
  })
}

for (const begins of [false, true]) {
  t.test(`a probe that ${begins ? 'is never ended' : 'is never answered'} has a deadline`, async t => {
    const clock = new TestClock()
    const { url, requests } = await hostile(t, (request, response) => {
      if (messageOf(request).method !== 'server/discover') opens(request, response)
      else if (begins) response.writeHead(200, { 'content-type': 'text/event-stream' }).write(': hello\n\n')
    })
    const oldServers = createOldServers(clock)
    const waiting = call(connectTo(t, url, { clock, oldServers }), 'a')
    while (requests.length === 0) await new Promise(setImmediate)
    clock.advance(3_000)
    t.match(await waiting, { content: [] })
    const methods = () => requests.map(({ rpc }) => rpc)
    const once = ['server/discover', 'initialize', 'notifications/initialized', 'tools/call']
    t.same(methods(), once)
    t.match(await call(connectTo(t, url, { clock, oldServers }), 'a'), { content: [] })
    t.same(methods(), [...once, ...once.slice(1)], 'it is known as an old one')
    clock.advance(600_001)
    t.notOk(oldServers.has(url), 'for ten minutes')
  })
}

t.test('a server that is known as an old one and does not open is asked for the newer protocol', async t => {
  const { url, requests } = await hostile(t, (_, response) => response.writeHead(404).end())
  const oldServers = createOldServers(systemClock)
  oldServers.set(url, true)
  for (let calls = 0; calls < 2; calls++)
    t.match(await errorOf(call(connectTo(t, url, { oldServers }), 'a')), { type: 'http_error', code: 404 })
  t.same(
    requests.map(({ rpc }) => rpc),
    ['initialize', 'server/discover', 'initialize'],
  )
})

t.test('a session is ended politely, and its connections are closed', async t => {
  const server = await honest(t, { tools: [named('a')] })
  const connection = connectTo(t, server.url)
  await listOf(connection)
  connection.close(true)
  while (server.requests.at(-1)?.method !== 'DELETE' || server.open() > 0) await new Promise(setImmediate)
  t.equal(server.requests.at(-1)?.method, 'DELETE')
  t.match(await errorOf(call(connection, 'a')), 'The connection is closed')
})

t.test('the three kinds of errors are told apart', async t => {
  const failing: RequestListener = afterOpening((message, response) => {
    const name = String(message.params?.['name'])
    if (name === 'protocol')
      sendJson(response, {
        jsonrpc: '2.0',
        id: message.id,
        error: { code: -32_602, message: `no ${SECRET}` },
      })
    else if (name === 'http') response.writeHead(401).end(`not you, ${SECRET}`)
    else if (name === 'html') response.writeHead(200, { 'content-type': 'text/html' }).end('<html>')
    else if (name === 'broken') response.writeHead(200, { 'content-type': 'application/json' }).end('{')
    else if (name === 'cut')
      response.writeHead(200, { 'content-type': 'text/event-stream' }).end('data: {"jsonrpc"')
    else sendResult(response, message, { isError: true, content: [{ type: 'text', text: 'disk full' }] })
  })
  const { url } = await hostile(t, failing)
  const connection = connectTo(t, url)
  t.same(await errorOf(call(connection, 'protocol')), {
    type: 'mcp_protocol_error',
    code: -32_602,
    message: 'no [redacted]',
  })
  t.same(await errorOf(call(connection, 'http')), {
    type: 'http_error',
    code: 401,
    message: 'not you, [redacted]',
  })
  t.equal(
    await errorOf(call(connection, 'html')),
    'The server answered with neither JSON nor an event stream',
  )
  t.equal(
    await errorOf(call(connection, 'broken')),
    'The server answered with something other than MCP messages',
  )
  t.equal(await errorOf(call(connection, 'cut')), 'The server ended its reply without an answer')
  t.match(await call(connection, 'tool'), { isError: true, content: [{ text: 'disk full' }] })
})

t.test('a server that never answers has a deadline for each request, and the connection goes on', async t => {
  const clock = new TestClock()
  let isSilent = true
  const { url, requests } = await hostile(
    t,
    afterOpening((message, response) => {
      if (message.method === 'notifications/cancelled') response.writeHead(202).end()
      else if (!isSilent) sendResult(response, message, { content: [] })
    }),
  )
  const connection = connectTo(t, url, { clock })
  const waiting = errorOf(call(connection, 'slow'))
  while (!requests.some(({ rpc }) => rpc === 'tools/call')) await new Promise(setImmediate)
  clock.advance(5_000)
  t.equal(await waiting, 'The server took too long')
  while (!requests.some(({ rpc }) => rpc === 'notifications/cancelled')) await new Promise(setImmediate)
  isSilent = false
  t.match(await call(connection, 'fast'), { content: [] })
})

t.test('a server that does not even open a session has a deadline', async t => {
  const clock = new TestClock()
  const { url, requests } = await hostile(t, () => undefined)
  const connection = connectTo(t, url, { clock })
  const waiting = errorOf(call(connection, 'a'))
  while (requests.length === 0) await new Promise(setImmediate)
  clock.advance(10_000)
  t.equal(await waiting, 'The server took too long')
})

t.test('giant replies are cut off, as one document and as a stream', async t => {
  const piece = `: ${'x'.repeat(65_000)}\n\n`
  const { url } = await hostile(
    t,
    afterOpening((message, response) => {
      const isStream = message.params?.['name'] === 'stream'
      response.writeHead(200, { 'content-type': isStream ? 'text/event-stream' : 'application/json' })
      const more = (): void => {
        while (!response.destroyed && response.write(piece));
      }
      response.on('drain', more)
      more()
    }),
  )
  const connection = connectTo(t, url)
  for (const name of ['stream', 'document'])
    t.match(await errorOf(call(connection, name)), /^The server answered with more than 2097152 bytes/, name)
})

t.test('an endless list of tools ends with an error', async t => {
  const endless = (tools: (page: number) => unknown) => {
    let page = 0
    return afterOpening((message, response) =>
      sendResult(response, message, { tools: tools(page++), nextCursor: String(page) }),
    )
  }
  const schema = { type: 'object' }
  const many = await hostile(
    t,
    endless(page => Array.from({ length: 50 }, (_, at) => ({ name: `t${page}_${at}`, inputSchema: schema }))),
  )
  t.equal(await errorOf(listOf(connectTo(t, many.url))), 'The server lists more than 256 tools')
  const empty = await hostile(
    t,
    endless(() => []),
  )
  t.equal(await errorOf(listOf(connectTo(t, empty.url))), 'The server lists its tools on more than 32 pages')
  t.ok(empty.requests.length < 40)
  const wide = await hostile(
    t,
    endless(page =>
      Array.from({ length: 8 }, (_, at) => ({
        name: `t${page}_${at}`,
        inputSchema: { type: 'object', description: 'x'.repeat(30_000) },
      })),
    ),
  )
  t.equal(
    await errorOf(listOf(connectTo(t, wide.url))),
    'The server lists tools with more than 524288 characters in total',
  )
})

t.test('a server that asks for answers without end gets a bounded number of requests', async t => {
  const { url, requests } = await hostile(
    t,
    afterOpening((message, response) => {
      if (message.method !== 'tools/call') {
        response.writeHead(202).end()
        return
      }
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      const pings = Array.from({ length: 2_000 }, (_, id) => ({
        jsonrpc: '2.0',
        id: `p${id}`,
        method: 'ping',
      }))
      response.write(pings.map(ping => `data: ${JSON.stringify(ping)}\n\n`).join(''))
      response.end(`data: ${JSON.stringify({ jsonrpc: '2.0', id: message.id, result: { content: [] } })}\n\n`)
    }),
  )
  const connection = connectTo(t, url)
  t.match(await call(connection, 'a'), { content: [] })
  t.match(await errorOf(call(connection, 'a')), 'The server needs too many requests')
  t.ok(requests.length <= 256, String(requests.length))
})

t.test('redirects: within the origin the method stays, anywhere else they are refused', async t => {
  const elsewhere = await hostile(t, (_, response) => response.writeHead(200).end())
  let target = '/moved'
  let status = 307
  const server = await hostile(t, (request, response) => {
    if (request.url === '/mcp') response.writeHead(status, { location: target }).end()
    else
      afterOpening((message, reply) =>
        sendResult(reply, message, { content: [{ type: 'text', text: 'moved' }] }),
      )(request, response)
  })
  t.match(await call(connectTo(t, server.url), 'a'), { content: [{ text: 'moved' }] })
  for (const to of [
    elsewhere.url,
    elsewhere.url.replace('127.0.0.1', 'localhost'),
    'http://169.254.169.254/latest/meta-data',
    'http://[::1]:80/',
    'file:///etc/passwd',
    '//127.0.0.1:1/',
    `http://user:pass@${new URL(server.url).host}/moved`,
  ]) {
    for (const code of [301, 302, 303, 307, 308]) {
      target = to
      status = code
      t.match(
        await errorOf(call(connectTo(t, server.url), 'a')),
        { type: 'http_error', code },
        `${code} ${to}`,
      )
    }
  }
  t.equal(elsewhere.connections(), 0)
})

/** Stands for the public internet: all of 127/8 is this machine. */
const OUTSIDE = '127.0.0.2'
const PRIVATE_HOSTS = [
  '127.0.0.1',
  '127.1',
  '127.0.1',
  '127.0.0.1.',
  '2130706433',
  '0x7f.1',
  '0x7f000001',
  '017700000001',
  '0177.0.0.1',
  '①②⑦.0.0.1',
  '127。0。0。1',
  '%31%32%37.0.0.1',
  '0',
  '0.0.0.0',
  'localhost',
  'LOCALHOST',
  'localhost.',
  'ip6-localhost',
  'internal.example',
  'mixed.example',
  '10.0.0.1',
  '100.64.0.1',
  '169.254.169.254',
  '0xa9fea9fe',
  '172.16.0.1',
  '192.168.0.1',
  '[::]',
  '[::1]',
  '[0:0:0:0:0:0:0:1]',
  '[::127.0.0.1]',
  '[::ffff:127.0.0.1]',
  '[::ffff:7f00:1]',
  '[64:ff9b::7f00:1]',
  '[fd00:ec2::254]',
  '[fe80::1]',
  '[2002:7f00:1::]',
]

t.test('a server at a private address is never asked, however the address is written', async t => {
  const inside = await hostile(t, (_, response) => response.end(), '127.0.0.1')
  const { port } = new URL(inside.url)
  const names = (name: string) => {
    const known: Record<string, string[]> = {
      'internal.example': ['127.0.0.1'],
      'mixed.example': [OUTSIDE, '127.0.0.1'],
      'outside.example': [OUTSIDE],
    }
    const addresses = known[name] ?? ['127.0.0.1']
    return Promise.resolve(addresses.map(address => ({ address, family: 4 })))
  }
  const rules: LinkRules = {
    allowHttp: true,
    allowPrivate: false,
    resolve: names,
    isPublic: address => address === OUTSIDE,
    ports: new Set([port]),
  }
  for (const host of PRIVATE_HOSTS) {
    t.equal(
      await errorOf(call(connectTo(t, `http://${host}:${port}/mcp`, { rules }), 'a')),
      'The server does not lead to a public address',
      host,
    )
  }
  t.equal(inside.connections(), 0)
  const outside = await hostile(
    t,
    afterOpening((message, response) => sendResult(response, message, { content: [] })),
    OUTSIDE,
  )
  const asPublic = connectTo(t, outside.url.replace(OUTSIDE, 'outside.example'), { rules })
  t.match(await call(asPublic, 'a'), { content: [] }, 'a public server is asked')
})

t.test('the name of a server is looked up once, so that it cannot change to a private address', async t => {
  const outside = await hostile(
    t,
    afterOpening((message, response) => sendResult(response, message, { content: [] })),
    OUTSIDE,
  )
  let lookups = 0
  const rules: LinkRules = {
    allowHttp: true,
    allowPrivate: false,
    resolve: () => Promise.resolve([{ address: ++lookups === 1 ? OUTSIDE : '127.0.0.1', family: 4 }]),
    isPublic: address => address === OUTSIDE,
    ports: new Set([new URL(outside.url).port]),
  }
  const connection = connectTo(t, outside.url.replace(OUTSIDE, 'rebinding.example'), { rules })
  for (let calls = 0; calls < 3; calls++) t.match(await call(connection, 'a'), { content: [] })
  t.equal(lookups, 1)
})
