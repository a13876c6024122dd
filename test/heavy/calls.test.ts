/**
 * A request costs no more calls, files and promises than these: a feature is paid for by those who ask for it. Counts
 * of `npm run bench:calls`, which do not depend on how busy the machine is.
 */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'

const ROOT = join(import.meta.dirname, '../..')
/** Counts differ by a few from run to run. */
const SLACK = 1.02
/** A row with less than this part of its bounds has not counted its request. */
const LEAST = 0.6

interface Bounds {
  readonly calls: number
  readonly files: number
  readonly promises: number
}

/** By the name of the request. Lower them when a request has become cheaper. */
const BOUNDS: Readonly<Record<string, Bounds>> = {
  JSON: { calls: 411, files: 83, promises: 7 },
  'JSON, chat to Responses': { calls: 430, files: 88, promises: 7 },
  'JSON, chat to chat': { calls: 481, files: 98, promises: 7 },
  'JSON, Messages to Messages': { calls: 529, files: 105, promises: 7 },
  'JSON, a server tool of two turns': { calls: 1_214, files: 140, promises: 45 },
}

/** What traces add to each, whether they are kept or not. Timers: one sends many traces. */
const TRACED = { calls: 75, files: 5, promises: 0 } as const

/** The counts of one run, by the name of the request. */
async function counted(...words: readonly string[]): Promise<(name: string) => Bounds> {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--disable-warning=ExperimentalWarning', join(ROOT, 'bench/calls.ts'), ROOT, '--only', 'JSON', ...words],
    { cwd: ROOT, maxBuffer: 16 * 1024 * 1024 },
  )
  return name => {
    const row = stdout.split('\n').find(line => line.startsWith(`| ${name} |`))
    const [calls, , files, promises] = (row ?? '')
      .split('|')
      .slice(3)
      .map(cell => Number(cell))
    return { calls: Number(calls), files: Number(files), promises: Number(promises) }
  }
}

t.test('a request costs no more than it did', { timeout: 600_000 }, async t => {
  const countsOf = await counted()
  for (const [name, bounds] of Object.entries(BOUNDS)) {
    const counted = countsOf(name)
    for (const kind of ['calls', 'files', 'promises'] as const) {
      const most = bounds[kind] * (kind === 'promises' ? 1 : SLACK)
      const told = `${name}: ${counted[kind]} ${kind} of ${bounds[kind]}`
      t.ok(counted[kind] <= most, told)
      t.ok(counted[kind] >= bounds[kind] * LEAST, `${told}, all of them counted`)
    }
  }
})

for (const share of ['1', '0'])
  t.test(
    `traces whose collector is away add little, ${share} of them kept`,
    { timeout: 600_000 },
    async t => {
      const countsOf = await counted('--traces', share)
      for (const [name, bounds] of Object.entries(BOUNDS)) {
        const counts = countsOf(name)
        for (const kind of ['calls', 'files', 'promises'] as const) {
          const most = bounds[kind] + TRACED[kind] * (name.includes('two turns') ? 2 : 1)
          t.ok(
            counts[kind] <= most * (kind === 'promises' ? 1 : SLACK),
            `${name}: ${counts[kind]} ${kind} of ${most}`,
          )
          t.ok(counts[kind] >= bounds[kind] * LEAST, `${name}: ${counts[kind]} ${kind}, all of them counted`)
        }
      }
    },
  )
