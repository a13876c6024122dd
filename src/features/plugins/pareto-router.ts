/**
 * Pareto router: `gateway/pareto-code` chooses a coding model by score and price: the cheapest in a score tier, or the
 * best at or below a price.
 */
import { UNITS_PER_USD } from '../../base/money.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type { ActivePlugin, Plugin, RoutableModel, RouterChoice } from '../../exchange/plugin.ts'
import type { PluginSettings } from '../../protocol/plugins.ts'
import { routerOf } from '../../protocol/routers.ts'
import type { PluginDeps } from './plugin-deps.ts'
import { compare } from './routers/bands.ts'
import { chosenNames, noModels, type PoolDeps, poolOf, stayWith } from './routers/pool.ts'
import type { Level } from './routers/rankings.ts'

type ParetoSettings = Extract<PluginSettings, { id: 'pareto-router' }>

/** Models that the router names: the first choice and two fallbacks. */
const MAX_MODELS = 3
/** Time that a conversation stays with its model. */
const STAY_WITH_MODEL_MS = 300_000
/** Minimum scores of the tiers. */
const HIGH_SCORE = 0.66
const MEDIUM_SCORE = 0.33
/** The tiers that replace an empty tier, in this order. */
const TIER_PREFERENCES: Readonly<Record<Level, readonly Level[]>> = {
  high: ['high', 'medium', 'low'],
  medium: ['medium', 'high', 'low'],
  low: ['low', 'medium', 'high'],
}
/** In a weighted average, the price of a prompt token counts three times as much as that of a completion token. */
const PROMPT_WEIGHT = 3

export function createParetoRouter(deps: PluginDeps): Plugin<'pareto-router'> {
  return {
    id: 'pareto-router',
    routers: ['pareto-code'],
    activate: (settings, request) => {
      const { slug = 'gateway/pareto-code', variants = '' } = routerOf(request) ?? {}
      return new ActiveParetoRouter(settings, { slug, variants }, deps)
    },
  }
}

/** A model with the figures for the choice. */
interface ScoredModel {
  readonly id: string
  readonly score: number
  /** USD per million tokens; infinite if unknown. */
  readonly price: number
  readonly throughput: number | null
}

class ActiveParetoRouter implements ActivePlugin {
  readonly id = 'pareto-router'
  readonly strategy = 'pareto'
  readonly #settings: ParetoSettings | null
  readonly #slug: { readonly slug: string; readonly variants: string }
  readonly #deps: PoolDeps

  constructor(
    settings: ParetoSettings | null,
    slug: { readonly slug: string; readonly variants: string },
    deps: PoolDeps,
  ) {
    this.#settings = settings
    this.#slug = slug
    this.#deps = deps
  }

  async route(exchange: Exchange): Promise<RouterChoice> {
    const { slug, variants } = this.#slug
    const pool = await poolOf(this.#deps, exchange, { include: null, exclude: null, variants })
    const source = this.#settings?.price_source ?? 'prompt'
    const isFastest = variants.split(':').includes('nitro')
    const everyModel = pool.map(model => this.#scored(model, source, isFastest))
    const scored = everyModel.filter(({ score }) => score > 0)
    const models = scored.length === 0 ? everyModel : scored
    const maxPrice = this.#settings?.max_price ?? null
    const { tier, ids } =
      maxPrice === null
        ? byTier(models, levelOf(this.#settings?.min_coding_score ?? 1), isFastest)
        : { tier: null, ids: underPrice(models, maxPrice) }
    if (ids.length === 0) throw noModels(slug)
    const firstIds = ids.slice(0, MAX_MODELS)
    const preferred = await stayWith(this.#deps, exchange, this.id, firstIds, { top: MAX_MODELS })
    const names = chosenNames(preferred.ids, variants)
    const first = models.find(({ id }) => id === preferred.ids[0])
    exchange.pipeline.push({
      type: 'plugin',
      name: this.id,
      summary: `${tier ?? `up to ${maxPrice} USD`}: ${names[0]}`,
      data: {
        resolved_to: names[0],
        fallback_models: names.slice(1),
        ...(tier === null ? { max_price: maxPrice } : { tier }),
        price_source: source,
        coding_score: first?.score ?? 0,
        ...(preferred.stays ? { stays: true } : {}),
      },
    })
    return { models: names }
  }

  noteAnswer(exchange: Exchange, modelId: string): void {
    this.#deps.lastModels.keep(exchange, this.id, modelId, STAY_WITH_MODEL_MS)
  }

  #scored(model: RoutableModel, source: 'prompt' | 'weighted_avg', isFastest: boolean): ScoredModel {
    const { id, prices } = model
    const score = this.#deps.rankings.codingScore(id)
    const throughput = isFastest ? model.throughput() : null
    if (prices === null) return { id, score, price: Number.POSITIVE_INFINITY, throughput }
    const { prompt, completion } = prices
    const unitPrice =
      source === 'prompt' ? prompt : (PROMPT_WEIGHT * prompt + completion) / (PROMPT_WEIGHT + 1)
    return { id, score, price: (unitPrice * 1e6) / UNITS_PER_USD, throughput }
  }
}

function levelOf(score: number): Level {
  return score >= HIGH_SCORE ? 'high' : score >= MEDIUM_SCORE ? 'medium' : 'low'
}

/** The models of a tier, or of the nearest tier that has any: cheapest first, or fastest first. */
export function byTier(
  models: readonly ScoredModel[],
  wantedTier: Level,
  fastest: boolean,
): { readonly tier: Level; readonly ids: readonly string[] } {
  for (const tier of TIER_PREFERENCES[wantedTier]) {
    const ofTier = models.filter(({ score }) => levelOf(score) === tier)
    if (ofTier.length === 0) continue
    const byPrice = ofTier.toSorted((a, b) => compare(a.price, b.price) || b.score - a.score)
    const ordered = fastest
      ? byPrice.toSorted((a, b) => (b.throughput ?? -1) - (a.throughput ?? -1))
      : byPrice
    return { tier, ids: ordered.map(({ id }) => id) }
  }
  return { tier: wantedTier, ids: [] }
}

/**
 * The models at or below a price: first the models of the frontier, best first, then the others. A model is on the
 * frontier if no other model is at least as good and as cheap, and better in one of the two.
 */
export function underPrice(models: readonly ScoredModel[], maxPrice: number): readonly string[] {
  const affordable = models.filter(({ price }) => price <= maxPrice)
  const byScore = affordable.toSorted((a, b) => b.score - a.score || compare(a.price, b.price))
  const frontier: ScoredModel[] = []
  const dominated: ScoredModel[] = []
  let lowestPrice = Number.POSITIVE_INFINITY
  for (const model of byScore) {
    const last = frontier.at(-1)
    const isEqual = last !== undefined && last.score === model.score && last.price === model.price
    if (model.price < lowestPrice || isEqual) frontier.push(model)
    else dominated.push(model)
    lowestPrice = Math.min(lowestPrice, model.price)
  }
  return [...frontier, ...dominated].map(({ id }) => id)
}
