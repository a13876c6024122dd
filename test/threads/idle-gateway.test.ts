/** Twelve serve threads through bursts of requests and quiet times, in a process of their own. */
import t from 'tap'
import { NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { type IdleRound, idleRounds } from '../support/idle-rounds.ts'

/** Far shorter than the default, so that all threads become quiet many times in a short test. */
const QUIET_MS = 80
const ROUNDS = 5

t.setTimeout(600_000)

t.test('no thread fails, however often all become idle together', async t => {
  const gateway = await startGatewayProcess(
    t,
    { timeouts: { quietMs: QUIET_MS }, limits: NO_SHEDDING },
    { GATEWAY_SERVE_THREADS: '12' },
  )
  const rounds: IdleRound[] = []
  await idleRounds(gateway, {
    continues: () => rounds.length < ROUNDS,
    requests: 36,
    quietMs: 4 * QUIET_MS,
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
