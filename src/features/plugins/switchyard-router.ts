/**
 * Switchyard: `nvidia/switchyard` chooses between an efficient and a capable model for each turn, by its algorithm:
 * most use the verdict of a judge model and tool results. Its candidates are the `models` of the request; without them,
 * two models that are used most.
 */
import { refuseField } from '../../base/errors.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type { ActivePlugin, Plugin, RoutableModel, RouterChoice } from '../../exchange/plugin.ts'
import type { PluginSettings } from '../../protocol/plugins.ts'
import { routerOf } from '../../protocol/routers.ts'
import type { PluginDeps } from './plugin-deps.ts'
import { compare } from './routers/bands.ts'
import { isToolTurn, recentResults } from './routers/conversation.ts'
import { type JudgeDeps, type Judgement, judge } from './routers/judge.ts'
import { chosenNames, noModels, type PoolDeps, priceSum, STAY_IDLE_MS } from './routers/pool.ts'
import { type ModelRole, sideOf } from './routers/stage-signals.ts'

const SLUG = 'nvidia/switchyard'
const MAX_CANDIDATES = 3

type Algorithm = NonNullable<Extract<PluginSettings, { id: 'switchyard-router' }>['algorithm']>

type SwitchyardDeps = JudgeDeps & PoolDeps & Pick<PluginDeps, 'draw'>

export function createSwitchyardRouter(deps: PluginDeps): Plugin<'switchyard-router'> {
  return {
    id: 'switchyard-router',
    routers: [SLUG],
    activate: (settings, request) =>
      new ActiveSwitchyard(settings?.algorithm ?? 'stage', routerOf(request)?.variants ?? '', deps),
  }
}

interface Tiers {
  /** The candidates, cheapest first. */
  readonly byPrice: readonly string[]
  /** The candidates in the caller's order. */
  readonly models: readonly string[]
  /** The reason that the prices allow no choice; null if they do. */
  readonly degraded: 'single_candidate' | 'equal_pricing' | null
}

interface Choice {
  readonly ids: readonly string[]
  readonly strategy: Algorithm | 'session_pin' | 'caller_order'
  readonly judgement?: Judgement
}

class ActiveSwitchyard implements ActivePlugin {
  readonly id = 'switchyard-router'
  readonly strategy = 'auto'
  readonly #algorithm: Algorithm
  readonly #variants: string
  readonly #deps: SwitchyardDeps

  constructor(algorithm: Algorithm, variants: string, deps: SwitchyardDeps) {
    this.#algorithm = algorithm
    this.#variants = variants
    this.#deps = deps
  }

  async route(exchange: Exchange): Promise<RouterChoice> {
    const { clock } = this.#deps
    const startedMs = clock.monotonicMs()
    if (exchange.dataRegion !== null)
      throw refuseField('model', `${SLUG} is available only on the global host`)
    const tiers = tiersOf(await this.#candidates(exchange))
    const { ids, strategy, judgement } = await this.#choice(exchange, tiers)
    const names = chosenNames(ids, this.#variants)
    exchange.pipeline.push({
      type: 'plugin',
      name: this.id,
      summary: `${strategy}: ${names[0]}`,
      data: {
        resolved_to: names[0],
        fallback_models: names.slice(1),
        strategy,
        ...(judgement?.ms === undefined ? {} : { judge_ms: judgement.ms }),
        route_ms: Math.round(clock.monotonicMs() - startedMs),
        ...(judgement?.failure === undefined ? {} : { judge_failure: judgement.failure }),
        ...(tiers.degraded === null ? {} : { degraded_reason: tiers.degraded }),
      },
    })
    return { models: names }
  }

  async #candidates(exchange: Exchange): Promise<readonly RoutableModel[]> {
    const { models, rankings } = this.#deps
    const requested = exchange.prompt.models ?? []
    const requestedIds = [...new Set(requested)]
    if (requestedIds.length === 0) {
      const ranked = models.ids().filter(id => rankings.overall(id) > 0)
      const ids = ranked.toSorted((a, b) => rankings.overall(b) - rankings.overall(a))
      const usable = await models.of(exchange, ids, this.#variants)
      const pool = usable.length > 0 ? usable : await models.of(exchange, models.ids(), this.#variants)
      if (pool.length === 0) throw noModels(SLUG)
      return pool.slice(0, 2)
    }
    if (requestedIds.length > MAX_CANDIDATES) {
      throw refuseField('models', `must have at most ${MAX_CANDIDATES} models for ${SLUG}`)
    }
    const pathOf = (name: string): string => `models[${requested.indexOf(name)}]`
    for (const name of requestedIds) {
      const kind = models.kindOf(name)
      if (kind === null) throw refuseField(pathOf(name), 'is not a text model: GET /v1/models lists all ids')
      if (kind === 'other') {
        throw refuseField(pathOf(name), `${SLUG} accepts model ids, not aliases, variants or routers`)
      }
    }
    const usableModels = await models.of(exchange, requestedIds, this.#variants)
    const usable = new Set(usableModels.map(({ id }) => id))
    const unusable = requestedIds.find(name => !usable.has(name))
    if (unusable !== undefined)
      throw refuseField(pathOf(unusable), 'no endpoint of this model may serve the request')
    return usableModels
  }

  async #choice(exchange: Exchange, { byPrice, models, degraded }: Tiers): Promise<Choice> {
    if (degraded !== null) return { ids: models, strategy: 'caller_order' }
    const algorithm = this.#algorithm
    if (algorithm === 'passthrough') return { ids: models, strategy: algorithm }
    const { lastModels, draw } = this.#deps
    const isTools = isToolTurn(exchange.prompt)
    const lastModel = await lastModels.of(exchange, this.id)
    const current = lastModel !== null && models.includes(lastModel) ? lastModel : null
    const signal = isTools ? sideOf(recentResults(exchange.prompt)) : null
    // The choice applies to all tool turns of the user's turn.
    const remember = (id: string): void => lastModels.keep(exchange, this.id, id, STAY_IDLE_MS)
    const decide = (side: ModelRole, judgement?: Judgement): Choice => {
      const ids = side === 'efficient' ? byPrice : byPrice.toReversed()
      if (!isTools || current === null) remember(ids[0] ?? '')
      else remember(current)
      return { ids, strategy: algorithm, ...(judgement === undefined ? {} : { judgement }) }
    }
    const pin = (id: string): Choice => {
      remember(id)
      return { ids: [id, ...byPrice.filter(otherId => otherId !== id)], strategy: 'session_pin' }
    }
    if (algorithm === 'stage' && signal !== null) return decide(signal)
    if (algorithm === 'auto') return decide(signal ?? 'efficient')
    if (algorithm === 'composite' && signal !== null) return decide(signal)
    if (algorithm !== 'stage' && isTools && current !== null) return pin(current)
    if (algorithm === 'random') return decide(draw() < 0.5 ? 'efficient' : 'capable')
    const judgement = await judge(this.#deps, exchange)
    return decide(judgement.side, judgement)
  }
}

function tiersOf(candidates: readonly RoutableModel[]): Tiers {
  const priced = candidates.map(model => ({ id: model.id, price: priceSum(model) }))
  // Stable, so that equal prices keep the caller's order.
  const sorted = priced.toSorted((a, b) => compare(a.price, b.price))
  const isEqual = sorted[0]?.price === sorted.at(-1)?.price
  return {
    byPrice: sorted.map(({ id }) => id),
    models: candidates.map(({ id }) => id),
    degraded: candidates.length === 1 ? 'single_candidate' : isEqual ? 'equal_pricing' : null,
  }
}
