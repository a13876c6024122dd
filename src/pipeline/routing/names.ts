/**
 * Resolves the models that a request names: names with a variant (`:nitro`), latest names (`~vendor/family-latest`),
 * and modes. Pure.
 */

import type { Model } from '../../protocol/provider.ts'
import type { DialectName, ResponsesRequest } from '../../protocol/request.ts'
import type { RolloutPart } from '../../protocol/rollout.ts'
import { routerOf } from '../../protocol/routers.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { Variant } from '../../providers/variants.ts'
import { unknownModel } from './refusal.ts'

/** The sort orders that a request may ask for. */
export type SortBy = 'price' | 'throughput' | 'latency' | 'exacto'

/** The model that a name resolves to, and the settings that its variants add. */
export interface NamedModel {
  readonly model: Model
  /** The sort order that a variant asks for; null if none. */
  readonly sort: SortBy | null
  /** The service tier that a variant admits; null if none. */
  readonly tier: 'priority' | 'flex' | null
  /** True if only endpoints that cost nothing may serve. */
  readonly isFree: boolean
  /** True if reasoning is turned on. */
  readonly isThinking: boolean
  readonly kind: 'plain' | 'alias' | 'latest' | 'route'
  /** The route that leads to the model; absent: none. */
  readonly route?: string
  /** The part of the request in the rollout of the route; absent: it has none. */
  readonly rollout?: RolloutPart
}

type Wish = Partial<Pick<NamedModel, 'sort' | 'tier' | 'isFree' | 'isThinking'>>

const WISHES: Readonly<Record<Variant, Wish>> = {
  nitro: { sort: 'throughput', tier: 'priority' },
  floor: { sort: 'price', tier: 'flex' },
  exacto: { sort: 'exacto' },
  free: { isFree: true },
  thinking: { isThinking: true },
  // The catalogue has no endpoints with a longer context for it.
  extended: {},
  // A plugin serves it; the request parser refuses it where the plugin is missing.
  online: {},
}
const WISH_OF: ReadonlyMap<string, Wish> = new Map(Object.entries(WISHES))

type NamedModels = readonly [NamedModel, ...NamedModel[]]

const NO_NAMES: readonly string[] = []

/**
 * The models of a request: `model` first, then `models`, each once. An unknown model of `models` is skipped as long as
 * another one is left; an unknown `model` is an error.
 */
export function resolveModels(
  request: ResponsesRequest,
  catalog: Catalog,
  dialect: DialectName,
): { readonly models: NamedModels; readonly skipped: readonly string[] } {
  const mode = request.reasoning?.mode
  const { model, models: list } = request
  if (model !== undefined && (list === undefined || list.length === 0)) {
    const namedModel = resolveModel(model, catalog, mode)
    if (namedModel === null) throw unknownModel(model, catalog, dialect)
    return { models: [namedModel], skipped: NO_NAMES }
  }
  const namedModels: NamedModel[] = []
  const skipped: string[] = []
  for (const id of new Set([...(model === undefined ? [] : [model]), ...(list ?? [])])) {
    const namedModel = resolveModel(id, catalog, mode)
    if (namedModel !== null) {
      if (!namedModels.some(entry => entry.model === namedModel.model)) namedModels.push(namedModel)
    } else if (id === model) throw unknownModel(id, catalog, dialect)
    else skipped.push(id)
  }
  const [first, ...otherModels] = namedModels
  if (first === undefined) throw unknownModel(skipped[0] ?? '', catalog, dialect)
  return { models: [first, ...otherModels], skipped }
}

/** The id of the model, or the router, that a request names first. @throws GatewayError for an unknown model */
export function requestedModel(request: ResponsesRequest, catalog: Catalog, dialect: DialectName): string {
  const router = routerOf(request)
  return router === null ? resolveModels(request, catalog, dialect).models[0].model.id : router.slug
}

/** True for one order over all models of a request, false for model by model. `route: "sort"` is the old spelling. */
export function isAcrossModels({ provider, route }: ResponsesRequest): boolean {
  const sort = provider?.sort
  const partition = typeof sort === 'object' ? sort?.partition : null
  return partition == null ? route === 'sort' : partition === 'none'
}

const NO_WISHES = { sort: null, tier: null, isFree: false, isThinking: false } as const
/** Maximum number of variants in a name. */
const MAX_VARIANTS = 4

/**
 * Resolves a model name; null if the catalogue has no such model. A row with the whole name takes precedence over its
 * variants.
 */
export function resolveModel(
  name: string,
  catalog: Catalog,
  mode: string | null | undefined,
): NamedModel | null {
  const exactMatch = resolveExactly(name, catalog, mode)
  if (exactMatch !== null) return exactMatch
  let base = name
  let variantTerms: Wish = {}
  for (let count = 0; count < MAX_VARIANTS; count++) {
    const separator = base.lastIndexOf(':')
    const wish = separator === -1 ? undefined : WISH_OF.get(base.slice(separator + 1))
    if (wish === undefined) return null
    base = base.slice(0, separator)
    variantTerms = { ...wish, ...variantTerms }
    const model = resolveExactly(base, catalog, mode)
    if (model !== null) return { ...model, ...variantTerms }
  }
  return null
}

function resolveExactly(name: string, catalog: Catalog, mode: string | null | undefined): NamedModel | null {
  const model = catalog.model(name)
  if (model?.route !== undefined) return { model, ...NO_WISHES, kind: 'route', route: name }
  if (model !== undefined) {
    const kind =
      model.id === name || !name.startsWith('~') ? (model.id === name ? 'plain' : 'alias') : 'latest'
    return { model: inMode(model, catalog, mode), ...NO_WISHES, kind }
  }
  const latest = latestOf(name, catalog)
  return latest === null ? null : { model: inMode(latest, catalog, mode), ...NO_WISHES, kind: 'latest' }
}

/** The model whose id ends in `-pro`, for the mode `pro`, if the catalogue has it. */
function inMode(model: Model, catalog: Catalog, mode: string | null | undefined): Model {
  return mode === 'pro' ? (catalog.model(`${model.id}-pro`) ?? model) : model
}

const LATEST_NAME = /^~([^/]+\/.+)-latest$/

/** The newest model of a family: by its date, then by the greatest number in its name. */
function latestOf(name: string, catalog: Catalog): Model | null {
  const family = LATEST_NAME.exec(name)?.[1]
  if (family === undefined) return null
  let newest: Model | null = null
  for (const model of catalog.models()) {
    if (!isOfFamily(model.id, family)) continue
    if (newest === null || isNewer(model, newest)) newest = model
  }
  return newest
}

const VERSION_PART = /-v?\d[\d.]*(?=-|$)/g

/** True for a version of the family `vendor/name-pro`: `vendor/name-2.5-pro`, `vendor/name-pro-2`. No variants. */
function isOfFamily(id: string, family: string): boolean {
  const vendor = family.slice(0, family.indexOf('/') + 1)
  return id.startsWith(vendor) && !id.includes(':') && id.replace(VERSION_PART, '') === family
}

function isNewer(model: Model, newest: Model): boolean {
  if (model.created !== newest.created) return model.created > newest.created
  return model.id.localeCompare(newest.id, 'en', { numeric: true }) > 0
}
