/**
 * The concurrency lanes of one runner: one for each combination of provider and caller's own credential. They adapt to
 * the outcomes of completed lines. Batch thread.
 */
import type { Clock } from '../base/clock.ts'
import type { AttemptRecord } from '../exchange/exchange.ts'
import { ProviderLane } from './provider-lane.ts'
import { wasSent } from './retry.ts'

/** A lane that is unused for this long starts again. */
const LANE_IDLE_MS = 600_000

/**
 * Names the lane of an attempt. A caller's own key has a lane of its own, because it has its own limits at the
 * provider.
 */
export function laneNameOf({ endpoint, credential }: Pick<AttemptRecord, 'endpoint' | 'credential'>): string {
  const { slug } = endpoint.provider
  return credential === null ? slug : `${slug}/${credential.id}`
}

export class Lanes {
  readonly #clock: Clock
  readonly #maxRunning: number
  readonly #lanes = new Map<string, ProviderLane>()

  constructor(maxRunning: number, clock: Clock) {
    this.#maxRunning = maxRunning
    this.#clock = clock
  }

  get size(): number {
    return this.#lanes.size
  }

  of(name: string): ProviderLane {
    let lane = this.#lanes.get(name)
    if (lane === undefined) {
      lane = new ProviderLane({ clock: this.#clock, maxRunning: this.#maxRunning })
      this.#lanes.set(name, lane)
    }
    return lane
  }

  /**
   * Adapts lanes to the attempts of a line that began at `enteredMs`. Returns the minimum milliseconds that the line
   * has to wait.
   */
  learn(attempts: readonly AttemptRecord[], enteredMs: number): number {
    let waitMs = 0
    for (const attempt of attempts) {
      const lane = this.of(laneNameOf(attempt))
      const { error } = attempt
      if (error === null) lane.noteSuccess()
      else if (error.meaning.isBusy === true && wasSent(attempt)) {
        const { retryAfterSeconds } = error
        lane.noteOverload(enteredMs, retryAfterSeconds === undefined ? null : retryAfterSeconds * 1_000)
        waitMs = Math.max(waitMs, lane.pausedMs)
      } else if (attempt.isStarted && !wasSent(attempt))
        waitMs = Math.max(waitMs, lane.noteUnreachable(enteredMs))
    }
    return waitMs
  }

  /** Forgets lanes that nobody uses. */
  sweep(): void {
    for (const [name, lane] of this.#lanes) if (lane.idleMs > LANE_IDLE_MS) this.#lanes.delete(name)
  }
}
