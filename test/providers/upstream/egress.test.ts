/** Which way a request takes: by the provider's row, and by the environment. */
import { createServer } from 'node:http'
import t, { type Test } from 'tap'
import type { Egress } from '../../../src/protocol/provider.ts'
import {
  createProxyOf,
  createTransports,
  type ProxySettings,
} from '../../../src/providers/upstream/egress.ts'
import { FaultServer, reply } from '../../support/fault-server.ts'
import { listening } from '../../support/listening.ts'
import { TestClock } from '../../support/test-clock.ts'
import { Notes } from './calls.ts'

const NONE: ProxySettings = { https: null, http: null, exceptions: null }

t.test('the environment names a proxy for each scheme', t => {
  const proxyOf = createProxyOf({ https: 'http://secure:1', http: 'plain:2', exceptions: null })
  t.equal(proxyOf(new URL('https://api.example/v1')), 'http://secure:1')
  t.equal(proxyOf(new URL('http://api.example/v1')), 'http://plain:2', 'HTTP is meant where nothing is said')
  const one = createProxyOf({ https: 'http://secure:1', http: null, exceptions: null })
  t.equal(one(new URL('http://api.example/v1')), null)
  t.equal(createProxyOf(NONE)(new URL('https://api.example/v1')), null)
  t.end()
})

t.test('hosts without a proxy', t => {
  const cases: readonly (readonly [except: string, direct: readonly string[], proxied: readonly string[]])[] =
    [
      ['', [], ['https://a.example']],
      ['*', ['https://a.example', 'http://127.0.0.1:1'], []],
      [
        'example',
        ['https://example', 'https://a.example', 'https://A.B.EXAMPLE.'],
        ['https://myexample', 'https://example.com'],
      ],
      ['.corp.example', ['https://x.corp.example', 'https://corp.example'], ['https://notcorp.example']],
      ['*.corp.example', ['https://x.corp.example'], ['https://example']],
      ['a.example:8443', ['https://a.example:8443'], ['https://a.example', 'https://a.example:444']],
      ['a.example:443', ['https://a.example'], ['http://a.example']],
      ['a.example:80', ['http://a.example'], ['https://a.example']],
      [
        'one, two three,,four',
        ['https://one', 'https://two', 'https://x.three', 'https://four'],
        ['https://five'],
      ],
      ['127.0.0.1', ['http://127.0.0.1:9', 'http://2130706433'], ['http://127.0.0.2']],
      ['10.0.0.0/8', ['http://10.1.2.3', 'https://10.255.0.1:8'], ['http://11.0.0.1', 'https://ten.example']],
      [
        '::1, [fd00::5]:8080',
        ['http://[::1]:3', 'http://[fd00::5]:8080'],
        ['http://[fd00::5]', 'http://[::2]'],
      ],
      ['fd00::/8', ['https://[fd12::1]'], ['https://[2001:db8::1]', 'http://10.0.0.1']],
      ['10.0.0.0/99, /8, x/8, :, .', [], ['http://10.0.0.1', 'https://x']],
    ]
  for (const [except, direct, proxied] of cases) {
    const proxyOf = createProxyOf({ https: 'http://p:1', http: 'http://p:1', exceptions: except })
    for (const url of direct) t.equal(proxyOf(new URL(url)), null, `${except}: ${url} is asked directly`)
    for (const url of proxied) t.equal(proxyOf(new URL(url)), 'http://p:1', `${except}: ${url} by the proxy`)
  }
  t.end()
})

/** A provider, and two proxies that answer everything themselves. */
async function start(t: Test) {
  const provider = await FaultServer.start(answering => answering.send(reply(200, '"provider"')))
  t.teardown(() => provider.close())
  const proxies = await Promise.all(
    ['own', 'usual'].map(async name => {
      const proxy = createServer((_request, response) => response.end(JSON.stringify(name)))
      return (await listening(proxy, t)).url
    }),
  )
  const [own = '', usual = ''] = proxies
  const ask = async (settings: Partial<ProxySettings>, egress?: Partial<Egress>, undici = false) => {
    const client = createTransports({
      clock: new TestClock(),
      log: { fault: () => undefined },
      proxies: { ...NONE, ...settings },
      undici,
    })
    const notes = new Notes()
    client.start(
      {
        url: provider.url(),
        headers: {},
        body: '{}',
        headersTimeoutMs: 60_000,
        idleTimeoutMs: 60_000,
        egress: egress === undefined ? undefined : { ...PLAIN, ...egress },
      },
      notes,
    )
    await notes.ended
    await client.close()
    return JSON.parse(notes.bytes.toString()) as string
  }
  return { provider, own, usual, ask }
}

const PLAIN: Egress = { transport: 'direct', proxy: null, http2: false, tls: null }

t.test('a row wins over the environment', async t => {
  const { own, usual, ask } = await start(t)
  t.equal(await ask({}), 'provider')
  t.equal(await ask({ https: usual }), 'provider', 'this one is for https')
  t.equal(await ask({ http: usual }), 'usual')
  t.equal(await ask({ http: usual }, { transport: 'undici' }), 'usual')
  t.equal(await ask({ http: usual }, { transport: 'direct' }), 'usual', 'as without a word about it')
  t.equal(await ask({ http: usual, exceptions: '127.0.0.1' }), 'provider')
  t.equal(await ask({ http: usual }, { proxy: own }), 'own')
  t.equal(await ask({ http: usual, exceptions: '*' }, { proxy: own }), 'own')
  t.equal(await ask({}, { proxy: own }), 'own')
  t.equal(await ask({ http: usual }, { proxy: 'none' }), 'provider')
  t.equal(await ask({ http: usual }, { proxy: 'none', transport: 'undici' }), 'provider')
})
