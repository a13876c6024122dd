/** The reference on the public port: there only where the configuration wants it, without a key, for any reader. */
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { RawClient } from '../support/raw-http.ts'

t.test('without the setting the public port has no reference', async t => {
  const gateway = await startGateway()
  t.teardown(() => gateway.close())
  for (const path of ['/docs', '/v1/docs', '/api/v1/docs', '/docs/filter.js']) {
    const reply = await fetch(`${gateway.url.replace('/v1', '')}${path}`)
    t.equal(reply.status, 404, path)
    t.match(await reply.json(), { error: { code: 404, metadata: { error_type: 'not_found' } } })
  }
})

t.test('with it, whoever asks reads the same pages as at the admin port', async t => {
  const gateway = await startGateway({ docs: { public: true } })
  t.teardown(() => gateway.close())
  const root = gateway.url.replace('/v1', '')
  const pages: string[] = []
  for (const path of ['/docs', '/v1/docs', '/api/v1/docs', '/docs/']) {
    const reply = await fetch(`${root}${path}`)
    t.equal(reply.status, 200, path)
    t.equal(reply.headers.get('content-type'), 'text/html; charset=utf-8')
    t.equal(reply.headers.get('x-content-type-options'), 'nosniff')
    t.match(reply.headers.get('content-security-policy'), /^default-src 'none'; .*frame-ancestors 'none'$/)
    t.equal(reply.headers.get('set-cookie'), null, 'there is no session')
    pages.push(await reply.text())
  }
  t.equal(new Set(pages).size, 1)
  const [page = ''] = pages
  t.match(page, `curl &quot;${root}/v1/keys&quot;`, 'with the URL that was asked')
  t.match(page, `import os, requests`)

  const script = await fetch(`${root}/v1/docs/filter.js`)
  t.equal(script.headers.get('content-type'), 'text/javascript; charset=utf-8')
  t.match(await script.text(), "getElementById('filter')")

  const head = await fetch(`${root}/docs`, { method: 'HEAD' })
  t.equal(await head.text(), '')
  const again = await fetch(`${root}/docs`, { headers: { 'if-none-match': head.headers.get('etag') ?? '' } })
  t.equal(again.status, 304)

  const behind = await fetch(`${root}/docs`, { headers: { 'x-forwarded-proto': 'https' } })
  t.match(await behind.text(), `curl &quot;${root.replace('http:', 'https:')}/v1/keys&quot;`)

  const document = (await (await fetch(`${gateway.url}/openapi.json`)).json()) as { paths: object }
  t.notOk('/docs' in document.paths, 'the document names what programs may ask')
})

t.test('what a reader sends as its host is no markup and no command', async t => {
  const gateway = await startGateway({ docs: { public: true } })
  t.teardown(() => gateway.close())
  for (const host of ['"><script>alert(1)</script>', 'a;rm -rf b', '$(id)', 'a/../b', `${'a'.repeat(300)}`]) {
    const client = new RawClient(gateway.port)
    await client.send(`GET /docs HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`)
    await client.untilClosed()
    t.notMatch(client.text.slice(client.text.indexOf('\r\n\r\n')), host, host)
    if (client.text.startsWith('HTTP/1.1 200')) t.match(client.text, 'curl &quot;$URL/v1/keys&quot;')
  }
})
