/** Figures of a run, one per round, so that subjects can be compared within a round. Pure. */
import { costOf, type Row, type Run } from './results.ts'
import type { SubjectName } from './scenarios.ts'

export function rowsOf(run: Pick<Run, 'rows'>, scenario: string, subject?: SubjectName): Row[] {
  return run.rows.filter(
    row => row.scenario === scenario && (subject === undefined || row.subject === subject),
  )
}

/** A figure of one subject by round, of the rows that count. */
export function series(
  run: Pick<Run, 'rows'>,
  scenario: string,
  subject: SubjectName,
  take: (row: Row) => number | null | undefined,
): Map<number, number> {
  const byRound = new Map<number, number>()
  for (const row of rowsOf(run, scenario, subject)) {
    const value = row.rejected.length === 0 ? take(row) : null
    if (typeof value === 'number' && Number.isFinite(value)) byRound.set(row.round, value)
  }
  return byRound
}

/** Microseconds of CPU per event or request, by round. */
export function costs(run: Pick<Run, 'rows'>, scenario: string, subject: SubjectName): Map<number, number> {
  return series(run, scenario, subject, costOf)
}
