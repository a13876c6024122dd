/** Every subject of a bench that is installed here starts, serves both transports and formats, and ends. */
import { readFileSync } from 'node:fs'
import t from 'tap'
import { scriptThreads, usage } from '../../bench/cpu.ts'
import { startGateway } from '../../bench/gateway.ts'
import { setGuardedKey, setWindows } from '../../bench/guards.ts'
import { direct, startBare, startHaproxy, startNginx } from '../../bench/peers.ts'
import { has } from '../../bench/processes.ts'
import type { Row } from '../../bench/results.ts'
import { build, type Starter, takeDown, warm } from '../../bench/rig.ts'
import { measure, type Rig } from '../../bench/row.ts'
import type { Scenario } from '../../bench/scenarios.ts'
import type { Subject } from '../../bench/subjects.ts'
import { NO_SHEDDING } from '../support/gateway-process.ts'
import { scenario } from './sample.ts'

const ROOT = `${import.meta.dirname}/../..`
const plain = scenario('relay-20')
const secure = scenario('relay-256-tls')
const chat = scenario('translate-chat-256')

const windowed = { ...scenario('guard-relay-20'), rampSeconds: 0.2, warmSeconds: 0.3, windowSeconds: 2 }
const busy = { ...scenario('guard-busy-64'), rampSeconds: 0.2, warmSeconds: 0.3, windowSeconds: 1 }

const built = await build([plain, secure, chat, windowed, busy], ROOT, false)
t.teardown(() => takeDown(built))

const subjects: readonly (readonly [name: string, starter: Starter, installed: boolean])[] = [
  ['direct', async bench => direct(bench), true],
  ['nginx', startNginx, has('nginx')],
  ['haproxy', startHaproxy, has('haproxy')],
  ['bare', startBare, true],
  ['sluice', bench => startGateway(bench, 'sluice', '', { limits: NO_SHEDDING }), true],
]

for (const [name, starter, installed] of subjects) {
  t.test(name, { skip: installed ? false : `${name} is not installed` }, async t => {
    const subject = await starter(built.bench, plain)
    const pids = subject.pids()
    try {
      t.equal(pids.length > 0, name !== 'direct')
      await t.resolves(warm(subject, plain), 'plain')
      await t.resolves(warm(subject, chat), 'chat-completions upstream')
      if (name !== 'direct') {
        await t.resolves(warm(subject, secure), 'TLS to the upstream')
        t.ok(usage(pids).rssBytes > 1_000_000, 'its memory can be read')
        t.ok(usage(pids).cpuMicros > 0, 'and its CPU')
      }
    } finally {
      await subject.stop()
    }
    t.equal(usage(pids).cpuMicros, 0, 'nothing of it is left')
  })
}

const AT = { round: 0, place: 0, idleRssBytes: 0 }

/** Rows until one has what its window was for: one that the machine stood still in may have nothing at all. */
async function measured(
  rig: Rig,
  scenario: Scenario,
  subject: Subject,
  has: (row: Row) => boolean,
): Promise<Row> {
  for (let rows = 1; ; rows++) {
    const row = await measure(rig, scenario, subject, AT)
    if (has(row) || rows === 6) return row
  }
}

t.test('guards on output hold the first text back for a window, and the whole text arrives', async t => {
  const extras = { prepare: setWindows, watchLag: true, limits: NO_SHEDDING }
  const subject = await startGateway(built.bench, 'sluice-windowed', '', extras)
  try {
    await warm(subject, windowed)
    const { streams, lagMicros, busy } = await measured(
      built.rig,
      windowed,
      subject,
      ({ streams, lagMicros }) =>
        (streams?.finished ?? 0) > 0 && (streams?.firstEvent.count ?? 0) > 0 && (lagMicros?.count ?? 0) > 20,
    )
    t.match(streams, { lost: 0, wrong: 0, errors: 0, refused: 0 })
    t.ok((streams?.finished ?? 0) > 0 && (streams?.firstEvent.count ?? 0) > 0)
    // A window is full with the 22nd text, 21 spaces after the first one.
    t.ok((streams?.firstEvent.p50 ?? 0) >= 21 * 20 * 1000 * 0.95, `${streams?.firstEvent.p50} µs`)
    t.ok((lagMicros?.count ?? 0) > 20, 'the event loop told its lag')
    t.equal(busy, undefined, 'nothing was beside the streams')
  } finally {
    await subject.stop()
  }
})

t.test(
  'task workers are kept busy by another caller, away from the core of the thread that serves',
  async t => {
    const subject = await startGateway(built.bench, 'sluice-busy', '', {
      guardedKey: setGuardedKey,
      limits: NO_SHEDDING,
    })
    try {
      await warm(subject, busy)
      t.same(subject.guarded?.threads(), [], 'nobody has had a task yet')
      // Whoever yields to all others gets nothing beside a process that never rests: here they take their turn. What is
      // not looked at in time is an error, as it has to be, so one row of a few has to be without a pause.
      const rig = { ...built.rig, tasksYield: false }
      const row = await measured(
        rig,
        busy,
        subject,
        ({ busy }) => busy?.errors === 0 && busy.requests > 0 && busy.share > 0.1,
      )
      t.match(row.streams, { lost: 0, wrong: 0, errors: 0, refused: 0 })
      t.match(row.busy, { errors: 0, wrong: 0 })
      t.ok((row.busy?.requests ?? 0) > 0 && (row.busy?.share ?? 0) > 0.1, JSON.stringify(row.busy))
      t.equal(row.lagMicros, undefined, 'nobody watched the event loop')
      const workers = subject.guarded?.threads() ?? []
      t.equal(workers.length, 2)
      const { proxy, tasks } = built.rig.cores
      if (proxy === null) return
      for (const pid of subject.pids()) {
        for (const tid of scriptThreads(pid)) {
          const status = readFileSync(`/proc/${pid}/task/${tid}/status`, 'utf8')
          const wanted = workers.some(worker => worker.tid === tid) ? tasks : proxy
          t.equal(/^Cpus_allowed_list:\t(.*)$/m.exec(status)?.[1], String(wanted))
        }
      }
    } finally {
      await subject.stop()
    }
  },
)

t.test('a row whose other caller nobody guards is none of busy task workers', async t => {
  const ownKey = async () => built.bench.apiKey
  const subject = await startGateway(built.bench, 'sluice-busy', '', { guardedKey: ownKey })
  try {
    await t.rejects(measure(built.rig, busy, subject, AT), /sluice-busy has no task worker/)
  } finally {
    await subject.stop()
  }
})

t.test('a subject that is not there is an error that says so', async t => {
  const missing = { ...built.bench, root: '/nonexistent' }
  await t.rejects(startGateway(missing, 'sluice', ''), /ended/)
})
