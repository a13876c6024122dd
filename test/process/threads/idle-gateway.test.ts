/** Twelve serve threads through bursts of requests and quiet times, in a process of their own. */
import t from 'tap'
import { NO_SHEDDING, startGatewayProcess } from '../../support/gateway-process.ts'
import { type IdleRound, idleRounds } from './idle-rounds.ts'

/** A little longer than it takes a thread to become idle. A busy machine may need more: nothing depends on it. */
const QUIET_MS = 9_000
const ROUNDS = 2

t.setTimeout(600_000)

t.test('no thread fails when all become idle together, and all serve again afterwards', async t => {
  const gateway = await startGatewayProcess(t, { limits: NO_SHEDDING }, { GATEWAY_SERVE_THREADS: '12' })
  const rounds: IdleRound[] = []
  await idleRounds(gateway, {
    continues: () => rounds.length < ROUNDS,
    requests: 36,
    quietMs: QUIET_MS,
    onRound: round => rounds.push(round),
  })
  t.same(
    rounds.map(({ failed }) => failed),
    Array(ROUNDS).fill(0),
    'all requests are answered',
  )
  t.notMatch(gateway.stdout(), /thread died|failed/)
  t.equal(await gateway.stop(), 0)
  t.equal(gateway.stderr(), '')
})
