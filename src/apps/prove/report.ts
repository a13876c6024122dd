/**
 * The report: the checks, their expectations and observations. It contains no key, and nothing that could control a
 * terminal. Pure.
 */
import type { Check, CheckGroup } from './check.ts'
import type { TestedDialectName } from './dialects.ts'
import type { CpuFigure, FirstEventFigure } from './figures.ts'

/** Raised when the meaning of a field changes. */
export const REPORT_SCHEMA = 'sluice-prove/1'

export type CheckStatus = 'pass' | 'fail' | 'warning' | 'skipped'

export interface CheckResult {
  readonly id: string
  readonly group: CheckGroup
  /** Null: the check belongs to no interface. */
  readonly dialect: TestedDialectName | null
  readonly status: CheckStatus
  readonly expected: string
  readonly seen: string
  readonly matters: string
  readonly basis: string
  /** Number of sent requests. */
  readonly requests: number
  /** A command that repeats its last request; null: it sent none. */
  readonly repeat: string | null
}

export interface ProveReport {
  readonly schema: typeof REPORT_SCHEMA
  readonly sluice: string
  readonly at: string
  readonly url: string
  readonly model: string
  /** The client whose traffic was replayed, with its version; absent: none. */
  readonly client?: string
  readonly dialects: readonly TestedDialectName[]
  readonly ration: {
    readonly requests: number
    readonly concurrency: number
    readonly seconds: number
    readonly sent: number
    readonly spentMs: number
  }
  readonly summary: Readonly<Record<CheckStatus, number>>
  readonly checks: readonly CheckResult[]
  readonly figures: {
    readonly firstEvent: readonly FirstEventFigure[]
    readonly cpu: readonly CpuFigure[]
  }
}

/** Ignored recommendations are not failures. */
export function statusFor({ weight }: Check, outcome: CheckStatus): CheckStatus {
  return outcome === 'fail' && weight === 'should' ? 'warning' : outcome
}

export function summaryOf(checks: readonly CheckResult[]): Readonly<Record<CheckStatus, number>> {
  const count = (status: CheckStatus): number => checks.filter(check => check.status === status).length
  return { pass: count('pass'), fail: count('fail'), warning: count('warning'), skipped: count('skipped') }
}

/** Applies `clean` to every text of a document. */
export function cleaned<T>(document: T, clean: (text: string) => string): T {
  if (typeof document === 'string') return clean(document) as T
  if (Array.isArray(document)) return document.map(item => cleaned(item as unknown, clean)) as T
  if (typeof document !== 'object' || document === null) return document
  return Object.fromEntries(
    Object.entries(document).map(([name, value]) => [name, cleaned(value as unknown, clean)]),
  ) as T
}
