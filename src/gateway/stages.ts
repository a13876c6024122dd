/** Runs the stages of an exchange, and defines the stages that all kinds of exchange share. */
import type { Clock } from '../clock.ts'
import type { Stage } from '../metrics/stages.ts'
import { whenReady } from '../ready.ts'
import type { Guard, Guarding } from './guard/guard.ts'
import { type RankDeps, type Ranking, rankCandidates } from './routing/rank.ts'
import type { RoutedExchange } from './running.ts'

/** A stage that had nothing to do: its time counts with the stage before it. */
export const SKIPPED = 'skipped'

export interface ExchangeStage<Deps, Each extends RoutedExchange> {
  /** Label of its time; null: it times its parts itself, or counts with the stage before it. */
  readonly timed: Stage | null
  /**
   * Returns SKIPPED, nothing, or a promise of either, the last only where something has to be awaited. A GatewayError
   * that it throws ends the exchange.
   */
  readonly run: (deps: Deps, exchange: Each) => unknown
}

/**
 * Runs the stages in their order, from one on, and times each. Throws or rejects with what one of them throws. Makes a
 * promise only where one has to be awaited. Callbacks, for they are smaller than an async function that waits as long
 * as the stream is open.
 */
export function runStages<Deps extends { readonly clock: Clock }, Each extends RoutedExchange>(
  stages: readonly ExchangeStage<Deps, Each>[],
  deps: Deps,
  exchange: Each,
  from = 0,
): void | Promise<void> {
  for (let at = from; at < stages.length; at++) {
    const { timed, run } = stages[at] as ExchangeStage<Deps, Each>
    if (timed !== null) exchange.watch.enter(timed, deps.clock.monotonicMs())
    const running = run(deps, exchange)
    if (running instanceof Promise) {
      // A promise more would change nothing.
      if (at === stages.length - 1) return running
      return running.then(result => {
        if (result === SKIPPED) exchange.watch.skip()
        return runStages(stages, deps, exchange, at + 1)
      })
    }
    if (running === SKIPPED) exchange.watch.skip()
  }
}

/** Guardrails look at the request, and rewrite or refuse it. */
export function guardRequest(
  { guard }: { readonly guard: Guard },
  exchange: RoutedExchange,
): typeof SKIPPED | undefined | Promise<typeof SKIPPED | undefined> {
  return whenReady(guard.request(exchange), guarding => guardBy(exchange, guarding))
}

/** Notes the guardrails that hold. */
export function guardBy(exchange: RoutedExchange, guarding: Guarding | null): typeof SKIPPED | undefined {
  if (guarding === null) return SKIPPED
  exchange.guarding = guarding
  exchange.zeroRetention = guarding.restrictions?.zeroRetention === true
  return undefined
}

/** Lists the candidates for the prompt in its present form. */
export function routeRequest(deps: RankDeps, exchange: RoutedExchange): Ranking | Promise<Ranking> {
  return whenReady(rankCandidates(deps, exchange), (ranking: Ranking) => {
    noteRanking(exchange, ranking)
    return ranking
  })
}

/** Notes who is asked, in which order, and why. */
export function noteRanking(
  exchange: RoutedExchange,
  { candidates, fallbacks, skipped, stay, named: { kind }, choice, rather, exclusions }: Ranking,
): void {
  exchange.candidates = candidates
  exchange.fallbacks = fallbacks
  exchange.skippedModels = skipped
  exchange.stay = stay
  exchange.choice = choice
  exchange.rather = rather === undefined || rather === candidates[0] ? null : rather
  exchange.exclusions = exclusions
  if (kind !== 'plain' && exchange.strategy === 'direct') exchange.strategy = kind
}
