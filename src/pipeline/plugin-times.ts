/**
 * The time that plugins spend on one exchange. A plugin counts once one of its verbs was awaited, failed or changed
 * something; until then it had nothing to do. The time of guardrails and of other plugins that read its texts does not
 * count.
 */
import type { Clock } from '../base/clock.ts'
import { isPending } from '../base/maybe-promise.ts'
import type { Metrics } from '../base/metrics/metrics.ts'
import type { ActivePlugin } from '../exchange/plugin.ts'

interface PluginTime {
  ms: number
  hasWorked: boolean
}

export class PluginTimes {
  readonly #clock: Clock
  readonly #timeByPlugin = new Map<ActivePlugin['id'], PluginTime>()
  /** Time within running verbs that does not count for their plugin. */
  #excludedMs = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Runs a verb of the plugin. `hasWorked`: true if a synchronous result shows that work was done. */
  run<Result>(
    { id }: ActivePlugin,
    verb: () => Result | Promise<Result>,
    hasWorked: (result: Result) => boolean,
  ): Result | Promise<Result> {
    const startedMs = this.#clock.monotonicMs() - this.#excludedMs
    const end = (hasSucceeded: boolean): void => this.#add(id, startedMs, hasSucceeded)
    let result: Result | Promise<Result>
    try {
      result = verb()
    } catch (thrown) {
      end(true)
      throw thrown
    }
    if (isPending(result)) return result.finally(() => end(true))
    end(hasWorked(result))
    return result
  }

  /** Runs work inside a verb that does not count as time of its plugin. */
  async runUncounted<Result>(work: () => Promise<Result>): Promise<Result> {
    const startedMs = this.#clock.monotonicMs()
    const excludedBeforeMs = this.#excludedMs
    try {
      return await work()
    } finally {
      this.#excludedMs = excludedBeforeMs + this.#clock.monotonicMs() - startedMs
    }
  }

  /** Observes each plugin that has worked. */
  observe({ pluginSeconds }: Pick<Metrics, 'pluginSeconds'>): void {
    for (const [plugin, { ms, hasWorked }] of this.#timeByPlugin) {
      if (hasWorked) pluginSeconds.observe({ plugin }, ms / 1000)
    }
  }

  #add(id: ActivePlugin['id'], startedMs: number, hasSucceeded: boolean): void {
    const ms = this.#clock.monotonicMs() - this.#excludedMs - startedMs
    const time = this.#timeByPlugin.get(id)
    if (time === undefined) this.#timeByPlugin.set(id, { ms, hasWorked: hasSucceeded })
    else {
      time.ms += ms
      time.hasWorked ||= hasSucceeded
    }
  }
}
