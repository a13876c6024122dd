/**
 * Auto routers: `gateway/auto` and `gateway/auto-beta` choose by task type from the models most used for it, within a
 * cost tier. Each reads the settings of its own plugin only.
 */
import type { Exchange } from '../../exchange/exchange.ts'
import type { ActivePlugin, Plugin, RoutableModel, RouterChoice } from '../../exchange/plugin.ts'
import type { PluginSettings } from '../../protocol/plugins.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { type RouterName, routerOf } from '../../protocol/routers.ts'
import type { PluginDeps } from './plugin-deps.ts'
import { type Band, type BandOrder, ceilingOf, orderByBand, TIER_BANDS } from './routers/bands.ts'
import { type ClassifierDeps, createClassifier, type TaskClassifier } from './routers/classifier.ts'
import { lastAssistantModel, withoutModels } from './routers/conversation.ts'
import { type Patterns, patternsOf } from './routers/patterns.ts'
import {
  admitWith,
  chosenNames,
  costOf,
  MAX_CHOSEN_MODELS,
  noModels,
  type PoolDeps,
  poolOf,
  STAY_IDLE_MS,
  stayWith,
} from './routers/pool.ts'
import type { TaskType } from './routers/task-types.ts'

type AutoRouterDeps = ClassifierDeps & PoolDeps
type AutoId = 'auto-router' | 'auto-beta-router'
type AutoSettings =
  | Extract<PluginSettings, { id: 'auto-router' }>
  | Extract<PluginSettings, { id: 'auto-beta-router' }>

/** `cost_quality_tradeoff` of requests that set neither it nor `cost_tier`. */
const DEFAULT_TRADEOFF = 9

export function createAutoRouter(deps: PluginDeps): Plugin<'auto-router'> {
  return autoRouter('auto-router', 'auto', deps)
}

export function createAutoBetaRouter(deps: PluginDeps): Plugin<'auto-beta-router'> {
  return autoRouter('auto-beta-router', 'auto-beta', deps)
}

function autoRouter<Id extends AutoId>(id: Id, router: RouterName, deps: AutoRouterDeps): Plugin<Id> {
  const classifier = createClassifier(deps)
  return {
    id,
    routers: [router],
    activate: (settings, request) =>
      new ActiveAutoRouter(id, settings as AutoSettings | null, request, { ...deps, classifier }),
  }
}

interface AutoDeps extends PoolDeps {
  readonly classifier: TaskClassifier
}

class ActiveAutoRouter implements ActivePlugin {
  readonly id: AutoId
  readonly strategy = 'auto'
  readonly #settings: AutoSettings | null
  readonly #slug: NonNullable<ReturnType<typeof routerOf>>
  readonly #deps: AutoDeps
  readonly #allowed: Patterns | null
  readonly #excluded: Patterns | null

  constructor(id: AutoId, settings: AutoSettings | null, request: ResponsesRequest, deps: AutoDeps) {
    this.id = id
    this.#settings = settings
    this.#slug = routerOf(request) ?? { name: 'auto', variants: '', slug: 'gateway/auto' }
    this.#deps = deps
    this.#allowed = patternsOf(settings?.allowed_models)
    this.#excluded = patternsOf(settings?.excluded_models)
  }

  async route(exchange: Exchange): Promise<RouterChoice> {
    const { classifier } = this.#deps
    const { slug, variants } = this.#slug
    const filter = { include: this.#allowed, exclude: this.#excluded, variants }
    const pool = await poolOf(this.#deps, exchange, filter)
    if (pool.length === 0) throw noModels(slug)
    let type = classifier.quick(exchange.prompt)
    let order = this.#order(pool, type)
    const pinned = await this.#pinned(exchange)
    let task: TaskType | null = null
    if (pinned === null && classifier.hasModel) {
      await admitWith(exchange, chosenNames(order.ids, variants))
      task = await classifier.ask(exchange)
      if (task !== null && task !== type) {
        type = task
        order = this.#order(pool, type)
      }
    }
    const topCount = Math.min(order.top, MAX_CHOSEN_MODELS)
    const { ids, stays } = await stayWith(this.#deps, exchange, this.id, order.ids, { top: topCount })
    const chosenIds = pinned === null ? ids : [pinned, ...ids.filter(id => id !== pinned)]
    const names = chosenNames(chosenIds, variants)
    exchange.pipeline.push({
      type: 'plugin',
      name: this.id,
      summary: `${type}: ${names[0]}`,
      data: {
        task_type: type,
        classifier: task === null ? 'weights' : 'model',
        resolved_to: names[0],
        fallback_models: names.slice(1),
        ...(pinned === null ? {} : { pinned: true }),
        ...(stays && pinned === null ? { stays: true } : {}),
      },
    })
    return this.#mayPin ? { models: names, prompt: withoutModels(exchange.prompt) } : { models: names }
  }

  noteAnswer(exchange: Exchange, modelId: string): void {
    this.#deps.lastModels.keep(exchange, this.id, modelId, STAY_IDLE_MS)
  }

  #order(pool: readonly RoutableModel[], type: TaskType): BandOrder {
    const task = this.#deps.rankings.task(type)
    const ranked = pool.filter(({ id }) => task.shares.has(id))
    // A model that the caller allows by name is a candidate without a rank too.
    const candidates = this.#allowed !== null || ranked.length === 0 ? pool : ranked
    const costed = candidates.map(model => ({
      id: model.id,
      cost: costOf(model, task),
      share: task.shares.get(model.id) ?? 0,
    }))
    return orderByBand(costed, bandOf(this.#settings))
  }

  /** True if the caller may name a model in the messages of the assistant. */
  get #mayPin(): boolean {
    return this.#settings?.id === 'auto-router' && this.#settings.pin_model === true
  }

  /** The model of the assistant's latest message, if the caller has set `pin_model` and the model may serve. */
  async #pinned(exchange: Exchange): Promise<string | null> {
    if (!this.#mayPin) return null
    const lastModel = lastAssistantModel(exchange.prompt)
    const { models } = this.#deps
    if (lastModel === null || models.kindOf(lastModel) === null) return null
    if (this.#allowed?.matches(lastModel) === false || this.#excluded?.matches(lastModel) === true)
      return null
    const [usable] = await models.of(exchange, [lastModel], this.#slug.variants)
    return usable === undefined ? null : lastModel
  }
}

function bandOf(settings: AutoSettings | null): Band {
  if (settings?.cost_tier != null) return TIER_BANDS[settings.cost_tier]
  return ceilingOf(settings?.cost_quality_tradeoff ?? DEFAULT_TRADEOFF)
}
