/** Requests that are sent again, over the threads of one process and over two instances with Redis. */
import t from 'tap'
import { SIM_FORMATS, simModel, simProvider } from '../../src/apps/simulator/rows.ts'
import { createSim } from '../../src/apps/simulator/simulator.ts'
import { NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { withoutPostgres } from '../support/postgres.ts'
import { WITHOUT_REDIS } from '../support/redis-server.ts'
import { readPiece } from '../support/resumable.ts'
import { retryAtTwoNodes } from '../support/retries.ts'

const REQUESTS = 60
/** New connections each: both threads take some of them. */
const AT_ONCE = 20
const ROWS = SIM_FORMATS.slice(0, 2).map(format => simModel('write-40-5', format))

t.test('requests with one key that come at once to two threads are one run', async t => {
  const sim = createSim({ keepRequests: 0 })
  const { url } = await sim.listen()
  t.teardown(() => sim.close())
  const settings = { providers: [simProvider(url)], models: ROWS, limits: NO_SHEDDING }
  const gateway = await startGatewayProcess(t, settings, { GATEWAY_SERVE_THREADS: '2' })
  const { port, apiKey } = gateway
  let runs = 0
  for (const { id: model } of ROWS) {
    for (const stream of [true, false]) {
      const headers = { 'idempotency-key': `${model}/${stream}` }
      const body = { model, input: 'Write', stream }
      const pieces = await Promise.all(
        Array.from({ length: AT_ONCE }, () => readPiece('/responses', { port, apiKey, headers, body })),
      )
      const [first] = pieces
      for (const each of pieces) {
        t.equal(each.status, 200, each.body)
        t.same(each.frames, first?.frames)
        if (!stream) t.equal(each.body, first?.body)
        t.equal(each.isDone, stream)
      }
      const replayed = pieces.filter(each => each.headers['x-gateway-replayed'] === 'true')
      t.equal(replayed.length, AT_ONCE - 1)
      t.equal(sim.state.requests, ++runs)
    }
  }
  t.equal(await gateway.metric('gateway_replays_total', { outcome: 'completed' }), runs * (AT_ONCE - 1))
})

t.test(
  `${REQUESTS} requests are sent in 1 to 5 rounds to two instances`,
  { skip: WITHOUT_REDIS || (await withoutPostgres()) },
  t => retryAtTwoNodes(t, REQUESTS),
)
