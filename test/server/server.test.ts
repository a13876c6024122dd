import t from 'tap'
import type { Handler } from '../../src/api/operation.ts'
import { GatewayError } from '../../src/base/errors.ts'
import { ListenError } from '../../src/server/front.ts'
import { HttpServer } from '../../src/server/server.ts'
import { exchange, parseReplies, RawClient, type RawReply, request, turns } from '../support/raw-http.ts'
import { TestClock } from '../support/test-clock.ts'
import { differs } from './differences.ts'
import { INFERENCE, MANAGEMENT, type Row, serverOptions, startFrontEnd } from './front-end.ts'

const AUTH = { Authorization: INFERENCE }

function route(path: string, handler: Handler, more: Partial<Row> = {}): Row {
  return { method: 'GET', path, bodyLimitBytes: 0, key: 'inference', handler, ...more }
}

const greet: Handler = (_request, reply) => reply.json(200, { hello: 'world' })
const echo: Handler = (request, reply) => reply.json(200, { body: request.body })

function post(path: string, body: string | Uint8Array, headers: Record<string, string> = {}): Buffer {
  const bytes = Buffer.from(body)
  const head = request('POST', path, {
    ...AUTH,
    'Content-Type': 'application/json',
    'Content-Length': String(bytes.length),
    ...headers,
  })
  return Buffer.concat([Buffer.from(head, 'latin1'), bytes])
}

function envelope(reply: RawReply | null): {
  code: number
  message: string
  metadata: Record<string, unknown>
} {
  return JSON.parse(reply?.body ?? '{}').error
}

t.test('routes and methods', async t => {
  const front = await startFrontEnd(t, [
    route('/things', greet, { key: 'any' }),
    route('/things', echo, { method: 'POST', bodyLimitBytes: 100 }),
    route('/things/{owner}/{name}/parts', (request, reply) =>
      reply.json(200, Object.fromEntries(request.params)),
    ),
    route('/query', (request, reply) => reply.json(200, [...request.query])),
  ])
  const ask = (method: string, path: string, headers: Record<string, string> = AUTH) =>
    exchange(front.port, request(method, path, headers))

  t.test('every operation answers under both base paths', async t => {
    for (const base of ['/v1', '/api/v1']) t.equal((await ask('GET', `${base}/things`))?.status, 200)
  })

  t.test('a trailing slash is the same path', async t => {
    for (const base of ['/v1', '/api/v1']) {
      t.equal((await ask('GET', `${base}/things/`))?.status, 200)
      const parts = await ask('GET', `${base}/things/a/b/parts/`)
      t.same(JSON.parse(parts?.body ?? ''), { owner: 'a', name: 'b' })
    }
    t.equal((await exchange(front.port, post('/v1/things/', '{}')))?.status, 200)
    t.same(JSON.parse((await ask('GET', '/v1/query/?a=/'))?.body ?? ''), [['a', '/']])
    t.equal((await ask('OPTIONS', '/v1/things/'))?.status, 204)
    t.equal((await ask('GET', '/v1/things//'))?.status, 400, 'one slash, not two')
    t.equal((await ask('GET', '/v1/things%2F'))?.status, 400, 'an encoded slash is none')
  })

  t.test('everything else is 404 with the envelope', async t => {
    for (const path of [
      '/',
      '/v1',
      '/v1/',
      '/v1/thing',
      '/v1/thing/',
      '/things',
      '/v2/things',
      '/api/things',
      '/V1/things',
      '/v1/things/a/parts',
      '/v1/__proto__',
      '/v1/constructor',
      '/metrics',
      '/healthz',
    ]) {
      const reply = await ask('GET', path)
      t.equal(reply?.status, 404, path)
      t.equal(envelope(reply).code, 404, path)
      t.equal(reply?.headers.get('content-type'), 'application/json', path)
    }
  })

  t.test('a method that the path does not take is 405 and says which it does', async t => {
    for (const method of ['DELETE', 'PUT']) {
      const reply = await ask(method, '/v1/things', { ...AUTH, 'Content-Length': '0' })
      t.equal(reply?.status, 405, method)
      t.equal(reply?.headers.get('allow'), 'GET, HEAD, POST, OPTIONS', method)
    }
  })

  t.test('HEAD is answered without a body, and the connection stays in step', async t => {
    const client = new RawClient(front.port)
    await client.send(request('HEAD', '/v1/things', AUTH))
    await client.until(text => text.includes('\r\n\r\n'))
    t.equal(parseReplies(client.text, ['HEAD'])[0]?.status, 200)
    t.ok(client.text.endsWith('\r\n\r\n'))
    await client.send(request('HEAD', '/v1/none', AUTH))
    await client.until(text => parseReplies(text, ['HEAD', 'HEAD']).length === 2)
    await client.send(request('GET', '/v1/things', AUTH))
    await client.until(text => text.endsWith('{"hello":"world"}'))
    const statuses = parseReplies(client.text, ['HEAD', 'HEAD', 'GET']).map(({ status }) => status)
    t.same(statuses, [200, 404, 200])
    client.destroy()
  })

  t.test('names in a path are decoded, and what cannot be is 400', async t => {
    const reply = await ask('GET', '/v1/things/a%20b/gpt-4.1:free/parts')
    t.same(JSON.parse(reply?.body ?? ''), { owner: 'a b', name: 'gpt-4.1:free' })
    t.equal((await ask('GET', '/v1/things/%ff/x/parts'))?.status, 400)
    t.equal((await ask('GET', '/v1/things/__proto__/x/parts'))?.status, 200)
  })

  t.test('a query is parsed and cannot reach a prototype', async t => {
    const reply = await ask('GET', '/v1/query?a=b&a=c&__proto__=d&e=%20')
    t.same(JSON.parse(reply?.body ?? ''), [
      ['a', 'b'],
      ['a', 'c'],
      ['__proto__', 'd'],
      ['e', ' '],
    ])
  })

  t.test('preflights are answered for any origin', async t => {
    const reply = await ask('OPTIONS', '/v1/things', {
      Origin: 'https://app.test',
      'Access-Control-Request-Method': 'POST',
    })
    t.equal(reply?.status, 204)
    t.equal(reply?.headers.get('content-length'), '0')
    t.equal(reply?.headers.get('access-control-allow-origin'), '*')
    t.match(reply?.headers.get('access-control-allow-methods'), /GET, HEAD, POST/)
    t.match(
      reply?.headers.get('access-control-allow-headers'),
      /Authorization, X-Api-Key, X-Goog-Api-Key, Content-Type, X-Gateway-Metadata/,
    )
    t.equal((await ask('OPTIONS', '/v1/nothing', {}))?.status, 404)
    const preflight = { 'Access-Control-Request-Method': 'POST' }
    t.equal(
      (await ask('OPTIONS', '/v1/nothing', preflight))?.status,
      204,
      'so that a browser sees the 404 of the request itself',
    )
  })

  t.test('every answer can be read by a browser', async t => {
    for (const reply of [
      await ask('GET', '/v1/things'),
      await ask('GET', '/v1/none'),
      await ask('GET', '/v1/things', {}),
      await ask('BREW', '/v1/things'),
    ]) {
      t.equal(reply?.headers.get('access-control-allow-origin'), '*')
      t.match(
        reply?.headers.get('access-control-expose-headers'),
        'X-Generation-Id, X-Request-Id, Request-Id, Idempotent-Replayed, Retry-After',
      )
      t.notOk(reply?.headers.has('uwebsockets'), 'the library does not name itself')
    }
  })
})

t.test('two rows for the same operation are a mistake at start', async t => {
  t.throws(() => new HttpServer(serverOptions([route('/a', greet), route('/a', greet)])))
})

t.test('keys', async t => {
  const front = await startFrontEnd(t, [
    route('/inference', greet),
    route('/management', greet, { key: 'management' }),
    route('/any', greet, { key: 'any' }),
  ])
  const status = async (path: string, authorization?: string) => {
    const headers: Record<string, string> =
      authorization === undefined ? {} : { Authorization: authorization }
    return exchange(front.port, request('GET', path, headers))
  }

  t.test('each kind of key calls its own operations', async t => {
    const table = [
      ['/v1/inference', INFERENCE, 200],
      ['/v1/inference', MANAGEMENT, 403],
      ['/v1/management', INFERENCE, 403],
      ['/v1/management', MANAGEMENT, 200],
      ['/v1/any', INFERENCE, 200],
      ['/v1/any', MANAGEMENT, 200],
    ] as const
    for (const [path, key, expected] of table)
      t.equal((await status(path, key))?.status, expected, `${path} ${key}`)
  })

  t.test('no key is 401 and says how to bring one', async t => {
    for (const key of [undefined, '', 'Bearer', 'Basic YTpi', 'Bearer nobody']) {
      const reply = await status('/v1/any', key)
      t.equal(reply?.status, 401)
      t.equal(reply?.headers.get('www-authenticate'), 'Bearer')
      t.equal(envelope(reply).metadata['error_type'], 'authentication')
    }
  })

  t.test('answers of inference operations carry a generation id, refusals too', async t => {
    for (const key of [INFERENCE, MANAGEMENT, 'Bearer x', undefined]) {
      t.match(
        (await status('/v1/inference', key))?.headers.get('x-generation-id'),
        /^gen-\d+-[0-9A-Za-z]{20}$/,
      )
      t.notOk((await status('/v1/any', key))?.headers.has('x-generation-id'))
    }
    const refused = await exchange(
      front.port,
      request('GET', '/v1/inference', { 'Content-Length': '5' }, 'hello'),
    )
    t.equal(refused?.status, 400)
    t.ok(refused?.headers.has('x-generation-id'))
  })
})

t.test('bodies', async t => {
  const LIMIT = 1024 * 1024
  const clock = new TestClock()
  const front = await startFrontEnd(t, [route('/echo', echo, { method: 'POST', bodyLimitBytes: LIMIT })], {
    clock,
  })
  const send = (body: string | Uint8Array) => exchange(front.port, post('/v1/echo', body))

  t.test('what is JSON comes back', async t => {
    for (const value of [{}, [], 'x', 0, null, { a: ['ü', '\u{1f600}', '"\\"'] }, { deep: [[[[]]]] }]) {
      t.same(JSON.parse((await send(JSON.stringify(value)))?.body ?? '{}').body ?? null, value)
    }
    t.equal((await send('\ufeff{}'))?.status, 200, 'a byte order mark is skipped')
    t.equal((await send(''))?.body, '{}', 'none at all is left to the handler')
  })

  t.test('what is not JSON is 400 and is not repeated', async t => {
    const canary = 'canary-7f3a'
    for (const body of [
      ' ',
      '{',
      `{"${canary}"`,
      `{"a":${canary}}`,
      "{'a':1}",
      '{"a":1,}',
      '[1 2]',
      'nul',
      '01',
      '1.',
      '"\n"',
      '{}{}',
      '{} x',
      '"\\x"',
      'NaN',
      '\0',
      '//x',
    ]) {
      const reply = await send(body)
      t.equal(reply?.status, 400, body)
      t.notMatch(reply?.body, canary)
    }
  })

  t.test('what is not UTF-8 is 400', async t => {
    for (const bytes of [
      [0xff],
      [0xc3],
      [0xc0, 0x80],
      [0xed, 0xa0, 0x80],
      [0xf5, 0x80, 0x80, 0x80],
      [0xe2, 0x82],
    ]) {
      const reply = await send(Buffer.concat([Buffer.from('{"a":"'), Buffer.from(bytes), Buffer.from('"}')]))
      t.equal(reply?.status, 400)
      t.equal(envelope(reply).message, 'The request body is not valid UTF-8')
    }
  })

  t.test('nesting is counted before anything walks it', async t => {
    const nest = (open: string, close: string, levels: number) => open.repeat(levels) + close.repeat(levels)
    t.equal((await send(nest('[', ']', 64)))?.status, 200)
    t.equal((await send(nest('[', ']', 65)))?.status, 400)
    t.equal((await send(`${'{"a":'.repeat(64)}1${'}'.repeat(64)}`))?.status, 200)
    t.equal((await send(`${'{"a":'.repeat(65)}1${'}'.repeat(65)}`))?.status, 400)
    t.equal((await send('['.repeat(LIMIT)))?.status, 400)
    t.equal(
      (await send(JSON.stringify({ text: '[{'.repeat(1000), quote: '\\"[[' })))?.status,
      200,
      'strings do not nest',
    )
    t.equal(
      (await send(JSON.stringify(Array.from({ length: 5000 }, () => [{}]))))?.status,
      200,
      'siblings do not nest',
    )
  })

  t.test('a key named as a prototype pollutes nothing', async t => {
    t.equal(
      (await send('{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}'))?.status,
      200,
    )
    t.equal(Reflect.get({}, 'polluted'), undefined)
  })

  t.test('a body over the limit is 413, announced or not, and the connection is closed', async t => {
    t.equal((await send(`"${'a'.repeat(LIMIT - 2)}"`))?.status, 200, 'the limit itself')
    for (const extra of [1, 1000, 20 * LIMIT]) {
      const client = new RawClient(front.port)
      void client.send(post('/v1/echo', `"${'a'.repeat(LIMIT - 2 + extra)}"`))
      await client.untilClosed()
      t.equal(parseReplies(client.text)[0]?.status, 413, `announced, ${extra} over`)
    }
    const client = new RawClient(front.port)
    await client.send(
      request('POST', '/v1/echo', {
        ...AUTH,
        'Content-Type': 'application/json',
        'Transfer-Encoding': 'chunked',
      }),
    )
    const chunk = `40000\r\n${' '.repeat(0x40000)}\r\n`
    for (let sent = 0; sent <= 6 && !client.closed; sent++)
      await Promise.race([client.send(chunk), client.untilClosed()])
    await client.untilCut(clock)
    t.equal(parseReplies(client.text)[0]?.status, 413, 'chunked')
  })

  t.test('an upload without a key is refused before its body has come', async t => {
    const client = new RawClient(front.port)
    await client.send(
      request('POST', '/v1/echo', { 'Content-Type': 'application/json', 'Content-Length': '1000' }, '{'),
    )
    await client.untilCut(clock)
    const reply = parseReplies(client.text)[0]
    t.equal(reply?.status, 401)
    t.equal(reply?.headers.get('connection'), 'close')
  })

  t.test('a body that stops half way leaves nothing behind', async t => {
    const before = front.lines.length
    const clients = Array.from({ length: 20 }, () => new RawClient(front.port))
    for (const client of clients) await client.send(post('/v1/echo', '{"a":1}').subarray(0, -3))
    while (front.server.openRequests < 20) await turns(1)
    for (const client of clients) client.reset()
    await front.logged(before + 20)
    t.equal(front.server.openRequests, 0)
    t.same(new Set(front.lines.slice(before).map(line => line.outcome)), new Set(['aborted']))
  })
  t.same(front.faults, [])
})

t.test('an upload that drips is ended at its deadline', async t => {
  const clock = new TestClock()
  const front = await startFrontEnd(t, [route('/echo', echo, { method: 'POST', bodyLimitBytes: 100 })], {
    clock,
    uploadMs: 5000,
  })
  const client = new RawClient(front.port)
  await client.send(post('/v1/echo', '{"a":1}').subarray(0, -2))
  // Its body is waited for, and no longer than so.
  while (clock.armed === 0) await turns(1)
  clock.advance(4999)
  await turns(5)
  t.equal(client.text, '')
  clock.advance(1)
  await client.untilCut(clock)
  t.equal(parseReplies(client.text)[0]?.status, 408)
  // The client may see the end first.
  while (clock.armed > 0) await turns(1)
})

t.test('what a handler does wrong stays inside', async t => {
  const secret = 'secret-8d1f'
  const front = await startFrontEnd(t, [
    route('/throws', () => {
      throw new Error(secret)
    }),
    route('/rejects', async () => {
      await turns(2)
      throw new TypeError(secret)
    }),
    route('/silent', () => undefined),
    route('/twice', (_request, reply) => {
      reply.json(200, {})
      reply.json(200, {})
    }),
    route('/late', async (_request, reply) => {
      reply.openStream('data: x\n\n')
      await turns(1)
      throw new Error(secret)
    }),
    route('/told', () => {
      throw new GatewayError('rate_limit_exceeded', 'slow down', {
        retryAfterSeconds: 6.2,
        metadata: { a: 1 },
      })
    }),
    route('/internal', () => {
      throw new GatewayError('internal', secret, { metadata: { secret } })
    }),
    route('/greet', greet),
  ])
  const ask = (path: string) => exchange(front.port, request('GET', path, AUTH))
  for (const path of ['/v1/throws', '/v1/rejects', '/v1/silent', '/v1/internal']) {
    const reply = await ask(path)
    t.equal(reply?.status, 500, path)
    t.same(envelope(reply), {
      code: 500,
      message: 'Internal Server Error',
      type: 'server',
      param: null,
      metadata: { error_type: 'server' },
      error_type: 'server',
    })
    t.equal(reply?.headers.get('connection'), 'close')
  }
  t.equal((await ask('/v1/twice'))?.status, 200)
  const late = new RawClient(front.port)
  await late.send(request('GET', '/v1/late', AUTH))
  await late.untilClosed()
  t.notMatch(late.text, '0\r\n\r\n', 'a broken stream does not look complete')
  const told = await ask('/v1/told')
  t.equal(told?.status, 429)
  t.equal(told?.headers.get('retry-after'), '7')
  t.same(envelope(told).metadata, { a: 1, error_type: 'rate_limit_exceeded' })
  t.equal((await ask('/v1/greet'))?.status, 200, 'and the server goes on')
  t.equal(front.faults.length, 5)
  t.equal(front.server.openRequests, 0)
})

t.test('headers cannot be injected', async t => {
  const front = await startFrontEnd(t, [
    route('/inject', (_request, reply) => {
      reply.header('X-Echo', 'a\r\nSet-Cookie: b=c\0\n\u0007 d é\u2028 e')
      reply.json(200, {})
    }),
    route('/name', (_request, reply) => {
      reply.header('X-A: b\r\nSet-Cookie', 'c')
      reply.json(200, {})
    }),
  ])
  const reply = await exchange(front.port, request('GET', '/v1/inject', AUTH))
  t.equal(reply?.headers.get('x-echo'), 'aSet-Cookie: b=c d  e')
  t.notOk(reply?.headers.has('set-cookie'))
  t.equal((await exchange(front.port, request('GET', '/v1/name', AUTH)))?.status, 500)
  t.equal(new Set(reply?.headerNames).size, reply?.headerNames.length, 'no header twice')
})

t.test('the deadline of a request', async t => {
  const clock = new TestClock()
  let reason: unknown
  let handled = 0
  const front = await startFrontEnd(
    t,
    [
      route('/obeys', request => {
        handled++
        return new Promise((_resolve, reject) => {
          request.context.signal.addEventListener('abort', () => {
            reason = request.context.signal.reason
            reject(reason)
          })
        })
      }),
      route('/hangs', () => {
        handled++
        return new Promise(() => undefined)
      }),
      route('/hangs-in-stream', (_request, reply) => {
        handled++
        reply.openStream('data: x\n\n')
        return new Promise(() => undefined)
      }),
    ],
    { clock, requestMs: 1000 },
  )
  /** The handler is at work when this resolves. */
  const start = async (path: string) => {
    const before = handled
    const client = new RawClient(front.port)
    await client.send(request('GET', path, AUTH))
    while (handled === before) await turns(1)
    return client
  }
  const obeys = await start('/v1/obeys')
  clock.advance(999)
  t.equal(reason, undefined)
  clock.advance(1)
  await obeys.until(text => parseReplies(text).length === 1)
  t.equal(parseReplies(obeys.text)[0]?.status, 408)
  t.equal((reason as GatewayError).code, 'deadline_exceeded')
  obeys.destroy()

  const hangs = await start('/v1/hangs')
  const inStream = await start('/v1/hangs-in-stream')
  clock.advance(1999)
  t.equal(hangs.text, '')
  clock.advance(1)
  await hangs.until(text => parseReplies(text).length === 1)
  t.equal(parseReplies(hangs.text)[0]?.status, 408, 'a handler that ignores its signal is answered for')
  await inStream.untilClosed()
  hangs.destroy()
  t.equal(front.server.openRequests, 0)
  t.equal(clock.armed, 0)
})

t.test('a client that leaves ends the work', async t => {
  const started: (() => void)[] = []
  const reasons: unknown[] = []
  const front = await startFrontEnd(t, [
    route(
      '/waits',
      request =>
        new Promise((_resolve, reject) => {
          request.context.signal.addEventListener('abort', () => {
            reasons.push(request.context.signal.reason)
            reject(request.context.signal.reason)
          })
          started.shift()?.()
        }),
    ),
  ])
  for (const leave of ['end', 'destroy', 'reset'] as const) {
    const client = new RawClient(front.port)
    const running = new Promise<void>(resolve => started.push(resolve))
    await client.send(request('GET', '/v1/waits', AUTH))
    await running
    if (leave === 'end') client.socket.end()
    else client[leave]()
    await front.logged(reasons.length + 1)
  }
  t.equal(reasons.length, 3)
  t.ok(reasons.every(reason => reason instanceof GatewayError && reason.code === 'client_closed'))
  t.ok(front.lines.every(line => line.outcome === 'aborted' && line.status === 499))
  t.same(front.faults, [])
})

t.test('connections over the cap are closed, and there is room again afterwards', async t => {
  const front = await startFrontEnd(t, [route('/greet', greet)], { maxConnections: 10 })
  const clients = Array.from({ length: 20 }, () => new RawClient(front.port))
  while (clients.filter(client => client.closed).length < 10) await turns(1)
  t.equal(front.server.openConnections, 10)
  const survivor = clients.find(client => !client.closed)
  await survivor?.send(request('GET', '/v1/greet', AUTH))
  await survivor?.until(text => parseReplies(text).length === 1)
  t.equal(parseReplies(survivor?.text ?? '')[0]?.status, 200)
  for (const client of clients) client.destroy()
  while (front.server.openConnections > 0) await turns(1)
  t.equal((await exchange(front.port, request('GET', '/v1/greet', AUTH)))?.status, 200)
})

t.test('every request is counted and logged once, by its template', async t => {
  const front = await startFrontEnd(t, [
    route('/a/{b}', greet),
    route('/post', echo, { method: 'POST', bodyLimitBytes: 10 }),
  ])
  const long = 'x'.repeat(3000)
  await exchange(front.port, request('GET', '/v1/a/secret-path', AUTH))
  await exchange(front.port, request('GET', '/v1/a/secret-path', {}))
  await exchange(front.port, request('GET', '/v1/unknown', AUTH))
  await exchange(front.port, request(long, '/v1/a/b', AUTH))
  await exchange(front.port, post('/v1/post', 'x'.repeat(20)))
  await front.logged(5)
  t.same(
    front.lines.map(line => [line.method, line.route, line.status, line.outcome, line.error]),
    [
      ['GET', '/a/{b}', 200, 'completed', null],
      ['GET', '/a/{b}', 401, 'refused', 'authentication'],
      ['GET', 'other', 404, 'refused', 'not_found'],
      differs('an unknown method')
        ? ['other', 'other', 400, 'refused', 'invalid_request']
        : ['other', '/a/{b}', 501, 'refused', 'not_implemented'],
      ['POST', '/post', 413, 'refused', 'payload_too_large'],
    ],
  )
  t.notMatch(JSON.stringify(front.lines), 'secret-path')
  const { values } = await front.metrics.requests.get()
  t.equal(
    values.reduce((sum, { value }) => sum + value, 0),
    5,
  )
  t.ok(
    values.some(
      ({ labels }) =>
        labels.route === '/a/{b}' && labels.status_class === '2xx' && labels.outcome === 'completed',
    ),
  )
  const durations = (await front.metrics.requestDuration.get()).values.filter(value =>
    value.metricName?.endsWith('_count'),
  )
  t.equal(
    durations.reduce((sum, { value }) => sum + value, 0),
    5,
  )
})

t.test('listening', async t => {
  const front = await startFrontEnd(t, [route('/greet', greet)])
  const other = await startFrontEnd(t, [route('/greet', greet)])
  await t.rejects(other.server.listen('127.0.0.1', front.port), ListenError)
  await t.rejects(other.server.listen('256.0.0.1', 0), ListenError)
})

t.test('draining', async t => {
  t.test('lets what runs come to its end, closes what was kept alive, and takes nothing new', async t => {
    const begun = Promise.withResolvers<void>()
    const finished = Promise.withResolvers<void>()
    const front = await startFrontEnd(
      t,
      [
        route('/slow', async (_request, reply) => {
          begun.resolve()
          await finished.promise
          reply.json(200, { done: true })
        }),
        route('/greet', greet),
      ],
      { clock: new TestClock() },
    )
    const idle = new RawClient(front.port)
    await idle.send(request('GET', '/v1/greet', AUTH))
    await idle.until(text => parseReplies(text).length === 1)
    const slow = new RawClient(front.port)
    await slow.send(request('GET', '/v1/slow', AUTH))
    await begun.promise
    const drained = front.server.drain(10_000)
    await idle.send(request('GET', '/v1/greet', AUTH))
    await idle.untilClosed()
    const replies = parseReplies(idle.text)
    t.equal(replies.length, 2, 'a kept-alive connection is served once more')
    t.equal(replies[1]?.headers.get('connection'), 'close')
    const late = new RawClient(front.port)
    await late.untilClosed()
    t.equal(late.bytes, 0)
    finished.resolve()
    await slow.untilClosed()
    t.equal(parseReplies(slow.text)[0]?.body, '{"done":true}')
    await drained
    t.equal(front.server.openConnections, 0)
  })

  t.test('tells what outlives the grace to stop, then ends it', async t => {
    const clock = new TestClock()
    let handled = 0
    const front = await startFrontEnd(
      t,
      [
        route('/obeys', request => {
          handled++
          return new Promise((_resolve, reject) => {
            request.context.signal.addEventListener('abort', () => reject(request.context.signal.reason))
          })
        }),
        route('/hangs', () => {
          handled++
          return new Promise(() => undefined)
        }),
      ],
      { clock },
    )
    const obeys = new RawClient(front.port)
    await obeys.send(request('GET', '/v1/obeys', AUTH))
    const hangs = new RawClient(front.port)
    await hangs.send(request('GET', '/v1/hangs', AUTH))
    while (handled < 2) await turns(1)
    t.equal(front.server.openRequests, 2)
    const drained = front.server.drain(3000)
    clock.advance(3000)
    await obeys.untilClosed()
    t.equal(parseReplies(obeys.text)[0]?.status, 503)
    t.equal(front.server.openRequests, 1)
    clock.advance(500)
    await hangs.untilClosed()
    t.equal(parseReplies(hangs.text)[0]?.status, 503)
    let isOver = false
    void drained.then(() => (isOver = true))
    // Whatever is waited for now, it is waited for by the clock.
    while (!isOver) {
      clock.advance(1000)
      await turns(1)
    }
    t.equal(front.server.openRequests, 0)
  })
})
