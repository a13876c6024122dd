/**
 * A running exchange: the Exchange that plugins see, plus the internal state of its stages; the runner of the stages,
 * and the stages that all kinds of exchange share.
 */

import type { Clock } from '../base/clock.ts'
import type { GatewayError } from '../base/errors.ts'
import { whenReady } from '../base/maybe-promise.ts'
import type { Stage } from '../base/metrics/stages.ts'
import { type ClientRequest, type EndedExchange, Exchange, type Turn } from '../exchange/exchange.ts'
import type { Observation } from '../exchange/observer.ts'
import { type RankingNotes, UNRANKED } from '../exchange/reasons.ts'
import type { Transport } from '../providers/upstream/transport.ts'
import type { Answer } from './answer/answer.ts'
import { DebugNotes } from './answer/debug.ts'
import type { CacheUse } from './cached-request.ts'
import type { Guard, Guarding } from './guard/guard.ts'
import type { SessionSpending } from './loops.ts'
import type { Plan } from './plans.ts'
import type { PluginChain } from './plugin-chain.ts'
import type { RouteCandidate } from './routing/candidate.ts'
import type { Prefix } from './routing/prompt-cache-prefix.ts'
import type { Ranking } from './routing/rank.ts'
import type { ServerTools } from './tool-calls/server-tools.ts'

type RoutedNotes = RankingNotes & Pick<Ranking, 'fallbacks' | 'affinity'>

const UNROUTED: RoutedNotes = { ...UNRANKED, fallbacks: false, affinity: null }

/** An exchange of any kind, as guard, routing and model calls see it. */
export class RoutedExchange extends Exchange {
  override candidates: readonly RouteCandidate[] = []
  /** Null if no guardrail applies to the caller. */
  guarding: Guarding | null = null
  /** Null if no plugin applies to the request. */
  plugins: PluginChain | null = null
  override ranking: RoutedNotes = UNROUTED
  /** Null if no capture includes it. */
  recording: Observation | null = null
  /** The way to its providers; null: the usual one. */
  transport: Transport | null = null
  /**
   * True if a batch service has taken its model call: it ends without accounting, and another exchange gets the reply.
   */
  isSubmitted = false
}

/** Writes the failure of an exchange that still runs as the end of its stream. */
export type LostRightTeller = (exchange: RunningExchange, reason: GatewayError) => void

/** Sends a request that is over to the candidate of its rollout as well. */
export interface ShadowSender {
  after(end: EndedExchange<RunningExchange>): void
}

/** An exchange of text. */
export class RunningExchange extends RoutedExchange {
  readonly answer: Answer
  override prefix: Prefix | null = null
  /** Null: the request names no server tool. */
  tools: ServerTools | null = null
  /** The candidate that answered last, which is called first in the next turn. */
  candidate: RouteCandidate | null = null
  /** The last turn, as plugins judge it; null before the first turn, and after tools have run. */
  turn: Turn | null = null
  /** Null if the response cache is off for the request. */
  cache: CacheUse | null = null
  /** Null if it takes the general path. */
  readonly plan: Plan | null
  /** Null: the spending of its session is not counted. */
  sessionSpending: SessionSpending | null = null
  #debug: DebugNotes | null = null
  /** Writes a failure as the end of its stream; null for exchanges without a client of their own. */
  readonly #tell: LostRightTeller | null
  /** True once the end of its stream has been written, although the exchange still runs. */
  isEndWritten = false

  constructor(
    request: ClientRequest,
    createdAt: number,
    answer: Answer,
    plan: Plan | null = null,
    tell: LostRightTeller | null = null,
  ) {
    super(request, createdAt)
    this.answer = answer
    this.plan = plan
    this.#tell = tell
  }

  tellLostRight(reason: GatewayError): boolean {
    if (this.#tell === null || this.isEndWritten || !this.answer.committed) return false
    this.isEndWritten = true
    this.#tell(this, reason)
    return true
  }

  /** The debug facts that the caller requested. */
  get debug(): DebugNotes {
    this.#debug ??= new DebugNotes(this)
    return this.#debug
  }
}

/** Returned by a stage that had nothing to do; its time counts towards the stage before it. */
export const SKIPPED = 'skipped'

export interface ExchangeStage<Deps, AnyExchange extends RoutedExchange> {
  /** Label of its time; null if it times its parts itself, or counts towards the previous stage. */
  readonly label: Stage | null
  /**
   * Returns SKIPPED, nothing, or a promise of either, but a promise only if it has to wait. A GatewayError that it
   * throws ends the exchange.
   */
  readonly run: (deps: Deps, exchange: AnyExchange) => unknown
}

/**
 * Runs the stages in order, starting at the given one, and times each. Throws or rejects with the error of a stage.
 * Creates a promise only if a stage has to wait. Uses callbacks, because they need less memory than an async function
 * that waits as long as the stream is open.
 */
export function runStages<Deps extends { readonly clock: Clock }, AnyExchange extends RoutedExchange>(
  stages: readonly ExchangeStage<Deps, AnyExchange>[],
  deps: Deps,
  exchange: AnyExchange,
  from = 0,
): void | Promise<void> {
  for (let index = from; index < stages.length; index++) {
    const { label, run } = stages[index] as ExchangeStage<Deps, AnyExchange>
    if (label !== null) exchange.watch.enter(label, deps.clock.monotonicMs())
    const outcome = run(deps, exchange)
    if (outcome instanceof Promise) {
      // Another promise would make no difference.
      if (index === stages.length - 1) return outcome
      return outcome.then(result => {
        if (result === SKIPPED) exchange.watch.skip()
        return runStages(stages, deps, exchange, index + 1)
      })
    }
    if (outcome === SKIPPED) exchange.watch.skip()
  }
}

/** Applies guardrails to the request, which they may rewrite or refuse. */
export function guardRequest(
  { guard }: { readonly guard: Guard },
  exchange: RoutedExchange,
): typeof SKIPPED | undefined | Promise<typeof SKIPPED | undefined> {
  return whenReady(guard.request(exchange), guarding => guardBy(exchange, guarding))
}

/** Notes the guardrails that apply to the exchange, and whether they require zero retention. */
export function guardBy(exchange: RoutedExchange, guarding: Guarding | null): typeof SKIPPED | undefined {
  if (guarding === null) return SKIPPED
  exchange.guarding = guarding
  exchange.zeroRetention = guarding.restrictions?.zeroRetention === true
  return undefined
}
