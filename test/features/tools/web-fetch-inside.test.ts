/** What web_fetch must never reach: every spelling of an address inside, over the tool itself; the trap counts. */
import { createServer, type RequestListener } from 'node:http'
import t, { type Test } from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import type { Exchange } from '../../../src/exchange/exchange.ts'
import { createWebFetch, type WebFetchDeps } from '../../../src/features/tools/web-fetch.ts'
import { createPageFetcher, type PageFetcherDeps } from '../../../src/providers/upstream/pages/fetch-page.ts'
import { isPublicAddress } from '../../../src/providers/upstream/pages/public-addresses.ts'
import type { Address } from '../../../src/providers/upstream/pages/resolve-name.ts'
import { listening } from '../../support/listening.ts'

/** Stands for a server in the internet: all of 127/8 is this machine. */
const OUTSIDE = '127.0.0.2'
const v4 = (address: string): Address => ({ address, family: 4 })
const v6 = (address: string): Address => ({ address, family: 6 })

/** What our resolver says. */
const NAMES: Readonly<Record<string, readonly Address[]>> = {
  'outside.test': [v4(OUTSIDE)],
  localhost: [v4('127.0.0.1'), v6('::1')],
  'localhost.localdomain': [v4('127.0.0.1')],
  'app.localhost': [v4('127.0.0.1')],
  'ip6-localhost': [v6('::1')],
  '127.0.0.1.nip.io': [v4('127.0.0.1')],
  '7f000001.nip.io': [v4('127.0.0.1')],
  'localtest.me': [v4('127.0.0.1'), v6('::1')],
  'mixed.test': [v4('93.184.216.34'), v4('127.0.0.1')],
  'mixed-six.test': [v4('93.184.216.34'), v6('::1')],
  'six.test': [v6('::1')],
  'mapped.test': [v6('::ffff:127.0.0.1')],
  'zero.test': [v4('0.0.0.0')],
  'metadata.google.internal': [v4('169.254.169.254')],
  'metadata.test': [v4('169.254.169.254')],
  'ula.test': [v6('fd00:ec2::254')],
  'link.test': [v6('fe80::1')],
  'ten.test': [v4('10.0.0.1')],
  'home.test': [v4('192.168.1.1')],
  'carrier.test': [v4('100.100.100.200')],
  'nat64.test': [v6('64:ff9b::7f00:1')],
  'six-to-four.test': [v6('2002:7f00:1::')],
}

const HOSTS: readonly string[] = [
  ...Object.keys(NAMES).filter(name => name !== 'outside.test'),
  'LOCALHOST',
  'localhost.',
  'LocalTest.ME.',
  'nowhere.test',
  '127.0.0.1',
  '127.0.0.1.',
  '127.1',
  '127.0.1',
  '127.0.0.3',
  '127.255.255.254',
  '2130706433',
  '0x7f000001',
  '0x7F.1',
  '0x7f.0.0.1',
  '0x7f.0x0.0x0.0x1',
  '017700000001',
  '0177.1',
  '0177.0.0.1',
  '0177.0000.0000.0001',
  '①②⑦.⓪.⓪.①',
  '127。0。0。1',
  '127．0．0．1',
  '%31%32%37.0.0.1',
  '0',
  '0.0.0.0',
  '00000000',
  '0x0',
  '10.0.0.1',
  '10.255.255.255',
  '172.16.0.1',
  '172.31.255.255',
  '192.168.0.1',
  '3232235521',
  '0xc0a80001',
  '100.64.0.1',
  '169.254.169.254',
  '169.254.170.2',
  '2852039166',
  '0xa9fea9fe',
  '0251.0376.0251.0376',
  '168.63.129.16',
  '192.0.0.192',
  '198.18.0.1',
  '224.0.0.1',
  '240.0.0.1',
  '255.255.255.255',
  '[::1]',
  '[::]',
  '[0:0:0:0:0:0:0:1]',
  '[0000:0000:0000:0000:0000:0000:0000:0001]',
  '[::127.0.0.1]',
  '[::7f00:1]',
  '[::ffff:127.0.0.1]',
  '[::ffff:7f00:1]',
  '[::FFFF:7F00:0001]',
  '[::ffff:0:127.0.0.1]',
  '[::ffff:169.254.169.254]',
  '[::ffff:10.0.0.1]',
  '[64:ff9b::7f00:1]',
  '[64:ff9b::127.0.0.1]',
  '[64:ff9b:1::7f00:1]',
  '[2002:7f00:1::]',
  '[2001::7f00:1]',
  '[100::1]',
  '[fc00::1]',
  '[fd00:ec2::254]',
  '[fe80::1]',
  '[fec0::1]',
  '[ff02::1]',
  '[2001:db8::1]',
]

async function listen(t: Test, host: string, listener: RequestListener) {
  const server = createServer(listener)
  const seen = { connections: 0 }
  server.on('connection', () => {
    seen.connections++
  })
  const { port } = await listening(server, t, host)
  return { port, seen }
}

const page: RequestListener = (_request, response) => {
  response.writeHead(200, { 'content-type': 'text/plain' })
  response.end('the inside')
}

async function setup(t: Test, parts: Partial<PageFetcherDeps> = {}) {
  // Every address of this machine, in both families, leads to the trap.
  const trap = await listen(t, '::', page)
  const target = { url: '' }
  const outside = await listen(t, OUTSIDE, (request, response) => {
    if (request.url === '/ok') return page(request, response)
    response.writeHead(302, { location: target.url })
    response.end()
  })
  const fetchPage = createPageFetcher({
    clock: systemClock,
    allowHttp: true,
    allowPrivate: false,
    maxBytes: 10_000,
    timeoutMs: 10_000,
    resolve: async name => NAMES[name.replace(/\.$/, '')] ?? [],
    isPublic: address => address === OUTSIDE || isPublicAddress(address),
    ports: new Set(['', '80', '443', String(trap.port), String(outside.port)]),
    ...parts,
  })
  const exchange = { caller: { keyHash: 'key' } } as unknown as Exchange
  const deps = {
    fetchPage,
    clock: systemClock,
    webEngines: { named: () => null },
    tasks: { run: async () => ({ title: '', text: 'the inside', cut: false }) },
  } as unknown as WebFetchDeps
  const read = async (url: string): Promise<{ status: string; error?: string }> => {
    const tool = { type: 'gateway:web_fetch', parameters: {} }
    const session = await createWebFetch(deps).open([{ tool, path: 'tools[0]' }], exchange, {
      item: () => undefined,
      annotate: () => undefined,
      cite: () => [],
    })
    const call = { callId: 'c', name: 'web_fetch', arguments: { url }, tool }
    const { result } = await session.run(call, () => undefined, new AbortController().signal)
    return JSON.parse(result) as { status: string; error?: string }
  }
  return { trap, outside, read, target }
}

t.test(
  'the trap answers where private addresses are allowed, and the outside where it is public',
  async t => {
    const { trap, read } = await setup(t, { allowPrivate: true })
    for (const host of ['127.0.0.1', 'localhost', '[::1]', '0x7f000001'])
      t.equal((await read(`http://${host}:${trap.port}/`)).status, 'completed', host)
    t.ok(trap.seen.connections > 0)
    const strict = await setup(t)
    t.equal((await strict.read(`http://outside.test:${strict.outside.port}/ok`)).status, 'completed')
  },
)

t.test('no spelling of an address inside is reached', async t => {
  const { trap, read } = await setup(t)
  const links = HOSTS.flatMap(host => [
    `http://${host}:${trap.port}/`,
    `https://${host}:${trap.port}/`,
    `http://${host}/latest/meta-data/`,
  ])
  const inside = `127.0.0.1:${trap.port}`
  const tricks = [
    `http://user:pw@${inside}/`,
    `http://example.com@${inside}/`,
    `http://example.com%40${inside}/`,
    `http://example.com:80@${inside}/`,
    `http://${inside}\\@example.com/`,
    `http://${inside}#@example.com/`,
    `http:\\\\${inside}\\`,
    `http:/${inside}/`,
    `http:${inside}/`,
    `//${inside}/`,
    `\thttp://${inside}/`,
    `ht\ntp://${inside}/`,
    `file:///etc/passwd`,
    `gopher://${inside}/_x`,
    `ftp://${inside}/`,
    `data:text/html,inside`,
    `javascript:alert(1)`,
    `blob:http://${inside}/x`,
    `http://127.0.0.1:${trap.port}%2f@example.com/`,
    `http://[::1%25lo]:${trap.port}/`,
    `http://127.0.0.1%00.example.com:${trap.port}/`,
    `http://127.0.0.1:0${trap.port}/`,
  ]
  let refused = 0
  const all = [...links, ...tricks]
  for (const link of all) {
    const { status, error } = await read(link)
    if (status === 'failed') refused++
    t.equal(status, 'failed', `${link}: ${error}`)
  }
  t.equal(trap.seen.connections, 0)
  t.comment(`refused ${refused}/${all.length}, ${trap.seen.connections} connections at the trap`)
})

t.test('no redirect leads inside', async t => {
  const { trap, outside, read, target } = await setup(t)
  let refused = 0
  const places = [
    ...HOSTS.map(host => `http://${host}:${trap.port}/`),
    `//127.0.0.1:${trap.port}/`,
    `http://user@127.0.0.1:${trap.port}/`,
    `file:///etc/passwd`,
    `http:/\\127.0.0.1:${trap.port}/`,
  ]
  for (const place of places) {
    target.url = place.replace(/[^\x20-\x7e]/gu, character => encodeURIComponent(character))
    const { status, error } = await read(`http://outside.test:${outside.port}/go`)
    if (status === 'failed') refused++
    t.equal(status, 'failed', `${place}: ${error}`)
  }
  t.equal(trap.seen.connections, 0)
  t.equal(outside.seen.connections, places.length)
  t.comment(`refused ${refused}/${places.length} redirects, ${trap.seen.connections} connections at the trap`)
})
