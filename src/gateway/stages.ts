/** The stages of an exchange and the one runner that awaits and times them. Serve threads. */
import type { Clock } from '../clock.ts'
import type { Stage } from '../metrics/stages.ts'
import type { RunningExchange } from './running.ts'

/** A stage that had nothing to do: its time counts with the stage before it. */
export const SKIPPED = 'skipped'
type Result = typeof SKIPPED | undefined | void

export interface ExchangeStage {
  /** Label of its time; null: it times its parts itself. */
  readonly timed: Stage | null
  /** A GatewayError refuses the request. A promise only where something has to be waited for. */
  readonly run: (exchange: RunningExchange) => Result | Promise<Result>
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
