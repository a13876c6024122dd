/** Requests as text: what is kept of earlier ones never gets into another one. */
import t from 'tap'
import { RequestHeads } from '../../../../src/providers/upstream/client/request-head.ts'

const rest = { headersTimeoutMs: 1, idleTimeoutMs: 1 }

t.test('requests that share URL and headers differ in their bodies alone', async t => {
  const heads = new RequestHeads('agent')
  const url = new URL('http://provider.test:81/v1/responses?alt=sse')
  const headers = { authorization: 'Bearer key' }
  const head =
    'POST /v1/responses?alt=sse HTTP/1.1\r\nhost: provider.test:81\r\nconnection: keep-alive\r\n' +
    'accept-encoding: identity\r\ncontent-type: application/json\r\nuser-agent: agent\r\nauthorization: Bearer key\r\n'
  for (const body of ['{}', '{"a":"é"}', '{}']) {
    const length = Buffer.byteLength(body)
    t.equal(heads.request({ url, headers, body, ...rest }), `${head}content-length: ${length}\r\n\r\n${body}`)
  }
})

t.test('another URL, other headers and another user agent make heads of their own', async t => {
  const heads = new RequestHeads('agent')
  const one = new URL('http://one.test/a')
  const two = new URL('http://two.test/b')
  const mine = { authorization: 'Bearer mine' }
  const yours = { authorization: 'Bearer yours' }
  for (const [url, headers] of [
    [one, mine],
    [one, yours],
    [two, mine],
    [one, mine],
  ] as const) {
    const text = heads.request({ url, headers, body: '', ...rest })
    t.ok(text.startsWith(`POST ${url.pathname} HTTP/1.1\r\nhost: ${url.host}\r\n`))
    t.same(text.match(/^authorization: .*$/gm), [`authorization: ${headers.authorization}`])
  }
  t.match(
    new RequestHeads('other').request({ url: one, headers: mine, body: '', ...rest }),
    'user-agent: other',
  )
})

t.test('what cannot be sent is refused each time', async t => {
  const heads = new RequestHeads('agent')
  const url = new URL('http://one.test/a')
  const bad = { authorization: 'Bearer a\r\nhost: elsewhere' }
  const ftp = new URL('ftp://one.test/a')
  for (let time = 0; time < 2; time++) {
    t.throws(() => heads.request({ url, headers: bad, body: '', ...rest }), { code: 'provider_unavailable' })
    t.throws(() => heads.request({ url: ftp, headers: {}, body: '', ...rest }), {
      code: 'provider_unavailable',
    })
  }
})
