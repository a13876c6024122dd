/**
 * The candidate pool of a router: models that may serve the request and match its patterns, and parts of the choice
 * that routers share.
 */
import { setImmediate as turn } from 'node:timers/promises'
import { GatewayError } from '../../../base/errors.ts'
import type { Exchange } from '../../../exchange/exchange.ts'
import type { RoutableModel } from '../../../exchange/plugin.ts'
import { withVariants } from '../../../protocol/routers.ts'
import type { PluginDeps } from '../plugin-deps.ts'
import type { Patterns } from './patterns.ts'
import type { TaskRanking } from './rankings.ts'

export type PoolDeps = Pick<PluginDeps, 'models' | 'rankings' | 'lastModels'>

interface PoolFilter {
  /** Null for the ranked models, or for all models if no ranked one is left. */
  readonly include: Patterns | null
  readonly exclude: Patterns | null
  readonly variants: string
}

/** Maximum number of models that a router names for one request. */
export const MAX_CHOSEN_MODELS = 8
/** A conversation stays with its model for this long after the last use. */
export const STAY_IDLE_MS = 600_000
/** Only the first models of the catalogue are in a pool, because each costs about ten microseconds. */
const MAX_POOL_MODELS = 1_000
/** Ids that are compared with patterns before other requests get a turn. */
const IDS_PER_TURN = 20

/** The pool in the order of the catalogue. Models that do not fit the request are left out if others fit. */
export async function poolOf(
  deps: PoolDeps,
  exchange: Exchange,
  { include, exclude, variants }: PoolFilter,
): Promise<readonly RoutableModel[]> {
  const { models, rankings } = deps
  const isWanted = (id: string): boolean =>
    (include === null || include.matches(id)) && exclude?.matches(id) !== true
  const hasPatterns = include !== null || exclude !== null
  const isRanked = (id: string): boolean => include !== null || rankings.modelIds.has(id)
  const ids = models.ids().filter(isRanked)
  const matchingIds = hasPatterns ? await filterPool(ids, isWanted) : ids
  const pool = await models.of(exchange, matchingIds.slice(0, MAX_POOL_MODELS), variants)
  if (pool.length > 0 || include !== null) return fittingOrAll(pool)
  const unrankedIds = models.ids().filter(id => !rankings.modelIds.has(id))
  const remainingIds = hasPatterns ? await filterPool(unrankedIds, isWanted) : unrankedIds
  return fittingOrAll(await models.of(exchange, remainingIds.slice(0, MAX_POOL_MODELS), variants))
}

async function filterPool(
  ids: readonly string[],
  isWanted: (id: string) => boolean,
): Promise<readonly string[]> {
  const matchingIds: string[] = []
  for (const [index, id] of ids.entries()) {
    if (index % IDS_PER_TURN === IDS_PER_TURN - 1) await turn()
    if (isWanted(id)) matchingIds.push(id)
  }
  return matchingIds
}

function fittingOrAll(pool: readonly RoutableModel[]): readonly RoutableModel[] {
  const fittingModels = pool.filter(({ fits }) => fits)
  return fittingModels.length === 0 ? pool : fittingModels
}

/** The cost of an average generation for the task; null if the model's prices are unknown. */
export function costOf({ prices }: RoutableModel, { inputTokens, outputTokens }: TaskRanking): number | null {
  if (prices === null) return null
  return inputTokens * prices.prompt + outputTokens * prices.completion + prices.request
}

/** The prices of a prompt token and a completion token together; infinite if unknown. */
export function priceSum({ prices }: RoutableModel): number {
  return prices === null ? Number.POSITIVE_INFINITY : prices.prompt + prices.completion
}

/** Puts the conversation's last model first if it is among the first `top`. */
export async function stayWith(
  { lastModels }: PoolDeps,
  exchange: Exchange,
  router: string,
  ids: readonly string[],
  { top }: { readonly top: number },
): Promise<{ readonly ids: readonly string[]; readonly stays: boolean }> {
  const lastModel = await lastModels.of(exchange, router)
  if (lastModel === null || !ids.slice(0, top).includes(lastModel)) return { ids, stays: false }
  return { ids: [lastModel, ...ids.filter(id => id !== lastModel)], stays: true }
}

/** The names that replace the router's slug. */
export function chosenNames(ids: readonly string[], variants: string): readonly string[] {
  return ids.slice(0, MAX_CHOSEN_MODELS).map(id => withVariants(id, variants))
}

/** Checks the limits of the caller before a model is called to make the choice. Rejects with the refusal. */
export async function admitWith(exchange: Exchange, names: readonly string[]): Promise<void> {
  const [first, ...fallbacks] = names
  if (first === undefined) return
  const { models: _models, ...prompt } = exchange.prompt
  await exchange.admitEarly?.({
    ...prompt,
    model: first,
    ...(fallbacks.length === 0 ? {} : { models: fallbacks }),
  })
}

export function noModels(router: string): GatewayError {
  return new GatewayError('constraint_filtered', 'No models match your request and model restrictions', {
    metadata: {
      availability: { code: 'constraint_filtered', retryable: false, requested_models: [router] },
    },
  })
}
