/**
 * The stages of an exchange, and the stopwatch that times them. The stopwatch is always in exactly one stage, so the
 * stages add up to the duration of the exchange. Leaf. Pure: callers pass the time in.
 */

/** In the usual order of an exchange; the label values of `gateway_overhead_seconds`. */
export const STAGES = [
  'parse',
  'auth',
  'upload',
  'queue',
  'guard',
  'route',
  'admit',
  'failover',
  'encode',
  'upstream_first_byte',
  'first_token',
  'stream',
  'judge',
  'tools',
  'flush',
] as const
export type Stage = (typeof STAGES)[number]

/** The index of each stage in `STAGES`. */
const STAGE_INDEX = Object.fromEntries(STAGES.map((stage, at) => [stage, at])) as Readonly<
  Record<Stage, number>
>
/** Stages that count as not entered if they took no time. */
const OPTIONAL: ReadonlySet<Stage> = new Set(['queue', 'guard', 'admit', 'failover', 'judge', 'tools'])
const IS_OPTIONAL = STAGES.map(stage => OPTIONAL.has(stage))

/** A plain array: typed arrays of this length live outside the heap, which costs the garbage collector more. */
const NO_TIMES: readonly number[] = STAGES.map(() => Number.NaN)

/** The stages of one attempt; their times become failover once another attempt replaces it. */
const FIRST_ATTEMPT_INDEX = STAGE_INDEX.encode
const LAST_ATTEMPT_INDEX = STAGE_INDEX.stream

/** Times one request from its head to its end. Hot path: entering a stage allocates nothing. */
export class Stopwatch {
  /** Monotonic milliseconds when the head of the request was read. */
  readonly startedMs: number
  /** Milliseconds by index in `STAGES`; NaN for stages that were not entered. */
  readonly #spentMs = NO_TIMES.slice()
  /** The times before the running attempt. */
  #beforeAttemptMs: readonly number[] = NO_TIMES
  #stage = STAGE_INDEX.parse
  #previous = STAGE_INDEX.parse
  /**
   * Monotonic milliseconds at which the current stage began. Code at the start of a stage may use it as the current
   * time instead of reading the clock again. Written only here.
   */
  enteredMs: number
  #attemptMs = 0
  /** True after the request was parsed and passed to the gateway. Written only here. */
  isExchange = false
  /** True if it waited for a slot among the requests of its key. Written only here. */
  hasWaited = false

  constructor(startedMs: number) {
    this.startedMs = startedMs
    this.enteredMs = startedMs
  }

  /** Ends the current stage and begins another. */
  enter(stage: Stage, nowMs: number): void {
    const current = this.#stage
    const stageMs = this.#spentMs[current] ?? Number.NaN
    const ms = nowMs - this.enteredMs
    this.#spentMs[current] = Number.isNaN(stageMs) ? ms : stageMs + ms
    this.enteredMs = nowMs
    this.#previous = current
    this.#stage = STAGE_INDEX[stage]
    if (stage === 'guard' || stage === 'route') this.isExchange = true
    else if (stage === 'queue') this.hasWaited = true
  }

  /** Removes a stage that had nothing to do: its time counts for the previous stage. */
  skip(): void {
    this.#stage = this.#previous
  }

  /** Starts an attempt. With `replaced`, the time of the previous attempt counts as failover. */
  beginAttempt(nowMs: number, replaced: boolean): void {
    const spentMs = this.#spentMs
    if (replaced) {
      for (let index = FIRST_ATTEMPT_INDEX; index <= LAST_ATTEMPT_INDEX; index++) {
        spentMs[index] = this.#beforeAttemptMs[index - FIRST_ATTEMPT_INDEX] ?? Number.NaN
      }
      this.#stage = STAGE_INDEX.failover
      this.enteredMs = this.#attemptMs
      this.enter('encode', nowMs)
    } else {
      this.enter('encode', nowMs)
      this.#beforeAttemptMs = spentMs.slice(FIRST_ATTEMPT_INDEX, LAST_ATTEMPT_INDEX + 1)
    }
    this.#attemptMs = nowMs
  }

  /**
   * Writes the milliseconds of each stage into `spentMs`, NaN for stages that were not entered. With `endedMs`, the
   * last stage ends then; without it, only finished stages are included.
   */
  read(endedMs: number | null, spentMs: Float64Array): void {
    spentMs.set(this.#spentMs)
    if (endedMs !== null) {
      const stageMs = spentMs[this.#stage] ?? Number.NaN
      const lastMs = endedMs - this.enteredMs
      spentMs[this.#stage] = Number.isNaN(stageMs) ? lastMs : stageMs + lastMs
    }
    for (let index = 0; index < spentMs.length; index++) {
      if (IS_OPTIONAL[index] === true && !((spentMs[index] ?? 0) > 0)) spentMs[index] = Number.NaN
    }
  }

  /** The times as a map of the entered stages, in the order of `STAGES`. */
  times(endedMs: number | null): ReadonlyMap<Stage, number> {
    const spentMs = new Float64Array(STAGES.length)
    this.read(endedMs, spentMs)
    const times = new Map<Stage, number>()
    for (const [index, stage] of STAGES.entries()) {
      const ms = spentMs[index] ?? Number.NaN
      if (!Number.isNaN(ms)) times.set(stage, ms)
    }
    return times
  }
}

/**
 * The times of the finished stages in milliseconds with three decimals, for JSON and for people. With `endedMs`, the
 * last stage ends then.
 */
export function roundedTimes(
  watch: Stopwatch,
  endedMs: number | null = null,
): Readonly<Partial<Record<Stage, number>>> {
  const rounded: Partial<Record<Stage, number>> = {}
  for (const [stage, ms] of watch.times(endedMs)) rounded[stage] = Math.round(ms * 1000) / 1000
  return rounded
}

/** The times of the finished stages as the value of a `Server-Timing` header. */
export function serverTiming(watch: Stopwatch): string {
  return Object.entries(roundedTimes(watch))
    .map(([stage, ms]) => `${stage};dur=${ms}`)
    .join(', ')
}
