import { TLSSocket } from 'node:tls'
import tap, { type Test } from 'tap'
import { TRANSPORTS } from '../../../../src/protocol/provider.ts'
import { targetOf } from '../../../../src/providers/upstream/client/connect.ts'
import { chunk, FaultServer, reply, STREAM_HEAD } from '../../../support/fault-server.ts'
import { GONE, Notes, type SetUpOptions, setUp as setUpBy, turns } from '../calls.ts'
import { selfSigned } from '../self-signed.ts'

for (const by of TRANSPORTS) {
  tap.test(by, async t => {
    const setUp = (t: Test, options?: SetUpOptions) => setUpBy(t, options, by)
    t.test('the target of a URL', t => {
      const targets = {
        'https://api.example/v1': { isSecure: true, hostname: 'api.example', port: 443 },
        'http://api.example/': { isSecure: false, hostname: 'api.example', port: 80 },
        'http://127.0.0.1:8080/': { isSecure: false, hostname: '127.0.0.1', port: 8080 },
        'https://[::1]:8443/x': { isSecure: true, hostname: '::1', port: 8443 },
      }
      for (const [url, target] of Object.entries(targets)) t.same(targetOf(new URL(url)), target, url)
      t.end()
    })

    t.test('TLS', async t => {
      const identity = selfSigned(['localhost'], true)
      const server = await FaultServer.start(answering => answering.send(reply(200, '{}')), identity)
      t.teardown(() => server.close())

      await t.test(
        'a trusted certificate is accepted by name and by address; HTTP/2 is not offered',
        async t => {
          const { ask } = setUp(t, { ca: identity.cert })
          for (const host of ['localhost', '127.0.0.1']) {
            const arrived = server.next()
            t.same((await ask(server.url('/', host))).seen, ['head 200', 'data', 'end'], host)
            const { socket } = await arrived
            t.equal(socket instanceof TLSSocket && socket.alpnProtocol, 'http/1.1')
          }
        },
      )
      await t.test('the next connection takes up the session of the last', async t => {
        const { ask } = setUp(t, { ca: identity.cert })
        server.answer = answering => answering.send(reply(200, '{}', 'connection: close\r\n'))
        const reused: unknown[] = []
        for (let round = 0; round < 2; round++) {
          const arrived = server.next()
          await ask(server.url('/', 'localhost'))
          const { socket, closed } = await arrived
          reused.push(socket instanceof TLSSocket && socket.isSessionReused())
          await closed
        }
        t.same(reused, [false, true])
        server.answer = answering => answering.send(reply(200, '{}'))
      })
      await t.test('a certificate that nobody vouches for is refused before a byte is sent', async t => {
        const { ask } = setUp(t)
        const before = server.requests.length
        const notes = await ask(server.url('/', 'localhost'))
        t.same(notes.seen, [GONE])
        t.equal(notes.error?.message, 'The provider could not be reached')
        t.equal(server.requests.length, before)
      })
      await t.test('a certificate for another name is refused', async t => {
        const other = selfSigned(['elsewhere.example'], false)
        const impostor = await FaultServer.start(answering => answering.send(reply(200, '{}')), other)
        t.teardown(() => impostor.close())
        const { ask } = setUp(t, { ca: other.cert })
        for (const host of ['localhost', '127.0.0.1'])
          t.same((await ask(impostor.url('/', host))).seen, [GONE], host)
        t.equal(impostor.requests.length, 0)
      })
      await t.test("abort closes the provider's side", async t => {
        const { client, request } = setUp(t, { ca: identity.cert })
        server.answer = answering => answering.send(STREAM_HEAD, chunk('a'))
        const arrived = server.next()
        const notes = new Notes()
        const call = client.start(request(server.url('/', 'localhost')), notes)
        const answering = await arrived
        await notes.data
        call.abort()
        await answering.closed
        await turns(5)
        t.same(notes.seen, ['head 200', 'data'])
      })
      await t.test('plain HTTP to a TLS port fails', async t => {
        const { ask } = setUp(t)
        t.same((await ask(new URL(`http://127.0.0.1:${server.port}/`))).seen, [GONE])
      })
    })
  })
}
