import t, { type Test } from 'tap'
import { startAdmin } from '../../../src/process/threads/admin.ts'
import { RawClient, turns } from '../../support/raw-http.ts'

t.test('the admin port', async t => {
  let unready: string | null = null
  let broken = false
  let degraded: readonly string[] = []
  let reference: Buffer | null = null
  const admin = await startAdmin(
    { host: '127.0.0.1', port: 0, hosts: ['metrics.example.com'] },
    {
      metrics: async form => {
        if (broken) throw new Error('secret detail')
        return form === 'text' ? 'up 1\n' : '# EOF\n'
      },
      unreadyReason: () => unready,
      degradedParts: () => degraded,
      reference: () => Promise.resolve(reference),
    },
  )
  t.teardown(() => admin.close())
  const ask = async (path: string, init?: RequestInit) => {
    const reply = await fetch(admin.url + path, init)
    return { status: reply.status, headers: reply.headers, text: await reply.text() }
  }

  await t.test('gives metrics in the text format, and OpenMetrics to who prefers it', async t => {
    for (const accept of [
      '*/*',
      'text/plain',
      'application/openmetrics-text;version=1.0.0;q=0.3,text/plain;q=0.4',
      'text/html',
    ]) {
      const { status, headers, text } = await ask('/metrics?name=x', { headers: { accept } })
      t.equal(status, 200)
      t.equal(headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8')
      t.equal(headers.get('cache-control'), 'no-store')
      t.equal(text, 'up 1\n')
    }
    const accept = 'application/openmetrics-text;version=1.0.0,text/plain;q=0.4'
    const open = await ask('/metrics', { headers: { accept } })
    t.equal(open.headers.get('content-type'), 'application/openmetrics-text; version=1.0.0; charset=utf-8')
    t.equal(open.headers.get('vary'), 'accept')
    t.equal(open.text, '# EOF\n')
    const head = await ask('/metrics', { method: 'HEAD' })
    t.equal(head.status, 200)
    t.equal(head.text, '')
  })

  await t.test('says so when they cannot be collected, and not why', async t => {
    broken = true
    const { status, text } = await ask('/metrics')
    broken = false
    t.equal(status, 500)
    t.notMatch(text, 'secret')
    t.equal((await ask('/metrics')).status, 200)
  })

  await t.test('tells liveness and readiness apart', async t => {
    t.equal((await ask('/readyz')).status, 200)
    unready = 'draining'
    const { status, text } = await ask('/readyz')
    t.equal(status, 503)
    t.same(JSON.parse(text), { status: 'unready', reason: 'draining' })
    t.equal((await ask('/healthz')).status, 200)
    unready = null
  })

  await t.test('tells what is away although traffic may come', async t => {
    t.same(JSON.parse((await ask('/readyz')).text), { status: 'ready' })
    degraded = ['store', 'redis']
    const { status, text } = await ask('/readyz')
    t.equal(status, 200)
    t.same(JSON.parse(text), { status: 'ready', degraded: ['store', 'redis'] })
    degraded = []
  })

  await t.test(
    'has the reference page as soon as there is one, and allows it only its own style and script',
    async t => {
      t.equal((await ask('/docs')).status, 503)
      reference = Buffer.from('<!doctype html>')
      const { status, headers, text } = await ask('/docs')
      t.equal(status, 200)
      t.equal(text, '<!doctype html>')
      t.equal(headers.get('content-type'), 'text/html; charset=utf-8')
      t.equal(headers.get('x-content-type-options'), 'nosniff')
      const policy = (headers.get('content-security-policy') ?? '').split('; ')
      t.same(policy, [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "script-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
      ])
      const script = await ask('/docs/filter.js')
      t.equal(script.headers.get('content-type'), 'text/javascript; charset=utf-8')
      t.match(script.text, "getElementById('filter')")
      t.equal((await ask('/docs', { method: 'HEAD' })).text, '')
    },
  )

  await t.test('has an index for people, which names only what is there and loads nothing', async t => {
    const { status, headers, text } = await ask('/')
    t.equal(status, 200)
    t.equal(headers.get('content-type'), 'text/html; charset=utf-8')
    t.equal(headers.get('x-content-type-options'), 'nosniff')
    t.match(headers.get('content-security-policy'), /^default-src 'none';.*frame-ancestors 'none'$/)
    t.match(text, /^<!doctype html>\n<html lang="en">/)
    t.match(text, '<meta name="viewport" content="width=device-width, initial-scale=1">')
    t.match(text, /<title>.+<\/title>/)
    t.notMatch(text, /<(script|style|link|img|iframe)|style=|https?:/)
    const links = [...text.matchAll(/href="([^"]*)"/g)].map(([, path = '']) => path)
    t.same(links, ['/docs', '/metrics', '/healthz', '/readyz'])
    for (const path of links) t.equal((await ask(path)).status, 200, path)
    t.equal((await ask('/', { method: 'HEAD' })).text, '')
  })

  await t.test('has nothing else', async t => {
    t.equal((await ask('/v1/models')).status, 404)
    const posted = await ask('/metrics', { method: 'POST', body: 'x' })
    t.equal(posted.status, 405)
    t.equal(posted.headers.get('allow'), 'GET, HEAD')
  })
})

t.test('the admin port answers names that only its own network can have', async t => {
  const admin = await startAdmin(
    { host: '127.0.0.1', port: 0, hosts: ['metrics.example.com'] },
    { metrics: async () => 'up 1\n', unreadyReason: () => null },
  )
  t.teardown(() => admin.close())
  const { port } = new URL(admin.url)
  const ask = async (host: string | null) => {
    const client = new RawClient(Number(port))
    const version = host === null ? '1.0' : '1.1'
    await client.send(
      `GET /metrics HTTP/${version}\r\n${host === null ? '' : `Host: ${host}\r\nConnection: close\r\n`}\r\n`,
    )
    await client.untilClosed()
    return Number(client.text.slice('HTTP/1.1 '.length, 'HTTP/1.1 200'.length))
  }
  for (const host of [
    null,
    `127.0.0.1:${port}`,
    '10.2.3.4',
    '[::1]:9090',
    '[fd00::2]',
    'localhost',
    'LOCALHOST:9090',
    'sluice:9090',
    'sluice.internal',
    'metrics.example.com',
    'Metrics.Example.com:443',
  ])
    t.equal(await ask(host), 200, String(host))
  for (const host of [
    'rebind.example',
    `rebind.example:${port}`,
    'example.com',
    '127.0.0.1.example',
    'local.example',
  ])
    t.equal(await ask(host), 421, host)
  t.equal(await ask('sluice:9090\r\nHost: sluice:9090'), 400, 'two of them, though they are alike')
})

/** Clients of the admin port that have sent half a head; its requests may take `requestMs` to arrive. */
async function halfAsked(t: Test, count: number, requestMs: number) {
  const sources = { metrics: async () => '', unreadyReason: () => null }
  const admin = await startAdmin({ host: '127.0.0.1', port: 0, hosts: [] }, sources, requestMs)
  t.teardown(() => admin.close())
  const port = Number(new URL(admin.url).port)
  const clients = Array.from({ length: count }, () => new RawClient(port))
  for (const client of clients) t.teardown(() => client.destroy())
  for (const client of clients) await client.send('GET /healthz HTTP/1.1\r\nHost: a\r\n')
  return { admin, clients }
}

t.test('the admin port takes few connections', async t => {
  const { clients } = await halfAsked(t, 80, 600_000)
  while (clients.filter(({ closed }) => closed).length < 16) await turns(1)
  t.equal(clients.filter(({ closed }) => !closed).length, 64)
})

t.test('a probe is answered whatever half requests there are: the oldest of them leaves', async t => {
  const { admin, clients } = await halfAsked(t, 64, 600_000)
  for (const path of ['/healthz', '/readyz', '/metrics', '/healthz']) {
    t.equal((await fetch(`${admin.url}${path}`, { headers: { connection: 'close' } })).status, 200, path)
  }
  t.ok(clients.filter(({ closed }) => !closed).length >= 60)
})

t.test('eight places are for probes alone while requests have taken all others', async t => {
  const asked = Array.from({ length: 64 }, () => Promise.withResolvers<void>())
  const answers = Promise.withResolvers<string>()
  let questions = 0
  const sources = {
    metrics: () => {
      asked[questions++]?.resolve()
      return answers.promise
    },
    unreadyReason: () => null,
  }
  const admin = await startAdmin({ host: '127.0.0.1', port: 0, hosts: [] }, sources)
  t.teardown(() => admin.close())
  const running = asked.map(() => fetch(`${admin.url}/metrics`))
  await Promise.all(asked.map(({ promise }) => promise))
  const close = { headers: { connection: 'close' } }
  t.equal((await fetch(`${admin.url}/healthz`, close)).status, 200)
  t.equal((await fetch(`${admin.url}/`, close)).status, 503)
  t.equal((await fetch(`${admin.url}/readyz`, close)).status, 200)
  answers.resolve('up 1\n')
  for (const reply of await Promise.all(running)) t.equal(await reply.text(), 'up 1\n')
  t.equal((await fetch(`${admin.url}/`, close)).status, 200)
})

t.test('the admin port waits for no client for long', async t => {
  const { admin, clients } = await halfAsked(t, 20, 250)
  // Half a head: told 408, and closed, without more being sent.
  for (const client of clients) await client.untilClosed()
  t.equal(clients.filter(({ text }) => text.startsWith('HTTP/1.1 408')).length, 20)
  t.equal((await fetch(`${admin.url}/healthz`)).status, 200)
})
