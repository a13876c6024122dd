/** One request from its head to its answer: what is decided before the key, the body and the handler are asked. */
import { once } from 'node:events'
import { connect } from 'node:net'
import t from 'tap'
import type { ApiRequest } from '../../src/api/operation.ts'
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
  const { port } = await startFrontEnd(t, [row(() => undefined)])
  const socket = connect(port, '127.0.0.1')
  t.teardown(() => socket.destroy())
  socket.write(
    `POST /v1/echo HTTP/1.1\r\nHost: x\r\nAuthorization: ${MANAGEMENT}\r\n` +
      'Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"half":',
  )
  let answer = ''
  socket.setEncoding('utf8').on('data', (text: string) => {
    answer += text
  })
  await once(socket, 'close')
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
