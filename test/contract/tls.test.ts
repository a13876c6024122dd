/** The running product over TLS: streams, WebSockets, a certificate that changes, and files that are faulty. */
import { once } from 'node:events'
import { chmodSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { createServer, type ServerResponse } from 'node:http'
import { request as send } from 'node:https'
import { connect } from 'node:tls'
import t, { type Test } from 'tap'
import { Agent, WebSocket } from 'undici'
import type { CertificateFiles } from '../../src/server/certificate.ts'
import { selfSigned } from '../providers/upstream/self-signed.ts'
import { runCommand } from '../support/command-line.ts'
import { type GatewayProcess, NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { listening } from '../support/listening.ts'
import { certificateFiles } from '../support/over-tls.ts'
import { eventually } from '../support/stream-probe.ts'

const STREAMS = 200
const THREADS = 2
/** More connections than chance would give to one thread alone. */
const LOOKS = 12
const WAIT_MS = 120_000

const frame = (fields: object) =>
  `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: 'm', ...fields })}\n\n`
const said = (content: string) => frame({ choices: [{ index: 0, delta: { role: 'assistant', content } }] })
const END = `${frame({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] })}data: [DONE]\n\n`

/** A provider that says one word, and goes on when it is told. */
async function heldProvider(t: Test) {
  const held: ServerResponse[] = []
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(said('one '))
      held.push(response)
    })
  })
  const { port } = await listening(server, t)
  return {
    settings: {
      limits: NO_SHEDDING,
      providers: [{ slug: 'held', format: 'openai-chat', baseUrl: `http://127.0.0.1:${port}` }],
      models: [{ id: 'm/m', endpoints: [{ provider: 'held' }] }],
    },
    goOn: () => {
      for (const response of held.splice(0)) response.end(said('two') + END)
    },
  }
}

function named(name: string) {
  return selfSigned([name], true)
}

/** As a program does that must not leave half a file. */
function replace(files: CertificateFiles, { cert, key }: ReturnType<typeof named>): void {
  writeFileSync(`${files.cert}.new`, cert)
  writeFileSync(`${files.key}.new`, key, { mode: 0o600 })
  renameSync(`${files.key}.new`, files.key)
  renameSync(`${files.cert}.new`, files.cert)
}

async function certificateOf(port: number): Promise<string> {
  const socket = connect({ host: '127.0.0.1', port, rejectUnauthorized: false })
  await once(socket, 'secureConnect')
  const name = socket.getPeerCertificate().subjectaltname ?? ''
  socket.destroy()
  return name
}

async function allCertificates(port: number): Promise<readonly string[]> {
  const names = new Set<string>()
  for (let look = 0; look < LOOKS; look++) names.add(await certificateOf(port))
  return [...names].map(name => /DNS:([^,]*)/.exec(name)?.[1] ?? name)
}

interface Streaming {
  /** Resolves with the first bytes of the answer. */
  readonly begun: Promise<void>
  readonly text: Promise<string>
}

/** Each stream on a connection of its own. */
function stream({ port, apiKey }: GatewayProcess, ca: string): Streaming {
  const begun = Promise.withResolvers<void>()
  const text = Promise.withResolvers<string>()
  const sent = send(
    {
      host: '127.0.0.1',
      port,
      ca,
      path: '/v1/responses',
      method: 'POST',
      agent: false,
      headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    },
    response => {
      let all = ''
      response.setEncoding('utf8').on('data', (part: string) => {
        all += part
        if (all.includes('"one "')) begun.resolve()
      })
      response.on('end', () => text.resolve(all))
      response.on('error', text.reject)
    },
  )
  sent.on('error', error => {
    begun.reject(error)
    text.reject(error)
  })
  sent.end(JSON.stringify({ model: 'm/m', input: 'Hi', stream: true }))
  return { begun: begun.promise, text: text.promise }
}

t.test('a certificate is replaced while two hundred streams run, in all threads', async t => {
  const provider = await heldProvider(t)
  const first = named('first.test')
  const files = certificateFiles(first)
  const gateway = await startGatewayProcess(
    t,
    { ...provider.settings, listen: { tls: files } },
    { GATEWAY_SERVE_THREADS: String(THREADS) },
  )
  t.match(gateway.url, /^https:/)
  t.match(gateway.adminUrl, /^http:/)
  const expiry = () => gateway.metric('gateway_tls_certificate_expiry_seconds')
  const reloads = (outcome: string) => gateway.metric('gateway_tls_reloads_total', { outcome })
  t.equal(await expiry(), Date.UTC(2049, 11, 31, 23, 59, 59) / 1000)
  t.same([await reloads('taken'), await reloads('refused')], [0, 0])

  const streams = Array.from({ length: STREAMS }, () => stream(gateway, first.cert))
  await Promise.all(streams.map(({ begun }) => begun))
  replace(files, selfSigned(['second.test'], true, { from: '200101000000Z', until: '400101000000Z' }))
  process.kill(gateway.pid, 'SIGHUP')
  t.ok(await eventually(async () => (await reloads('taken')) === 1, WAIT_MS))
  t.same(await allCertificates(gateway.port), ['second.test'])
  t.equal(await expiry(), Date.UTC(2040, 0, 1) / 1000)
  t.match(
    gateway.stdout(),
    /"level":"info".*"expires":"2040-01-01T00:00:00.000Z","msg":"certificate reloaded"/,
  )

  // The watch finds the next one itself.
  replace(files, named('third.test'))
  t.ok(await eventually(async () => (await reloads('taken')) === 2, WAIT_MS))
  t.same(await allCertificates(gateway.port), ['third.test'])

  writeFileSync(files.key, first.key)
  process.kill(gateway.pid, 'SIGHUP')
  t.ok(await eventually(async () => (await reloads('refused')) === 1, WAIT_MS))
  t.match(
    gateway.stdout(),
    /"level":"error".*certificate not reloaded; still using the old one: listen\.tls\.key: \S+tls\.key: is not the private key/,
  )
  t.same(await allCertificates(gateway.port), ['third.test'], 'the one before stays')

  provider.goOn()
  const texts = await Promise.all(streams.map(({ text }) => text))
  t.equal(
    texts.filter(text => text.includes('"one two"') && text.endsWith('data: [DONE]\n\n')).length,
    STREAMS,
  )
  t.notMatch(gateway.stdout(), /PRIVATE KEY/)
  t.equal(await gateway.stop(), 0)
})

t.test('a WebSocket goes over TLS too', async t => {
  const { cert, key } = named('localhost')
  const gateway = await startGatewayProcess(t, {
    simulator: { enabled: true },
    limits: NO_SHEDDING,
    listen: { tls: certificateFiles({ cert, key }) },
  })
  const socket = new WebSocket(`${gateway.url.replace(/^https/, 'wss')}/v1/responses`, {
    headers: { Authorization: `Bearer ${gateway.apiKey}` },
    dispatcher: new Agent({ connect: { ca: cert } }),
  })
  const types: string[] = []
  const over = Promise.withResolvers<void>()
  socket.addEventListener('message', ({ data }) => {
    const { type } = JSON.parse(String(data)) as { type: string }
    types.push(type)
    if (type === 'response.completed') over.resolve()
  })
  socket.addEventListener('close', () => over.reject(new Error(`closed after ${types.join()}`)))
  socket.addEventListener('open', () =>
    socket.send(JSON.stringify({ type: 'response.create', model: 'sim/echo', input: 'Hello' })),
  )
  await over.promise
  t.equal(types[0], 'response.created')
  socket.close()
  t.equal(await gateway.stop(), 0)
})

t.test('a faulty pair is found by the check and by the start, which name the field', async t => {
  const cwd = t.testdir({})
  const files = certificateFiles({ cert: named('a').cert, key: named('b').key })
  const write = (tls: object) => {
    writeFileSync(`${cwd}/gateway.yaml`, JSON.stringify({ listen: { port: 0, tls }, admin: { port: 0 } }))
  }
  write(files)
  for (const command of ['check', 'start']) {
    const { code, stderr } = await runCommand(t, [command, '--config', 'gateway.yaml'], { cwd })
    t.equal(code, 2, command)
    t.match(stderr, /listen\.tls\.key: \S+: is not the private key of the first certificate/, command)
  }
  write({ cert: files.cert })
  const half = await runCommand(t, ['check', '--config', 'gateway.yaml'], { cwd })
  t.equal(half.code, 2)
  t.match(half.stderr, /listen\.tls\.key: is required$/m)
})

t.test('a key that everybody can read is a warning', async t => {
  const cwd = t.testdir({})
  const files = certificateFiles()
  chmodSync(files.key, 0o644)
  writeFileSync(`${cwd}/gateway.yaml`, JSON.stringify({ listen: { tls: files } }))
  const { code, stderr } = await runCommand(t, ['check', '--config', 'gateway.yaml'], { cwd })
  t.equal(code, 0)
  t.match(stderr, /warning: listen\.tls\.key: every user of this machine can read the file/)
  t.ok(readFileSync(files.key, 'utf8').length > 0)
})
