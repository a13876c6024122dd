/** The configured catalogue, and lookups in it for other parts of the source. Composition root. */
import { readFileSync } from 'node:fs'
import { packDocuments, shortDigest } from '../../api/models/models.ts'
import { listedSimModels, SIM_SLUG, simProvider } from '../../apps/simulator/rows.ts'
import { didYouMean } from '../../base/did-you-mean.ts'
import type { MetricLabels } from '../../base/metrics/metrics.ts'
import { ConfigError, Faults } from '../../base/settings/check.ts'
import { PROVIDER_NAMES } from '../../base/telemetry/otlp/names.ts'
import type { ModelFacts } from '../../features/plugins/plugin-deps.ts'
import { type Rankings, RankingsError, readRankings } from '../../features/plugins/routers/rankings.ts'
import { SMALL_CONTEXT_TOKENS } from '../../protocol/limits.ts'
import { makesEmbeddings, type Provider } from '../../protocol/provider.ts'
import { type Catalog, type CatalogParts, catalogOf, readParts } from '../../providers/catalog.ts'
import { sharedKeyProblem } from '../../providers/credentials/outgoing-key.ts'
import { ImportError, type KnownModel, readModels } from '../../providers/known-models.ts'
import { type PackedCatalogue, packCatalogue } from '../../providers/shared-catalogue.ts'
import { hasList } from '../../providers/upstream/list-models.ts'
import { readTls } from '../../providers/upstream/tls-files.ts'
import type { Config } from '../config/settings.ts'
import { checkReconcile } from '../reconcile/reconcile.ts'
import type { CatalogFacts, CatalogReading } from '../services/catalogue-keeper.ts'

/** Builds the configured catalogue. @throws ConfigError with all faults */
export function buildCatalog(config: Config, simUrl: string | null, created = 0): Catalog {
  return catalogOf(configuredParts(config, { simUrl, created }))
}

/** The parts of the configured catalogue, including the simulated provider if it is listening. @throws ConfigError */
export function configuredParts(
  config: Config,
  { simUrl, knownModels, created = 0 }: CatalogFacts,
): CatalogParts {
  const faults = new Faults()
  const ownIds = new Set(config.models.map(({ id }) => id))
  const parts = faults.try(() =>
    readParts({
      // Configured rows first: the paths of errors count from there.
      providers:
        simUrl === null
          ? config.providers
          : [...config.providers, simProvider(simUrl, config.simulator.batch)],
      models: listsSim(config)
        ? [...config.models, ...listedSimModels().filter(({ id }) => !ownIds.has(id))]
        : config.models,
      ...(knownModels === undefined ? {} : { knownModels }),
      routes: config.routes,
      rollouts: config.rollouts,
      defaultModel: config.defaultModel,
      providerKeys: config.providerKeys,
      onAbort: config.accounting.onAbort,
      readTls,
      created,
    }),
  )
  if (parts !== null) checkUses(config, catalogOf(parts), faults)
  if (config.routers.rankings !== null) faults.try(() => rankingsOf(config))
  faults.throwIfAny()
  if (parts === null) throw new ConfigError('models: cannot be read')
  return parts
}

/** The parts in the form that all threads read. */
export function packParts(parts: CatalogParts): PackedCatalogue {
  return packCatalogue(parts, { documentsOf: packDocuments, digest: shortDigest })
}

/**
 * The models of the file that `catalogue.import` names; empty if it names no file.
 * @throws ConfigError with one line for each fault of the file
 */
export function importedFile({
  catalogue: { import: path },
}: Pick<Config, 'catalogue'>): readonly KnownModel[] {
  if (path === null) return []
  try {
    return readModels(readFileSync(path, 'utf8'))
  } catch (error) {
    if (error instanceof ImportError) {
      throw new ConfigError(...error.message.split('\n').map(line => `catalogue.import: ${path}: ${line}`))
    }
    const code = (error as NodeJS.ErrnoException).code ?? 'unknown'
    throw new ConfigError(`catalogue.import: ${path} cannot be read (${code})`)
  }
}

/** The rankings of the routers, from the configured file or as shipped. @throws ConfigError */
export function rankingsOf({ routers: { rankings } }: Pick<Config, 'routers'>): Rankings {
  const path = rankings ?? SHIPPED_RANKINGS
  try {
    return readRankings(readFileSync(path, 'utf8'))
  } catch (error) {
    if (error instanceof RankingsError) {
      throw new ConfigError(...error.message.split('\n').map(line => `routers.rankings: ${path}: ${line}`))
    }
    const code = (error as NodeJS.ErrnoException).code ?? 'unknown'
    throw new ConfigError(`routers.rankings: ${path} cannot be read (${code})`)
  }
}

const SHIPPED_RANKINGS = new URL('../../features/plugins/routers/rankings.json', import.meta.url)

/** True if the models of providers are discovered from their lists. */
export function discovers({
  catalogue: { discover },
  models,
}: Pick<Config, 'catalogue' | 'models'>): boolean {
  return discover ?? models.length === 0
}

/** The providers whose model lists are requested: the operator named them or gave them a key, and they have a list. */
function askedProviders(config: Config, providers: Iterable<Provider>): readonly Provider[] {
  if (!discovers(config)) return []
  const slugs = new Set(config.providers.map(({ slug }) => slug))
  return [...providers].filter(provider => {
    const { slug, baseUrl, auth, apiKey } = provider
    const isGiven = slugs.has(slug) || Object.hasOwn(config.providerKeys, slug)
    return isGiven && baseUrl !== null && (auth === 'none' || apiKey !== null) && hasList(provider)
  })
}

/** Settings that name one model of the catalogue, and those that name several, by their paths. */
export const MODEL_SETTINGS: Readonly<
  Record<string, (config: Config) => string | null | undefined | readonly string[]>
> = {
  'alignment.evaluator.model': config => config.alignment.evaluator?.model,
  'moderation.model': config => config.moderation?.model,
  'routers.classifier.model': config => config.routers.classifier?.model,
  defaultModel: config => config.defaultModel,
  'fusion.analyst': config => config.fusion.analyst,
  'fusion.panel': config => config.fusion.panel,
  'fusion.budgetPanel': config => config.fusion.budgetPanel,
  'fusion.fastPanel': config => config.fusion.fastPanel,
}

/** The configuration without MODEL_SETTINGS, routes, rollouts and reports, for a gateway with another catalogue. */
export function withoutCatalogueSettings(config: Config): Config {
  return {
    ...config,
    alignment: { ...config.alignment, evaluator: null },
    moderation: null,
    routers: { ...config.routers, classifier: null },
    defaultModel: null,
    fusion: { panel: [], budgetPanel: [], fastPanel: [], analyst: null },
    routes: [],
    rollouts: [],
    reconcile: [],
  }
}

/** Checks the references of other settings to the catalogue. */
function checkUses(config: Config, catalog: Catalog, faults: Faults): void {
  const checkModel = (path: string, id: string): void => {
    const model = catalog.model(id)
    if (model !== undefined) {
      if (makesEmbeddings(model)) faults.add(path, 'this model produces embeddings, not text')
      return
    }
    // A provider's list that is read later may have it.
    if (discovers(config)) return
    const ids = catalog.models().map(model => model.id)
    faults.add(path, `there is no such model${didYouMean(id, ids)}`)
  }
  for (const [path, read] of Object.entries(MODEL_SETTINGS)) {
    const names = read(config)
    if (typeof names === 'string') checkModel(path, names)
    else for (const [index, id] of (names ?? []).entries()) checkModel(`${path}[${index}]`, id)
  }
  for (const [index, { name, targets, fallback = [] }] of config.routes.entries()) {
    const kinds = new Set<boolean>()
    const checkTarget = (path: string, id: string): void => {
      const model = catalog.model(id)
      if (model === undefined) checkModel(path, id)
      else if (model.route !== undefined) faults.add(path, 'a route cannot lead to another route')
      else {
        kinds.add(makesEmbeddings(model))
        if (kinds.size > 1)
          faults.add(path, 'a route leads either to models of text or to models of embeddings')
      }
    }
    for (const [targetIndex, { model, provider }] of targets.entries()) {
      checkTarget(`routes[${index}].targets[${targetIndex}].model`, model)
      if (typeof provider === 'string' && catalog.provider(provider) === undefined) {
        const slugs = catalog.providers().map(({ slug }) => slug)
        faults.add(
          `routes[${index}].targets[${targetIndex}].provider`,
          `there is no such provider${didYouMean(provider, slugs)}`,
        )
      }
    }
    for (const [fallbackIndex, id] of fallback.entries())
      checkTarget(`routes[${index}].fallback[${fallbackIndex}]`, id)
    for (const [rolloutIndex, { route, candidate, guard }] of config.rollouts.entries()) {
      if (route !== name) continue
      checkTarget(`rollouts[${rolloutIndex}].candidate`, candidate)
      if (guard?.judged !== undefined && config.alignment.evaluator === null)
        faults.add(
          `rollouts[${rolloutIndex}].guard.judged`,
          'needs a model that judges: set alignment.evaluator.model',
        )
    }
  }
  for (const [index, { slug, apiKey, apiKeyFile }] of config.providers.entries()) {
    const provider = (apiKey ?? apiKeyFile) === undefined ? undefined : catalog.provider(slug)
    const problem = provider === undefined ? null : sharedKeyProblem(provider)
    if (problem !== null)
      faults.add(`providers[${index}].${apiKey === undefined ? 'apiKeyFile' : 'apiKey'}`, problem)
  }
  faults.try(() => checkReconcile(config.reconcile, catalog))
  const { ocr } = config.files
  if (ocr !== null && catalog.provider(ocr.provider)?.baseUrl == null) {
    faults.add('files.ocr.provider', 'there is no provider of this name with a base URL')
  }
}

/** True if the simulated provider's own models are in the catalogue. */
export function listsSim({ providers, simulator }: Config): boolean {
  const isOwn = providers.some(({ slug }) => slug === SIM_SLUG)
  return !isOwn && (simulator.enabled ?? providers.length === 0)
}

/** True if the simulated provider must run: its models are listed, or a configured model uses it. */
export function needsSim(config: Config): boolean {
  if (config.providers.some(({ slug }) => slug === SIM_SLUG)) return false
  const isNamed = config.models.some(({ endpoints }) =>
    endpoints.some(({ provider }) => provider === SIM_SLUG),
  )
  return isNamed || listsSim(config)
}

/** Properties of models that plugins need, by id. */
export function modelFacts(catalog: Catalog): ModelFacts {
  return {
    hasSmallContext: id =>
      catalog
        .model(id)
        ?.endpoints.some(
          ({ contextLength }) => contextLength !== null && contextLength <= SMALL_CONTEXT_TOKENS,
        ) === true,
    takesFiles: id => catalog.model(id)?.inputModalities.includes('file') === true,
    takesImages: id => catalog.model(id)?.inputModalities.includes('image') === true,
  }
}

/** The OCR provider; null if none is configured. */
export function ocrProviderOf({ ocr }: Config['files'], catalog: Catalog): Provider | null {
  return ocr === null ? null : (catalog.provider(ocr.provider) ?? null)
}

/** Labels of metrics. Only providers that can be called have series. */
export function metricLabels(
  catalog: Catalog,
  thread: string,
  { genAi }: Pick<Config['metrics'], 'genAi'>,
): MetricLabels {
  const labels = { thread, ...seriesOf(catalog) }
  return genAi ? { ...labels, genAiName: slug => PROVIDER_NAMES.get(slug) ?? slug } : labels
}

/** The models and providers that have their own series. */
export function seriesOf(catalog: Catalog): Pick<MetricLabels, 'models' | 'providers'> {
  const models = catalog.models()
  return {
    models: models.map(model => model.id),
    providers: new Set(models.flatMap(model => model.endpoints.map(endpoint => endpoint.provider.slug))),
  }
}

/** For the keeper of the catalogue. */
export const CATALOG_READING: CatalogReading = {
  importedFile,
  discovers,
  askedProviders,
  configuredParts,
  packParts,
}
