/** Three times what a gateway takes: what is taken goes its way, the rest is told at once to come again. */
import t from 'tap'
import { startGatewayProcess } from '../support/gateway-process.ts'
import { eventually, openProbe, pause, percentile } from '../support/stream-probe.ts'
import { startProviders } from './provider-process.ts'

t.setTimeout(180_000)

const CAPACITY = 50
const SECONDS = 4
const ROUNDS = 3
/** Each stream writes this many tokens, 20 ms apart: a second, so that the capacity is 50 streams per second. */
const MODEL = 'write-50-20'
/** A refused client comes again after this; sooner than it is told to, which keeps the load at three times. */
const AGAIN_MS = 200

t.test('three times as many streams as fit', async t => {
  const providers = await startProviders(t)
  const gateway = await startGatewayProcess(t, {
    ...providers.settings({ sim: [MODEL] }),
    limits: { maxInFlight: CAPACITY },
  })
  const ask = () => openProbe({ model: `sim/${MODEL}`, input: 'x', stream: true }, gateway).result
  /** Keeps so many clients busy for so long; what became of their requests. */
  const run = async (clients: number, seconds: number): Promise<Found> => {
    const untilMs = performance.now() + seconds * 1000
    const found: Found = { completed: [], refused: [], hints: new Set(), wrong: 0 }
    const busy = async () => {
      while (performance.now() < untilMs) {
        const sinceMs = performance.now()
        const result = await ask()
        const tookMs = performance.now() - sinceMs
        if (result.last === 'response.completed' && result.done && result.fault === null)
          found.completed.push(tookMs)
        else if (result.status === 503) {
          found.refused.push(tookMs)
          found.hints.add(result.headers['retry-after'])
          await pause(AGAIN_MS)
        } else found.wrong++
      }
    }
    await Promise.all(Array.from({ length: clients }, busy))
    return found
  }
  await run(CAPACITY, 1)
  // In turns, so that a machine that gets busier meanwhile is not taken for the gateway.
  const rounds = []
  for (let round = 0; round < ROUNDS; round++) {
    rounds.push({ alone: await run(CAPACITY, SECONDS), tripled: await run(3 * CAPACITY, SECONDS) })
  }
  const alone = together(rounds.map(round => round.alone))
  const tripled = together(rounds.map(round => round.tripled))
  const after = await run(CAPACITY, 2)

  t.equal(alone.wrong + tripled.wrong + after.wrong, 0, 'nothing but streams that completed and refusals')
  t.equal(alone.refused.length, 0, 'what fits is not refused')
  t.equal(after.refused.length, 0, 'and neither is it afterwards')
  t.same(tripled.hints, new Set(['1']), 'each refusal says when to come again')
  t.ok(tripled.completed.length >= 0.9 * alone.completed.length, 'as much is completed as without the rest')
  const slower = percentile(tripled.completed, 0.5) / percentile(alone.completed, 0.5)
  t.ok(slower <= 1.3, `median of the streams that were taken: x ${slower.toFixed(2)}`)
  t.ok(percentile(tripled.refused, 0.5) <= 20, 'refusals p50')
  // By the gateway's own clock: the generator shares the processor with everything else. No stream is as short.
  const prompt = await gateway.metric('gateway_request_duration_seconds_bucket', {
    route: '/responses',
    le: '0.025',
  })
  t.ok(prompt >= 0.95 * tripled.refused.length, `${prompt} of ${tripled.refused.length} refused within 25 ms`)
  t.equal(await gateway.metric('gateway_shed_total', { reason: 'in_flight' }), tripled.refused.length)
  t.comment(
    `completed ${alone.completed.length} alone, ${tripled.completed.length} at three times the load ` +
      `(p99 ${percentile(alone.completed, 0.99).toFixed(0)} and ${percentile(tripled.completed, 0.99).toFixed(0)} ms); ` +
      `${tripled.refused.length} refusals: p50 ${percentile(tripled.refused, 0.5).toFixed(1)} ms, ` +
      `p99 ${percentile(tripled.refused, 0.99).toFixed(1)} ms`,
  )
})

interface Found {
  readonly completed: number[]
  readonly refused: number[]
  readonly hints: Set<unknown>
  wrong: number
}

function together(parts: readonly Found[]): Found {
  return {
    completed: parts.flatMap(part => part.completed),
    refused: parts.flatMap(part => part.refused),
    hints: new Set(parts.flatMap(part => [...part.hints])),
    wrong: parts.reduce((sum, part) => sum + part.wrong, 0),
  }
}

t.test('more work than the event loop can do', async t => {
  const providers = await startProviders(t)
  const gateway = await startGatewayProcess(t, {
    ...providers.settings({ sim: ['write-3', MODEL] }),
    limits: { maxLagMs: 50 },
  })
  // Tens of thousands of small values: some 10 ms of parsing each.
  const costly = { model: 'sim/write-3', input: 'x', nonsense: Array.from({ length: 60_000 }, () => [1]) }
  const streams = Array.from({ length: 5 }, () =>
    openProbe({ model: `sim/${MODEL}`, input: 'x', stream: true }, gateway),
  )
  const statuses = new Map<number, number>()
  // Lag has to last for ten seconds.
  const untilMs = performance.now() + 20_000
  await Promise.all(
    Array.from({ length: 24 }, async () => {
      while (performance.now() < untilMs) {
        const { status } = await openProbe(costly, gateway).result
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
        if (status === 503 || status === 0) await pause(20)
      }
    }),
  )
  const shed = await gateway.metric('gateway_shed_total', { reason: 'lag' })
  t.ok(shed > 0, 'some were turned away because the loop was late')
  t.ok((statuses.get(200) ?? 0) > 0, 'and some were not')
  for (const stream of streams) {
    const { last, done, fault } = await stream.result
    t.same(
      [last, done, fault],
      ['response.completed', true, null],
      'a stream that was taken before is completed',
    )
  }
  const well = () =>
    openProbe({ model: 'sim/write-3', input: 'x', stream: true }, gateway).result.then(
      ({ status }) => status === 200,
    )
  const sinceMs = performance.now()
  t.ok(await eventually(well, 5_000), 'well again within five seconds')
  t.comment(
    `${[...statuses].map(([status, count]) => `${count} x ${status}`).join(', ')}; ${shed} turned away for lag; ` +
      `well again after ${(performance.now() - sinceMs).toFixed(0)} ms`,
  )
})
