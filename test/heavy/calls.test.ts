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
  JSON: { calls: 565, files: 107, promises: 7 },
  'JSON, chat to Responses': { calls: 676, files: 109, promises: 7 },
  'JSON, chat to chat': { calls: 720, files: 119, promises: 7 },
  'JSON, Messages to Messages': { calls: 667, files: 125, promises: 7 },
  'JSON, a server tool of two turns': { calls: 1_450, files: 158, promises: 57 },
}

t.test('a request costs no more than it did', { timeout: 600_000 }, async t => {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--disable-warning=ExperimentalWarning', join(ROOT, 'bench/calls.ts'), ROOT, '--only', 'JSON'],
    { cwd: ROOT, maxBuffer: 16 * 1024 * 1024 },
  )
  for (const [name, bounds] of Object.entries(BOUNDS)) {
    const row = stdout.split('\n').find(line => line.startsWith(`| ${name} |`))
    const [calls, , files, promises] = (row ?? '')
      .split('|')
      .slice(3)
      .map(cell => Number(cell))
    const counted: Bounds = { calls: Number(calls), files: Number(files), promises: Number(promises) }
    for (const kind of ['calls', 'files', 'promises'] as const) {
      const most = bounds[kind] * (kind === 'promises' ? 1 : SLACK)
      const told = `${name}: ${counted[kind]} ${kind} of ${bounds[kind]}`
      t.ok(counted[kind] <= most, told)
      t.ok(counted[kind] >= bounds[kind] * LEAST, `${told}, all of them counted`)
    }
  }
})
