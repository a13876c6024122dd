/**
 * Runs suites of tests, each in a process of its own, some at the same time: `npm test`, or with `-- FILE...` these
 * alone. Says one line for each, with its seconds, what it left out, and all points that failed; `.tap/test-results` has
 * all points. A suite that failed is run once more, alone: one that passes then is named as unsteady, and fails nothing.
 */
import { spawn } from 'node:child_process'
import { createWriteStream, globSync, mkdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { pipeline } from 'node:stream/promises'

const ROOT = join(import.meta.dirname, '..')
/** Suites wait for processes of their own now and then: a third one keeps two cores busy meanwhile. */
const AT_ONCE = 3
const SUITE_S = 1_800
/** Those that take longest begin first, so that none is left alone at the end. */
const LONGEST = ['contract', 'batches', 'gateway', 'storage', 'threads', 'commands', 'browser', 'tasks']
/** Of what is told of one point. */
const TOLD_MAX_CHARS = 4_000

/** All suites; a file at the top is one too. */
function suites(): readonly string[] {
  const place = (file: string): number => {
    const at = LONGEST.findIndex(folder => file.startsWith(`test/${folder}/`))
    return at === -1 ? LONGEST.length : at
  }
  const found = globSync(['test/*.test.ts', 'test/**/*.suite.ts'], { cwd: ROOT }).toSorted()
  return found.toSorted((one, other) => place(one) - place(other))
}

/** @returns whether it passed */
async function run(suite: string): Promise<boolean> {
  const sinceMs = performance.now()
  const results = join(ROOT, '.tap/test-results', `${suite}.tap`)
  mkdirSync(dirname(results), { recursive: true })
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', suite], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'inherit'],
    env: {
      ...process.env,
      TAP_TIMEOUT: String(SUITE_S),
      NODE_COMPILE_CACHE: join(ROOT, 'node_modules/.cache/tests'),
    },
    timeout: (SUITE_S + 60) * 1_000,
    killSignal: 'SIGKILL',
  })
  const ended = new Promise<boolean>(resolve => {
    child.on('exit', code => resolve(code === 0))
  })
  await pipeline(child.stdout, createWriteStream(results))
  const passed = await ended
  const seconds = ((performance.now() - sinceMs) / 1_000).toFixed(1)
  process.stdout.write(`${passed ? 'ok' : 'not ok'} - ${suite} # time=${seconds}s\n`)
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

/** What failed, with what is told of it; for a suite that ended in the middle, its last lines. */
function failures(text: string): string {
  const points = text.match(/^ *not ok .*\n(?: *---\n[\s\S]*?\n *\.\.\.\n)?/gm) ?? [
    text.slice(-TOLD_MAX_CHARS),
  ]
  return points.map(point => `${point.slice(0, TOLD_MAX_CHARS).trimEnd()}\n`).join('')
}

async function main(named: readonly string[]): Promise<number> {
  const waiting = [...(named.length > 0 ? named : suites())]
  const failed: string[] = []
  const runNext = async (): Promise<void> => {
    for (let suite = waiting.shift(); suite !== undefined; suite = waiting.shift())
      if (!(await run(suite))) failed.push(suite)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, runNext))
  const unsteady: string[] = []
  for (const suite of failed.splice(0)) ((await run(suite)) ? unsteady : failed).push(suite)
  if (unsteady.length > 0)
    process.stdout.write(
      `# Unsteady, failed at first and passed alone; mend what it waits for: ${unsteady.join(' ')}\n`,
    )
  process.stdout.write(failed.length === 0 ? '# All passed.\n' : `# Failed: ${failed.join(' ')}\n`)
  return failed.length === 0 ? 0 : 1
}

if (process.argv[1] === import.meta.filename) process.exitCode = await main(process.argv.slice(2))
