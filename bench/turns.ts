/** Reports what makes turns of the serve thread's event loop long, as a page of tables. */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import type { Profiler } from 'node:inspector'
import { connect } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { startGateway } from './gateway.ts'
import type { Watched } from './profile/turn-watch.ts'
import { countPauses, countTurns, entries, within, withinTurns } from './profile/turns.ts'
import { ask, worked } from './profile.ts'
import { type Built, build, practise, takeDown, warm } from './rig.ts'
import { measure } from './row.ts'
import type { Scenario } from './scenarios.ts'
import { quantilesOf } from './stats.ts'
import type { Subject } from './subjects.ts'
import { digits, table } from './table.ts'

/** Turns above this are looked at. */
const LONG_MS = 5
const ROWS = 25

export async function turns(scenarios: readonly Scenario[], root: string): Promise<string> {
  const built = await build(scenarios, root, true)
  try {
    const pages: string[] = []
    for (const scenario of scenarios) pages.push(await turnsOf(built, scenario, root))
    return pages.join('\n')
  } finally {
    await takeDown(built)
  }
}

async function turnsOf({ rig, bench }: Built, scenario: Scenario, root: string): Promise<string> {
  const path = join(rig.folder, `turns-${scenario.name}`)
  const preload = pathToFileURL(join(import.meta.dirname, 'profile/sampler.ts'))
  preload.searchParams.set('socket', path)
  preload.searchParams.set('folder', rig.folder)
  const gateway = await startGateway(bench, 'sluice', '', { preload })
  const sampler = connect(path)
  try {
    await once(sampler, 'connect')
    await warm(gateway, scenario)
    await practise(rig, scenario, gateway)
    let files: [turns: string | null, time: string | null] = [null, null]
    const watched: Subject = {
      ...gateway,
      watch: {
        async begin() {
          // A turn that starts the sampling of time is long by itself.
          await ask(sampler, 'start-time')
          await ask(sampler, 'start-turns')
        },
        async end() {
          const turns = await ask(sampler, 'take-turns')
          files = [turns, await ask(sampler, 'take-time')]
        },
      },
    }
    const row = await measure(rig, scenario, watched, { round: 0, place: 0, idleRssBytes: 0 })
    const [seen, profile] = files.map(file => JSON.parse(readFileSync(file ?? '', 'utf8'))) as [
      Watched,
      Profiler.Profile,
    ]
    return page(scenario, worked(row), seen, profile, pathToFileURL(join(root, 'src/')).href)
  } finally {
    sampler.destroy()
    await gateway.stop()
  }
}

function page(
  { name, title }: Scenario,
  work: number,
  { turns, pauses }: Watched,
  profile: Profiler.Profile,
  root: string,
): string {
  const lengths = quantilesOf(turns.map(({ cpuMicros }) => cpuMicros / 1000))
  const long = withinTurns(profile, turns, LONG_MS, root)
  const { stages, functions } = within(long)
  const shareTable = (head: string, rows: readonly (readonly [string, number])[]): string =>
    table(
      [head, 'ms', 'share'],
      rows
        .slice(0, ROWS)
        .map(([key, micros]) => [
          key,
          digits(micros / 1000),
          `${((100 * micros) / Math.max(1, long.total)).toFixed(1)} %`,
        ]),
    )
  return [
    `## ${name}\n`,
    `${title}. ${work} events or requests in ${turns.length} turns, in ms of CPU: p50 ${digits(lengths?.p50 ?? 0)}, p99 ${digits(lengths?.p99 ?? 0)}, longest ${digits(lengths?.max ?? 0)}.\n`,
    table(
      ['turns above', 'number', 'share of CPU'],
      countTurns(turns).map(({ aboveMs, turns, share }) => [
        `${aboveMs} ms`,
        String(turns),
        `${(100 * share).toFixed(1)} %`,
      ]),
    ),
    '',
    table(
      ['collector', 'pauses', 'ms', 'longest, ms'],
      countPauses(pauses).map(([kind, count, micros, most]) => [
        kind,
        String(count),
        digits(micros / 1000),
        digits(most / 1000),
      ]),
    ),
    '',
    `In turns above ${LONG_MS} ms:\n`,
    shareTable('begun by', entries(long)),
    '',
    shareTable('stage', stages),
    '',
    shareTable('function', functions),
    '',
  ].join('\n')
}
