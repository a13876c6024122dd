/** The router: which row of the table answers a path. */
import t from 'tap'
import type { Operation } from '../../src/api/operation.ts'
import type { GatewayError } from '../../src/base/errors.ts'
import { createRouter, decodeParams } from '../../src/server/router.ts'

const dialect = (name: string) => ({ name }) as NonNullable<Operation['dialect']>

function row(method: Operation['method'], path: string, more: Partial<Operation> = {}): Operation {
  return {
    id: `${method} ${path}`,
    summary: '',
    method,
    path,
    dialect: null,
    bodyLimitBytes: 0,
    key: 'inference',
    accept: 'none',
    handler: () => undefined,
    ...more,
  } as Operation
}

/** The row and the parameters for a path, as text. */
function found(operations: readonly Operation[], path: string, method: Operation['method'] = 'GET') {
  const match = createRouter(operations).find(path)
  if (match === null) return null
  const operation = match.resource.operations.get(method)
  return { id: operation?.id ?? null, params: Object.fromEntries(match.params), freeText: match.freeText }
}

t.test('a path is found below both bases, with or without a slash at its end', async t => {
  const rows = [row('GET', '/models')]
  for (const path of ['/v1/models', '/api/v1/models', '/v1/models/'])
    t.same(found(rows, path), { id: 'GET /models', params: {}, freeText: '' })
  for (const path of ['/models', '/v1', '/v1/', '/v1/model', '/v2/models', '/v1/models//', '/V1/models'])
    t.equal(found(rows, path), null, path)
})

t.test('clients that prepend the base to a URL that ends in it are understood', async t => {
  const rows = [row('GET', '/models')]
  for (const path of ['/v1/v1/models', '/api/v1/v1/models', '/v1/api/v1/models'])
    t.equal(found(rows, path)?.id, 'GET /models', path)
  t.equal(found(rows, '/v1/v2/models'), null)
})

t.test('a row with bases of its own is found there alone', async t => {
  const rows = [row('GET', '/health', { bases: [''] })]
  t.equal(found(rows, '/health')?.id, 'GET /health')
  t.equal(found(rows, '/v1/health'), null)
})

t.test('varying segments are parameters, undecoded, and none of them is empty', async t => {
  const rows = [row('GET', '/models/{author}/{slug}/endpoints')]
  t.same(found(rows, '/v1/models/acme/one%20x/endpoints')?.params, { author: 'acme', slug: 'one%20x' })
  for (const path of [
    '/v1/models/acme//endpoints',
    '/v1/models/acme/endpoints',
    '/v1/models/a/b/c/endpoints',
  ])
    t.equal(found(rows, path), null, path)
})

t.test('a fixed path goes before one that varies', async t => {
  const rows = [row('GET', '/keys/{hash}'), row('GET', '/keys/current')]
  t.equal(found(rows, '/v1/keys/current')?.id, 'GET /keys/current')
  t.equal(found(rows, '/v1/keys/other')?.id, 'GET /keys/{hash}')
})

t.test('a free parameter may be any text, and one that takes the rest keeps its slashes', async t => {
  const free = [row('GET', '/end-users/{id}', { freeParam: 'id' })]
  t.same(found(free, '/v1/end-users/a%2Fb'), {
    id: 'GET /end-users/{id}',
    params: { id: 'a%2Fb' },
    freeText: 'a%2Fb',
  })
  t.equal(found(free, '/v1/end-users/a/b'), null)
  const rest = [row('GET', '/models/{id}', { freeParam: 'id', takesRest: true })]
  t.same(found(rest, '/v1/models/acme/one/two')?.params, { id: 'acme/one/two' })
})

t.test('a verb after the last colon finds its operation, whatever is before it', async t => {
  const rows = [
    row('POST', '/models/{model}:generateContent', {
      bases: ['/v1beta'],
      freeParam: 'model',
      verb: 'generateContent',
    }),
  ]
  for (const path of ['/v1beta/models/acme/one:generateContent', '/v1beta/acme/one:generateContent'])
    t.same(found(rows, path, 'POST')?.params, { model: 'acme/one' }, path)
  t.same(found(rows, '/v1beta/models/acme/one:free:generateContent', 'POST')?.params, {
    model: 'acme/one:free',
  })
  t.equal(found(rows, '/v1beta/:generateContent', 'POST'), null)
  t.equal(found(rows, '/v1beta/models/acme/one:other', 'POST'), null)
})

t.test('the row of GET answers HEAD too, and a path tells all its methods', async t => {
  const [resource] = createRouter([row('GET', '/keys'), row('POST', '/keys')]).resources
  t.equal(resource?.operations.get('HEAD')?.id, 'GET /keys')
  t.equal(resource?.operations.get('PATCH'), undefined)
  t.equal(resource?.allow, 'GET, HEAD, POST, OPTIONS')
})

t.test('what calls a model generates, unless its row says otherwise', async t => {
  const responses = dialect('responses')
  const resources = createRouter([
    row('POST', '/responses', { dialect: responses }),
    row('POST', '/responses/count', { dialect: responses, generates: false }),
    row('GET', '/models'),
    row('GET', '/ping', { isQuiet: true }),
  ]).resources
  t.same(
    resources.map(({ generates, isQuiet }) => [generates, isQuiet]),
    [
      [true, false],
      [false, false],
      [false, false],
      [false, true],
    ],
  )
})

t.test('an unknown path below an operation has the dialect of that operation', async t => {
  const router = createRouter([
    row('POST', '/messages', { dialect: dialect('messages') }),
    row('GET', '/models', { bases: ['/v1beta'], dialect: dialect('gemini') }),
  ])
  t.equal(router.dialectAbove('/v1/messages/unknown')?.name, 'messages')
  t.equal(router.dialectAbove('/v1/v1/messages/unknown')?.name, 'messages')
  t.equal(router.dialectAbove('/v1beta/models/x')?.name, 'gemini')
  t.equal(router.dialectAbove('/v1/unknown'), null)
  t.equal(router.dialectAbove('/'), null)
})

t.test('a mistake in the table is found at start', async t => {
  t.throws(() => createRouter([row('GET', '/a'), row('GET', '/a')]), /two operations for GET \/a/)
  t.throws(() => createRouter([row('GET', '/a/{id}/{b}', { freeParam: 'id' })]), /free parameter/)
  const { find } = createRouter([row('POST', '/a/{id}/stop', { freeParam: 'id' })])
  t.match(find('/v1/a/x%2Fy/stop'), { freeText: 'x%2Fy/stop' }, 'an action may follow')
  t.throws(
    () => createRouter([row('GET', '/a/{id}', { freeParam: 'id' }), row('POST', '/a/{id}')]),
    /free parameter/,
  )
})

t.test('parameters are decoded once, and an escape that is no UTF-8 is refused', async t => {
  t.same(Object.fromEntries(decodeParams(new Map([['id', 'a%2520b']]))), { id: 'a%20b' })
  t.throws(() => decodeParams(new Map([['id', '%ff']])), { code: 'invalid_request' } as GatewayError)
})
