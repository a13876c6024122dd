/**
 * Compares the CPU time of the transports (the client alone) for JSON replies and for stream events, over TLS, in
 * rotated rounds. The provider is a separate process. `node bench/micro/transports.ts [ROUNDS]`
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { createSecureServer, type Http2ServerRequest, type Http2ServerResponse } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { systemClock } from '../../src/base/clock.ts'
import { createDirectTransport } from '../../src/providers/upstream/client/direct-transport.ts'
import type { Transport } from '../../src/providers/upstream/transport.ts'
import { createUndiciTransport } from '../../src/providers/upstream/undici/undici-transport.ts'
import { selfSigned } from '../../test/providers/upstream/self-signed.ts'

const EVENT = Buffer.from(`event: response.output_text.delta\ndata: ${'x'.repeat(170)}\n\n`)
const REPLY = Buffer.from(JSON.stringify({ text: 'x'.repeat(1_400) }))
const CONNECTIONS = 32
const REQUESTS = 1_500
const STREAMS = 32
const EVENTS = 100
const SPACING_MS = 20

/** The provider: `/json` answers a document, `/stream` one event every few milliseconds. */
function serve(identity: { key: string; cert: string }): void {
  const answer = (request: Http2ServerRequest, response: Http2ServerResponse): void => {
    request.resume()
    request.on('end', () => {
      if (request.url === '/json') {
        response.setHeader('content-length', REPLY.length)
        response.end(REPLY)
        return
      }
      let remaining = EVENTS
      const timer = setInterval(() => {
        response.write(EVENT)
        if (--remaining > 0) return
        clearInterval(timer)
        response.end()
      }, SPACING_MS)
    })
  }
  const server = createSecureServer({ ...identity, allowHTTP1: true }, answer)
  server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port))
}

/** Resolves to the number of calls of `onData`. */
function call(client: Transport, url: URL): Promise<number> {
  return new Promise((resolve, reject) => {
    let reads = 0
    client.start(
      { url, headers: {}, body: '{"model":"m"}', headersTimeoutMs: 60_000, idleTimeoutMs: 60_000 },
      { onHead: () => undefined, onData: () => void reads++, onEnd: () => resolve(reads), onError: reject },
    )
  })
}

async function cpuMicros(work: () => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage()
  await work()
  const { user, system } = process.cpuUsage(before)
  return user + system
}

async function documents(client: Transport, url: URL, count: number): Promise<number> {
  let remaining = count
  const one = async (): Promise<void> => {
    while (remaining-- > 0) await call(client, url)
  }
  return (await cpuMicros(() => Promise.all(Array.from({ length: CONNECTIONS }, one)))) / count
}

/** Microseconds per event, and events per call of `onData`. */
async function streams(client: Transport, url: URL): Promise<readonly [micros: number, perRead: number]> {
  let reads = 0
  const one = async (): Promise<void> => {
    const own = await call(client, url)
    reads += own
  }
  const micros = await cpuMicros(() => Promise.all(Array.from({ length: STREAMS }, one)))
  return [micros / (STREAMS * EVENTS), (STREAMS * EVENTS) / reads]
}

async function measure(rounds: number): Promise<void> {
  const identity = selfSigned(['localhost'], true)
  const provider = fork(import.meta.filename, ['serve', JSON.stringify(identity)])
  const [port] = (await once(provider, 'message')) as [number]
  const at = (path: string): URL => new URL(`https://localhost:${port}/${path}`)
  const deps = { clock: systemClock, log: { fault: () => undefined } }
  const tls = { ca: identity.cert, cert: null, key: null }
  const undici = (http2: boolean): Transport =>
    createUndiciTransport({ ...deps, route: { proxy: null, http2, tls } })
  const clients = [
    ['direct', createDirectTransport({ ...deps, ca: identity.cert })],
    ['undici', undici(false)],
    ['undici, HTTP/2', undici(true)],
  ] as const
  const figures = clients.map(([name]) => ({
    name,
    json: [] as number[],
    event: [] as number[],
    perRead: [] as number[],
  }))
  for (const [, client] of clients) {
    await documents(client, at('json'), REQUESTS / 2)
    await streams(client, at('stream'))
  }
  for (let round = 0; round < rounds; round++) {
    for (let n = 0; n < clients.length; n++) {
      const which = (round + n) % clients.length
      const client = clients[which]?.[1]
      if (client === undefined) continue
      figures[which]?.json.push(await documents(client, at('json'), REQUESTS))
      const [micros, perRead] = await streams(client, at('stream'))
      figures[which]?.event.push(micros)
      figures[which]?.perRead.push(perRead)
    }
  }
  const [first] = figures
  for (const { name, json, event, perRead } of figures) {
    const ratio = (own: readonly number[], base: readonly number[] = []): string =>
      median(own.map((value, at) => value / (base[at] ?? Number.NaN))).toFixed(2)
    process.stdout.write(
      `${name}: ${median(json).toFixed(0)} µs per document (${ratio(json, first?.json)} of direct), ` +
        `${median(event).toFixed(1)} µs per event (${ratio(event, first?.event)}), ` +
        `${median(perRead).toFixed(2)} events per read\n`,
    )
  }
  await Promise.all(clients.map(([, client]) => client.close()))
  provider.kill()
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN
}

if (process.argv[2] === 'serve') serve(JSON.parse(process.argv[3] ?? ''))
else await measure(Number(process.argv[2] ?? 5))
