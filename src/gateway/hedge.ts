/**
 * Hedge: a second attempt that begins while the first one is silent. The first of the two that brings content goes on,
 * and the other is closed at once. One race for each model call that may be hedged. Serve threads. Hot path: until a
 * second attempt begins, a race is one timer.
 */
import type { Clock, Timer } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import type { WholeMessage } from '../formats/whole-message.ts'
import type { Content } from './answer/answer.ts'
import type { Attempt } from './attempt.ts'
import type { AttemptTarget } from './attempt-target.ts'
import type { AttemptRecord } from './exchange.ts'

/** An attempt that is ready to run. */
export interface OpenedAttempt {
  readonly attempt: Attempt
  /** Makes the receiver of its reply. Called once, when the attempt runs or, in a race, when it has won. */
  readonly target: () => AttemptTarget
}

export interface RaceDeps<Result> {
  readonly clock: Clock
  /** Silence of the first attempt after which the second one begins. */
  readonly afterMs: number
  /** Runs the second attempt; null: there is nobody to ask. */
  readonly begin: () => Promise<Result> | null
  /** Called when one of the two has brought content. */
  readonly onWon: (winner: AttemptRecord) => void
}

export class Race<Result> {
  readonly #deps: RaceDeps<Result>
  readonly #runners = new Map<AttemptRecord, Attempt>()
  #timer: Timer | null = null
  #winner: AttemptRecord | null = null
  #second: Promise<Result> | null = null
  #isOver = false

  constructor(deps: RaceDeps<Result>) {
    this.#deps = deps
  }

  /** True once the first attempt runs. */
  get isRunning(): boolean {
    return this.#runners.size > 0
  }

  /** True if the attempt runs, or has run. */
  hasEntered(record: AttemptRecord): boolean {
    return this.#runners.has(record)
  }

  /** True once one of the two has brought content, or the first one has ended: nobody may begin any more. */
  get isDecided(): boolean {
    return this.#winner !== null || this.#isOver
  }

  /** Lets an attempt run; the first one starts the timer. Returns the receiver of its reply. */
  enter(record: AttemptRecord, { attempt, target }: OpenedAttempt): AttemptTarget {
    this.#runners.set(record, attempt)
    if (this.#runners.size === 1) {
      const { clock, afterMs } = this.#deps
      this.#timer = clock.after(afterMs, () => {
        if (!this.isDecided) this.#second = this.#deps.begin()
      })
    }
    return new RacingTarget(() => this.#claim(record), target)
  }

  /** The first attempt has ended. Waits for the second one; null: there was none. */
  async end(): Promise<Result | null> {
    this.#timer?.cancel()
    // A second attempt that is still being prepared is asked if the first one has failed, and else not waited for.
    const isLate = this.#winner !== null && this.#runners.size === 1
    const second = this.#second === null || isLate ? null : await this.#second
    this.#isOver = true
    return second
  }

  /** False: the other one was faster. */
  #claim(record: AttemptRecord): boolean {
    if (this.#winner !== null) return this.#winner === record
    this.#winner = record
    this.#timer?.cancel()
    this.#deps.onWon(record)
    for (const [other, attempt] of this.#runners) {
      if (other === record) continue
      other.isOutrun = true
      attempt.fail(outrun())
    }
    return true
  }
}

/** The end of an attempt that was slower than another one. It is not reported to the client. */
function outrun(): GatewayError {
  return new GatewayError('client_closed', 'Another endpoint answered first', {
    metadata: { reason: 'outrun' },
  })
}

/** Receives the reply of one of two attempts. Nothing reaches the answer before the first content. */
class RacingTarget implements AttemptTarget {
  readonly #claim: () => boolean
  readonly #open: () => AttemptTarget
  #target: AttemptTarget | null = null

  constructor(claim: () => boolean, open: () => AttemptTarget) {
    this.#claim = claim
    this.#open = open
  }

  get sink(): AttemptTarget['sink'] {
    return this.#target?.sink ?? null
  }

  take(delta: Content): void {
    if (this.#target === null) this.#won()?.take(delta)
    else this.#target.take(delta)
  }

  message(message: WholeMessage): void {
    const target = this.#target ?? this.#won()
    target?.message(message)
  }

  end(done: () => void): void {
    const target = this.#target ?? this.#won()
    target?.end(done)
  }

  close(): void {
    this.#target?.close()
  }

  #won(): AttemptTarget | null {
    if (!this.#claim()) return null
    const target = this.#open()
    this.#target = target
    // The read that won is being told.
    target.sink?.hold()
    return target
  }
}
