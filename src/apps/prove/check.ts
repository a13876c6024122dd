/** The contract of a check: one promise of a public interface, its test, and the observation. */
import type { Dialect, TestedDialectName } from './dialects.ts'
import type { ProbeAnswer, Tester } from './tester.ts'

export type CheckGroup = 'conformance' | 'upstream' | 'sdk' | 'chaos'

/** Requirements of a check besides an address and a key. A second key is of use only with the provider. */
type CheckNeed = 'provider' | 'restart' | 'second-key'

/** One row of the tables in `checks/`. */
export interface Check {
  /** `stream.sequence` */
  readonly id: string
  readonly group: CheckGroup
  /** The interfaces that it tests, once for each; `null`: it runs once. */
  readonly dialects: readonly TestedDialectName[] | null
  /** The promise. */
  readonly asserts: string
  /** The harm to clients if it is violated. */
  readonly matters: string
  /** The public document with the promise. */
  readonly basis: string
  /** `should`: the document only recommends it; a deviation is a warning, not a failure. */
  readonly weight: 'must' | 'should'
  readonly needs?: CheckNeed
  /** Requests that it sends, besides shared samples; more if the gateway avoids its provider after a failure. */
  readonly sends: number
  run(tester: Tester, dialect: Dialect): Promise<CheckVerdict>
}

type SharedField = 'group' | 'dialects' | 'basis' | 'weight' | 'sends'

/** A check in its file, without the fields that all checks there share. */
export type CheckRow = Omit<Check, 'id' | SharedField> &
  Partial<Pick<Check, SharedField>> & { readonly name: string }

/** The checks of one file; their ids begin with `area`. */
export function checksOf(
  area: string,
  common: Omit<Pick<Check, SharedField>, 'weight'>,
  rows: readonly CheckRow[],
): readonly Check[] {
  return rows.map(({ name, ...row }) => ({ weight: 'must', ...common, ...row, id: `${area}.${name}` }))
}

export interface CheckVerdict {
  readonly outcome: 'pass' | 'fail' | 'warning' | 'skipped'
  readonly seen: string
}

export function pass(seen: string): CheckVerdict {
  return { outcome: 'pass', seen }
}

export function fail(seen: string): CheckVerdict {
  return { outcome: 'fail', seen }
}

/** A deviation without harm. */
export function warn(seen: string): CheckVerdict {
  return { outcome: 'warning', seen }
}

export function skip(why: string): CheckVerdict {
  return { outcome: 'skipped', seen: why }
}

/** Judges a reply only by its status. */
export function byStatus({ status }: ProbeAnswer['reply'], isRight: boolean): CheckVerdict {
  return isRight ? pass(`${status}`) : fail(`status ${status}`)
}

/** Fails with the first of these faults. */
export function faultless(faults: readonly string[], seen: string): CheckVerdict {
  const [first, ...others] = faults
  if (first === undefined) return pass(seen)
  return fail(others.length === 0 ? first : `${first}; and ${others.length} more`)
}

/** Describes an unexpected reply: `status 500: the message`. */
export function statusOf({ reply, document }: Pick<ProbeAnswer, 'reply' | 'document'>): string {
  const error = (document as { error?: { message?: unknown } | null } | undefined)?.error
  const message = typeof error?.message === 'string' ? error.message : ''
  return `status ${reply.status}${message === '' ? '' : `: ${message}`}`
}

/** Both interfaces. */
export const BOTH: readonly TestedDialectName[] = ['responses', 'chat']

export const BASIS = {
  http: 'RFC 9110 (HTTP semantics)',
  http1: 'RFC 9112 (HTTP/1.1)',
  sse: 'HTML standard, server-sent events',
  api: 'OpenAI API reference',
  responses: 'OpenAI API reference and the Open Responses specification',
} as const
