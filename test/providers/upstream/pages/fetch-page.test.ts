/** Links of callers over real sockets: what is never asked, and how much is ever taken. */
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { systemClock } from '../../../../src/base/clock.ts'
import {
  createPageFetcher,
  PageError,
  type PageFetcherDeps,
} from '../../../../src/providers/upstream/pages/fetch-page.ts'
import type { Address } from '../../../../src/providers/upstream/pages/resolve-name.ts'
import { FaultServer, reply } from '../../../support/fault-server.ts'
import { TestClock } from '../../../support/test-clock.ts'
import { selfSigned } from '../self-signed.ts'

const STRICT: PageFetcherDeps = {
  clock: systemClock,
  allowHttp: true,
  allowPrivate: false,
  maxBytes: 1_000,
  timeoutMs: 10_000,
}
const TYPES = ['application/pdf', 'application/octet-stream']
const live = () => new AbortController().signal

async function outcome(link: string, parts: PageFetcherDeps, signal = live()): Promise<string> {
  try {
    const { bytes, type } = await createPageFetcher(parts)(link, { types: TYPES, signal, key: 'one' })
    return `${type} ${bytes.length}`
  } catch (thrown) {
    return thrown instanceof PageError ? `${thrown.fault}: ${thrown.message}` : String(thrown)
  }
}

/** A server on one of the addresses of this machine; counts who comes. */
async function serve(t: Test, host: string, listener: RequestListener) {
  const server = createServer(listener)
  const seen = { connections: 0, sockets: new Set<Socket>() }
  server.on('connection', socket => {
    seen.connections++
    seen.sockets.add(socket)
  })
  await new Promise<void>(done => server.listen(0, host, done))
  t.teardown(async () => {
    server.closeAllConnections()
    for (const socket of seen.sockets) socket.destroy()
    await new Promise(done => server.close(done))
  })
  const { port } = server.address() as AddressInfo
  return { url: `http://${host}:${port}`, port: String(port), seen }
}

/** Stands for the public internet: all of 127/8 is this machine. */
const OUTSIDE = '127.0.0.2'
const isOutside = (address: string) => address === OUTSIDE
const pdf: RequestListener = (_request, response) => {
  response.writeHead(200, { 'content-type': 'application/pdf; charset=binary' })
  response.end('%PDF-')
}

const INSIDE_HOSTS = [
  '127.0.0.1',
  '127.1',
  '127.0.1',
  '127.255.255.254',
  '127.0.0.1.',
  '2130706433',
  '0x7f.1',
  '0x7f000001',
  '017700000001',
  '0177.0.0.1',
  '0x7F.0x0.0x0.0x1',
  '①②⑦.0.0.1',
  '127。0。0。1',
  '%31%32%37.0.0.1',
  '0',
  '0.0.0.0',
  '0.1.2.3',
  '10.0.0.1',
  '10.255.255.255',
  '100.64.0.1',
  '100.100.100.200',
  '100.127.255.255',
  '169.254.169.254',
  '169.254.170.2',
  '0xa9fea9fe',
  '2852039166',
  '0251.0376.0251.0376',
  '172.16.0.1',
  '172.31.255.255',
  '192.0.0.192',
  '192.0.2.1',
  '192.88.99.1',
  '192.168.0.1',
  '3232235521',
  '198.18.0.1',
  '198.19.255.255',
  '198.51.100.7',
  '203.0.113.9',
  '224.0.0.1',
  '239.255.255.250',
  '240.0.0.1',
  '255.255.255.255',
  '168.63.129.16',
  '[::]',
  '[::1]',
  '[0:0:0:0:0:0:0:1]',
  '[::127.0.0.1]',
  '[::7f00:1]',
  '[::ffff:127.0.0.1]',
  '[::ffff:7f00:1]',
  '[::ffff:169.254.169.254]',
  '[::ffff:8.8.8.8]',
  '[::ffff:0:127.0.0.1]',
  '[64:ff9b::7f00:1]',
  '[64:ff9b::169.254.169.254]',
  '[64:ff9b:1::a00:1]',
  '[100::1]',
  '[fc00::1]',
  '[fd00:ec2::254]',
  '[fe80::1]',
  '[fec0::1]',
  '[ff02::1]',
  '[2001::7f00:1]',
  '[2001:db8::1]',
  '[2002:7f00:1::]',
  '[2002:a9fe:a9fe::1]',
  '[3fff::1]',
  '[5f00::1]',
]

t.test('no spelling of an address inside is asked', async t => {
  for (const host of INSIDE_HOSTS)
    for (const scheme of ['http', 'https'])
      t.equal(
        await outcome(`${scheme}://${host}/a.pdf`, STRICT),
        'refused: the link does not lead to a public address',
        `${scheme} ${host}`,
      )
})

t.test('names that lead inside are not asked, and look the same as names that are not there', async t => {
  const v4 = (address: string): Address => ({ address, family: 4 })
  const v6 = (address: string): Address => ({ address, family: 6 })
  const names: Readonly<Record<string, readonly Address[]>> = {
    'inside.test': [v4('10.0.0.1')],
    'loopback.test': [v4('127.0.0.1')],
    'metadata.google.internal': [v4('169.254.169.254')],
    'mixed.test': [v4('8.8.8.8'), v4('127.0.0.1')],
    'mixed-six.test': [v4('8.8.8.8'), v6('::1')],
    'mapped.test': [v6('::ffff:127.0.0.1')],
    'ula.test': [v6('fd00:ec2::254')],
    'link.test': [v6('fe80::1%eth0')],
    'carrier.test': [v4('100.64.0.1')],
    'nobody.test': [],
    'nonsense.test': [v4('nonsense')],
  }
  const resolve = async (name: string) => names[name] ?? Promise.reject(new Error('ENOTFOUND'))
  const told = 'refused: the link does not lead to a public address'
  for (const name of [...Object.keys(names), 'unknown.test'])
    t.equal(await outcome(`https://${name}/`, { ...STRICT, resolve }), told, name)
  for (const name of ['localhost', 'localhost.', 'LOCALHOST'])
    t.equal(await outcome(`http://${name}/`, STRICT), told, name)
})

t.test('links of any other form are refused before anything is resolved', async t => {
  const resolve = () => Promise.reject(new Error('nobody asks'))
  const cases: readonly (readonly [string, RegExp])[] = [
    ['', /is not a URL/],
    ['a.pdf', /is not a URL/],
    ['//127.0.0.1/a.pdf', /is not a URL/],
    ['https://', /is not a URL/],
    ['http://[::1', /is not a URL/],
    ['http://256.256.256.256/', /is not a URL/],
    ['http://a b/', /is not a URL/],
    ['file:///etc/passwd', /https:/],
    ['ftp://a.test/', /https:/],
    ['gopher://a.test/', /https:/],
    ['data:application/pdf;base64,AAAA', /https:/],
    ['javascript:alert(1)', /https:/],
    ['unix:/var/run/docker.sock', /https:/],
    ['https://user@a.test/', /a user name or a password/],
    ['https://:secret@a.test/', /a user name or a password/],
    ['https://8.8.8.8@127.0.0.1/', /a user name or a password/],
    ['https://a.test:22/', /a port other/],
    ['https://a.test:6379/', /a port other/],
    ['http://a.test:8080/', /a port other/],
    [`https://a.test/${'a'.repeat(2_048)}`, /longer than/],
  ]
  for (const [link, why] of cases)
    t.match(await outcome(link, { ...STRICT, resolve }), why, link.slice(0, 40))
  const secure = { ...STRICT, allowHttp: false, resolve }
  t.match(await outcome('http://a.test/', secure), /plain HTTP/)
})

t.test('redirects lead nowhere that the link itself could not', async t => {
  const canary = await serve(t, '127.0.0.1', pdf)
  const targets: Readonly<Record<string, string>> = {
    '/literal': `${canary.url}/a.pdf`,
    '/decimal': `http://2130706433:${canary.port}/`,
    '/octal': `http://0177.1:${canary.port}/`,
    '/mapped': `http://[::ffff:127.0.0.1]:${canary.port}/`,
    '/name': `http://inside.test:${canary.port}/`,
    '/no-scheme': `//127.0.0.1:${canary.port}/`,
    '/twice': '/literal',
    '/file': 'file:///etc/passwd',
    '/user': `http://a:b@${OUTSIDE}/`,
    '/port': `http://${OUTSIDE}:1/`,
    '/nonsense': 'http://[',
    '/itself': '/itself',
    '/four': '/three',
    '/three': '/two',
    '/two': '/one',
    '/one': '/pdf',
  }
  const outside = await serve(t, OUTSIDE, (request, response) => {
    const location = targets[request.url ?? '']
    if (location === undefined) return pdf(request, response)
    response.writeHead(request.url === '/one' ? 307 : 302, { location }).end('moved')
  })
  const parts: PageFetcherDeps = {
    ...STRICT,
    isPublic: isOutside,
    ports: new Set([outside.port, canary.port]),
    resolve: async () => [{ address: '127.0.0.1', family: 4 }],
  }
  for (const path of Object.keys(targets).filter(path => !['/one', '/two', '/three'].includes(path)))
    t.match(await outcome(`${outside.url}${path}`, parts), /^refused: /, path)
  t.equal(await outcome(`${outside.url}/three`, parts), 'application/pdf 5')
  t.equal(canary.seen.connections, 0)
  const secure = { ...parts, allowHttp: false }
  t.match(await outcome(`${outside.url}/pdf`, secure), /plain HTTP/)
})

t.test('a name is resolved once, and the connection goes where the check has looked', async t => {
  const canary = await serve(t, '127.0.0.1', pdf)
  const hosts: (string | undefined)[] = []
  const outside = await serve(t, OUTSIDE, (request, response) => {
    hosts.push(request.headers.host)
    pdf(request, response)
  })
  let asked = 0
  const resolve = async () => [{ address: asked++ === 0 ? OUTSIDE : '127.0.0.1', family: 4 }]
  const parts = { ...STRICT, isPublic: isOutside, ports: new Set([outside.port]), resolve }
  t.equal(await outcome(`http://changing.test:${outside.port}/`, parts), 'application/pdf 5')
  t.equal(asked, 1)
  t.same(hosts, [`changing.test:${outside.port}`])
  t.equal(canary.seen.connections, 0)
})

t.test('where a connection has arrived is looked at again', async t => {
  let answered = 0
  const inside = await serve(t, '127.0.0.1', (request, response) => {
    answered++
    pdf(request, response)
  })
  let checks = 0
  const isPublic = () => checks++ === 0
  const parts = { ...STRICT, isPublic, ports: new Set([inside.port]) }
  t.match(await outcome(`${inside.url}/`, parts), /not lead to a public address/)
  t.equal(checks, 2)
  t.equal(answered, 0)
})

t.test('private networks are open where they are allowed', async t => {
  const inside = await serve(t, '127.0.0.1', pdf)
  const parts = { ...STRICT, allowHttp: false, allowPrivate: true }
  t.equal(await outcome(`${inside.url}/a.pdf`, parts), 'application/pdf 5')
  t.equal(await outcome(`http://localhost:${inside.port}/a.pdf`, parts), 'application/pdf 5')
  t.match(await outcome('file:///etc/passwd', parts), /^refused/)
})

t.test('answers that are of no use are left unread', async t => {
  const head = { 'content-type': 'application/pdf' }
  const endless: RequestListener = (_request, response) => {
    response.writeHead(200, head)
    const more = (): void => {
      while (response.write(Buffer.alloc(64 * 1024))) if (response.destroyed) return
      response.once('drain', more)
    }
    more()
  }
  const cases: Readonly<Record<string, readonly [RequestListener, RegExp]>> = {
    missing: [(_, response) => response.writeHead(404, head).end('x'), /^unreachable: .* with status 404$/],
    'not modified': [(_, response) => response.writeHead(304).end(), /with status 304$/],
    'led on to nowhere': [(_, response) => response.writeHead(302).end(), /with status 302$/],
    'a page': [
      (_, response) => response.writeHead(200, { 'content-type': 'text/html' }).end('<p>'),
      /^wrong_type/,
    ],
    'no type': [(_, response) => response.writeHead(200).end('%PDF-'), /^wrong_type/],
    compressed: [
      (_, response) =>
        response
          .writeHead(200, { ...head, 'content-encoding': 'gzip' })
          .end(gzipSync(Buffer.alloc(10_000_000))),
      /^wrong_type: .* compressed content$/,
    ],
    'told to be large': [
      (_, response) => response.writeHead(200, { ...head, 'content-length': 1_001 }).write('%PDF-'),
      /^too_large: .* 1000 bytes$/,
    ],
    endless: [endless, /^too_large/],
    'cut short': [
      (_, response) => {
        response.writeHead(200, { ...head, 'content-length': 900 })
        response.write('%PDF-', () => response.destroy())
      },
      /^unreachable: the link cannot be reached$/,
    ],
    'closed at once': [request => request.socket.destroy(), /^unreachable/],
    'no HTTP': [request => request.socket.end('SSH-2.0-OpenSSH\r\n'), /^unreachable/],
    'a long head': [
      (_, response) => response.writeHead(200, { ...head, 'x-a': 'a'.repeat(20_000) }).end('%PDF-'),
      /^unreachable/,
    ],
    'another protocol': [
      request =>
        request.socket.end('HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n'),
      /^unreachable/,
    ],
  }
  const parts = { ...STRICT, allowPrivate: true }
  for (const [name, [listener, expected]] of Object.entries(cases)) {
    const server = await serve(t, '127.0.0.1', listener)
    t.match(await outcome(`${server.url}/`, parts), expected, name)
  }
  const full = await serve(t, '127.0.0.1', (_, response) =>
    response.writeHead(200, head).end(Buffer.alloc(1_000)),
  )
  t.equal(await outcome(`${full.url}/`, parts), 'application/pdf 1000', 'as much as may be')
  t.match(await outcome(`https://127.0.0.1:${full.port}/`, parts), /^unreachable/, 'no TLS')
})

t.test('a link has one deadline, whatever it spends its time on', async t => {
  for (const stuck of ['name', 'head', 'body', 'hops']) {
    const clock = new TestClock()
    let arrived: () => void = () => undefined
    const arrival = new Promise<void>(done => (arrived = done))
    const server = await serve(t, '127.0.0.1', (request, response) => {
      if (stuck === 'hops' && request.url !== '/stay') {
        response.writeHead(302, { location: '/stay' }).end()
        return
      }
      if (stuck === 'body')
        response.writeHead(200, { 'content-type': 'application/pdf' }).write('%PDF-', arrived)
      else arrived()
    })
    const resolve = (): Promise<readonly Address[]> => {
      arrived()
      return new Promise(() => undefined)
    }
    const parts = { ...STRICT, clock, allowPrivate: true, resolve }
    const host = stuck === 'name' ? 'slow.test' : '127.0.0.1'
    const told = outcome(`http://${host}:${server.port}/`, parts)
    await arrival
    clock.advance(9_999)
    t.equal(clock.armed, 1, stuck)
    clock.advance(1)
    t.equal(await told, 'timeout: the link took too long to answer', stuck)
    t.equal(clock.armed, 0)
  }
})

t.test('who leaves takes the connection along', async t => {
  let closed: () => void = () => undefined
  const closing = new Promise<void>(done => (closed = done))
  const leaving = new AbortController()
  const server = await serve(t, '127.0.0.1', request => {
    request.socket.once('close', closed)
    leaving.abort(new Error('left'))
  })
  t.equal(await outcome(`${server.url}/`, { ...STRICT, allowPrivate: true }, leaving.signal), 'Error: left')
  await closing
  t.equal(await outcome(`${server.url}/`, STRICT, leaving.signal), 'Error: left')
})

t.test('keys take turns: one key follows four links, all of them sixteen, and others wait', async t => {
  const clock = new TestClock()
  const waiting: (() => void)[] = []
  const paths: string[] = []
  let arrived: () => void = () => undefined
  const server = await serve(t, '127.0.0.1', (request, response) => {
    paths.push(request.url ?? '')
    waiting.push(() => pdf(request, response))
    arrived()
  })
  const until = async (count: number) => {
    while (paths.length < count) await new Promise<void>(done => (arrived = done))
  }
  const fetchPage = createPageFetcher({ ...STRICT, allowPrivate: true, clock, timeoutMs: 10_000 })
  const get = (key: string, signal = live()) =>
    fetchPage(`${server.url}/${key}`, { types: TYPES, signal, key }).then(
      ({ type }) => type,
      (thrown: PageError) => thrown.fault ?? thrown.message,
    )
  const slow = Array.from({ length: 24 }, () => get('slow'))
  await until(4)
  const other = get('other')
  await until(5)
  t.same(paths, ['/slow', '/slow', '/slow', '/slow', '/other'], 'another key has a place at once')
  waiting[4]?.()
  t.equal(await other, 'application/pdf')
  const more = ['a', 'b', 'c'].flatMap(key => Array.from({ length: 4 }, () => get(key)))
  await until(17)
  const leaving = new AbortController()
  const gone = get('new', leaving.signal)
  const late = get('new')
  leaving.abort(new Error('left'))
  t.equal(await gone, 'left')
  t.equal(paths.length, 17, 'all places are taken')
  waiting[0]?.()
  t.equal(await slow[0], 'application/pdf')
  await until(18)
  t.equal(paths[17], '/new', 'who has none comes before who has some')
  clock.advance(10_000)
  t.same(await Promise.all(slow.slice(1)), [...Array(3).fill('timeout'), ...Array(20).fill('busy')])
  t.same(new Set(await Promise.all([...more, late])), new Set(['timeout']))
  const next = get('slow')
  await until(19)
  waiting[18]?.()
  t.equal(await next, 'application/pdf')
})

t.test('over TLS the certificate has to be good for the name of the link', async t => {
  const identity = selfSigned(['papers.test'], true)
  const server = await FaultServer.start(answering => {
    answering.send(reply(200, '%PDF-', 'content-type: application/pdf\r\n'))
    answering.end()
  }, identity)
  t.teardown(() => server.close())
  const resolve = async () => [{ address: '127.0.0.1', family: 4 }]
  const parts = { ...STRICT, allowPrivate: true, resolve }
  const link = `https://papers.test:${server.port}/a.pdf`
  t.equal(await outcome(link, parts), 'unreachable: the link cannot be reached', 'nobody vouches for it')
  t.equal(server.requests.length, 0)
  const usual = getCACertificates('default')
  t.teardown(() => setDefaultCACertificates(usual))
  setDefaultCACertificates([...usual, identity.cert])
  t.equal(await outcome(link, parts), 'application/pdf 5')
  t.match(server.requests[0]?.headers.get('host'), /^papers\.test:/)
  const other = `https://elsewhere.test:${server.port}/a.pdf`
  t.match(await outcome(other, parts), /^unreachable/, 'it is that of another name')
  t.equal(server.requests.length, 1)
})
