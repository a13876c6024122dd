/**
 * Cost of handing work to the task pool: round trips, parallel throughput, the size at which inline work stops being
 * cheaper, the cost of a dead worker, and the memory of a worker. `npx node bench/micro/tasks.ts`. Figures are
 * comparable only within one hour on one machine.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { systemClock } from '../../src/base/clock.ts'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import { createPoolOf } from '../../src/features/tasks/pool/pool.ts'
import { FAULTY, FAULTY_ENTRY } from '../../test/support/faulty-tasks.ts'

const AMPLE = { deadlineMs: 60_000 }
const create = (threads: number) =>
  createPoolOf(FAULTY, FAULTY_ENTRY, { threads, clock: systemClock, metrics: createMetrics() })
const percentile = (values: readonly number[], share: number) =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length * share)] ?? Number.NaN
const show = (name: string, value: string) => process.stdout.write(`${name.padEnd(58)}${value}\n`)

const pool = create(1)
const startMs = performance.now()
await pool.run('echo', 0, AMPLE)
show('first task, worker started', `${(performance.now() - startMs).toFixed(0)} ms`)
for (let n = 0; n < 5_000; n++) await pool.run('echo', n, AMPLE)

const trips: number[] = []
for (let n = 0; n < 20_000; n++) {
  const fromMs = performance.now()
  await pool.run('echo', n, AMPLE)
  trips.push((performance.now() - fromMs) * 1000)
}
show(
  'round trip of nothing',
  `p50 ${percentile(trips, 0.5).toFixed(0)} µs, p99 ${percentile(trips, 0.99).toFixed(0)} µs`,
)

/** Keeps `underWay` tasks of `ms` running. Text: tasks per second, this thread's share of each, and answer times. */
async function pipelined(tasks: number, underWay: number, ms = 0): Promise<string> {
  const times: number[] = []
  let remaining = tasks
  const fromMs = performance.now()
  const used = performance.eventLoopUtilization()
  const lanes = Array.from({ length: underWay }, async () => {
    while (remaining-- > 0) {
      const askedMs = performance.now()
      await (ms === 0 ? pool.run('echo', remaining, AMPLE) : pool.run('busy', { ms }, AMPLE))
      times.push((performance.now() - askedMs) * 1000)
    }
  })
  await Promise.all(lanes)
  const tookMs = performance.now() - fromMs
  const { active } = performance.eventLoopUtilization(used)
  const perSecond = ((tasks / tookMs) * 1000).toFixed(0)
  const each = ((active / tasks) * 1000).toFixed(1)
  const [p50, p99] = [percentile(times, 0.5).toFixed(0), percentile(times, 0.99).toFixed(0)]
  return `${perSecond} tasks/s, ${each} µs of this thread each, answered after p50 ${p50} µs, p99 ${p99} µs`
}
await pipelined(5_000, 16)
for (const underWay of [4, 16, 32]) show(`${underWay} under way`, await pipelined(50_000, underWay))
for (const micros of [50, 100, 250]) {
  show(`16 under way, ${micros} µs each`, await pipelined(10_000, 16, micros / 1000))
}

// Work of known length, one at a time: what it holds this thread up for, here and there.
for (const micros of [10, 25, 50, 100, 250, 1_000]) {
  const rounds = 1_000
  const ms = micros / 1000
  const used = performance.eventLoopUtilization()
  const times: number[] = []
  for (let n = 0; n < rounds; n++) {
    const fromMs = performance.now()
    await pool.run('busy', { ms }, AMPLE)
    times.push((performance.now() - fromMs) * 1000)
  }
  const { active } = performance.eventLoopUtilization(used)
  const own = (active / rounds) * 1000
  show(
    `work of ${micros} µs handed over`,
    `held up ${own.toFixed(0)} µs, answered after ${percentile(times, 0.5).toFixed(0)} µs`,
  )
}

for (const [name, fault] of [
  ['hang', () => pool.run('hang', {}, { deadlineMs: 100 })],
  ['exit', () => pool.run('exit', 1, AMPLE)],
  ['out of memory', () => pool.run('exhaust', null, AMPLE)],
] as const) {
  const times: number[] = []
  for (let round = 0; round < (name === 'out of memory' ? 3 : 10); round++) {
    await fault().catch(() => undefined)
    const fromMs = performance.now()
    await pool.run('echo', 0, AMPLE)
    times.push(performance.now() - fromMs)
  }
  show(
    `next answer after ${name}`,
    `p50 ${percentile(times, 0.5).toFixed(0)} ms, max ${Math.max(...times).toFixed(0)} ms`,
  )
}
await pool.close()

const WORKERS = 8
const before = process.memoryUsage.rss()
const many = create(WORKERS)
await Promise.all(Array.from({ length: WORKERS * 4 }, () => many.run('busy', { ms: 5 }, AMPLE)))
await sleep(500)
show('memory of a worker', `${((process.memoryUsage.rss() - before) / WORKERS / 1024 ** 2).toFixed(1)} MB`)
await many.close()
