/** What processes cost, as /proc tells it. */
import { execFileSync } from 'node:child_process'
import t from 'tap'
import { busyMicros, family, parseMachine, parseStat, usage } from '../../bench/cpu.ts'

t.test('a line of /proc/PID/stat, whatever the command is called', async t => {
  const line =
    '4711 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 150 13 14 15 16 12 18 19 20 300 22 23 24 25 26 27 28 29 30'
  const ticks = Number(execFileSync('getconf', ['CLK_TCK'], { encoding: 'utf8' }))
  t.same(parseStat(line, 4096), { cpuMicros: (400 / ticks) * 1e6, rssBytes: 300 * 4096, threads: 12 })
})

t.test('busy time of each core leaves out idle and waiting', async t => {
  const text = 'cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 1000 2000 4 5 6 0 0\ncpu1 1 0 0 7 0 0 0 0 0 0\nintr 5\n'
  const [first = 0, second = 0] = parseMachine(text)
  t.equal(first / second, 21)
})

t.test('this process costs something, and is the first of its family', async t => {
  const before = usage([process.pid])
  // Several ticks of the kernel's clock, however little of the machine this process gets.
  const from = process.cpuUsage()
  for (let spent = 0; spent < 50_000; ) {
    const { user, system } = process.cpuUsage(from)
    spent = user + system
  }
  const after = usage([process.pid])
  t.ok(after.cpuMicros > before.cpuMicros, 'spinning shows')
  t.ok(Math.abs(after.rssBytes / process.memoryUsage.rss() - 1) < 0.5)
  t.equal(family(process.pid)[0], process.pid)
  t.ok(busyMicros().every(micros => micros > 0))
  t.same(usage([2 ** 30]), { cpuMicros: 0, rssBytes: 0, threads: 0 }, 'a process that is gone costs nothing')
})
