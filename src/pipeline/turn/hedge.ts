/**
 * Hedge: a second attempt that starts when the first one stays silent. The first of the two to deliver content
 * continues, and the other is closed at once. One race per model call that may be hedged. Serve threads. Hot path:
 * until a second attempt begins, a race is one timer.
 */
import type { Clock, Timer } from '../../base/clock.ts'
import { GatewayError } from '../../base/errors.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { AttemptRecord, Finish } from '../../exchange/exchange.ts'
import type { WholeMessage } from '../../formats/whole-message.ts'
import { PROBE_DUE } from '../../providers/health/endpoint-state.ts'
import type { CallFigures } from '../accounting/charge.ts'
import type { Content } from '../answer/answer.ts'
import type { RoutedExchange } from '../exchange-stages.ts'
import type { RouteCandidate } from '../routing/candidate.ts'
import type { Routing } from '../routing/rank-input.ts'
import type { Attempt } from './attempt.ts'
import type { AttemptTarget } from './attempt-target.ts'
import { type CallProgress, nextCandidate, type RetryBudget } from './failover.ts'

/** The reply of a candidate that has answered. */
export interface ModelReply {
  readonly candidate: RouteCandidate
  readonly record: AttemptRecord
  readonly figures: CallFigures
  readonly finish: Finish
}

/** An attempt that produced no reply. */
export interface CallWithoutReply {
  readonly candidate: RouteCandidate
  /** Null if the endpoint was not called. */
  readonly error: GatewayError | null
  /** True if no other candidate may be called. */
  readonly isLast?: boolean
  /** Set if its provider would not have got the whole request, which the caller requires. */
  readonly isLossy?: true
  /** True if the other attempt of a race delivered content first. */
  readonly isOutrun?: true
  /** True if another resource of the same key may be called. */
  readonly hasAnother?: true
  /** The attempt that failed; absent: none was begun. */
  readonly failed?: { readonly record: AttemptRecord; readonly figures: CallFigures }
}

export type Result = ModelReply | CallWithoutReply

/** True if the second attempt of a race takes precedence over the first, which has failed or was overtaken. */
function takesPrecedence(second: Result): boolean {
  return isReply(second) || (second.error !== null && second.isOutrun !== true)
}

function isReply(result: Result): result is ModelReply {
  return 'finish' in result
}

/** A model call whose first attempt may be joined by another one. */
export interface HedgedCall {
  readonly deps: {
    readonly clock: Clock
    readonly metrics: Metrics
    readonly retries: RetryBudget
    readonly routing: Pick<Routing, 'health' | 'hedgeAfterMs'>
  }
  readonly exchange: Pick<
    RoutedExchange,
    'attempts' | 'bill' | 'caller' | 'candidates' | 'ranking' | 'signal'
  >
  /** Index of this call's first attempt among the exchange's attempts. */
  readonly from: number
  /** True if the call has a slot in the retry budget. */
  isRetrying: boolean
  /** Candidates that were skipped without an attempt. */
  skippedCandidates: readonly RouteCandidate[]
}

export function progressOf({
  exchange: { attempts, bill },
  from,
  skippedCandidates,
}: HedgedCall): CallProgress {
  return { attempts: attempts.slice(from), skippedCandidates, hasCharge: bill.closed !== null }
}

/**
 * Releases the call's slot in the retry budget as soon as the second attempt is answered: the length of its answer does
 * not matter.
 */
export function endRetry(call: HedgedCall): void {
  if (!call.isRetrying) return
  call.isRetrying = false
  call.deps.retries.release()
}

/** Runs one of the two attempts of a race to its end. Never rejects. */
type RunAttempt<Call> = (call: Call, candidate: RouteCandidate, race: Race) => Promise<Result>

/** Creates a race that a second attempt may join; null if this attempt runs alone. */
export function raceOf<Call extends HedgedCall>(
  call: Call,
  candidate: RouteCandidate,
  run: RunAttempt<Call>,
): Race | null {
  const { clock, routing } = call.deps
  const { attempts, candidates, ranking } = call.exchange
  const { hedgeAfterMs } = routing
  if (hedgeAfterMs === null || !ranking.fallbacks) return null
  // Requests on a BYOK credential are paid for by the caller, and a later attempt follows a failure: neither is raced.
  if (candidate.credential !== null || candidates.length < 2 || attempts.length > call.from) return null
  const race: Race = new Race({
    clock,
    afterMs: hedgeAfterMs,
    begin: () => hedge(call, candidate, race, run),
    onWon: winner => {
      for (const record of attempts.slice(call.from)) {
        // An attempt that is still being prepared is not sent any more.
        if (!race.hasEntered(record)) removeAttempt(attempts, record)
      }
      // The attempt that answers is the last one.
      removeAttempt(attempts, winner)
      attempts.push(winner)
      endRetry(call)
    },
  })
  return race
}

/** Calls the next healthy endpoint of the same model, if the retry budget allows it. */
function hedge<Call extends HedgedCall>(
  call: Call,
  first: RouteCandidate,
  race: Race,
  run: RunAttempt<Call>,
): Promise<Result> | null {
  const { clock, metrics, retries, routing } = call.deps
  const { caller, candidates, signal } = call.exchange
  const nowMs = clock.monotonicMs()
  const second = nextCandidate(
    candidates,
    progressOf(call),
    ({ endpoint, credential }) =>
      credential === null &&
      endpoint.modelId === first.endpoint.modelId &&
      // No probes: a probe needs another candidate to fall back on.
      routing.health.of(endpoint, null).standingOf(nowMs, caller) < PROBE_DUE,
  )
  if (second === undefined || signal.aborted) return null
  call.isRetrying = retries.spend()
  if (call.isRetrying) return run(call, second, race)
  metrics.hedges.inc({ outcome: 'over_budget' })
  return null
}

/** Picks the better of two results of a race, once both are known. */
export async function betterResult({ deps }: HedgedCall, first: Result, race: Race): Promise<Result> {
  const second = await race.end()
  if (second === null) return first
  countHedge(deps, second)
  return isReply(first) || !takesPrecedence(second) ? first : second
}

function countHedge({ metrics: { hedges } }: HedgedCall['deps'], second: Result): void {
  if (isReply(second)) hedges.inc({ outcome: 'won' })
  else if (second.isOutrun === true) hedges.inc({ outcome: 'lost' })
  else if (second.error !== null && second.error.code !== 'client_closed') hedges.inc({ outcome: 'failed' })
}

export function removeAttempt(attempts: AttemptRecord[], record: AttemptRecord): void {
  const index = attempts.indexOf(record)
  if (index !== -1) attempts.splice(index, 1)
}

/** An attempt as a race sees it. */
type RacingAttempt = Pick<Attempt, 'lead' | 'fail'>

interface RaceDeps<Ended = Result> {
  readonly clock: Clock
  /** The time of silence of the first attempt after which the second one begins. */
  readonly afterMs: number
  /** Runs the second attempt; null if there is no endpoint to call. */
  readonly begin: () => Promise<Ended> | null
  /** Called when one of the two has delivered content. */
  readonly onWon: (winner: AttemptRecord) => void
}

export class Race<Ended = Result> {
  readonly #deps: RaceDeps<Ended>
  readonly #runners = new Map<AttemptRecord, RacingAttempt>()
  #timer: Timer | null = null
  #winner: AttemptRecord | null = null
  #second: Promise<Ended> | null = null
  #isOver = false

  constructor(deps: RaceDeps<Ended>) {
    this.#deps = deps
  }

  /** True once the first attempt is running. */
  get isRunning(): boolean {
    return this.#runners.size > 0
  }

  /** True if the attempt is running, or has run. */
  hasEntered(record: AttemptRecord): boolean {
    return this.#runners.has(record)
  }

  /** True once one of the two has delivered content, or the first one has ended: no other attempt may begin. */
  get isDecided(): boolean {
    return this.#winner !== null || this.#isOver
  }

  /**
   * Admits an attempt to the race; the first one starts the timer. Returns the receiver of its reply. `open` creates
   * the target that replaces it if it wins.
   */
  enter(record: AttemptRecord, attempt: RacingAttempt, open: () => AttemptTarget): AttemptTarget {
    this.#runners.set(record, attempt)
    if (this.#runners.size === 1) {
      const { clock, afterMs } = this.#deps
      this.#timer = clock.after(afterMs, () => {
        if (!this.isDecided) this.#second = this.#deps.begin()
      })
    }
    return new RacingTarget(attempt, () => this.#claim(record), open)
  }

  /** Called when the first attempt has ended. Waits for the second one; null if there was none. */
  async end(): Promise<Ended | null> {
    this.#timer?.cancel()
    // If the first attempt has failed, a second one that is still being prepared is sent; otherwise it is not waited
    // for.
    const isLate = this.#winner !== null && this.#runners.size === 1
    const second = this.#second === null || isLate ? null : await this.#second
    this.#isOver = true
    return second
  }

  /** Makes this attempt the winner, and ends the other one. False if the other one was faster. */
  #claim(record: AttemptRecord): boolean {
    if (this.#winner !== null) return this.#winner === record
    this.#winner = record
    this.#timer?.cancel()
    this.#deps.onWon(record)
    for (const [otherRecord, attempt] of this.#runners) {
      if (otherRecord === record) continue
      otherRecord.isOutrun = true
      attempt.fail(outrunError())
    }
    return true
  }
}

/** The error of an attempt that was slower than the other one. It is not reported to the client. */
function outrunError(): GatewayError {
  return new GatewayError('client_closed', 'Another endpoint answered first', {
    metadata: { reason: 'outrun' },
  })
}

/** Receives the reply of one of two attempts. Nothing reaches the answer before the first content. */
class RacingTarget implements AttemptTarget {
  /** Nothing is sent for now. */
  readonly sink = null
  readonly #attempt: RacingAttempt
  readonly #claim: () => boolean
  readonly #open: () => AttemptTarget

  constructor(attempt: RacingAttempt, claim: () => boolean, open: () => AttemptTarget) {
    this.#attempt = attempt
    this.#claim = claim
    this.#open = open
  }

  receive(delta: Content): void {
    this.#winningTarget()?.receive(delta)
  }

  message(message: WholeMessage): void {
    this.#winningTarget()?.message?.(message)
  }

  end(done: () => void): void {
    this.#winningTarget()?.end(done)
  }

  close(): void {
    // There is nothing to release.
  }

  /** Tries to win the race. Returns the target that replaces this one; null if the other attempt was faster. */
  #winningTarget(): AttemptTarget | null {
    if (!this.#claim()) return null
    const target = this.#open()
    this.#attempt.lead(target)
    // The read that won the race is being processed.
    target.sink?.cork()
    return target
  }
}
