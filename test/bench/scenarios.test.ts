/** The table of scenarios and what a command line makes of it. */
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { CLAIMS } from '../../bench/claims.ts'
import { COLD_STARTS, chosen, estimateSeconds, SCENARIOS, SUBJECTS } from '../../bench/scenarios.ts'

const ALL = { only: [], subjects: [], rounds: null, seconds: null, quick: false } as const
const names = (choice: Parameters<typeof chosen>[0]): string[] => chosen(choice).map(({ name }) => name)

t.test('the table holds what the results promise', async t => {
  t.same(
    SCENARIOS.map(({ name }) => name),
    [
      'json-1',
      'cache-json-1',
      'json-64',
      'json-256',
      'guard-json-16',
      'guard-json-1',
      'guard-patterns-64',
      'guard-relay-20',
      'guard-busy-64',
      'relay-20',
      'starts-400',
      'relay-256',
      'relay-256-tls',
      'relay-1000',
      'relay-2000',
      'relay-5000',
      'relay-5000-fast',
      'translate-chat-256',
      'relay-64',
      'slow-readers',
      'slow-readers-100',
      'whole-streams-64',
      'aborts',
      'published-chat',
      'published-chat-stream',
      'published-responses',
      'published-responses-stream',
      'published-messages',
      'published-messages-stream',
    ],
  )
  for (const scenario of SCENARIOS) {
    const { name, load, subjects, tls } = scenario
    t.ok(subjects.includes('sluice') && subjects.includes('nginx'), `${name}: beside nginx`)
    t.equal(new Set(subjects).size, subjects.length, `${name}: no subject twice`)
    t.notOk(subjects.some(subject => !SUBJECTS.includes(subject)))
    t.notOk(tls && subjects.includes('direct'), `${name}: the load speaks no TLS`)
    if (load.kind !== 'streams') continue
    const { events, spacingMs } = load.plan
    const rate = (load.streams * 1000) / spacingMs
    const most = load.plan.events === 100 && spacingMs === 100 ? 50_000 : 13_000
    t.ok(rate <= most, `${name}: ${rate} events/s leave load and upstream room on one core`)
    const lastsSeconds = (events * spacingMs) / 1000
    const until = scenario.rampSeconds + scenario.warmSeconds + scenario.windowSeconds
    t.ok(until > lastsSeconds, `${name}: streams end within the row, so that their checksums are seen`)
  }
})

t.test('a whole run takes less than forty minutes, a quick one about eight', async t => {
  const whole = estimateSeconds(chosen(ALL)) + COLD_STARTS.seconds
  t.ok(whole <= 40 * 60, `${whole} s`)
  t.ok(estimateSeconds(chosen({ ...ALL, quick: true })) <= 9 * 60)
})

t.test('every target is that of a scenario, and the guards have theirs', async t => {
  const names = new Set([COLD_STARTS.name, ...SCENARIOS.map(({ name }) => name)])
  for (const { scenario, text } of CLAIMS) t.ok(names.has(scenario), text)
  t.same(
    CLAIMS.filter(({ scenario }) => scenario.startsWith('guard-')).map(({ scenario, limit, unit }) => [
      scenario,
      limit,
      unit,
    ]),
    [
      ['guard-json-16', 0.75, '×'],
      ['guard-patterns-64', 0.8, '×'],
      ['guard-patterns-64', 0.8, '×'],
      ['guard-json-1', 1, 'ms'],
      // 1,024 bytes at 48 every 20 ms, and 5.
      ['guard-relay-20', 431, 'ms'],
      ['guard-busy-64', 5, 'ms'],
      ['guard-busy-64', 5, 'ms'],
    ],
  )
})

t.test('--only takes whole names, and beginnings where no scenario is called so', async t => {
  t.same(names({ ...ALL, only: ['relay-256'] }), ['relay-256'])
  t.same(names({ ...ALL, only: ['json'] }), ['json-1', 'json-64', 'json-256'])
  t.same(names({ ...ALL, only: ['slow', 'json-1'] }), ['json-1', 'slow-readers', 'slow-readers-100'])
  t.same(
    names(ALL),
    SCENARIOS.filter(({ aside }) => aside !== true).map(({ name }) => name),
  )
  t.equal(
    names({ ...ALL, only: ['published'] }).length,
    6,
    'those aside are measured when they are asked for',
  )
  t.throws(() => chosen({ ...ALL, only: ['nonsense'] }), /nonsense/)
})

t.test('--subjects leaves out all others', async t => {
  const [scenario] = chosen({ ...ALL, only: ['json-1'], subjects: ['sluice', 'direct'] })
  t.same(scenario?.subjects, ['direct', 'sluice'], 'in the order of the table')
  t.throws(() => chosen({ ...ALL, subjects: ['nonsense'] }), /--subjects: no subject nonsense/)
})

t.test('--rounds and --seconds win over --quick, which wins over the table', async t => {
  const own = { ...ALL, only: ['relay-256-tls'] }
  t.match(chosen(own), [{ rounds: 5, windowSeconds: 4 }])
  t.match(chosen({ ...own, quick: true }), [{ rounds: 1, windowSeconds: 1 }])
  t.match(chosen({ ...own, quick: true, rounds: 2, seconds: 9 }), [{ rounds: 2, windowSeconds: 9 }])
})

t.test('the command lists the scenarios and measures nothing', async t => {
  const entry = join(import.meta.dirname, '../../bench/run.ts')
  const text = execFileSync(process.execPath, [entry, '--list', '--only', 'relay-5000'], { encoding: 'utf8' })
  t.match(text, /^relay-5000 .*5,000 streams/)
  t.match(text, /all of these +\d+ s\n$/)
  const wrong = spawnSync(process.execPath, [entry, '--only', 'nonsense'], { encoding: 'utf8' })
  t.equal(wrong.status, 2)
  t.match(wrong.stderr, 'no scenario nonsense')
})

t.test('a run that a signal ends writes nothing', async t => {
  const folder = t.testdir({})
  const out = join(folder, 'out')
  const child = spawn(
    process.execPath,
    [
      join(import.meta.dirname, '../../bench/run.ts'),
      '--only',
      'json-1',
      '--subjects',
      'sluice',
      '--out',
      out,
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  )
  child.stderr.setEncoding('utf8')
  // Before the output is read: the process may have ended by the time that is over.
  const exited = once(child, 'exit')
  let told = ''
  for await (const text of child.stderr) {
    told += text
    if (!child.killed && told.includes('json-1')) child.kill('SIGTERM')
  }
  t.same(await exited, [130, null])
  t.notOk(existsSync(out), told)
})
