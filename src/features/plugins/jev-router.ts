/**
 * Jev router: `typesafe/jev-router` chooses by the difficulty of the task, within a cost tier. Its lists narrow the
 * choice. Models of `excluded_models` are never chosen; the other lists are ignored if no model matches them.
 */
import { refuseField } from '../../base/errors.ts'
import { toUsd } from '../../base/money.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type { ActivePlugin, Plugin, RoutableModel, RouterChoice } from '../../exchange/plugin.ts'
import type { PluginSettings } from '../../protocol/plugins.ts'
import { routerOf } from '../../protocol/routers.ts'
import type { PluginDeps } from './plugin-deps.ts'
import { type Band, type CostedModel, orderByBand, percentilesOf } from './routers/bands.ts'
import { createClassifier, type TaskClassifier } from './routers/classifier.ts'
import { isToolTurn } from './routers/conversation.ts'
import { patternsOf } from './routers/patterns.ts'
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
import { LEVELS, type Level } from './routers/rankings.ts'
import type { TaskType } from './routers/task-types.ts'

const SLUG = 'typesafe/jev-router'

type JevSettings = Extract<PluginSettings, { id: 'jev-router' }>

/** Thirds of the models by cost. */
const LEVEL_BANDS: Readonly<Record<Level, Band>> = {
  low: { from: 0, to: 100 / 3, isClosed: false },
  medium: { from: 100 / 3, to: 200 / 3, isClosed: false },
  high: { from: 200 / 3, to: 100, isClosed: false },
}

/** Number of levels by which a requested effort raises or lowers the task's level. */
const EFFORT_SHIFTS: Readonly<Record<string, number>> = {
  none: -1,
  minimal: -1,
  low: -1,
  high: 1,
  xhigh: 1,
  max: 1,
}

export function createJevRouter(deps: PluginDeps): Plugin<'jev-router'> {
  const classifier = createClassifier(deps)
  return {
    id: 'jev-router',
    routers: [SLUG],
    activate: (settings, request) =>
      new ActiveJevRouter(settings, routerOf(request)?.variants ?? '', { ...deps, classifier }),
  }
}

interface JevDeps extends PoolDeps {
  readonly classifier: TaskClassifier
}

class ActiveJevRouter implements ActivePlugin {
  readonly id = 'jev-router'
  readonly strategy = 'auto'
  readonly #settings: JevSettings | null
  readonly #variants: string
  readonly #deps: JevDeps

  constructor(settings: JevSettings | null, variants: string, deps: JevDeps) {
    this.#settings = settings
    this.#variants = variants
    this.#deps = deps
  }

  async route(exchange: Exchange): Promise<RouterChoice> {
    checkSupported(exchange)
    const { classifier } = this.#deps
    const settings = this.#settings
    const include = patternsOf(settings?.models, settings?.allowed_models)
    const exclude = patternsOf(settings?.excluded_models)
    const variants = this.#variants
    const everyModel = await poolOf(this.#deps, exchange, { include: null, exclude, variants })
    const matchingPool =
      include === null ? everyModel : await poolOf(this.#deps, exchange, { include, exclude, variants })
    // A list that matches nothing is ignored; what is excluded never is.
    const isIgnored = include !== null && matchingPool.length === 0
    const pool = isIgnored ? everyModel : matchingPool
    if (pool.length === 0) throw noModels(SLUG)
    const isAgentic = (exchange.prompt.tools?.length ?? 0) > 0 || isToolTurn(exchange.prompt)
    let choice = this.#choice(
      exchange,
      pool,
      everyModel,
      agentic(classifier.quick(exchange.prompt), isAgentic),
    )
    if (classifier.hasModel) {
      await admitWith(exchange, chosenNames(choice.ids, variants))
      const task = await classifier.ask(exchange)
      if (task !== null) choice = this.#choice(exchange, pool, everyModel, agentic(task, isAgentic))
    }
    const { top, candidates, type, level } = choice
    const { ids } = await stayWith(this.#deps, exchange, this.id, choice.ids, {
      top: Math.min(top, MAX_CHOSEN_MODELS),
    })
    const names = chosenNames(ids, variants)
    const chosenCandidates = ids
      .slice(0, MAX_CHOSEN_MODELS)
      .flatMap(id => candidates.filter(({ model }) => model === id))
    const isOtherTier =
      settings?.cost_tier != null && include !== null && chosenCandidates[0]?.tier !== settings.cost_tier
    exchange.pipeline.push({
      type: 'plugin',
      name: this.id,
      summary: `${level}: ${names[0]}`,
      data: {
        resolved_models: names,
        candidates: chosenCandidates,
        reason: `${type} asks for the level ${level}`,
        task_type: type,
        pipeline: isAgentic ? 'agentic' : 'default',
        advisor_model: null,
        models: [...(settings?.models ?? []), ...(settings?.allowed_models ?? [])].slice(
          0,
          MAX_SHOWN_ENTRIES,
        ),
        excluded_models: (settings?.excluded_models ?? []).slice(0, MAX_SHOWN_ENTRIES),
        ...(isIgnored ? { list_fallback: 'models_ignored' } : {}),
        ...(isOtherTier && !isIgnored ? { list_tier_cap: chosenCandidates[0]?.tier } : {}),
        max_fallback: 'deep',
      },
    })
    return { models: names }
  }

  noteAnswer(exchange: Exchange, modelId: string): void {
    this.#deps.lastModels.keep(exchange, this.id, modelId, STAY_IDLE_MS)
  }

  #choice(
    exchange: Exchange,
    pool: readonly RoutableModel[],
    everyModel: readonly RoutableModel[],
    type: TaskType,
  ) {
    const task = this.#deps.rankings.task(type)
    const effort = exchange.prompt.reasoning?.effort ?? null
    const level = this.#settings?.cost_tier ?? shiftLevel(task.level, effort)
    const costed = (model: RoutableModel): CostedModel => ({
      id: model.id,
      cost: costOf(model, task),
      share: task.shares.get(model.id) ?? 0,
    })
    const percentileModels = [
      ...new Map([...everyModel, ...pool].map(model => [model.id, costed(model)])).values(),
    ]
    const percentileOf = percentilesOf(percentileModels)
    const models = pool.map(costed)
    const { ids, top } = orderByBand(models, LEVEL_BANDS[level], percentileModels)
    const candidates = models.map(({ id, cost }) => ({
      model: id,
      effort,
      tier: tierOf(percentileOf(cost)),
      estimated_cost: cost === null ? null : toUsd(cost),
    }))
    return { ids, top, candidates, type, level }
  }
}

/** Maximum number of list entries that metadata repeats. */
const MAX_SHOWN_ENTRIES = 32

function checkSupported({ dataRegion, prompt }: Exchange): void {
  if (dataRegion !== null) throw refuseField('model', `${SLUG} is available only on the global host`)
  if (prompt.reasoning?.max_tokens != null) {
    throw refuseField(
      'reasoning.max_tokens',
      `${SLUG} accepts only reasoning.effort (as a hint), not a number of tokens`,
    )
  }
  if (prompt.reasoning?.mode === 'pro')
    throw refuseField('reasoning.mode', `${SLUG} does not support the pro mode`)
}

/** A prompt with tools is an agent task, unless it is about code. */
function agentic(type: TaskType, isAgentic: boolean): TaskType {
  return isAgentic && !type.startsWith('agent:') && !type.startsWith('code:') ? 'agent:tool_use' : type
}

function shiftLevel(level: Level, effort: string | null): Level {
  const index = LEVELS.indexOf(level) + (EFFORT_SHIFTS[effort ?? ''] ?? 0)
  return LEVELS[Math.max(0, Math.min(LEVELS.length - 1, index))] ?? level
}

function tierOf(percentile: number): Level {
  return percentile < LEVEL_BANDS.low.to ? 'low' : percentile < LEVEL_BANDS.medium.to ? 'medium' : 'high'
}
