/** The findings of a parity run as a page of text. Pure. */
import { type Case, FORMATS, WAYS } from './cases.ts'
import type { Difference, Outcome } from './compare.ts'
import { CHANNELS, type Channel, type DialectResult } from './dialects.ts'

/** A difference that is meant. */
export interface Intended {
  /** Matches the case's label, a line break, and the difference. */
  readonly pattern: RegExp
  readonly reason: string
}

const SOURCES = ['recording', 'golden', 'foreign'] as const
const CELL_WIDTH = 12

/** Differences that no entry covers, and how many each entry covers. */
export function sorted(
  differences: readonly Difference[],
  intended: readonly Intended[],
): { readonly unmeant: readonly Difference[]; readonly meant: ReadonlyMap<Intended, number> } {
  const meant = new Map<Intended, number>()
  const unmeant = differences.filter(one => {
    const entry = intended.find(({ pattern }) => pattern.test(`${one.case.label}\n${one.diff}`))
    if (entry !== undefined) meant.set(entry, (meant.get(entry) ?? 0) + 1)
    return entry === undefined
  })
  return { unmeant, meant }
}

export function parityPage(
  cases: readonly Case[],
  { differences, statuses, repeated }: Outcome,
  intended: readonly Intended[],
  shown: number,
): string {
  const { unmeant, meant } = sorted(differences, intended)
  const differing = new Set(differences.map(one => one.case))
  const rows = SOURCES.flatMap(source =>
    FORMATS.map(format => {
      const row = cases.filter(({ play }) => play.source === source && play.format === format)
      return [
        `${source} ${format}`,
        ...WAYS.map(way =>
          share(
            row.filter(one => one.way === way),
            differing,
          ),
        ),
      ]
    }),
  )
  const lines = [
    matrix(['', ...WAYS], rows),
    ...unmeant.slice(0, shown).map(one => `${one.case.label}\n${indented(one.diff)}`),
    ...(unmeant.length > shown ? [`… and ${unmeant.length - shown} more`] : []),
    ...[...meant].map(([{ reason }, count]) => `${count} intended: ${reason}`),
    ...repeated.map(one => `equal when played again: ${one.case.label}\n${indented(one.diff)}`),
    `statuses: ${[...statuses]
      .toSorted(([a], [b]) => a - b)
      .map(([status, count]) => `${status} × ${count}`)
      .join(', ')}`,
    `${cases.length - differences.length}/${cases.length} equal`,
  ]
  return `${lines.join('\n')}\n`
}

export function dialectPage(results: readonly DialectResult[], shown: number): string {
  const differing = results.filter(one => one.differences.length > 0)
  const lines = [
    ...CHANNELS.flatMap(channel => [channelMatrix(channel, results), '']),
    ...differing.slice(0, shown).map(one => `${headOf(one)}\n${indented(one.differences.join('\n'))}`),
    ...(differing.length > shown ? [`… and ${differing.length - shown} more`] : []),
    `${results.length - differing.length}/${results.length} equal`,
  ]
  return `${lines.join('\n')}\n`
}

function channelMatrix(channel: Channel, results: readonly DialectResult[]): string {
  const all = results.filter(one => one.channel === channel)
  const differing = new Set(all.filter(one => one.differences.length > 0))
  const dialects = [...new Set(all.map(one => one.dialect))].toSorted()
  const rows = FORMATS.map(format => [
    format,
    ...dialects.map(dialect =>
      share(
        all.filter(one => one.dialect === dialect && one.case.play.format === format),
        differing,
      ),
    ),
  ])
  return matrix([channel, ...dialects], rows)
}

function headOf({ case: one, dialect }: DialectResult): string {
  return `${one.label}, ${dialect}`
}

function share<T>(all: readonly T[], differing: ReadonlySet<T>): string {
  if (all.length === 0) return '–'
  return `${all.filter(one => !differing.has(one)).length}/${all.length}`
}

function matrix(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const first = Math.max(...[head, ...rows].map(row => (row[0] ?? '').length))
  const width = Math.max(CELL_WIDTH, ...head.slice(1).map(cell => cell.length + 2))
  return [head, ...rows]
    .map(([name = '', ...cells]) => name.padEnd(first) + cells.map(cell => cell.padStart(width)).join(''))
    .join('\n')
}

function indented(text: string): string {
  return text
    .split('\n')
    .map(line => `  ${line}`)
    .join('\n')
}
