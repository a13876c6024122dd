/**
 * Twelve serve threads through bursts and quiet times: no thread is lost, nothing is logged as a fault, and memory does
 * not grow from one quiet time to the next. SOAK_MINUTES says how long (1), SOAK_QUIET_SECONDS how long a quiet time is (15).
 */
import t from 'tap'
import { type IdleRound, idleRounds } from '../process/threads/idle-rounds.ts'
import { startGatewayProcess } from '../support/gateway-process.ts'
import { mib } from '../support/stream-probe.ts'

const MINUTES = Number(process.env['SOAK_MINUTES'] ?? 1)
const QUIET_SECONDS = Number(process.env['SOAK_QUIET_SECONDS'] ?? 15)
/**
 * Memory of a quiet time may be this many times that of the first ones. The margin is wide: V8 decides when it collects
 * garbage.
 */
const GROWTH_MAX = 1.5

t.setTimeout((MINUTES + 5) * 60_000)

t.test(`${MINUTES} minutes of bursts and quiet times`, async t => {
  const gateway = await startGatewayProcess(t, {}, { GATEWAY_SERVE_THREADS: '12', LOG_LEVEL: 'warn' })
  const rounds: IdleRound[] = []
  const endMs = performance.now() + MINUTES * 60_000
  await idleRounds(gateway, {
    continues: () => performance.now() < endMs,
    requests: 240,
    quietMs: QUIET_SECONDS * 1000,
    onRound(round) {
      rounds.push(round)
      const { burstBytes, idleBytes, failed } = round
      t.comment(
        `quiet time ${rounds.length}: ${mib(burstBytes)} after the burst, ${mib(idleBytes)} idle, ${failed} requests failed`,
      )
    },
  })
  const faults = gateway
    .stdout()
    .split('\n')
    .filter(line => line.includes('"level":"error"'))
  const lost = gateway.stdout().split('thread died').length - 1
  t.comment(`${rounds.length} quiet times, ${lost} threads lost, ${faults.length} faults logged`)
  t.equal(lost, 0, 'no thread is lost')
  t.same(faults.slice(0, 3), [])
  t.equal(
    rounds.reduce((sum, { failed }) => sum + failed, 0),
    0,
    'no request failed',
  )
  const settled = rounds.slice(1)
  const early = Math.max(...settled.slice(0, 5).map(({ idleBytes }) => idleBytes))
  const last = settled.at(-1)?.idleBytes ?? 0
  t.ok(last <= early * GROWTH_MAX, `${mib(last)} at the end, ${mib(early)} at the beginning`)
  t.equal(await gateway.stop(), 0)
  t.equal(gateway.stderr(), '')
})
