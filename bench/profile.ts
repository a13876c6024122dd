/**
 * `npm run bench -- --profile`: shows where the gateway spends the time of a request or an event: CPU by thread, time
 * and bytes of the serve thread by stage and function, time of the main thread by function, and system calls. Writes
 * profiles for developer tools, and flame graphs.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import type { HeapProfiler, Profiler } from 'node:inspector'
import { connect, type Socket } from 'node:net'
import { basename, join, relative } from 'node:path'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'
import { startGateway } from './gateway.ts'
import { has } from './processes.ts'
import { flameGraph } from './profile/flame.ts'
import { type CallNode, ofBytes, ofTime, shares } from './profile/profile.ts'
import type { SamplerCommand } from './profile/sampler.ts'
import { type Row, workOf } from './results.ts'
import { type Built, build, practise, takeDown, warm } from './rig.ts'
import { measure } from './row.ts'
import type { Scenario } from './scenarios.ts'
import type { Subject } from './subjects.ts'
import { digits, table } from './table.ts'

/** Functions that a page names. */
const FUNCTIONS = 30
/** Unmeasured load: V8 compiles a function anew while it learns, and a profile of that is no profile of production. */
const PRACTICE_SECONDS = 15

/** CPU of one thread in a window. */
interface ThreadTime {
  readonly name: string
  readonly micros: number
}

/** Measures each scenario's gateway as it is, with the time of two threads and bytes sampled, and with calls traced. */
export async function profile(scenarios: readonly Scenario[], root: string, out: string): Promise<string> {
  const pages: string[] = []
  const built = await build(scenarios, root, true)
  try {
    for (const scenario of scenarios)
      pages.push(await profileOne(built, scenario, root, join(out, scenario.name)))
  } finally {
    await takeDown(built)
  }
  return pages.join('\n')
}

async function profileOne(built: Built, scenario: Scenario, root: string, out: string): Promise<string> {
  const { rig, bench } = built
  mkdirSync(out, { recursive: true })
  const path = join(rig.folder, `sampler-${scenario.name}`)
  const preload = pathToFileURL(join(import.meta.dirname, 'profile/sampler.ts'))
  preload.searchParams.set('socket', path)
  preload.searchParams.set('folder', rig.folder)
  const gateway = await startGateway(bench, 'sluice', '', { preload })
  const sampler = connect(path)
  const mainSampler = connect(`${path}-main`)
  try {
    await Promise.all([once(sampler, 'connect'), once(mainSampler, 'connect')])
    await warm(gateway, scenario)
    await practise(rig, { ...scenario, practiceSeconds: PRACTICE_SECONDS }, gateway)
    const window = async (begin: () => unknown, end: () => unknown): Promise<number> => {
      const watched: Subject = { ...gateway, target: gateway.target, watch: { begin, end } }
      return worked(await measure(rig, scenario, watched, { round: 0, place: 0, idleRssBytes: 0 }))
    }
    const threads = threadTimes(gateway.pids())
    const plain = await window(threads.begin, threads.end)
    const src = pathToFileURL(join(root, 'src/')).href
    const sampled = async (
      thread: Socket,
      what: 'time' | 'bytes',
    ): Promise<{ file: string; work: number }> => {
      let file: string | null = null
      const work = await window(
        () => ask(thread, `start-${what}`),
        async () => {
          file = await ask(thread, `take-${what}`)
        },
      )
      if (file === null) throw new Error(`no profile of ${what}`)
      copyFileSync(file, join(out, basename(file)))
      return { file, work }
    }
    const time = await sampled(sampler, 'time')
    const timeTree = ofTime(JSON.parse(readFileSync(time.file, 'utf8')) as Profiler.Profile, src)
    const main = await sampled(mainSampler, 'time')
    const mainTree = ofTime(JSON.parse(readFileSync(main.file, 'utf8')) as Profiler.Profile, src)
    const bytes = await sampled(sampler, 'bytes')
    const bytesTree = ofBytes(
      JSON.parse(readFileSync(bytes.file, 'utf8')) as HeapProfiler.SamplingHeapProfile,
      src,
    )
    const unit = scenario.load.kind === 'json' ? 'request' : 'event'
    const write = (name: string, tree: CallNode, thread: string, words: string, per: number): void =>
      writeFileSync(join(out, name), flameGraph(tree, `${scenario.name}, ${thread} thread`, words, per))
    write('time.svg', timeTree, 'serve', `µs a ${unit}`, time.work)
    write('main-time.svg', mainTree, 'main', `µs a ${unit}`, main.work)
    write('bytes.svg', bytesTree, 'serve', `bytes a ${unit}`, bytes.work)
    const calls = await traced(gateway.pids(), window)
    const page = [
      `## ${scenario.name}\n`,
      `${scenario.title}. Figures are for one ${unit}; the profiler itself makes the sampled ones greater.\n`,
      table(
        ['thread', `CPU µs`],
        threads.spent().map(({ name, micros }) => [name, digits(micros / plain)]),
      ),
      '',
      stageTable(timeTree, time.work, bytesTree, bytes.work),
      '',
      functionTable('time, µs', timeTree, time.work),
      '',
      functionTable('bytes', bytesTree, bytes.work),
      '',
      functionTable('time of the main thread, µs', mainTree, main.work),
      ...(calls === null ? [] : ['', table(['system call', 'calls'], calls)]),
      '',
    ].join('\n')
    writeFileSync(join(out, 'profile.md'), page)
    process.stderr.write(`written: ${relative(process.cwd(), out)}/profile.md, time.svg, bytes.svg\n`)
    return page
  } finally {
    sampler.destroy()
    mainSampler.destroy()
    await gateway.stop()
  }
}

/** @throws Error when the load saw nothing that counts */
export function worked(row: Row): number {
  const work = workOf(row)
  if (!(work > 0)) throw new Error(`${row.scenario}: nothing was measured: ${row.rejected.join(', ')}`)
  return work
}

export async function ask(socket: Socket, command: SamplerCommand): Promise<string | null> {
  const lines = createInterface({ input: socket })
  const answered = once(lines, 'line')
  socket.write(`${command}\n`)
  const [line] = (await answered) as [string]
  lines.close()
  return JSON.parse(line) as string | null
}

/** CPU by thread, with helper threads of one name added up. */
function threadTimes(pids: readonly number[]) {
  const read = (): Map<number, { name: string; micros: number; pid: number }> =>
    new Map(
      pids.flatMap(pid =>
        readdirSync(`/proc/${pid}/task`).map(tid => {
          const folder = `/proc/${pid}/task/${tid}`
          const name = readFileSync(`${folder}/comm`, 'utf8').trim()
          const micros = Number(readFileSync(`${folder}/schedstat`, 'utf8').split(' ', 1)[0]) / 1000
          return [Number(tid), { name, micros, pid }] as const
        }),
      ),
    )
  let before = read()
  let after = before
  return {
    begin(): void {
      before = read()
    },
    end(): void {
      after = read()
    },
    /** Node names no worker: of the threads with the name of the main thread, the busiest one serves. */
    spent(): ThreadTime[] {
      const all = [...after].map(([tid, one]) => ({
        tid,
        ...one,
        micros: one.micros - (before.get(tid)?.micros ?? 0),
      }))
      const mainName = all.find(({ tid, pid }) => tid === pid)?.name
      const workers = all.filter(({ tid, pid, name }) => tid !== pid && name === mainName)
      const serves = workers.toSorted((a, b) => b.micros - a.micros)[0]?.tid
      const sums = new Map<string, number>()
      for (const { tid, pid, name, micros } of all) {
        const called =
          tid === pid ? 'main' : tid === serves ? 'serve' : name === mainName ? 'other workers' : name
        sums.set(called, (sums.get(called) ?? 0) + micros)
      }
      return [...sums]
        .map(([name, micros]) => ({ name, micros }))
        .filter(({ micros }) => micros > 0)
        .sort((a, b) => b.micros - a.micros)
    },
  }
}

function stageTable(time: CallNode, requests: number, bytes: CallNode, bytesRequests: number): string {
  const bytesByStage = new Map(shares(bytes, ({ stage }) => stage))
  const rows = shares(time, ({ stage }) => stage).filter(([stage]) => stage !== 'idle')
  const total = rows.reduce((sum, [, micros]) => sum + micros, 0)
  return table(
    ['stage', 'µs', 'share', 'bytes allocated'],
    rows.map(([stage, micros]) => [
      stage,
      digits(micros / requests),
      `${((micros / total) * 100).toFixed(1)} %`,
      bytesByStage.has(stage) ? String(Math.round((bytesByStage.get(stage) ?? 0) / bytesRequests)) : '–',
    ]),
  )
}

function functionTable(what: string, tree: CallNode, work: number): string {
  const rows = shares(tree, ({ name, stage }) => `${name} | ${stage}`).filter(
    ([name]) => !name.startsWith('(idle)'),
  )
  return table(
    ['function', 'for', what],
    rows.slice(0, FUNCTIONS).map(([name, own]) => [...name.split(' | '), digits(own / work)]),
  )
}

/** System calls of one request or event; null where strace is not installed or may not look. */
async function traced(
  pids: readonly number[],
  window: (begin: () => unknown, end: () => unknown) => Promise<number>,
): Promise<string[][] | null> {
  if (!has('strace')) return null
  const tracer = { child: null as ReturnType<typeof spawn> | null, said: '' }
  const work = await window(
    () => {
      const child = spawn('strace', ['-c', '-f', ...pids.flatMap(pid => ['-p', String(pid)])])
      child.stderr.setEncoding('utf8').on('data', (text: string) => {
        tracer.said += text
      })
      tracer.child = child
    },
    async () => {
      const { child } = tracer
      if (child === null) return
      const ended = once(child, 'close')
      child.kill('SIGINT')
      await ended
    },
  )
  const rows = [...tracer.said.matchAll(/^ *[\d.]+ +[\d.]+ +\d+ +(\d+)(?: +\d+)? +([a-z_0-9]+)$/gm)].filter(
    ([, , name]) => name !== 'total',
  )
  return rows
    .map(([, count = '', name = '']) => [name, Number(count) / work] as const)
    .filter(([, count]) => count >= 0.005)
    .sort((a, b) => b[1] - a[1])
    .map(([name, count]) => [name, digits(count)])
}
