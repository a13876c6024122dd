/** Stages of an exchange, and the runner that awaits and times them. Serve threads. */
import type { Clock } from '../clock.ts'
import type { Stage } from '../metrics/stages.ts'
import type { RunningExchange } from './running.ts'

/** A stage that had nothing to do: its time counts with the stage before it. */
export const SKIPPED = 'skipped'

export interface ExchangeStage {
  /** Label of its time; null: it times its parts itself. */
  readonly timed: Stage | null
  /**
   * Returns SKIPPED, nothing, or a promise of either, the last only where something has to be awaited. A GatewayError
   * that it throws ends the exchange.
   */
  readonly run: (exchange: RunningExchange) => unknown
}

/** Runs the stages in order; rejects with what the first one threw. Awaits only what is a promise. */
export async function runStages(
  stages: readonly ExchangeStage[],
  exchange: RunningExchange,
  clock: Clock,
): Promise<void> {
  const { watch } = exchange
  for (const { timed, run } of stages) {
    if (timed !== null) watch.enter(timed, clock.monotonicMs())
    const running = run(exchange)
    const result = running instanceof Promise ? await running : running
    if (result === SKIPPED) watch.skip()
  }
}
