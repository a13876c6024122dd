/**
 * Free router: `gateway/free` picks a random free model that supports the features of the request. A conversation stays
 * with its model.
 */
import type { Exchange } from '../../exchange/exchange.ts'
import type { ActivePlugin, BuiltInRouter, RoutableModel } from '../../exchange/plugin.ts'
import { routerOf } from '../../protocol/routers.ts'
import type { PluginDeps } from './plugin-deps.ts'
import {
  chosenNames,
  MAX_CHOSEN_MODELS,
  noModels,
  type PoolDeps,
  STAY_IDLE_MS,
  stayWith,
} from './routers/pool.ts'

type FreeRouterDeps = PoolDeps & Pick<PluginDeps, 'draw'>

export function createFreeRouter(deps: FreeRouterDeps): BuiltInRouter {
  return {
    id: 'free',
    routers: ['free'],
    activate: (_, request) => {
      const { slug = 'gateway/free', variants = '' } = routerOf(request) ?? {}
      return activeFreeRouter(deps, slug, variants)
    },
  }
}

function activeFreeRouter(deps: FreeRouterDeps, slug: string, requestedVariants: string): ActivePlugin {
  return {
    id: 'free',
    // Another draw could give another result.
    isRepeatable: false,
    strategy: 'free',
    noteAnswer: (exchange, modelId) => deps.lastModels.keep(exchange, 'free', modelId, STAY_IDLE_MS),
    async route(exchange: Exchange) {
      // The variant excludes endpoints of the model that are not free.
      const variants = requestedVariants.split(':').includes('free')
        ? requestedVariants
        : `${requestedVariants}:free`
      const models = await deps.models.of(exchange, deps.models.freeIds(), variants)
      const pool = models.filter(({ isFree, fits }) => isFree && fits)
      if (pool.length === 0) throw noModels(slug)
      const drawnModels = shuffle(pool, deps.draw).slice(0, MAX_CHOSEN_MODELS)
      const lastModel = await deps.lastModels.of(exchange, 'free')
      const current = pool.find(({ id }) => id === lastModel)
      const ids = [...(current === undefined ? [] : [current.id]), ...drawnModels.map(({ id }) => id)]
      const { ids: ordered } = await stayWith(deps, exchange, 'free', [...new Set(ids)], {
        top: MAX_CHOSEN_MODELS,
      })
      const names = chosenNames(ordered, variants)
      exchange.pipeline.push({
        type: 'plugin',
        name: 'free',
        summary: `one of ${pool.length}: ${names[0]}`,
        data: { resolved_to: names[0], fallback_models: names.slice(1), candidates: pool.length },
      })
      return { models: names }
    },
  }
}

function shuffle(models: readonly RoutableModel[], draw: () => number): readonly RoutableModel[] {
  const candidates = [...models]
  const drawnModels: RoutableModel[] = []
  while (candidates.length > 0 && drawnModels.length < MAX_CHOSEN_MODELS) {
    drawnModels.push(...candidates.splice(Math.floor(draw() * candidates.length), 1))
  }
  return drawnModels
}
