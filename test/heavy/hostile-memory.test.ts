/**
 * Hostile clients and hostile providers against small heaps: the process lives, answers others beside them, and lets go
 * of what it held. One thread out of memory would end all of them.
 */
import { connect, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { type GatewayProcess, NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { ATTACKS, startHostileProvider } from '../support/hostile-provider.ts'
import { eventually, mib, newAgent, openProbe, pause } from '../support/stream-probe.ts'

/** MiB of heap for each thread. */
const HEAPS = [256, 512, 1024]
const ROUNDS = 167
const AT_ONCE = 6
/** A client of a reply that does not end goes after this long. */
const PATIENCE_MS = 1_500
const SEED = 20_261_122
/** Resident memory afterwards, at most: of the heap, V8 gives back what it likes. */
const FLOOR_FACTOR = 1.75
const IDLE_MS = 30_000

t.setTimeout(600_000)

function random(seed: number): (below: number) => number {
  let state = seed
  return below => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

const request = (model: string, stream: boolean, fields: string) =>
  Buffer.from(`{"model":"hostile/${model}","stream":${stream},${fields}}`)
const tool = (parameters: string) =>
  `"input":"hi","tools":[{"type":"function","name":"f","parameters":${parameters}}]`

/** Bodies near every bound of a request. They hold the more, the longer the provider is silent. */
const BODIES: Readonly<Record<string, Buffer>> = {
  wide: request('silent', true, `"input":"${'x'.repeat(19_000_000)}語"`),
  escaped: request('silent', false, `"input":"${'x'.repeat(15_000_000)}\\u8a9e"`),
  latin: request('silent', true, `"input":"${'x'.repeat(19_000_000)}"`),
  hangul: request('silent', true, `"input":"${'가'.repeat(6_000_000)}"`),
  middling: request('silent', true, `"input":"${'x'.repeat(2_000_000)}語"`),
  runs: request('silent', true, tool(`{"x":[${'{"a":[]},'.repeat(60_000)}1]}`)),
  keys: request(
    'silent',
    false,
    tool(`{${Array.from({ length: 180_000 }, (_, at) => `"k${at}":1`).join(',')}}`),
  ),
  numbers: request('silent', true, tool(`{"x":[${'1,'.repeat(900_000)}1]}`)),
  deep: request('silent', true, tool('{"a":'.repeat(5_000))),
}
const NAMES = Object.keys(ATTACKS).filter(name => name !== 'silent')

interface Client {
  readonly socket: Socket
  /** The status, or 0 for a connection that ended without one. */
  readonly status: Promise<number>
}

/** Sends a body, and resolves with the first line of the answer. What follows is read and dropped. */
function send({ port, apiKey }: GatewayProcess, body: Buffer): Client {
  const socket = connect({ port, host: '127.0.0.1' })
  const status = new Promise<number>(resolve => {
    socket.on('error', () => undefined)
    socket.on('close', () => resolve(0))
    socket.once('data', data => resolve(Number(data.toString('latin1').slice(9, 12))))
  })
  socket.write(
    `POST /v1/responses HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer ${apiKey}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`,
  )
  socket.write(body)
  return { socket, status }
}

/** Counts how small requests beside the hostile ones end: by status, -200 for a stream that was cut. */
class Ordinary {
  readonly statuses = new Map<number, number>()
  readonly #agent = newAgent()
  readonly #gateway: GatewayProcess

  constructor(t: Test, gateway: GatewayProcess) {
    this.#gateway = gateway
    t.teardown(() => this.#agent.destroy())
  }

  async ask(): Promise<void> {
    const { result } = openProbe(
      { model: 'hostile/good', input: 'hello', stream: true },
      { ...this.#gateway, agent: this.#agent },
    )
    const { status, done } = await result
    add(this.statuses, status === 200 && !done ? -200 : (status ?? 0))
  }

  async askFor(ms: number): Promise<void> {
    const endMs = performance.now() + ms
    while (performance.now() < endMs) await this.ask()
  }
}

function add(counts: Map<number, number>, key: number): void {
  counts.set(key, (counts.get(key) ?? 0) + 1)
}

/** After each hostile request an ordinary one has to end, so that the gateway has taken what came before. */
async function attack(
  t: Test,
  gateway: GatewayProcess,
  seed: number,
  ordinary: Ordinary,
): Promise<Map<number, number>> {
  const pick = random(seed)
  const statuses = new Map<number, number>()
  const waiting: Socket[] = []
  let round = 0
  const one = async (): Promise<void> => {
    while (round < ROUNDS) {
      round++
      const bodies = Object.values(BODIES)
      const holds = pick(3) === 0
      const body = holds
        ? bodies[pick(bodies.length)]
        : request(NAMES[pick(NAMES.length)] ?? '', pick(3) !== 0, '"input":"hi"')
      const { socket, status } = send(gateway, body ?? Buffer.alloc(0))
      const first = await Promise.race([status, pause(PATIENCE_MS).then(() => -1)])
      add(statuses, first)
      // A request that its provider lets wait goes on holding what it holds; a stream is read for a while.
      if (first === -1) waiting.push(socket)
      else {
        if (first === 200)
          await Promise.race([new Promise(resolve => socket.once('close', resolve)), pause(PATIENCE_MS)])
        socket.destroy()
      }
      await ordinary.ask()
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, one))
  t.comment(
    `${waiting.length} still wait; ${mib(gateway.rssBytes())} resident, ${mib(gateway.peakRssBytes())} at most`,
  )
  for (const socket of waiting) socket.destroy()
  return statuses
}

for (const heap of HEAPS) {
  t.test(`${ROUNDS} hostile rounds in a heap of ${heap} MiB`, async t => {
    const provider = await startHostileProvider(t)
    const names = [...Object.keys(ATTACKS), 'good']
    const gateway = await startGatewayProcess(
      t,
      {
        providers: names.map(name => ({
          slug: `p-${name}`,
          name,
          format: 'openai-chat',
          baseUrl: `http://127.0.0.1:${provider.port}/${name}`,
          apiKey: 'none',
        })),
        models: names.map(name => ({ id: `hostile/${name}`, endpoints: [{ provider: `p-${name}` }] })),
        limits: NO_SHEDDING,
      },
      { NODE_OPTIONS: `--max-old-space-size=${heap}`, LOG_LEVEL: 'fatal' },
    )
    await new Ordinary(t, gateway).askFor(3_000)
    const floor = gateway.rssBytes()
    const ordinary = new Ordinary(t, gateway)
    const hostile = await attack(t, gateway, SEED + heap, ordinary)
    const beside = ordinary.statuses
    t.comment(`hostile ${JSON.stringify([...hostile])}, beside ${JSON.stringify([...beside])}`)
    const answered = beside.get(200) ?? 0
    const all = [...beside.values()].reduce((sum, count) => sum + count, 0)
    t.ok(answered >= all * 0.9, `${answered} of ${all} ordinary requests were answered`)
    t.equal((beside.get(0) ?? 0) + (beside.get(-200) ?? 0), 0, 'and none was cut off')
    t.ok(
      await eventually(async () => {
        await ordinary.askFor(500)
        // V8 collects once a heap has filled: the larger it may be, the more is left.
        return gateway.rssBytes() < Math.max(FLOOR_FACTOR * floor, floor + (heap / 4) * 2 ** 20)
      }, IDLE_MS),
      `${mib(gateway.rssBytes())} afterwards, ${mib(floor)} before`,
    )
    t.equal(await gateway.stop(), 0, 'the process lived')
    t.notMatch(gateway.stderr(), 'FATAL')
  })
}
