/**
 * Runs test suites, each in a process of its own, several at a time: `npm test`, or with `-- FILE...` only these.
 * Prints one line for each with its seconds, the tests that it skipped, and all points that failed; `.tap/test-results`
 * has all points. A suite that failed is run once more, alone: if it passes then, it is reported as unsteady and does
 * not fail the run.
 */
import { spawn } from 'node:child_process'
import { chmodSync, createWriteStream, globSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { testFolder } from './test-folder.ts'

const ROOT = join(import.meta.dirname, '..')
/** Suites wait for processes of their own now and then: a third one keeps two cores busy meanwhile. */
const AT_ONCE = 3
const SUITE_S = 1_800
const FLAGS = [
  '--disable-warning=ExperimentalWarning',
  '--import',
  new URL('./tap-errors.ts', import.meta.url).href,
]
/** Those that take longest begin first, so that none is left alone at the end; the largest are run in parts. */
const LONGEST: readonly { readonly folder: string; readonly parts: number }[] = [
  { folder: 'contract', parts: 4 },
  { folder: 'browser', parts: 2 },
  { folder: 'batches', parts: 2 },
  { folder: 'pipeline', parts: 2 },
  { folder: 'features', parts: 4 },
  { folder: 'apps', parts: 3 },
  { folder: 'process', parts: 2 },
  { folder: 'providers', parts: 2 },
  { folder: 'storage', parts: 2 },
  ...['server', 'api'].map(folder => ({ folder, parts: 1 })),
]
/** Of the report of one failed point. */
const REPORT_MAX_CHARS = 4_000

/** What one process runs. */
interface Unit {
  readonly suite: string
  /** Some of its files, `2/4`; all without it. */
  readonly part: string
}

/** All suites; a file at the top is one too. */
function units(): readonly Unit[] {
  const place = (file: string): number => {
    const at = LONGEST.findIndex(({ folder }) => file.startsWith(`test/${folder}/`))
    return at === -1 ? LONGEST.length : at
  }
  const found = globSync(['test/*.test.ts', 'test/**/*.suite.ts'], { cwd: ROOT }).toSorted()
  return found
    .toSorted((one, other) => place(one) - place(other))
    .flatMap(suite => {
      const parts = suite.endsWith('/all.suite.ts') ? (LONGEST[place(suite)]?.parts ?? 1) : 1
      return Array.from({ length: parts }, (_, at) => ({
        suite,
        part: parts === 1 ? '' : `${at + 1}/${parts}`,
      }))
    })
}

const nameOf = ({ suite, part }: Unit): string => (part === '' ? suite : `${suite} ${part}`)

/** @returns whether it passed */
async function run(unit: Unit, folder: string): Promise<boolean> {
  const sinceMs = performance.now()
  const { suite, part } = unit
  const results = join(
    ROOT,
    '.tap/test-results',
    `${[suite, part.replace('/', '-of-')].filter(Boolean).join('.')}.tap`,
  )
  mkdirSync(dirname(results), { recursive: true })
  const temporary = mkdtempSync(join(folder, 's'))
  chmodSync(temporary, 0o1777)
  const child = spawn(process.execPath, [...FLAGS, suite], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'inherit'],
    env: {
      ...process.env,
      TAP_TIMEOUT: String(SUITE_S),
      NODE_COMPILE_CACHE: join(ROOT, 'node_modules/.cache/tests'),
      ...(part === '' ? {} : { TEST_PART: part }),
      TMPDIR: temporary,
    },
    timeout: (SUITE_S + 60) * 1_000,
    killSignal: 'SIGKILL',
  })
  const ended = new Promise<boolean>(resolve => {
    child.on('exit', code => resolve(code === 0))
  })
  await pipeline(child.stdout, createWriteStream(results))
  const passed = await ended
  rmSync(temporary, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 })
  const seconds = ((performance.now() - sinceMs) / 1_000).toFixed(1)
  process.stdout.write(`${passed ? 'ok' : 'not ok'} - ${nameOf(unit)} # time=${seconds}s\n`)
  const told = readFileSync(results, 'utf8')
  process.stdout.write(skips(told))
  if (!passed) process.stdout.write(failures(told))
  return passed
}

/** What was left out, and why: a line for each reason. */
function skips(text: string): string {
  const counts = new Map<string, number>()
  for (const [, reason = ''] of text.matchAll(/^ *ok \d+.* # SKIP ?(.*)$/gm))
    counts.set(reason, (counts.get(reason) ?? 0) + 1)
  return [...counts].map(([reason, count]) => `  skipped ${count}: ${reason || 'no reason'}\n`).join('')
}

/** What failed, with its report; for a suite that ended in the middle, its last lines. */
function failures(text: string): string {
  const points = text.match(/^ *not ok .*\n(?: *---\n[\s\S]*?\n *\.\.\.\n)?/gm) ?? [
    text.slice(-REPORT_MAX_CHARS),
  ]
  return points.map(point => `${point.slice(0, REPORT_MAX_CHARS).trimEnd()}\n`).join('')
}

async function main(named: readonly string[]): Promise<number> {
  const folder = testFolder()
  const waiting = named.length > 0 ? named.map(suite => ({ suite, part: '' })) : [...units()]
  const failed: Unit[] = []
  const runNext = async (): Promise<void> => {
    for (let unit = waiting.shift(); unit !== undefined; unit = waiting.shift())
      if (!(await run(unit, folder))) failed.push(unit)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, runNext))
  const unsteady: Unit[] = []
  for (const unit of failed.splice(0)) ((await run(unit, folder)) ? unsteady : failed).push(unit)
  if (unsteady.length > 0)
    process.stdout.write(
      `# Unsteady, failed at first and passed alone; mend what it waits for: ${unsteady.map(nameOf).join(' ')}\n`,
    )
  process.stdout.write(
    failed.length === 0 ? '# All passed.\n' : `# Failed: ${failed.map(nameOf).join(' ')}\n`,
  )
  return failed.length === 0 ? 0 : 1
}

if (process.argv[1] === import.meta.filename) process.exitCode = await main(process.argv.slice(2))
