/** Renders the rows of two revisions as a page of tables. Pure. */
import { rowsOf, series } from './figures.ts'
import { costOf, type Row, workOf } from './results.ts'
import type { Scenario } from './scenarios.ts'
import { paired, type Spread, spread } from './stats.ts'
import { NONE, table, withSpread } from './table.ts'

type Figure = readonly [name: string, take: (row: Row) => number | null | undefined]

const FIGURES: readonly Figure[] = [
  ['CPU µs per event or request', costOf],
  ['delay p50 µs', row => row.streams?.delay.p50],
  ['delay p99 µs', row => row.streams?.delay.p99],
  ['first event p50 µs', row => row.streams?.firstEvent.p50],
  ['requests/s', row => (row.json === null ? null : workOf(row) / row.json.seconds)],
  ['RSS MiB', row => row.rssBytes / 1024 ** 2],
]

/** Fewer pairs say nothing of how far chance goes. */
const PAIRS_MIN = 3

/** In words, whether a ratio stands out of what the same code shows. */
export function told(ratio: Spread | null, noise: Spread | null): string {
  if (ratio === null || noise === null) return NONE
  if (ratio.count < PAIRS_MIN || noise.count < PAIRS_MIN) return 'too few rounds'
  const low = Math.min(1, noise.min)
  const high = Math.max(1, noise.max)
  if (ratio.median > high && ratio.min > 1) return 'more'
  if (ratio.median < low && ratio.max < 1) return 'less'
  return 'not told apart'
}

export function comparison(
  labels: { readonly before: string; readonly after: string },
  scenarios: readonly Scenario[],
  rows: readonly Row[],
  failures: readonly string[],
): string {
  const sections = scenarios.map(({ name }) => {
    const figures = FIGURES.flatMap(([title, take]) => {
      const before = series({ rows }, name, 'before', take)
      const after = series({ rows }, name, 'after', take)
      const again = series({ rows }, name, 'before-again', take)
      if (before.size === 0 || after.size === 0) return []
      const divide = (a: number, b: number): number => a / b
      const ratio = spread(paired(after, before, divide))
      const noise = spread(paired(again, before, divide))
      return [
        [
          title,
          withSpread(spread([...before.values()])),
          withSpread(spread([...after.values()])),
          withSpread(ratio),
          withSpread(noise),
          told(ratio, noise),
        ],
      ]
    })
    const rejected = rowsOf({ rows }, name).filter(row => row.rejected.length > 0)
    const notes = rejected.map(
      row => `- ${row.subject}, round ${row.round + 1}: ${[...row.rejected, ...row.marks].join(', ')}`,
    )
    return [
      `## ${name}`,
      table(['', 'before', 'after', 'after / before', 'before / before', ''], figures),
      ...(notes.length === 0 ? [] : [`Rejected:\n\n${notes.join('\n')}`]),
    ].join('\n\n')
  })
  return `${[
    `# ${labels.before} (before) and ${labels.after} (after)`,
    'Medians, least and greatest in brackets; ratios are formed within a round. The last ratio is the same code twice.',
    ...sections,
    ...failures.map(failure => `Not measured: ${failure}`),
  ].join('\n\n')}\n`
}
