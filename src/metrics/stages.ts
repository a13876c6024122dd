/**
 * Stages of an exchange and the stopwatch that times them. Leaf. Pure: callers pass the time in.
 * The stopwatch is always in one stage, so all stages of an exchange add up to its duration.
 */

/** In the usual order of an exchange; the label values of `gateway_overhead_seconds`. */
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
  'tools',
  'flush',
] as const
export type Stage = (typeof STAGES)[number]

/** By number, because every exchange passes all of them. */
const AT = Object.fromEntries(STAGES.map((stage, at) => [stage, at])) as Readonly<Record<Stage, number>>
/** Stages that did not happen when they took no time. */
const OPTIONAL: ReadonlySet<Stage> = new Set(['guard', 'admit', 'failover', 'judge', 'tools'])
const IS_OPTIONAL = STAGES.map(stage => OPTIONAL.has(stage))

/** Plain numbers: typed arrays of this length live outside the heap, and each costs the collector. */
const NONE_SPENT: readonly number[] = STAGES.map(() => Number.NaN)

/** Stages of one attempt: together they are failover once the attempt is replaced. */
const ATTEMPT_FROM = AT.encode
const ATTEMPT_UNTIL = AT.stream

/** Times one request, from its head to its end. Hot path: entering a stage allocates nothing. */
export class Stopwatch {
  /** Monotonic milliseconds at which the head of the request was read. */
  readonly startedMs: number
  /** Milliseconds by the place in `STAGES`; NaN where the stage was not entered. */
  readonly #spentMs = NONE_SPENT.slice()
  /** The stages of an attempt before the running attempt. */
  #beforeAttemptMs: readonly number[] = NONE_SPENT
  #stage = AT.parse
  #previous = AT.parse
  #enteredMs: number
  #attemptMs = 0
  #isExchange = false

  constructor(startedMs: number) {
    this.startedMs = startedMs
    this.#enteredMs = startedMs
  }

  /** True once the request was understood and handed to the gateway. */
  get isExchange(): boolean {
    return this.#isExchange
  }

  /** Ends the current stage and begins another. */
  enter(stage: Stage, nowMs: number): void {
    const left = this.#stage
    const spent = this.#spentMs[left] ?? Number.NaN
    const ms = nowMs - this.#enteredMs
    this.#spentMs[left] = Number.isNaN(spent) ? ms : spent + ms
    this.#enteredMs = nowMs
    this.#previous = left
    this.#stage = AT[stage]
    if (stage === 'guard') this.#isExchange = true
  }

  /** The stage just entered had nothing to do: its time belongs to the one before it. */
  skip(): void {
    this.#stage = this.#previous
  }

  /** Begins an attempt. The time of the `replaced` one before it, if there is one, counts as failover. */
  beginAttempt(nowMs: number, replaced: boolean): void {
    const spent = this.#spentMs
    if (replaced) {
      for (let at = ATTEMPT_FROM; at <= ATTEMPT_UNTIL; at++) {
        spent[at] = this.#beforeAttemptMs[at - ATTEMPT_FROM] ?? Number.NaN
      }
      this.#stage = AT.failover
      this.#enteredMs = this.#attemptMs
      this.enter('encode', nowMs)
    } else {
      this.enter('encode', nowMs)
      this.#beforeAttemptMs = spent.slice(ATTEMPT_FROM, ATTEMPT_UNTIL + 1)
    }
    this.#attemptMs = nowMs
  }

  /**
   * Writes the milliseconds of each stage into `spentMs`, NaN where there was none. With `endedMs` the exchange is
   * over and its last stage lasts until then; without, only stages that it has left are told.
   */
  read(endedMs: number | null, spentMs: Float64Array): void {
    spentMs.set(this.#spentMs)
    if (endedMs !== null) {
      const spent = spentMs[this.#stage] ?? Number.NaN
      const lastMs = endedMs - this.#enteredMs
      spentMs[this.#stage] = Number.isNaN(spent) ? lastMs : spent + lastMs
    }
    for (let at = 0; at < spentMs.length; at++) {
      if (IS_OPTIONAL[at] === true && !((spentMs[at] ?? 0) > 0)) spentMs[at] = Number.NaN
    }
  }

  /** The same as a map of the stages there were, in the order of `STAGES`. */
  times(endedMs: number | null): ReadonlyMap<Stage, number> {
    const spentMs = new Float64Array(STAGES.length)
    this.read(endedMs, spentMs)
    const times = new Map<Stage, number>()
    for (const [at, stage] of STAGES.entries()) {
      const ms = spentMs[at] ?? Number.NaN
      if (!Number.isNaN(ms)) times.set(stage, ms)
    }
    return times
  }
}

/** Milliseconds with three decimals of the stages left so far, for people and for JSON. */
export function shownTimes(watch: Stopwatch): Readonly<Partial<Record<Stage, number>>> {
  const shown: Partial<Record<Stage, number>> = {}
  for (const [stage, ms] of watch.times(null)) shown[stage] = Math.round(ms * 1000) / 1000
  return shown
}

/** The same as the value of a `Server-Timing` header. */
export function serverTiming(watch: Stopwatch): string {
  return Object.entries(shownTimes(watch))
    .map(([stage, ms]) => `${stage};dur=${ms}`)
    .join(', ')
}
