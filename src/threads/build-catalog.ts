/** The configured catalogue, and lookups on it for other parts. Composition root. */
import type { Config } from '../config/config.ts'
import type { MetricLabels } from '../metrics/metrics.ts'
import type { ModelFacts } from '../plugins/plugin.ts'
import { SMALL_CONTEXT_TOKENS } from '../protocol/limits.ts'
import { type Catalog, CatalogError, createCatalog } from '../providers/catalog.ts'
import type { Model, Provider } from '../providers/provider.ts'
import { simModels, simProvider } from '../sim/rows.ts'
import { readTls } from '../upstream/tls-files.ts'

/**
 * The configured catalogue, with the simulated provider where one listens; `created` in Unix seconds.
 * @throws CatalogError
 */
export function buildCatalog(config: Config, simUrl: string | null, created = 0): Catalog {
  const catalog = createCatalog({
    // Configured rows first: the paths of errors count from there.
    providers: simUrl === null ? config.providers : [...config.providers, simProvider(simUrl)],
    models: simUrl === null ? config.models : [...config.models, ...simModels()],
    onAbort: config.accounting.onAbort,
    readTls,
    created,
  })
  const { evaluator } = config.alignment
  if (evaluator !== null && catalog.model(evaluator.model) === undefined) {
    throw new CatalogError('alignment.evaluator.model', 'there is no such model')
  }
  if (config.moderation !== null && catalog.model(config.moderation.model) === undefined) {
    throw new CatalogError('moderation.model', 'there is no such model')
  }
  const { ocr } = config.files
  if (ocr !== null && catalog.provider(ocr.provider)?.baseUrl == null) {
    throw new CatalogError('files.ocr.provider', 'there is no such provider with a base URL')
  }
  return catalog
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
