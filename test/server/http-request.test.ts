/** One request from its head to its answer: what is decided before the key, the body and the handler are asked. */
import t from 'tap'
import type { ApiRequest } from '../../src/api/operation.ts'
import { RawClient, request } from '../support/raw-http.ts'
import { TestClock } from '../support/test-clock.ts'
import { INFERENCE, MANAGEMENT, type Row, startFrontEnd, twoKeys } from './front-end.ts'

const row = (handler: Row['handler'], more: Partial<Row> = {}): Row => ({
  method: 'POST',
  path: '/echo',
  bodyLimitBytes: 1_000,
  key: 'inference',
  handler,
  ...more,
})

t.test('the handler gets body, key, query and parameters', async t => {
  const seen: ApiRequest<unknown>[] = []
  const { port } = await startFrontEnd(t, [
    row(
      (request, reply) => {
        seen.push(request)
        reply.json(200, {})
      },
      { path: '/echo/{name}' },
    ),
  ])
  const { status } = await fetch(`http://127.0.0.1:${port}/v1/echo/tea?hot=yes`, {
    method: 'POST',
    headers: { authorization: INFERENCE, 'content-type': 'application/json' },
    body: '{"a":[1,null]}',
  })
  t.equal(status, 200)
  t.match(seen, [{ body: { a: [1, null] }, params: new Map([['name', 'tea']]), key: { kind: 'inference' } }])
  t.equal(seen[0]?.query.get('hot'), 'yes')
})

t.test('what the head alone refuses asks neither the key nor the handler', async t => {
  const asked: (string | undefined)[] = []
  let handled = 0
  const { port } = await startFrontEnd(t, [row(() => void handled++)], {
    keys: {
      authenticate(authorization) {
        asked.push(authorization)
        return twoKeys.authenticate(authorization)
      },
    },
  })
  const url = `http://127.0.0.1:${port}/v1`
  const headers = { authorization: INFERENCE, 'content-type': 'application/json' }
  t.equal((await fetch(`${url}/nothing`, { headers })).status, 404)
  t.equal((await fetch(`${url}/echo`, { headers })).status, 405)
  const large = await fetch(`${url}/echo`, { method: 'POST', headers, body: ' '.repeat(1_001) })
  t.equal(large.status, 413)
  t.same([asked, handled], [[], 0])
})

t.test('a key of the wrong kind is refused before the body has come', async t => {
  const clock = new TestClock()
  const { port } = await startFrontEnd(t, [row(() => undefined)], { clock })
  const client = new RawClient(port)
  t.teardown(() => client.destroy())
  const headers = { Authorization: MANAGEMENT, 'Content-Type': 'application/json', 'Content-Length': '100' }
  await client.send(request('POST', '/v1/echo', headers, '{"half":'))
  await client.untilCut(clock)
  const answer = client.text
  t.match(answer, /^HTTP\/1\.1 403 /)
  t.match(answer, 'A management key cannot call inference operations')
  t.match(answer, /connection: close/i, 'the rest of the body would be read as the next request')
})

t.test('a handler that ends without an answer is a fault of ours, told without a word of it', async t => {
  const { port, faults, logged, lines } = await startFrontEnd(t, [row(() => undefined)])
  const reply = await fetch(`http://127.0.0.1:${port}/v1/echo`, {
    method: 'POST',
    headers: { authorization: INFERENCE, 'content-type': 'application/json' },
    body: '{}',
  })
  t.equal(reply.status, 500)
  t.notMatch(await reply.text(), 'handler')
  await logged(1)
  t.match(lines, [{ status: 500, outcome: 'failed' }])
  t.match(faults, [{ error: { message: 'handler ended without an answer' } }])
})
