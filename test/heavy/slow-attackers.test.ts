/** Connections that cost their owner nothing: they end in time, and those who have something to say are served. */
import { connect, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts'
import { eventually, mib, newAgent, openProbe, pause, percentile } from '../support/stream-probe.ts'
import { startProviders } from './provider-process.ts'

const EACH = 500
const GONE_MS = 13_000

t.setTimeout(120_000)

interface Attacker {
  readonly socket: Socket
  /** Milliseconds until the gateway closed the connection. */
  readonly gone: Promise<number>
}

function attack(
  t: Test,
  port: number,
  first: string,
  drip: ((at: number) => string) | null,
): Promise<Attacker> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  let timer: NodeJS.Timeout | null = null
  t.teardown(() => socket.destroy())
  const startMs = performance.now()
  const gone = new Promise<number>(resolve => {
    socket.on('error', () => undefined)
    socket.on('close', () => {
      if (timer !== null) clearInterval(timer)
      resolve(performance.now() - startMs)
    })
  })
  socket.resume()
  return new Promise(resolve => {
    const begun = () => resolve({ socket, gone })
    socket.once('close', begun)
    socket.once('connect', () => {
      socket.write(first)
      let at = 0
      if (drip !== null) timer = setInterval(() => socket.write(drip(at++)), 1_000)
      begun()
    })
  })
}

/** Requests one after the other until told to stop: how long each took, and how many failed. */
function legitimate({ port, apiKey }: GatewayProcess) {
  const agent = newAgent()
  const times: number[] = []
  let failed = 0
  let stopped = false
  const loop = async (stream: boolean): Promise<void> => {
    while (!stopped) {
      const startMs = performance.now()
      const { result } = openProbe({ model: 'sim/echo', input: 'hello', stream }, { port, apiKey, agent })
      const { status, done } = await result
      times.push(performance.now() - startMs)
      if (status !== 200 || done !== stream) failed++
      await pause(20)
    }
  }
  const loops = [loop(true), loop(false)]
  return {
    async stop() {
      stopped = true
      await Promise.all(loops)
      agent.destroy()
      return { times, failed }
    },
  }
}

t.test(`${EACH} idle, ${EACH} dripping their head, ${EACH} dripping their body`, async t => {
  const providers = await startProviders(t)
  const gateway = await startGatewayProcess(t, providers.settings({ sim: ['echo'] }))
  await legitimateFor(gateway, 2_000)
  const before = await legitimateFor(gateway, 4_000)
  const baseBytes = gateway.rssBytes()
  const baseDescriptors = gateway.descriptors()
  gateway.forgetPeak()

  const traffic = legitimate(gateway)
  const head =
    `POST /v1/responses HTTP/1.1\r\nHost: gateway.test\r\nAuthorization: Bearer ${gateway.apiKey}\r\n` +
    'Content-Type: application/json\r\n'
  const kinds = {
    idle: () => attack(t, gateway.port, '', null),
    'dripping head': () => attack(t, gateway.port, head, at => `X-${at}: y\r\n`),
    'dripping body': () => attack(t, gateway.port, `${head}Content-Length: 100000\r\n\r\n{`, () => ' '),
    'dripping chunks': () =>
      attack(t, gateway.port, `${head}Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n`, () => '1\r\n \r\n'),
    'half a request line': () => attack(t, gateway.port, 'POST /v1/resp', null),
  }
  const running = Object.entries(kinds).map(async ([name, begin]) => {
    const count = name.startsWith('dripping chunks') || name.startsWith('half') ? EACH / 5 : EACH
    const attackers = await Promise.all(Array.from({ length: count }, begin))
    return { name, times: await Promise.all(attackers.map(({ gone }) => gone)) }
  })
  t.ok(await eventually(() => gateway.descriptors() > baseDescriptors + 3 * EACH, 5_000), 'they are all in')
  const ended = await Promise.all(running)
  const { times, failed } = await traffic.stop()
  for (const { name, times: gone } of ended) {
    t.comment(
      `${name}: closed after ${percentile(gone, 0).toFixed(0)} to ${percentile(gone, 1).toFixed(0)} ms`,
    )
    t.ok(percentile(gone, 1) <= GONE_MS, `${name}: gone within ${GONE_MS} ms`)
  }
  const p99 = percentile(times, 0.99)
  t.comment(
    `requests beside them: ${times.length}, p50 ${percentile(times, 0.5).toFixed(1)} ms, p99 ${p99.toFixed(1)} ms ` +
      `(alone ${percentile(before.times, 0.5).toFixed(1)} and ${percentile(before.times, 0.99).toFixed(1)} ms)`,
  )
  t.comment(`RSS base ${mib(baseBytes)}, peak ${mib(gateway.peakRssBytes())}`)
  t.equal(failed, 0, 'every honest request is answered')
  // Twice as long, and what the clock of a busy machine cannot tell apart.
  t.ok(p99 <= 2 * percentile(before.times, 0.99) + 20, 'they take hardly longer')
  t.ok(gateway.peakRssBytes() - baseBytes < 50 * 1024 * 1024)
  t.ok(
    await eventually(() => gateway.descriptors() <= baseDescriptors + 10, 5_000),
    'nothing is left of them',
  )
  t.equal(await gateway.stop(), 0)
  t.equal(gateway.stderr(), '')
})

async function legitimateFor(gateway: GatewayProcess, ms: number) {
  const traffic = legitimate(gateway)
  await pause(ms)
  const { times, failed } = await traffic.stop()
  return { times, failed }
}

t.test('the cap on connections: what is over it is closed at once, what is under it is served', async t => {
  const providers = await startProviders(t)
  const cap = 50
  const gateway = await startGatewayProcess(t, {
    ...providers.settings({ sim: ['echo'] }),
    limits: { maxConnections: cap },
  })
  const { port, apiKey } = gateway
  const agent = newAgent()
  t.teardown(() => agent.destroy())
  const ask = async () =>
    openProbe({ model: 'sim/echo', input: 'x', stream: true }, { port, apiKey, agent }).result
  t.equal((await ask()).status, 200, 'one connection that is kept')

  const others = await Promise.all(Array.from({ length: 120 }, () => attack(t, port, '', null)))
  const isOver = new Set<Attacker>()
  for (const attacker of others) void attacker.gone.then(() => isOver.add(attacker))
  t.ok(await eventually(() => isOver.size === 120 - (cap - 1), 2_000), 'what is over the cap is closed')
  t.equal((await ask()).status, 200, 'who was there before goes on')
  const cpuMs = gateway.cpuMs()
  await pause(1_000)
  t.ok(gateway.cpuMs() - cpuMs <= 200, 'refusing costs no time')
  t.equal(isOver.size, 120 - (cap - 1), 'the others stay')
  for (const { socket } of others) socket.destroy()
  agent.destroy()
  const served = async () =>
    (await openProbe({ model: 'sim/echo', input: 'x', stream: true }, { port, apiKey }).result).status === 200
  t.ok(await eventually(served, 2_000), 'there is room again')
})

t.test('more connections than file descriptors: no spinning, and served again afterwards', async t => {
  const providers = await startProviders(t)
  const gateway = await startGatewayProcess(t, providers.settings({ sim: ['echo'] }), {}, 256)
  const { port, apiKey } = gateway
  const others = await Promise.all(Array.from({ length: 400 }, () => attack(t, port, '', null)))
  await pause(500)
  const cpuMs = gateway.cpuMs()
  await pause(2_000)
  const share = (gateway.cpuMs() - cpuMs) / 2_000
  t.comment(`${gateway.descriptors()} of 256 descriptors in use; CPU ${(100 * share).toFixed(0)} % of a core`)
  t.ok(share <= 0.2, 'no spinning at the limit')
  for (const { socket } of others) socket.destroy()
  const served = async () =>
    (await openProbe({ model: 'sim/echo', input: 'x', stream: true }, { port, apiKey }).result).status === 200
  t.ok(await eventually(served, 2_000), 'there is room again')
  t.equal(gateway.stderr(), '')
})
