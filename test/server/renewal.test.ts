/** A certificate that is exchanged while the front end serves: what is open goes on, what is new gets the new one. */
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls'
import t, { type Test } from 'tap'
import type { Reply } from '../../src/api/operation.ts'
import { type CertificateFiles, certificateVersion } from '../../src/server/certificate.ts'
import { CertificateError } from '../../src/server/front.ts'
import { HttpServer } from '../../src/server/server.ts'
import { selfSigned } from '../providers/upstream/self-signed.ts'
import { freePort } from '../support/free-port.ts'
import { certificateFiles } from '../support/over-tls.ts'
import { parseReplies, request, turns } from '../support/raw-http.ts'
import { INFERENCE, serverOptions } from './front-end.ts'

const STREAMS = 200
const AUTH = { Authorization: INFERENCE }

/** Names the certificate in its subject alternative name. */
const named = (name: string) => selfSigned([name], true)

function replace(files: CertificateFiles, { cert, key }: { cert: string; key: string }): string {
  writeFileSync(files.cert, cert)
  writeFileSync(files.key, key)
  return certificateVersion(files) ?? ''
}

async function start(t: Test) {
  const files = certificateFiles(named('first.test'))
  const replies: Reply[] = []
  const options = serverOptions(
    [
      {
        method: 'GET',
        path: '/stream',
        bodyLimitBytes: 0,
        key: 'inference',
        handler: (_request, reply) => {
          reply.openStream('data: 1\n\n')
          replies.push(reply)
          return new Promise<void>(resolve => void ends.push(resolve))
        },
      },
      {
        method: 'GET',
        path: '/greet',
        bodyLimitBytes: 0,
        key: 'inference',
        handler: (_request, reply) => reply.json(200, { hello: 'world' }),
      },
    ],
    { tls: files },
  )
  const ends: (() => void)[] = []
  const server = new HttpServer(options)
  t.teardown(() => server.close())
  const port = await server.listen('127.0.0.1', await freePort(), { shared: true })
  const client = async (more: ConnectionOptions = {}): Promise<Client> => {
    const socket = connect({ host: '127.0.0.1', port, rejectUnauthorized: false, ...more })
    t.teardown(() => socket.destroy())
    await once(socket, 'secureConnect')
    return new Client(socket)
  }
  /** Ends all streams. */
  const finish = () => {
    for (const reply of replies) reply.endStream('data: 3\n\n')
    for (const end of ends) end()
  }
  return { server, port, files, replies, client, finish }
}

class Client {
  readonly socket: TLSSocket
  text = ''

  constructor(socket: TLSSocket) {
    this.socket = socket
    socket.setEncoding('latin1').on('data', (text: string) => {
      this.text += text
    })
    socket.on('error', () => undefined)
  }

  get certificate(): string {
    return this.socket.getPeerCertificate().subjectaltname ?? ''
  }

  async ask(path: string, until: (text: string) => boolean): Promise<void> {
    this.socket.write(request('GET', path, AUTH))
    await this.until(until)
  }

  async until(done: (text: string) => boolean): Promise<void> {
    while (!done(this.text)) {
      if (this.socket.destroyed) throw new Error(`the connection was lost after ${this.text}`)
      await turns(1)
    }
  }
}

const has = (part: string) => (text: string) => text.includes(part)

t.test('two hundred streams go on under the certificate that they began with', async t => {
  const { server, files, replies, client, finish } = await start(t)
  const streams = await Promise.all(
    Array.from({ length: STREAMS }, async () => {
      const each = await client()
      await each.ask('/v1/stream', has('data: 1'))
      return each
    }),
  )
  const kept = await client()
  await kept.ask('/v1/greet', has('world'))
  t.equal(await server.renewCertificate(replace(files, named('second.test'))), true)
  const fresh = await client()
  t.match(fresh.certificate, /second\.test/)
  await fresh.ask('/v1/greet', has('world'))
  kept.text = ''
  await kept.ask('/v1/greet', has('world'))
  t.match(kept.certificate, /first\.test/, 'a kept connection is served on')
  t.equal(server.openStreams, STREAMS)
  for (const reply of replies) reply.writeStream('data: 2\n\n')
  finish()
  for (const each of streams) await each.until(has('\r\n0\r\n\r\n'))
  const bodies = streams.map(({ text }) => parseReplies(text)[0]?.body.trim().split(/\n+/).join(' '))
  t.same([...new Set(bodies)], ['data: 1 data: 2 data: 3'])
  t.equal(server.openStreams, 0)
})

t.test('after many renewals the last certificate holds, and a drain ends them all', async t => {
  const { server, files, client, finish } = await start(t)
  const streams: Client[] = []
  for (let round = 0; round < 10; round++) {
    const each = await client()
    await each.ask('/v1/stream', has('data: 1'))
    streams.push(each)
    t.equal(await server.renewCertificate(replace(files, named(`round-${round}.test`))), true)
    t.match((await client()).certificate, new RegExp(`round-${round}\\.test`))
  }
  const drained = server.drain(60_000)
  finish()
  for (const each of streams) await each.until(has('data: 3'))
  await drained
  t.equal(server.openConnections, 0)
  await t.rejects(client(), { code: 'ECONNREFUSED' })
  t.equal(await server.renewCertificate('any'), true, 'a server that is closed has nothing to renew')
})

t.test('files that cannot be used, or are others by now, change nothing', async t => {
  const { server, files, client } = await start(t)
  const second = named('second.test')
  const version = replace(files, second)
  replace(files, named('third.test'))
  t.equal(await server.renewCertificate(version), false, 'they changed once more')
  writeFileSync(files.key, second.key)
  t.equal(await server.renewCertificate(certificateVersion(files) ?? ''), false, 'not a pair')
  const fresh = await client()
  t.match(fresh.certificate, /first\.test/)
  await fresh.ask('/v1/greet', has('world'))
})

t.test('TLS is 1.2 or newer, and speaks HTTP/1.1 with who asks for more', async t => {
  const { client } = await start(t)
  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    const each = await client({ minVersion: version, maxVersion: version, ALPNProtocols: ['h2', 'http/1.1'] })
    t.equal(each.socket.getProtocol(), version)
    await each.ask('/v1/greet', has('HTTP/1.1 200'))
  }
  const old = { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' } as const
  await t.rejects(client(old), { code: 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION' })
})

t.test('who speaks plain HTTP to the port gets nothing', async t => {
  const { port } = await start(t)
  await t.rejects(fetch(`http://127.0.0.1:${port}/v1/greet`))
})

t.test('a server with files that cannot be used does not listen', async t => {
  const files = certificateFiles({ cert: named('a').cert, key: named('b').key })
  const server = new HttpServer(serverOptions([], { tls: files }))
  await t.rejects(server.listen('127.0.0.1', 0), CertificateError)
  server.close()
})
