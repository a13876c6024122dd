/**
 * The catalogue of providers and models with their aliases, built from the built-in table, the configuration, imports,
 * and provider model lists. The hot path needs one Map lookup. Pure.
 */
import { LRUCache } from 'lru-cache'
import { Faults } from '../base/settings/check.ts'
import type { Endpoint, Model, Provider } from '../protocol/provider.ts'
import type { Route } from '../protocol/route.ts'
import { type BareNames, createBareNames, type NamedRow } from './bare-names.ts'
import { composeRows, coveredBy, isWildcard, type KnownModels, NO_KNOWN_MODELS } from './compose.ts'
import { CATALOGUE_ID, ID_MAX_CHARS } from './known-models.ts'
import { modelOf } from './model-rows.ts'
import { FAULTY_PROVIDER, type ProvidersConfig, providersOf, quote } from './provider-rows.ts'
import { readRoutes, routeModels } from './route-rows.ts'
import type { ModelRow, RolloutRow, RouteRow } from './row-schemas.ts'
import { createSimilar } from './similar.ts'
import { endsInVariant } from './variants.ts'

export interface CatalogConfig extends ProvidersConfig {
  readonly models: readonly ModelRow[]
  /** Default: none. */
  readonly routes?: readonly RouteRow[]
  /** Default: none. */
  readonly rollouts?: readonly RolloutRow[]
  /** Imported and discovered models. Default: none. */
  readonly knownModels?: KnownModels
  /** The id or alias of the model for requests that name none. Default: none. */
  readonly defaultModel?: string | null
  /** Creation date in Unix seconds of models without one. Default 0. */
  readonly created?: number
}

export interface Catalog {
  /** The model with this id or alias, or the model of a route, a wildcard row or a bare name. */
  model(id: string): Model | undefined
  /** The ids that a name without a vendor may mean; with several it is ambiguous and finds no model. */
  meanings(name: string): readonly string[]
  /** Up to three ids that are similar to an unknown one, the nearest first. */
  similar(id: string): readonly string[]
  /** Models of the configuration in its order, then further ones. Without wildcards. */
  models(): readonly Model[]
  /** Models whose id ends in a star. Each stands for all ids with the same beginning. */
  wildcards(): readonly Model[]
  /** Models that stand for routes; `model` finds them too, and `models` does not list them. */
  routes(): readonly Model[]
  provider(slug: string): Provider | undefined
  /** Built-in providers first, then others, each in table order. */
  providers(): readonly Provider[]
  /** The model for requests that name none; null: such requests are refused. */
  readonly defaultModel: string | null
}

/** The parts of a catalogue. */
export interface CatalogParts {
  readonly providers: ReadonlyMap<string, Provider>
  readonly models: readonly Model[]
  /** Number of models from the configuration; they come first. */
  readonly configured: number
  /** Ids of models by their other names. */
  readonly aliases: ReadonlyMap<string, string>
  /** Models whose id ends in a star. Each stands for all ids with the same beginning. */
  readonly wildcards: readonly Model[]
  readonly routes: readonly Route[]
  readonly defaultModel: string | null
}

/** @throws ConfigError with all errors of the rows, each with the path of its field. */
export function createCatalog(config: CatalogConfig): Catalog {
  return catalogOf(readParts(config))
}

/** Checks and merges the parts of a catalogue. Skips invalid rows of imports and lists. @throws ConfigError */
export function readParts(config: CatalogConfig): CatalogParts {
  const { defaultModel = null, knownModels = NO_KNOWN_MODELS, created = 0 } = config
  const faults = new Faults()
  const providers = providersOf(config, faults)
  const { rows, additionalRows } = composeRows({
    rows: config.models,
    knownModels,
    providers,
    authorsOf: slug => providers.get(slug)?.authors ?? [slug],
  })
  const models = new Map<string, Model>()
  const aliases = new Map<string, string>()
  const wildcards = new Map<string, Model>()
  for (const [index, row] of rows.entries()) {
    const path = `models[${index}]`
    const list = isWildcard(row.id) ? wildcards : models
    if (list.has(row.id)) faults.add(`${path}.id`, `duplicate id ${quote(row.id)}`)
    else list.set(row.id, modelOf(row, { path, providers, faults, created }))
  }
  for (const [index, { id, aliases: names = [] }] of rows.entries()) {
    for (const [aliasIndex, name] of names.entries()) {
      const field = `models[${index}].aliases[${aliasIndex}]`
      if (isWildcard(id)) faults.add(field, 'a wildcard row cannot have aliases')
      else if (models.has(name) || aliases.has(name)) faults.add(field, `duplicate id ${quote(name)}`)
      else aliases.set(name, id)
    }
  }
  const configured = models.size
  for (const row of additionalRows) {
    const rowFaults = new Faults()
    const model = modelOf(row, { path: '', providers, faults: rowFaults, created })
    if (rowFaults.isEmpty) models.set(row.id, model)
  }
  const parts: CatalogParts = {
    providers: new Map([...providers].filter(([, provider]) => provider !== FAULTY_PROVIDER)),
    models: [...models.values()],
    configured,
    aliases,
    wildcards: [...wildcards.values()],
    routes: readRoutes(
      config.routes ?? [],
      config.rollouts ?? [],
      name => models.has(name) || aliases.has(name),
      faults,
    ),
    defaultModel,
  }
  faults.throwIfAny()
  return parts
}

/** Maximum of cached models that come from wildcards. Others are built again for each request. */
const WILDCARD_MODELS_MAX = 512

/** The lookups over consistent parts. */
export function catalogOf(parts: CatalogParts): Catalog {
  const { providers, models, aliases, wildcards, defaultModel } = parts
  const byId = new Map(models.map(model => [model.id, model]))
  for (const [name, id] of aliases) {
    const model = byId.get(id)
    if (model !== undefined) byId.set(name, model)
  }
  const prefixes = wildcards.map(row => ({ prefix: row.id.slice(0, -1), row }))
  const wildcardModels = new LRUCache<string, Model>({ max: WILDCARD_MODELS_MAX })
  const providerList = [...providers.values()]
  let similar: ReturnType<typeof createSimilar> | null = null
  const wildcardModel = (id: string): Model | undefined => {
    const cachedModel = wildcardModels.get(id)
    if (cachedModel !== undefined) return cachedModel
    if (id.length > ID_MAX_CHARS || !CATALOGUE_ID.test(id) || endsInVariant(id)) return undefined
    const match = coveredBy(id, prefixes)
    if (match === null) return undefined
    const model = instanceOf(match.row, id, match.starText)
    wildcardModels.set(id, model)
    return model
  }
  const modelById = (id: string): Model | undefined =>
    byId.get(id) ?? (prefixes.length === 0 ? undefined : wildcardModel(id))
  let bareNames: BareNames | null = null
  const meanings = (name: string): readonly string[] => {
    // Built for the first bare name. Names with a vendor do not need it.
    bareNames ??= createBareNames(
      namedRows(parts),
      id => prefixes.length > 0 && wildcardModel(id) !== undefined,
    )
    return bareNames(name)
  }
  const modelByBareName = (name: string): Model | undefined => {
    if (name.includes('/')) return undefined
    const [firstId, secondId] = meanings(name)
    return firstId === undefined || secondId !== undefined ? undefined : modelById(firstId)
  }
  const routes = routeModels(parts.routes, id => modelById(id) ?? modelByBareName(id))
  const modelByRoute = new Map(routes.map(model => [model.id, model]))
  return {
    model: id => byId.get(id) ?? modelByRoute.get(id) ?? modelById(id) ?? modelByBareName(id),
    meanings,
    similar(id) {
      // Built for the first unknown id. Most threads never see one.
      similar ??= createSimilar([...byId.keys(), ...modelByRoute.keys()])
      return similar(id)
    },
    models: () => models,
    wildcards: () => wildcards,
    routes: () => routes,
    provider: slug => providers.get(slug),
    providers: () => providerList,
    defaultModel,
  }
}

/** Everything that GET /models lists, in its order. */
export function listedModels(catalog: Pick<Catalog, 'routes' | 'models'>): readonly Model[] {
  const routes = catalog.routes()
  return routes.length === 0 ? catalog.models() : [...routes, ...catalog.models()]
}

/** Rows of the configuration by id and by alias with a vendor. */
function* namedRows({ models, configured, aliases }: CatalogParts): Generator<NamedRow> {
  for (const { id } of models.slice(0, configured)) yield { name: id, id }
  for (const [name, id] of aliases) if (name.includes('/') && !name.startsWith('~')) yield { name, id }
}

/** The model for one id that a wildcard covers. */
function instanceOf(wildcard: Model, id: string, starText: string): Model {
  const endpoints = wildcard.endpoints.map(
    (endpoint): Endpoint => ({
      ...endpoint,
      modelId: id,
      upstreamModel: endpoint.upstreamModel.replace('*', () => starText),
    }),
  )
  return { ...wildcard, id, name: wildcard.name === wildcard.id ? id : wildcard.name, endpoints }
}

/** A catalogue whose content can be replaced while requests run. Each lookup reads one complete catalogue. */
export class LiveCatalog implements Catalog {
  #current: Catalog

  constructor(first: Catalog) {
    this.#current = first
  }

  replace(next: Catalog): void {
    this.#current = next
  }

  model(id: string): Model | undefined {
    return this.#current.model(id)
  }

  meanings(name: string): readonly string[] {
    return this.#current.meanings(name)
  }

  similar(id: string): readonly string[] {
    return this.#current.similar(id)
  }

  models(): readonly Model[] {
    return this.#current.models()
  }

  wildcards(): readonly Model[] {
    return this.#current.wildcards()
  }

  routes(): readonly Model[] {
    return this.#current.routes()
  }

  provider(slug: string): Provider | undefined {
    return this.#current.provider(slug)
  }

  providers(): readonly Provider[] {
    return this.#current.providers()
  }

  get defaultModel(): string | null {
    return this.#current.defaultModel
  }
}
