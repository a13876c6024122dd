import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { inspect, lengthFault, type RequestHead } from '../../src/server/head-checks.ts'

const RULES = { allowChunked: true }
const HOST = ['host', 'gateway.test']
const JSON_BODY = [...HOST, 'content-type', 'application/json', 'content-length', '2']

function head(fields: Partial<RequestHead> = {}): RequestHead {
  return { method: 'GET', path: '/v1/models', query: '', headers: HOST, ...fields }
}

function status(fields: Partial<RequestHead>, rules = RULES): number {
  const verdict = inspect(head(fields), rules)
  return verdict instanceof GatewayError ? verdict.status : 200
}

t.test('accepts what clients send', async t => {
  const table: readonly (readonly [string, Partial<RequestHead>])[] = [
    ['a plain request', {}],
    ['a model with a variant and dots', { path: '/v1/models/acme/gpt-4.1:free/endpoints' }],
    ['every character a path may have', { path: "/v1/-._~!$&'()*+,;=:@%20a..b/...x" }],
    ['a query', { query: "a=b&c[]=d/e?f&g=%20'" }],
    ['the longest path', { path: `/${'a'.repeat(2047)}` }],
    ['a port', { headers: ['host', 'gateway.test:65535'] }],
    ['an IPv4 address', { headers: ['host', '127.0.0.1:8080'] }],
    ['an IPv6 address', { headers: ['host', '[::1]:8080'] }],
    ['an underscore in a host', { headers: ['host', 'gateway_1.internal'] }],
    ['no body on GET, said aloud', { headers: [...HOST, 'content-length', '0'] }],
    ['a JSON body', { method: 'POST', headers: JSON_BODY }],
    [
      'a charset',
      {
        method: 'POST',
        headers: [...HOST, 'content-type', 'Application/JSON; Charset=UTF-8', 'content-length', '2'],
      },
    ],
    [
      'a quoted charset',
      {
        method: 'POST',
        headers: [...HOST, 'content-type', 'application/json;charset="utf-8"', 'content-length', '2'],
      },
    ],
    ['an empty body without a type', { method: 'POST', headers: [...HOST, 'content-length', '0'] }],
    [
      'a chunked body',
      {
        method: 'PATCH',
        headers: [...HOST, 'content-type', 'application/json', 'transfer-encoding', 'chunked'],
      },
    ],
    ['an expectation', { method: 'POST', headers: [...JSON_BODY, 'expect', '100-Continue'] }],
    ['the identity coding', { method: 'POST', headers: [...JSON_BODY, 'content-encoding', 'identity'] }],
    ['a preflight', { method: 'OPTIONS' }],
    [
      'an upgrade that is not taken',
      { headers: [...HOST, 'connection', 'Upgrade, HTTP2-Settings', 'upgrade', 'h2c'] },
    ],
  ]
  for (const [name, fields] of table) t.equal(status(fields), 200, name)
})

t.test('joins what may come twice', async t => {
  const verdict = inspect(head({ headers: [...HOST, 'x-a', 'b', 'x-a', 'c', '__proto__', 'd'] }), RULES)
  if (verdict instanceof GatewayError) throw verdict
  t.equal(verdict.headers.get('x-a'), 'b, c')
  t.equal(verdict.headers.get('__proto__'), 'd')
})

t.test('knows when a connection ends', async t => {
  const closes = (...headers: string[]) => {
    const verdict = inspect(head({ headers: [...HOST, ...headers] }), RULES)
    return verdict instanceof GatewayError ? null : verdict.closesConnection
  }
  t.equal(closes(), false)
  t.equal(closes('connection', 'keep-alive'), false)
  t.equal(closes('connection', 'abcde'), false)
  t.equal(closes('connection', 'keep-alive, Close'), true)
  t.equal(closes('connection', 'keep-alive', 'connection', 'close'), true)
})

t.test('measures what is announced', async t => {
  const verdict = inspect(head({ method: 'POST', headers: JSON_BODY }), RULES)
  if (verdict instanceof GatewayError) throw verdict
  t.equal(lengthFault(verdict, 2), null)
  t.equal(lengthFault(verdict, 1)?.status, 413)
})

t.test('says nothing of what it refuses', async t => {
  const canary = 'canary-51c2'
  for (const fields of [
    { method: canary },
    { path: `/${canary}//` },
    { query: `<${canary}>` },
    { headers: ['host', `${canary}/`] },
    { method: 'POST', headers: [...JSON_BODY, 'expect', canary] },
    { method: 'POST', headers: [...JSON_BODY, 'content-encoding', canary] },
    { method: 'POST', headers: [...HOST, 'content-type', canary, 'content-length', '2'] },
    { method: 'POST', headers: [...HOST, 'transfer-encoding', canary] },
    { method: 'POST', headers: [...HOST, 'content-length', canary] },
  ]) {
    const verdict = inspect(head(fields), RULES)
    t.ok(verdict instanceof GatewayError)
    t.notMatch(verdict instanceof GatewayError ? verdict.message : canary, canary)
  }
})
