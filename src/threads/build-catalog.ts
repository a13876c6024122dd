/** The configured catalogue, and lookups on it for other parts. Composition root. */
import { type Config, ConfigError, Faults } from '../config/config.ts'
import { sharedKeyProblem } from '../credentials/outgoing-key.ts'
import type { MetricLabels } from '../metrics/metrics.ts'
import { didYouMean } from '../nearest.ts'
import type { ModelFacts } from '../plugins/plugin.ts'
import { SMALL_CONTEXT_TOKENS } from '../protocol/limits.ts'
import { type Catalog, createCatalog } from '../providers/catalog.ts'
import { type Model, makesEmbeddings, type Provider } from '../providers/provider.ts'
import { listedSimModels, SIM_SLUG, simProvider } from '../sim/rows.ts'
import { readTls } from '../upstream/tls-files.ts'

/**
 * The configured catalogue, with the simulated provider where one listens; `created` in Unix seconds.
 * @throws ConfigError with all faults
 */
export function buildCatalog(config: Config, simUrl: string | null, created = 0): Catalog {
  const faults = new Faults()
  const ownIds = new Set(config.models.map(({ id }) => id))
  const catalog = faults.try(() =>
    createCatalog({
      // Configured rows first: the paths of errors count from there.
      providers:
        simUrl === null
          ? config.providers
          : [...config.providers, simProvider(simUrl, config.simulator.batch)],
      models: listsSim(config)
        ? [...config.models, ...listedSimModels().filter(({ id }) => !ownIds.has(id))]
        : config.models,
      providerKeys: config.providerKeys,
      onAbort: config.accounting.onAbort,
      readTls,
      created,
    }),
  )
  if (catalog !== null) checkUses(config, catalog, faults)
  faults.throwIfAny()
  if (catalog === null) throw new ConfigError('models: cannot be read')
  return catalog
}

/** Checks what other settings say about the catalogue. */
function checkUses(config: Config, catalog: Catalog, faults: Faults): void {
  const checkModel = (path: string, id: string | undefined): void => {
    if (id === undefined) return
    const model = catalog.model(id)
    if (model !== undefined) {
      if (makesEmbeddings(model)) faults.add(path, 'this model makes embeddings, not text')
      return
    }
    const ids = catalog.models().map(model => model.id)
    faults.add(path, `there is no such model${didYouMean(id, ids)}`)
  }
  checkModel('alignment.evaluator.model', config.alignment.evaluator?.model)
  checkModel('moderation.model', config.moderation?.model)
  for (const [at, { slug, apiKey }] of config.providers.entries()) {
    const provider = apiKey === undefined ? undefined : catalog.provider(slug)
    const problem = provider === undefined ? null : sharedKeyProblem(provider)
    if (problem !== null) faults.add(`providers[${at}].apiKey`, problem)
  }
  const { ocr } = config.files
  if (ocr !== null && catalog.provider(ocr.provider)?.baseUrl == null) {
    faults.add('files.ocr.provider', 'there is no such provider with a base URL')
  }
}

/** True if the simulated provider's own models are in the catalogue. */
export function listsSim({ providers, simulator }: Config): boolean {
  const isOwn = providers.some(({ slug }) => slug === SIM_SLUG)
  return !isOwn && (simulator.enabled ?? providers.length === 0)
}

/** True if the simulated provider has to listen: its models are listed, or a configured model names it. */
export function needsSim(config: Config): boolean {
  if (config.providers.some(({ slug }) => slug === SIM_SLUG)) return false
  const isNamed = config.models.some(({ endpoints }) =>
    endpoints.some(({ provider }) => provider === SIM_SLUG),
  )
  return isNamed || listsSim(config)
}

/** Properties of models that plugins ask for, by id. */
export function modelFacts(catalog: Catalog): ModelFacts {
  const ids = (holds: (model: Model) => boolean): ReadonlySet<string> =>
    new Set(
      catalog
        .models()
        .filter(holds)
        .map(({ id }) => id),
    )
  const small = ids(({ endpoints }) =>
    endpoints.some(({ contextLength }) => contextLength !== null && contextLength <= SMALL_CONTEXT_TOKENS),
  )
  const reading = ids(({ inputModalities }) => inputModalities.includes('file'))
  const seeing = ids(({ inputModalities }) => inputModalities.includes('image'))
  return {
    hasSmallContext: (id: string) => small.has(id),
    takesFiles: (id: string) => reading.has(id),
    takesImages: (id: string) => seeing.has(id),
  }
}

/** The provider of OCR; null where none is configured. */
export function ocrProviderOf({ ocr }: Config['files'], catalog: Catalog): Provider | null {
  return ocr === null ? null : (catalog.provider(ocr.provider) ?? null)
}

/** Only providers that can be asked have series. */
export function metricLabels(catalog: Catalog, thread: string): MetricLabels {
  const models = catalog.models()
  return {
    thread,
    models: models.map(model => model.id),
    providers: new Set(models.flatMap(model => model.endpoints.map(endpoint => endpoint.provider.slug))),
  }
}
