/**
 * Where the time of an exchange goes. Marks are points in time, one number each, set as the exchange passes them;
 * a stage is what lies between two marks, and all stages of an exchange add up to its duration. Leaf. Pure.
 */

/** In the order in which an exchange passes them; the label values of `gateway_overhead_seconds`. */
export const STAGES = [
  'parse',
  'auth',
  'upload',
  'guard',
  'route',
  'admit',
  'failover',
  'encode',
  'upstream_first_byte',
  'first_token',
  'stream',
  'judge',
  'flush',
] as const
export type Stage = (typeof STAGES)[number]

/** Monotonic milliseconds; NaN where the exchange has not come yet. */
export interface Marks {
  /** The head of the request was read. */
  readonly acceptedMs: number
  /** The search for the API key began. */
  identifyMs: number
  authenticatedMs: number
  /** The last byte of the body was there. */
  uploadedMs: number
  /** The request was understood and found valid. */
  validatedMs: number
  /** Guardrails had looked at it; equal to `validatedMs` where none holds. */
  guardedMs: number
  routedMs: number
  /** The limits of the caller allowed it; equal to `routedMs` where nobody had to be asked. */
  admittedMs: number
  /** The last attempt began; equal to `admittedMs` for the first one. */
  attemptedMs: number
  /** The request of the last attempt was handed to the connection. */
  sentMs: number
  /** The response head of the last attempt was there. */
  headMs: number
  /** The first content of the last attempt was there. */
  firstTokenMs: number
  /** The model had finished. */
  finishedMs: number
  /** What it said was judged fit to leave; equal to `finishedMs` where nobody judges. */
  judgedMs: number
}

type Mark = keyof Marks

/** Consecutive; `parse` is in two parts, because the key is looked at before the body. */
const SPANS: readonly (readonly [Stage, Mark, Mark | 'end'])[] = [
  ['parse', 'acceptedMs', 'identifyMs'],
  ['auth', 'identifyMs', 'authenticatedMs'],
  ['upload', 'authenticatedMs', 'uploadedMs'],
  ['parse', 'uploadedMs', 'validatedMs'],
  ['guard', 'validatedMs', 'guardedMs'],
  ['route', 'guardedMs', 'routedMs'],
  ['admit', 'routedMs', 'admittedMs'],
  ['failover', 'admittedMs', 'attemptedMs'],
  ['encode', 'attemptedMs', 'sentMs'],
  ['upstream_first_byte', 'sentMs', 'headMs'],
  ['first_token', 'headMs', 'firstTokenMs'],
  ['stream', 'firstTokenMs', 'finishedMs'],
  ['judge', 'finishedMs', 'judgedMs'],
  ['flush', 'judgedMs', 'end'],
]

/** What an exchange may do without: where nothing was waited for, it did not happen. */
const OPTIONAL: ReadonlySet<Stage> = new Set(['guard', 'admit', 'failover', 'judge'])

/** Marks of a request whose head has just been read. */
export function openMarks(acceptedMs: number): Marks {
  return {
    acceptedMs,
    identifyMs: Number.NaN,
    authenticatedMs: Number.NaN,
    uploadedMs: Number.NaN,
    validatedMs: Number.NaN,
    guardedMs: Number.NaN,
    routedMs: Number.NaN,
    admittedMs: Number.NaN,
    attemptedMs: Number.NaN,
    sentMs: Number.NaN,
    headMs: Number.NaN,
    firstTokenMs: Number.NaN,
    finishedMs: Number.NaN,
    judgedMs: Number.NaN,
  }
}

/** Notes that an attempt begins; what an earlier one left is forgotten, so that its time counts as failover. */
export function markAttempt(marks: Marks, nowMs: number): void {
  marks.attemptedMs = nowMs
  marks.sentMs = Number.NaN
  marks.headMs = Number.NaN
  marks.firstTokenMs = Number.NaN
  marks.finishedMs = Number.NaN
  marks.judgedMs = Number.NaN
}

/**
 * Milliseconds of each stage. With `endedMs` the exchange is over, and the stage it ended in lasts until then;
 * without, it still runs, and only stages it has left are told. A guard, admission, failover or judgement of no length did not happen.
 */
export function stageTimes(marks: Marks, endedMs: number | null): ReadonlyMap<Stage, number> {
  const times = new Map<Stage, number>()
  for (const [stage, from, to] of SPANS) {
    const until = to === 'end' ? Number.NaN : marks[to]
    const left = !Number.isNaN(until)
    if (!left && endedMs === null) break
    const spentMs = (left ? until : (endedMs ?? 0)) - marks[from]
    if (spentMs > 0 || !OPTIONAL.has(stage)) times.set(stage, (times.get(stage) ?? 0) + spentMs)
    if (!left) break
  }
  return times
}

/** Milliseconds with three decimals, for people and for JSON. */
export function shownTimes(marks: Marks): Readonly<Partial<Record<Stage, number>>> {
  const shown: Partial<Record<Stage, number>> = {}
  for (const [stage, ms] of stageTimes(marks, null)) shown[stage] = Math.round(ms * 1000) / 1000
  return shown
}

/** The same as the value of a `Server-Timing` header. */
export function serverTiming(marks: Marks): string {
  return Object.entries(shownTimes(marks))
    .map(([stage, ms]) => `${stage};dur=${ms}`)
    .join(', ')
}
