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

interface Bounds {
  readonly calls: number
  readonly files: number
  readonly promises: number
}

/** By the name of the request. Lower them when a request has become cheaper. */
const BOUNDS: Readonly<Record<string, Bounds>> = {
  JSON: { calls: 721, files: 117, promises: 12 },
  'JSON, chat to Responses': { calls: 803, files: 118, promises: 12 },
  'JSON, chat to chat': { calls: 848, files: 127, promises: 12 },
  'JSON, Messages to Messages': { calls: 824, files: 137, promises: 12 },
  'JSON, a server tool of two turns': { calls: 1_643, files: 160, promises: 66 },
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
    t.ok(Number(calls) <= bounds.calls * SLACK, `${name}: ${calls} calls of ${bounds.calls}`)
    t.ok(Number(files) <= bounds.files * SLACK, `${name}: ${files} files of ${bounds.files}`)
    t.ok(Number(promises) <= bounds.promises, `${name}: ${promises} promises of ${bounds.promises}`)
  }
})
