/**
 * The same bytes in pieces of 1 byte and of 16,384, through every way into the gateway: short pieces may cost at most
 * 10 times the processor time and 4 times the memory, unless they cost little. Each piece has a fixed cost, and its
 * sender chooses its length.
 */
import { randomBytes } from 'node:crypto'
import t, { type Test } from 'tap'
import { startGatewayProcess } from '../support/gateway-process.ts'
import { allOperations } from '../support/operations.ts'
import { ADMIN_WAYS, bodyWays, REFUSED_WAYS } from './pieces/bodies.ts'
import { SOCKET_WAYS } from './pieces/sockets.ts'
import { BYTES, type PiecesWorld, type Way } from './pieces/way.ts'

t.setTimeout(600_000)

const LONG_BYTES = 16_384
const CPU_RATIO = 10
const MEMORY_RATIO = 4
/** Below these, a ratio says nothing: the clock has ticks of 10 ms, and a collection of garbage takes some of them. */
const CPU_FLOOR_MS = 200
const MEMORY_FLOOR_BYTES = 64 * 1024 * 1024
/** The least of several runs counts: collections and compilers belong to none of them. */
const RUNS = 5

interface Cost {
  readonly cpuMs: number
  readonly bytes: number
}

async function costOf(t: Test, world: PiecesWorld, way: Way, pieceBytes: number): Promise<Cost> {
  const { gateway } = world
  gateway.forgetPeak()
  const beforeBytes = gateway.rssBytes()
  const beforeMs = gateway.cpuMs()
  const answer = await way.send(world, pieceBytes)
  if (!way.isExpected(answer, pieceBytes))
    t.fail(`${way.name}, pieces of ${pieceBytes}: ${answer.slice(0, 400)}`)
  return { cpuMs: gateway.cpuMs() - beforeMs, bytes: Math.max(0, gateway.peakRssBytes() - beforeBytes) }
}

function isDear(short: Cost, long: Cost): boolean {
  return (
    short.cpuMs > Math.max(CPU_FLOOR_MS, CPU_RATIO * long.cpuMs) ||
    short.bytes > Math.max(MEMORY_FLOOR_BYTES, MEMORY_RATIO * long.bytes)
  )
}

const mib = (bytes: number): string => `${(bytes / 1024 / 1024).toFixed(1)} MiB`

for (const front of ['uws', 'node']) {
  t.test(`front ${front}`, async t => {
    const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
    const gateway = await startGatewayProcess(
      t,
      { listen: { front } },
      { GATEWAY_MANAGEMENT_KEY: managementKey },
    )
    const world = { gateway, managementKey }
    const ways = [...bodyWays(await allOperations(t)), ...REFUSED_WAYS, ...SOCKET_WAYS, ...ADMIN_WAYS]
    for (const way of ways) {
      const long = await costOf(t, world, way, LONG_BYTES)
      let short = await costOf(t, world, way, 1)
      for (let run = 1; run < RUNS && isDear(short, long); run++) {
        const again = await costOf(t, world, way, 1)
        short = { cpuMs: Math.min(short.cpuMs, again.cpuMs), bytes: Math.min(short.bytes, again.bytes) }
      }
      const told =
        `${way.name}: ${short.cpuMs} ms and ${mib(short.bytes)} in pieces of 1, ` +
        `${long.cpuMs} ms and ${mib(long.bytes)} in pieces of ${LONG_BYTES}`
      t.notOk(isDear(short, long), told)
    }
    t.comment(`${ways.length} ways in, ${BYTES} bytes each`)
  })
}
