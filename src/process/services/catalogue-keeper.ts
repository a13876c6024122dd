/**
 * Keeps the catalogue of the process up to date: the configuration, imported models, and provider lists. Fetches the
 * lists from providers, stores them, and reports every change to all threads. Main thread.
 */
import { createHash } from 'node:crypto'
import { type Clock, isoInstant, type Timer, unixSeconds } from '../../base/clock.ts'
import { isError, systemCode, toGatewayError } from '../../base/errors.ts'
import type { Log } from '../../base/log/log.ts'
import { ConfigError } from '../../base/settings/check.ts'
import type { Provider } from '../../protocol/provider.ts'
import { type CatalogParts, catalogOf } from '../../providers/catalog.ts'
import type { KnownModels } from '../../providers/compose.ts'
import type { KnownModel } from '../../providers/known-models.ts'
import type { PackedCatalogue } from '../../providers/shared-catalogue.ts'
import { listModels } from '../../providers/upstream/list-models.ts'
import type { Transport } from '../../providers/upstream/transport.ts'
import type { CatalogueSource } from '../../storage/catalogue.ts'
import type { Store } from '../../storage/store.ts'
import type { Config } from '../config/settings.ts'

/** How a catalogue is made from a configuration; see process/wiring/catalog.ts. */
export interface CatalogReading {
  /** The models of the file that `catalogue.import` names; empty if it names no file. @throws ConfigError */
  readonly importedFile: (config: Config) => readonly KnownModel[]
  /** True if providers are asked for their model lists. */
  readonly discovers: (config: Config) => boolean
  readonly askedProviders: (config: Config, providers: Iterable<Provider>) => readonly Provider[]
  /** @throws ConfigError */
  readonly configuredParts: (config: Config, facts: CatalogFacts) => CatalogParts
  readonly packParts: (parts: CatalogParts) => PackedCatalogue
}

export interface CatalogFacts {
  /** Address of the simulated provider; null if there is none. */
  readonly simUrl: string | null
  /** Imported and discovered models. Default: none. */
  readonly knownModels?: KnownModels
  /** Unix seconds, of models whose creation is not known. Default 0. */
  readonly created?: number
}

export interface CatalogueCounts {
  readonly providers: number
  readonly models: number
  readonly routes: number
}

interface CatalogueKeeperDeps {
  readonly reading: CatalogReading
  readonly config: Config
  readonly simUrl: string | null
  readonly store: Pick<Store, 'catalogue'>
  /** Creates the client for requests to providers; called before the first request. */
  readonly createClient: () => Transport
  readonly clock: Clock
  readonly log: Pick<Log, 'notice'>
  /** Called with each later catalogue. */
  readonly onChange: (packed: PackedCatalogue) => void
}

/** The source of `sluice models import`. */
export const IMPORT_SOURCE = 'import'

/** How long a start waits for providers without a stored list. */
const START_TIMEOUT_MS = 2_000
/** Interval at which the keeper looks in the Store for model lists that other processes fetched. */
const CHECK_INTERVAL_MS = 5_000
/** Delay after a provider gave no list, unless lists are refreshed more often. */
const RETRY_MS = 30_000

export function providerSource(slug: string): string {
  return `provider:${slug}`
}

/** A list in the form of the Store. */
export function sourceOf(source: string, models: readonly KnownModel[], clock: Clock): CatalogueSource {
  const facts = JSON.stringify(models)
  const version = createHash('sha256').update(facts).digest('hex').slice(0, 32)
  return { source, version, models: models.length, facts, updatedAt: isoInstant(clock.nowMs()) }
}

interface StoredList {
  readonly version: string
  readonly models: readonly KnownModel[]
}

export class CatalogueKeeper {
  readonly #deps: CatalogueKeeperDeps
  readonly #created: number
  readonly #closing = new AbortController()
  /** Lists of the Store by source. */
  readonly #lists = new Map<string, StoredList>()
  /** Providers that did not answer last time. Each is logged once. */
  readonly #failing = new Set<string>()
  #config: Config
  #file: readonly KnownModel[]
  #parts: CatalogParts
  /** The current catalogue. Written only here. */
  packed: PackedCatalogue
  #client: Transport | null = null
  #readTimer: Timer | null = null
  #askTimer: Timer | null = null
  #reading: Promise<void> | null = null
  #asking: Promise<void> | null = null
  #isAskRequested = false

  /** @throws ConfigError */
  constructor(deps: CatalogueKeeperDeps) {
    this.#deps = deps
    this.#config = deps.config
    this.#created = unixSeconds(deps.clock)
    this.#file = deps.reading.importedFile(deps.config)
    this.#parts = this.#compose(deps.config, this.#file)
    this.packed = this.#deps.reading.packParts(this.#parts)
  }

  /** Providers are those that the file names or that have a key in the environment. */
  get counts(): CatalogueCounts {
    const { providers, providerKeys } = this.#config
    return {
      providers: new Set([...providers.map(({ slug }) => slug), ...Object.keys(providerKeys)]).size,
      models: this.#parts.models.length,
      routes: this.#parts.routes.length,
    }
  }

  /**
   * Reads the lists in the Store and requests the providers' lists. Waits at most 2 s, and only for providers without a
   * stored list. Never rejects.
   */
  async start(): Promise<void> {
    await this.refresh()
    const isNew = this.#listingProviders().some(({ slug }) => !this.#lists.has(providerSource(slug)))
    const update = this.#askAll()
    void update.then(() => this.#logUnserved())
    if (isNew) await this.#waitBriefly(update)
    this.#scheduleRead()
  }

  /** Takes the providers and models of another configuration. @throws ConfigError; nothing changes then */
  reconfigure(config: Config): void {
    const file = this.#deps.reading.importedFile(config)
    const parts = this.#compose(config, file)
    this.#config = config
    this.#file = file
    this.#replace(parts)
    this.#isAskRequested = true
    void this.#askAll().then(() => this.#logUnserved())
  }

  async close(): Promise<void> {
    this.#closing.abort(new Error('the gateway stops'))
    this.#readTimer?.cancel()
    this.#askTimer?.cancel()
    await this.#reading
    await this.#asking
    await this.#client?.close()
  }

  #listingProviders(): readonly Provider[] {
    return this.#deps.reading.askedProviders(this.#config, this.#parts.providers.values())
  }

  /** @throws ConfigError */
  #compose(config: Config, file: readonly KnownModel[]): CatalogParts {
    const storeModels = this.#lists.get(IMPORT_SOURCE)?.models ?? []
    const inFile = new Set(file.map(({ id }) => id))
    const imported =
      file.length === 0 ? storeModels : [...file, ...storeModels.filter(({ id }) => !inFile.has(id))]
    const discovered = new Map<string, readonly KnownModel[]>()
    if (this.#deps.reading.discovers(config)) {
      for (const [source, { models }] of this.#lists) {
        if (source !== IMPORT_SOURCE) discovered.set(source.slice(providerSource('').length), models)
      }
    }
    return this.#deps.reading.configuredParts(config, {
      simUrl: this.#deps.simUrl,
      knownModels: { imported, discovered },
      created: this.#created,
    })
  }

  #recompose(): void {
    try {
      this.#replace(this.#compose(this.#config, this.#file))
    } catch (error) {
      // A list should never make a row of the configuration invalid. If it does, the old catalogue stays.
      const reason = error instanceof ConfigError ? error.message : 'unknown'
      this.#deps.log.notice('catalog', 'catalogue not reloaded; still using the old one', { reason })
    }
  }

  #replace(parts: CatalogParts): void {
    this.#parts = parts
    this.packed = this.#deps.reading.packParts(parts)
    this.#deps.onChange(this.packed)
  }

  /** Reads new lists from the Store. Never rejects: while the Store is unavailable, the known lists stay. */
  refresh(): Promise<void> {
    this.#reading ??= this.#readLists()
      .catch(() => undefined)
      .finally(() => {
        this.#reading = null
      })
    return this.#reading
  }

  async #readLists(): Promise<void> {
    const { catalogue } = this.#deps.store
    const storedLists = await catalogue.list()
    let isChanged = false
    for (const { source, version } of storedLists) {
      if (this.#lists.get(source)?.version === version) continue
      const list = await catalogue.find(source)
      const models = list === null ? null : modelsIn(list.facts)
      if (list === null || models === null) continue
      this.#lists.set(source, { version: list.version, models })
      isChanged = true
    }
    if (!storedLists.some(({ source }) => source === IMPORT_SOURCE)) {
      isChanged = this.#lists.delete(IMPORT_SOURCE) || isChanged
    }
    if (isChanged && !this.#closing.signal.aborted) this.#recompose()
  }

  #scheduleRead(): void {
    if (this.#closing.signal.aborted) return
    this.#readTimer = this.#deps.clock.after(
      CHECK_INTERVAL_MS,
      () => void this.refresh().then(() => this.#scheduleRead()),
    )
  }

  /** Asks all providers at once. A call during a run joins that run. */
  #askAll(): Promise<void> {
    this.#asking ??= this.#askEach().finally(() => {
      this.#asking = null
      if (this.#closing.signal.aborted) return
      if (this.#isAskRequested) void this.#askAll()
      else this.#askLater()
    })
    return this.#asking
  }

  #askLater(): void {
    this.#askTimer?.cancel()
    if (this.#listingProviders().length === 0) return
    const { refreshMs } = this.#config.catalogue
    const delayMs = this.#failing.size === 0 ? refreshMs : Math.min(refreshMs, RETRY_MS)
    this.#askTimer = this.#deps.clock.after(delayMs, () => void this.#askAll())
  }

  /** Logs configured models that no provider serves, once the providers have listed their models. */
  #logUnserved(): void {
    if (this.#closing.signal.aborted) return
    const { log } = this.#deps
    const catalog = catalogOf(this.#parts)
    const isServed = (id: string) => (catalog.model(id)?.endpoints.length ?? 0) > 0
    for (const { name: route, targets, fallback, rollout } of this.#parts.routes) {
      const routeModels = [...targets.map(({ model }) => model), ...fallback]
      if (rollout !== null) routeModels.push(rollout.candidate.model)
      for (const model of new Set(routeModels))
        if (!isServed(model))
          log.notice('catalog', 'a route names a model that no provider serves; no request goes there', {
            route,
            model,
          })
    }
    const imported = this.#lists.get(IMPORT_SOURCE)?.models ?? []
    const unserved = imported.filter(({ id }) => !isServed(id))
    const [first] = unserved
    if (first !== undefined)
      log.notice('catalog', 'imported models have no provider here, and are not offered', {
        models: unserved.length,
        first: first.id,
      })
  }

  async #askEach(): Promise<void> {
    this.#isAskRequested = false
    const answers = await Promise.all(this.#listingProviders().map(provider => this.#askOne(provider)))
    const changed = answers.filter(list => list !== null)
    if (changed.length === 0 || this.#closing.signal.aborted) return
    for (const list of changed) {
      // For other instances and the next start. If the Store is away, this instance uses the list all the same.
      await this.#deps.store.catalogue.put(list).catch(() => undefined)
    }
    this.#recompose()
  }

  /** The provider's list if it has changed, otherwise null. Never rejects. */
  async #askOne(provider: Provider): Promise<CatalogueSource | null> {
    const { clock, log } = this.#deps
    const sourceName = providerSource(provider.slug)
    try {
      this.#client ??= this.#deps.createClient()
      const terms = { clock, signal: this.#closing.signal }
      const { models, leftOut } = await listModels(this.#client, provider, terms)
      const before = this.#lists.get(sourceName)
      // An empty list is more likely a fault than a provider without models.
      if (models.length === 0) throw new Error('its list of models is empty')
      if (this.#failing.delete(provider.slug))
        log.notice('catalog', 'listing the models of a provider again', { provider: provider.slug })
      const source = sourceOf(sourceName, models, clock)
      if (before?.version === source.version) return null
      this.#lists.set(sourceName, { version: source.version, models })
      if (leftOut > 0) {
        log.notice('catalog', 'a provider has too many models in its list; the rest are ignored', {
          provider: provider.slug,
          models: models.length,
          leftOut,
        })
      }
      return source
    } catch (error) {
      if (!this.#closing.signal.aborted && !this.#failing.has(provider.slug)) {
        this.#failing.add(provider.slug)
        log.notice('catalog', 'cannot list the models of a provider; still using its last list', {
          provider: provider.slug,
          reason: reasonOf(error),
        })
      }
      return null
    }
  }

  #waitBriefly(work: Promise<void>): Promise<void> {
    return new Promise(resolve => {
      const timer = this.#deps.clock.after(START_TIMEOUT_MS, resolve)
      void work.finally(() => {
        timer.cancel()
        resolve()
      })
    })
  }
}

function reasonOf(error: unknown): string {
  const failure = toGatewayError(error)
  const reason = failure.metadata?.['reason']
  if (typeof reason === 'string') return reason
  return systemCode(error) ?? (isError(error) ? error.message : 'unknown')
}

/** Null for a list that another version of the gateway wrote in another form. */
function modelsIn(facts: string): readonly KnownModel[] | null {
  try {
    const models: unknown = JSON.parse(facts)
    return Array.isArray(models) && models.every(isKnownModel) ? models : null
  } catch {
    return null
  }
}

function isKnownModel(value: unknown): value is KnownModel {
  return typeof value === 'object' && value !== null && 'id' in value && typeof value.id === 'string'
}
