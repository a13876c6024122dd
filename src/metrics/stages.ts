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

/** The stage between each mark and the next; `parse` has two parts, because the key is looked at before the body. */
const SPANS: readonly Stage[] = [
  'parse',
  'auth',
  'upload',
  'parse',
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
]
/** What an exchange may do without: where nothing was waited for, it did not happen. */
const OPTIONAL: ReadonlySet<Stage> = new Set(['guard', 'admit', 'failover', 'judge'])

/** The same by number, since every exchange asks for all of them. */
const STAGE_AT = Uint8Array.from(SPANS, stage => STAGES.indexOf(stage))
const OPTIONAL_AT = SPANS.map(stage => OPTIONAL.has(stage))

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
 * Milliseconds of each stage, by its place in `STAGES`; NaN where there was none. With `endedMs` the exchange is over,
 * and the stage it ended in lasts until then; without, it still runs, and only stages it has left are told. A guard,
 * admission, failover or judgement of no length did not happen. Hot path: makes nothing.
 */
export function spendStages(marks: Marks, endedMs: number | null, spentMs: Float64Array): void {
  spentMs.fill(Number.NaN)
  let fromMs = marks.acceptedMs
  for (let span = 0; span < STAGE_AT.length; span++) {
    const untilMs = markAfter(marks, span)
    const left = !Number.isNaN(untilMs)
    if (!left && endedMs === null) return
    const ms = (left ? untilMs : (endedMs ?? 0)) - fromMs
    if (ms > 0 || OPTIONAL_AT[span] !== true) {
      const stage = STAGE_AT[span] ?? 0
      const earlierMs = spentMs[stage] ?? Number.NaN
      spentMs[stage] = Number.isNaN(earlierMs) ? ms : earlierMs + ms
    }
    if (!left) return
    fromMs = untilMs
  }
}

/**
 * Where a span ends; NaN for the last one, which ends with the exchange. Read by name, because reading by a name that
 * varies is slow.
 */
function markAfter(marks: Marks, span: number): number {
  switch (span) {
    case 0:
      return marks.identifyMs
    case 1:
      return marks.authenticatedMs
    case 2:
      return marks.uploadedMs
    case 3:
      return marks.validatedMs
    case 4:
      return marks.guardedMs
    case 5:
      return marks.routedMs
    case 6:
      return marks.admittedMs
    case 7:
      return marks.attemptedMs
    case 8:
      return marks.sentMs
    case 9:
      return marks.headMs
    case 10:
      return marks.firstTokenMs
    case 11:
      return marks.finishedMs
    case 12:
      return marks.judgedMs
    default:
      return Number.NaN
  }
}

/** The same as a map, of the stages there were, for whoever is not in a hurry. */
export function stageTimes(marks: Marks, endedMs: number | null): ReadonlyMap<Stage, number> {
  const spentMs = new Float64Array(STAGES.length)
  spendStages(marks, endedMs, spentMs)
  const times = new Map<Stage, number>()
  for (const [at, stage] of STAGES.entries()) {
    const ms = spentMs[at] ?? Number.NaN
    if (!Number.isNaN(ms)) times.set(stage, ms)
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
