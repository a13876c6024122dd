/** What tells of busy task workers, and of the lag of an event loop, in files. */
import { execFileSync, spawn } from 'node:child_process'
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { moveAside, parseSchedule } from '../../bench/busy.ts'
import { scriptThreads } from '../../bench/cpu.ts'
import { lagOf, lagWithin } from '../../bench/lag-samples.ts'
import { chooseCores, has } from '../../bench/processes.ts'

const WINDOW = { fromMicros: 1_000, untilMicros: 2_000 }

t.test('time that a thread ran, and that it wanted to run', async t => {
  t.same(parseSchedule('700 300 12\n'), { ran: 700, wanted: 1000 })
})

t.test('this process has a thread that runs JavaScript, and one that is gone has none', async t => {
  t.ok(scriptThreads(process.pid).includes(process.pid))
  t.same(scriptThreads(0), [])
})

t.test(
  'a thread is moved to the core it is to have, and yields to all others there where it is to',
  async t => {
    const core = chooseCores().tasks
    if (core === null || !has('chrt')) {
      t.pass('nothing is pinned here')
      return
    }
    const child = spawn('sleep', ['300'])
    t.teardown(() => child.kill())
    const pid = child.pid ?? 0
    const policy = (): string => execFileSync('chrt', ['--pid', String(pid)], { encoding: 'utf8' })
    for (const yields of [false, true]) {
      moveAside({ pid, tid: pid }, core, yields)
      t.match(readFileSync(`/proc/${pid}/status`, 'utf8'), `Cpus_allowed_list:\t${core}\n`)
      t.equal(policy().includes('SCHED_IDLE'), yields, policy())
    }
    t.throws(() => moveAside({ pid: 2 ** 30, tid: 2 ** 30 }, core, true), 'a thread that is gone')
  },
)

t.test('the lag of a window is that of its samples alone', async t => {
  const text = '900 50\n1000 1\n1500 2\n1999 3\n2000 70\n'
  t.match(lagOf(text, WINDOW), { count: 3, p50: 2, max: 3 })
})

t.test('notes that end before the window does tell nothing yet', async t => {
  t.equal(lagOf('1000 1\n1500 2\n', WINDOW), null)
  t.equal(lagOf('', WINDOW), null)
  t.equal(lagOf('2000 1\n', WINDOW), null, 'none of the window')
})

t.test('notes are waited for, and silence is no absence of lag', async t => {
  const file = join(t.testdir({}), 'lag')
  writeFileSync(file, '1000 1\n1500 900\n')
  await t.rejects(lagWithin(file, WINDOW, 0), /does not tell its lag/)
  const found = lagWithin(file, WINDOW)
  appendFileSync(file, '2001 5\n')
  t.match(await found, { count: 2, max: 900 })
})
