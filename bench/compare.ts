/**
 * `npm run bench:compare -- REV_A REV_B`: measures the gateway at two revisions in interleaved rounds, and REV_A a
 * second time, so that the page shows next to every difference how much two runs of the same code differ. `.` is the
 * working tree.
 */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { comparison } from './comparison.ts'
import { startGateway } from './gateway.ts'
import { commitOf } from './machine.ts'
import { endOnSignals } from './processes.ts'
import { Progress } from './progress.ts'
import type { Row } from './results.ts'
import { extract, linkPackages } from './revision.ts'
import { build, runScenario, type Starter, takeDown } from './rig.ts'
import { chosen, estimateSeconds, rowSeconds, type Scenario, type SubjectName } from './scenarios.ts'

const ROOT = join(import.meta.dirname, '..')
const ROUNDS = 6
const DEFAULT = ['json-64', 'relay-256-tls', 'translate-chat-256']
const USAGE = `npm run bench:compare -- REV_A REV_B [--only NAME[,NAME]] [--rounds N] [--seconds S]

  REV_A, REV_B  revisions git knows; . is the working tree. Both run with the packages of the working tree.
  --only        scenarios; without it ${DEFAULT.join(', ')}
`

/** Sources of a revision with the packages of the working tree. */
function sourcesOf(revision: string, folder: string): string {
  if (revision === '.') return ROOT
  const tree = extract(ROOT, revision, folder)
  linkPackages(ROOT, tree)
  return tree
}

function label(revision: string): string {
  if (revision === '.') {
    const { commit, dirty } = commitOf(ROOT)
    return dirty ? `working tree on ${commit}` : commit
  }
  return execFileSync('git', ['rev-parse', '--short', revision], { cwd: ROOT, encoding: 'utf8' }).trim()
}

function settings() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      only: { type: 'string', multiple: true },
      rounds: { type: 'string' },
      seconds: { type: 'string' },
    },
  })
  const [before, after] = positionals
  if (before === undefined || after === undefined || positionals.length > 2) throw new Error(USAGE)
  const only = (values.only ?? DEFAULT).flatMap(names => names.split(','))
  const seconds = values.seconds === undefined ? null : Number(values.seconds)
  const scenarios = chosen({
    only,
    rounds: Number(values.rounds ?? ROUNDS),
    seconds,
    subjects: [],
    quick: false,
  }).map((scenario): Scenario => ({ ...scenario, subjects: ['before', 'after', 'before-again'] }))
  return { before, after, scenarios }
}

async function main(): Promise<void> {
  const { before, after, scenarios } = settings()
  const folder = mkdtempSync(join(tmpdir(), 'sluice-compare-'))
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  const roots = { before: sourcesOf(before, folder), after: sourcesOf(after, folder) }
  const labels = { before: label(before), after: label(after) }
  const starter =
    (side: 'before' | 'after', name: SubjectName): Starter =>
    bench =>
      startGateway({ ...bench, root: roots[side] }, name, labels[side])
  const starters = {
    before: starter('before', 'before'),
    after: starter('after', 'after'),
    'before-again': starter('before', 'before-again'),
  }
  const rows: Row[] = []
  const failures: string[] = []
  const built = await build(scenarios, ROOT, true)
  const progress = new Progress(estimateSeconds(scenarios))
  try {
    for (const scenario of scenarios) {
      progress.scenario(scenario.name, estimateSeconds([scenario]))
      await runScenario(built, scenario, starters, {
        absent: (name, reason) => failures.push(`${name}: ${reason}`),
        row: row => {
          rows.push(row)
          progress.row(row, rowSeconds(scenario))
        },
        failed: (subject, round, reason) =>
          failures.push(`${scenario.name}, ${subject}, round ${round + 1}: ${reason}`),
      })
    }
  } finally {
    progress.end()
    await takeDown(built)
  }
  process.stdout.write(comparison(labels, scenarios, rows, failures))
}

endOnSignals()

try {
  await main()
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`)
  process.exitCode = 2
}
