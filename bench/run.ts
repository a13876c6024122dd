/**
 * `npm run bench`: measures the gateway and its peers, and writes the results as raw JSON and as a page. `--list` names
 * the scenarios; `--only`, `--rounds`, `--seconds` and `--quick` measure less.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { parseArgs } from 'node:util'
import { coldStarts } from './cold-start.ts'
import { startGateway } from './gateway.ts'
import { setGuardedKey, setGuards, setManyPatterns, setPatterns, setWindows } from './guards.ts'
import { commitOf, machine, versions } from './machine.ts'
import { direct, startBare, startHaproxy, startLlmops, startLlms, startNginx, startPortkey } from './peers.ts'
import { cacheFolder, endOnSignals, isBeingEnded } from './processes.ts'
import { profile } from './profile.ts'
import { Progress } from './progress.ts'
import { report } from './report.ts'
import type { Row, Run, Start } from './results.ts'
import { type Built, build, runScenario, type Starter, takeDown } from './rig.ts'
import {
  type Choice,
  COLD_STARTS,
  chosen,
  estimateSeconds,
  rowSeconds,
  type SCENARIOS,
  type SubjectName,
} from './scenarios.ts'
import { turns } from './turns.ts'

const ROOT = join(import.meta.dirname, '..')
const RESULTS = join(import.meta.dirname, 'results')
/** What `--profile` looks at by itself: a request and an event. */
const PROFILED = ['json-64', 'relay-256-tls']
const USAGE = `npm run bench -- [--list] [--only NAME[,NAME]] [--subjects NAME[,NAME]] [--rounds N] [--seconds S] [--quick] [--published] [--node-probe] [--out FOLDER]

  --list        names the scenarios and the time they take, and measures nothing
  --only        scenarios of these names, or all whose names begin so
  --subjects    these of a scenario's subjects
  --rounds      rounds of each scenario, instead of its own number
  --seconds     length of each measured window, instead of its own
  --quick       one round with short windows: to see that all is well, not to quote
  --published   the six workloads that other gateways publish, which a whole run leaves out
  --node-probe  loads with probe.ts even where probe.c can be compiled
  --out         where the results go; without it a whole run writes bench/RESULTS.md and bench/results/latest.json,
                any other run only prints the page
  --profile     where the gateway itself spends a request or an event: tables, flame graphs and profiles for developer
                tools, in the folder of --out or in bench/results/profile; without --only json-64 and relay-256-tls
  --turns       what makes turns of the gateway's event loop long, as a page; without --only relay-2000
  --render FILE writes the page of raw results that are there, and measures nothing
`

const STARTERS: Readonly<Partial<Record<SubjectName, Starter>>> = {
  direct: async bench => direct(bench),
  nginx: startNginx,
  haproxy: startHaproxy,
  bare: startBare,
  sluice: (bench, scenario) =>
    startGateway(bench, 'sluice', '', {
      watchLag: scenario.load.kind === 'streams' && scenario.load.busy !== undefined,
    }),
  'sluice-again': bench => startGateway(bench, 'sluice-again', ''),
  'sluice-undici': bench => startGateway(bench, 'sluice-undici', '', { transport: 'undici' }),
  'sluice-node': bench => startGateway(bench, 'sluice-node', '', { front: 'node' }),
  'sluice-h2': bench => startGateway(bench, 'sluice-h2', '', { http2: true }),
  'sluice-cached': bench =>
    startGateway(bench, 'sluice-cached', '', { cache: { enabled: true, seconds: 86_400 } }),
  'sluice-guarded': bench => startGateway(bench, 'sluice-guarded', '', { prepare: setGuards }),
  'sluice-patterns': bench => startGateway(bench, 'sluice-patterns', '', { prepare: setPatterns }),
  'sluice-many-patterns': bench =>
    startGateway(bench, 'sluice-many-patterns', '', { prepare: setManyPatterns }),
  'sluice-windowed': bench => startGateway(bench, 'sluice-windowed', '', { prepare: setWindows }),
  'sluice-busy': bench =>
    startGateway(bench, 'sluice-busy', '', { guardedKey: setGuardedKey, watchLag: true }),
  portkey: bench => startPortkey(bench, cacheFolder('portkey')),
  llmops: bench => startLlmops(bench, cacheFolder('llmops')),
  llms: bench => startLlms(bench, cacheFolder('llms')),
}

function positive(text: string | undefined, name: string): number | null {
  if (text === undefined) return null
  const value = Number(text)
  if (!(value > 0)) throw new Error(`--${name}: expected a number above 0`)
  return value
}

function settings() {
  const { values } = parseArgs({
    options: {
      list: { type: 'boolean' },
      only: { type: 'string', multiple: true },
      subjects: { type: 'string', multiple: true },
      rounds: { type: 'string' },
      seconds: { type: 'string' },
      quick: { type: 'boolean' },
      published: { type: 'boolean' },
      'node-probe': { type: 'boolean' },
      out: { type: 'string' },
      render: { type: 'string' },
      profile: { type: 'boolean' },
      turns: { type: 'boolean' },
      help: { type: 'boolean', short: 'h' },
    },
  })
  const rounds = positive(values.rounds, 'rounds')
  const names = (values.only ?? []).flatMap(list => list.split(','))
  if (values.published === true) names.push('published')
  const starts = names.includes(COLD_STARTS.name)
  const choice: Choice = {
    only: names.filter(name => name !== COLD_STARTS.name),
    subjects: (values.subjects ?? []).flatMap(names => names.split(',')),
    rounds: rounds === null ? null : Math.max(1, Math.round(rounds)),
    seconds: positive(values.seconds, 'seconds'),
    quick: values.quick === true,
  }
  const whole =
    names.length === 0 &&
    choice.subjects.length === 0 &&
    choice.rounds === null &&
    choice.seconds === null &&
    !choice.quick
  const scenarios = starts && choice.only.length === 0 ? [] : chosen(choice)
  return {
    values,
    choice,
    whole,
    scenarios,
    starts: starts || (names.length === 0 && choice.subjects.length === 0),
  }
}

function list(scenarios: readonly (typeof SCENARIOS)[number][], starts: boolean): string {
  const lines = scenarios.map(
    scenario =>
      `${scenario.name.padEnd(20)} ${String(Math.round(estimateSeconds([scenario]))).padStart(4)} s  ${scenario.title} (${scenario.subjects.join(', ')})`,
  )
  const { name, seconds } = COLD_STARTS
  if (starts)
    lines.push(`${name.padEnd(20)} ${String(seconds).padStart(4)} s  cold starts of the installed package`)
  const all = estimateSeconds(scenarios) + (starts ? seconds : 0)
  return `${lines.join('\n')}\n${'all of these'.padEnd(20)} ${String(Math.round(all)).padStart(4)} s\n`
}

/** Pages of other measurements that stand beside the raw results. */
function morePages(): string[] {
  if (!existsSync(RESULTS)) return []
  return readdirSync(RESULTS)
    .filter(name => name.endsWith('.md'))
    .sort()
    .map(name => readFileSync(join(RESULTS, name), 'utf8'))
}

/** One row per line: a change of one run shows as that run's lines. */
function rawJson(run: Run): string {
  const { rows, ...head } = run
  const text = JSON.stringify(head, null, 1)
  return `${text.slice(0, -2)},\n "rows": [\n${rows.map(row => JSON.stringify(row)).join(',\n')}\n]}\n`
}

function keep(run: Run, folder: string, page: string): void {
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'latest.json'), rawJson(run))
  writeFileSync(page, report(run, morePages()))
  process.stderr.write(
    `written: ${relative(process.cwd(), page)}, ${relative(process.cwd(), join(folder, 'latest.json'))}\n`,
  )
}

async function main(): Promise<number> {
  const { values, choice, whole, scenarios, starts } = settings()
  if (values.help === true) {
    process.stdout.write(USAGE)
    return 0
  }
  if (values.list === true) {
    process.stdout.write(list(scenarios, starts))
    return 0
  }
  if (values.render !== undefined) {
    process.stdout.write(report(JSON.parse(readFileSync(values.render, 'utf8')) as Run, morePages()))
    return 0
  }
  if (values.profile === true) {
    const profiled = choice.only.length > 0 ? scenarios : chosen({ ...choice, only: PROFILED })
    process.stdout.write(await profile(profiled, ROOT, values.out ?? join(RESULTS, 'profile')))
    return 0
  }
  if (values.turns === true) {
    const profiled = choice.only.length > 0 ? scenarios : chosen({ ...choice, only: ['relay-2000'] })
    process.stdout.write(await turns(profiled, ROOT))
    return 0
  }
  const startRounds = !starts ? 0 : (choice.rounds ?? (choice.quick ? 1 : COLD_STARTS.rounds))
  const run = await measureAll(scenarios, startRounds, values['node-probe'] !== true)
  if (isBeingEnded()) return 1
  if (values.out !== undefined) keep(run, values.out, join(values.out, 'RESULTS.md'))
  else if (whole) keep(run, RESULTS, join(import.meta.dirname, 'RESULTS.md'))
  else process.stdout.write(report(run))
  // A run without a single row that counts for the gateway has shown nothing.
  const counts = run.rows.some(row => row.subject === 'sluice' && row.rejected.length === 0)
  return counts || (run.starts ?? []).length > 0 ? 0 : 1
}

async function measureAll(
  scenarios: ReturnType<typeof chosen>,
  startRounds: number,
  compile: boolean,
): Promise<Run> {
  const startedAt = new Date()
  const rows: Row[] = []
  const failures: string[] = []
  const starts: Start[] = []
  const absent: Record<string, string> = {}
  const subjectVersions: Record<string, string> = {}
  const built: Built = await build(scenarios, ROOT, compile)
  const progress = new Progress(estimateSeconds(scenarios) + (startRounds === 0 ? 0 : COLD_STARTS.seconds))
  if (compile && built.rig.probe === null)
    progress.note('no C compiler: the load is probe.ts, which costs more per event')
  const starters = Object.fromEntries(
    Object.entries(STARTERS).map(([name, starter]): [string, Starter] => [
      name,
      async (bench, scenario) => {
        const subject = await starter(bench, scenario)
        if (subject.version !== '') subjectVersions[name] = subject.version
        return subject
      },
    ]),
  )
  try {
    if (startRounds > 0) {
      progress.scenario(COLD_STARTS.name, COLD_STARTS.seconds)
      await coldStarts(built.bench, startRounds, one => {
        starts.push(one)
        progress.note(
          `${one.state} start: ready after ${Math.round(one.readyMs)} ms, first token after ${Math.round(one.tokenMs)}`,
        )
      }).catch(error => {
        failures.push(`${COLD_STARTS.name}: not measured: ${String(error).split('\n', 1)[0]}`)
        progress.note(failures.at(-1) ?? '')
      })
    }
    for (const scenario of scenarios) {
      progress.scenario(scenario.name, estimateSeconds([scenario]))
      await runScenario(built, scenario, starters, {
        absent: (name, reason) => {
          absent[name] = reason
          progress.note(`${name} is absent: ${reason}`)
        },
        row: row => {
          rows.push(row)
          progress.row(row, rowSeconds(scenario))
        },
        failed: (subject, round, reason) => {
          failures.push(`${scenario.name}, ${subject}, round ${round + 1}: not measured: ${reason}`)
          progress.note(failures.at(-1) ?? '')
        },
      })
    }
  } finally {
    progress.end()
    await takeDown(built)
  }
  const { cores, probe } = built.rig
  return {
    startedAt: startedAt.toISOString(),
    seconds: (Date.now() - startedAt.getTime()) / 1000,
    ...commitOf(ROOT),
    machine: machine(),
    versions: { ...versions(ROOT), ...subjectVersions },
    pinned:
      cores.proxy === null
        ? 'nothing'
        : `proxy on core ${cores.proxy}, load on ${cores.load}, upstream on ${cores.upstream}, busy task workers on ${cores.tasks}`,
    probe: probe === null ? 'node' : 'c',
    scenarios,
    absent,
    failures,
    rows,
    ...(starts.length === 0 ? {} : { starts }),
  }
}

endOnSignals()

try {
  process.exitCode = await main()
} catch (error) {
  process.stderr.write(`bench: ${error instanceof Error ? error.message : String(error)}\n`)
  process.exitCode = 2
}
