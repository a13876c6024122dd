/** Providers and links behind real forward proxies, with and without a password. */
import { createServer } from 'node:http'
import { connect, type Socket } from 'node:net'
import tap, { type Test } from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { createPageFetcher } from '../../../src/providers/upstream/pages/fetch-page.ts'
import { chunk, FAULTS, FaultServer, FIRST_EVENT, reply, STREAM_HEAD } from '../../support/fault-server.ts'
import { PROXIES, startProxy, without } from '../../support/forward-proxy.ts'
import { listening } from '../../support/listening.ts'
import { GONE, HEADERS_MS, IDLE_MS, LATE, Notes, setUp, turns } from './calls.ts'
import { selfSigned } from './self-signed.ts'

const identity = selfSigned(['localhost', 'papers.test'], true)

async function serve(t: Test, secure: boolean): Promise<FaultServer> {
  const server = await FaultServer.start(
    answering => answering.send(reply(200, '{"n":1}')),
    secure ? identity : undefined,
  )
  t.teardown(() => server.close())
  return server
}

for (const program of PROXIES) {
  for (const withUser of [false, true]) {
    const name = `${program}, ${withUser ? 'with' : 'without'} a password`
    tap.test(name, { skip: without(program) }, async t => {
      const proxy = await startProxy(t, program, withUser)
      const route = { proxy: withUser ? proxy.urlWithUser : proxy.url }

      for (const secure of [true, false]) {
        await t.test(secure ? 'a provider with TLS, by a tunnel' : 'a provider without TLS', async t => {
          const { ask, client, request } = setUp(t, { ca: identity.cert, route }, 'undici')
          const server = await serve(t, secure)
          const url = () => server.url('/v1/responses?x=1', 'localhost')

          await t.test('JSON', async t => {
            const body = JSON.stringify({ text: 'ü'.repeat(100_000) })
            const notes = await ask(url(), { body, headers: { authorization: 'Bearer k' } })
            t.same([notes.seen, notes.bytes.toString()], [['head 200', 'data', 'end'], '{"n":1}'])
            const sent = server.requests.at(-1)
            t.match(sent?.head, /^POST \/v1\/responses\?x=1 HTTP\/1\.1\r\n/)
            t.same(
              [sent?.body === body, sent?.headers.get('host'), sent?.headers.get('authorization')],
              [true, url().host, 'Bearer k'],
            )
            t.notOk(sent?.headers.has('proxy-authorization'), 'the password stays at the proxy')
          })
          await t.test('a stream, event by event', async t => {
            server.answer = answering => answering.send(STREAM_HEAD, chunk(FIRST_EVENT))
            const arrived = server.next()
            const notes = new Notes()
            client.start(request(url()), notes)
            const answering = await arrived
            await notes.data
            for (let n = 1; n <= 20; n++) {
              answering.send(chunk(FIRST_EVENT))
              while (notes.bytes.length < (n + 1) * FIRST_EVENT.length) await turns(1)
            }
            answering.send('0\r\n\r\n')
            await notes.ended
            t.same(notes.seen, ['head 200', 'data', 'end'])
          })
          await t.test('an abort closes the side of the provider', async t => {
            server.answer = answering => answering.send(STREAM_HEAD, chunk(FIRST_EVENT))
            for (let round = 0; round < 10; round++) {
              const arrived = server.next()
              const notes = new Notes()
              const call = client.start(request(url()), notes)
              const answering = await arrived
              await notes.data
              call.abort()
              await answering.closed
              t.same(notes.seen, ['head 200', 'data'])
            }
          })
          await t.test('own credentials do not share connections to the provider', async t => {
            server.answer = answering => answering.send(reply(200, '{}'))
            const sockets = new Set<Socket>()
            for (const isolation of ['one', 'other']) {
              const arrived = server.next()
              t.equal((await ask(url(), { isolation })).seen.at(-1), 'end')
              sockets.add((await arrived).socket)
            }
            if (secure) t.equal(sockets.size, 2)
          })
        })
      }

      await t.test('faults of a provider behind the tunnel are those of one without a proxy', async t => {
        const server = await serve(t, true)
        for (const fault of FAULTS.filter(({ name }) => FATAL.test(name))) {
          const { client, clock, request } = setUp(t, { ca: identity.cert, route }, 'undici')
          server.answer = fault.first
          const arrived = server.next()
          const notes = new Notes()
          client.start(request(server.url('/', 'localhost')), notes)
          const answering = await arrived
          if (fault.when === 'after') await notes.data
          else if (fault.name.startsWith('head')) await notes.head
          fault.second?.(answering)
          if (fault.silent === true) {
            await turns(20)
            clock.advance(fault.when === 'after' || fault.name.startsWith('head') ? IDLE_MS : HEADERS_MS)
          }
          await notes.ended
          t.equal(notes.seen.at(-1), fault.silent === true ? LATE : GONE, fault.name)
          await answering.closed
        }
      })

      await t.test('a provider that is not there', async t => {
        const { ask } = setUp(t, { ca: identity.cert, route }, 'undici')
        const gone = await serve(t, true)
        const url = gone.url('/', 'localhost')
        await gone.close()
        const notes = await ask(url)
        t.same([notes.seen, notes.error?.message], [[GONE], 'The provider could not be reached'])
      })

      await t.test('a wrong password reaches no provider', { skip: !withUser && 'no password' }, async t => {
        const server = await serve(t, true)
        const wrong = proxy.url.replace('//', '//somebody:wrong@')
        for (const given of [proxy.url, wrong]) {
          const { ask } = setUp(t, { ca: identity.cert, route: { proxy: given } }, 'undici')
          const notes = await ask(server.url('/', 'localhost'))
          t.same([notes.seen, notes.error?.message], [[GONE], 'The provider could not be reached'])
        }
        t.equal(server.accepted, 0)
      })

      await t.test('a page goes by a tunnel to its checked address', async t => {
        const server = createServer((_request, response) => {
          response.writeHead(200, { 'content-type': 'application/pdf' }).end('%PDF-')
        })
        const { port } = await listening(server, t)
        const fetchPage = createPageFetcher({
          ...PAGES,
          proxyOf: () => route.proxy,
          resolve: async () => [{ address: '127.0.0.1', family: 4 }],
        })
        const { bytes } = await fetchPage(`http://nowhere.test:${port}/`, TERMS())
        t.equal(Buffer.from(bytes).toString(), '%PDF-')
      })
    })
  }
}

/** Those that TLS can carry, and that end in an error. */
const FATAL = /^FIN|silence|no headers|cut at|cut inside|garbage|^a sized body cut/
const PAGES = { clock: systemClock, allowHttp: true, allowPrivate: true, maxBytes: 1_000, timeoutMs: 30_000 }
const TERMS = () => ({ types: ['application/pdf'], key: 'one', signal: new AbortController().signal })

tap.test('a proxy is asked for the checked address of a page, never for its name', async t => {
  const asked: string[] = []
  const proxy = createServer(() => asked.push('no tunnel'))
  proxy.on('connect', (request, socket: Socket) => {
    asked.push(request.url ?? '')
    const there = connect(Number(request.url?.split(':').at(-1)), '127.0.0.1')
    there.once('connect', () => socket.write('HTTP/1.1 200 OK\r\n\r\n'))
    for (const [from, to] of [
      [there, socket],
      [socket, there],
    ] as const) {
      from.on('error', () => undefined)
      from.on('close', () => to.destroy())
      from.pipe(to)
    }
  })
  const { port } = await listening(proxy, t)
  const server = await serve(t, true)
  const links = createPageFetcher({
    ...PAGES,
    allowPrivate: false,
    ports: new Set([`${server.port}`]),
    isPublic: address => address === '127.0.0.1',
    resolve: async name => [{ address: name === 'papers.test' ? '127.0.0.1' : '10.0.0.1', family: 4 }],
    proxyOf: () => `http://127.0.0.1:${port}`,
  })
  await t.rejects(links(`https://papers.test:${server.port}/`, TERMS()), { fault: 'unreachable' } as never)
  t.same([asked, server.requests.length], [[`127.0.0.1:${server.port}`], 0], 'its certificate was refused')
  asked.length = 0
  await t.rejects(links(`https://inside.test:${server.port}/`, TERMS()), { fault: 'refused' } as never)
  t.same(asked, [], 'an address of our network is not asked for')
})
