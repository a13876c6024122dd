/**
 * Merges configured models with imports and provider lists: fills in missing fields, and adds more models. The
 * configuration always wins. Pure.
 */

import type { Provider } from '../protocol/provider.ts'
import { CATALOGUE_ID, ID_MAX_CHARS, type KnownModel } from './known-models.ts'
import type { EndpointRow, ModelRow } from './row-schemas.ts'
import { endsInVariant } from './variants.ts'

/** Facts about models from outside the configuration. */
export interface KnownModels {
  readonly imported: readonly KnownModel[]
  /** Model lists of providers, by slug. */
  readonly discovered: ReadonlyMap<string, readonly KnownModel[]>
}

export const NO_KNOWN_MODELS: KnownModels = { imported: [], discovered: new Map() }

interface ComposeDeps {
  /** Rows of the configuration: models and wildcards. */
  readonly rows: readonly ModelRow[]
  readonly knownModels: KnownModels
  readonly providers: ReadonlyMap<string, Provider>
  /** The authors whose models a provider serves. The first one is the author of the models in its own list. */
  readonly authorsOf: (slug: string) => readonly string[]
}

interface Composition {
  /** The rows of the configuration, in their order, with absent fields filled in. */
  readonly rows: readonly ModelRow[]
  /** Rows of additional models, imported ones first. */
  readonly additionalRows: readonly ModelRow[]
}

export function composeRows(deps: ComposeDeps): Composition {
  const { rows, knownModels } = deps
  if (knownModels.imported.length === 0 && knownModels.discovered.size === 0)
    return { rows, additionalRows: [] }
  const composer = new Composer(deps)
  return { rows: rows.map(row => composer.fillRow(row)), additionalRows: composer.furtherRows() }
}

/** True for a row that stands for several models. */
export function isWildcard(id: string): boolean {
  return id.endsWith('*')
}

/** The longest wildcard that covers an id, and the text that its star stands for; null: none. */
export function coveredBy<Row>(
  id: string,
  wildcards: readonly { readonly prefix: string; readonly row: Row }[],
): { readonly row: Row; readonly starText: string } | null {
  let longest: { readonly prefix: string; readonly row: Row } | null = null
  for (const wildcard of wildcards) {
    if (id.length <= wildcard.prefix.length || !id.startsWith(wildcard.prefix)) continue
    if (longest === null || wildcard.prefix.length > longest.prefix.length) longest = wildcard
  }
  return longest === null ? null : { row: longest.row, starText: id.slice(longest.prefix.length) }
}

/** A model name in normalized spelling: lower case, dashes for dots, without the date of a version. */
function normalize(name: string): string {
  return name
    .toLowerCase()
    .replaceAll('.', '-')
    .replace(/-(?:\d{8}|\d{4}-\d{2}-\d{2})$/, '')
}

function nameAfterAuthor(id: string): string {
  return id.slice(id.indexOf('/') + 1)
}

/** A provider's list, by its own names and by normalized names. */
interface List {
  readonly byName: ReadonlyMap<string, KnownModel>
  readonly byNormalizedName: ReadonlyMap<string, KnownModel>
}

class Composer {
  readonly #deps: ComposeDeps
  readonly #imported: ReadonlyMap<string, KnownModel>
  readonly #importedByNormalizedName: ReadonlyMap<string, KnownModel>
  readonly #lists: ReadonlyMap<string, List>
  readonly #wildcards: readonly { readonly prefix: string; readonly row: ModelRow }[]
  /** Providers that can be called, by author. */
  readonly #serving = new Map<string, string[]>()

  constructor(deps: ComposeDeps) {
    const { rows, knownModels, providers, authorsOf } = deps
    this.#deps = deps
    this.#imported = new Map(knownModels.imported.map(model => [model.id, model]))
    // If two names differ only in spelling, the first one counts.
    this.#importedByNormalizedName = new Map(
      knownModels.imported.toReversed().map(model => [normalize(model.id), model]),
    )
    this.#lists = new Map([...knownModels.discovered].map(([slug, models]) => [slug, listOf(models)]))
    this.#wildcards = rows
      .filter(({ id }) => isWildcard(id))
      .map(row => ({ prefix: row.id.slice(0, -1), row }))
    // Providers with a key come first: the others serve only callers with their own credentials.
    const callable = [...providers.values()].filter(({ baseUrl, slug }) => baseUrl !== null && slug !== '')
    const withKey = callable.filter(({ auth, apiKey }) => auth === 'none' || apiKey !== null)
    for (const { slug } of new Set([...withKey, ...callable])) {
      for (const author of authorsOf(slug)) {
        const slugs = this.#serving.get(author)
        if (slugs === undefined) this.#serving.set(author, [slug])
        else slugs.push(slug)
      }
    }
  }

  fillRow(row: ModelRow): ModelRow {
    const facts = this.#imported.get(row.id) ?? this.#factsOfAlias(row)
    const endpoints = row.endpoints.map(endpoint =>
      this.#withPrice(endpoint, endpoint.upstreamModel ?? nameAfterAuthor(row.id), facts),
    )
    const isChanged = endpoints.some((endpoint, index) => endpoint !== row.endpoints[index])
    const [first] = endpoints
    const listedModel =
      first === undefined
        ? undefined
        : this.#listedModel(first.provider, first.upstreamModel ?? nameAfterAuthor(row.id))
    if (facts === undefined && listedModel === undefined && !isChanged) return row
    const embeds = (facts?.outputModalities ?? []).includes('embeddings')
    const { outputModalities: _output, ...inputFacts } = { ...modelFacts(listedModel), ...modelFacts(facts) }
    // Only a row of the configuration can declare embeddings, because that decides the format.
    return {
      ...inputFacts,
      ...(facts?.outputModalities === undefined || embeds
        ? {}
        : { outputModalities: [...facts.outputModalities] }),
      ...row,
      endpoints,
    }
  }

  furtherRows(): readonly ModelRow[] {
    const { rows, knownModels, authorsOf } = this.#deps
    const names = new Set(rows.flatMap(({ id, aliases = [] }) => [id, ...aliases]))
    const additions = new Map<string, ModelRow>()
    for (const model of knownModels.imported) {
      if (names.has(model.id)) continue
      const endpoints = this.#endpointsOf(model)
      if (endpoints.length > 0) additions.set(model.id, { id: model.id, ...modelFacts(model), endpoints })
    }
    for (const [slug, models] of knownModels.discovered) {
      const [author = slug] = authorsOf(slug)
      if (this.#deps.providers.get(slug)?.baseUrl == null) continue
      for (const model of models) {
        const id = model.id.startsWith(`${author}/`) ? model.id : `${author}/${model.id}`
        if (names.has(id) || id.length > ID_MAX_CHARS || !CATALOGUE_ID.test(id)) continue
        const existing = additions.get(id)
        if (existing === undefined) additions.set(id, this.#discoveredRow(id, slug, model))
        else if (coveredBy(id, this.#wildcards) === null) this.#addEndpoint(existing, slug, model, additions)
      }
    }
    return [...additions.values()]
  }

  /** Adds an endpoint to a model of an import, or of another provider's list. */
  #addEndpoint(model: ModelRow, slug: string, listed: KnownModel, additions: Map<string, ModelRow>): void {
    if (model.endpoints.some(({ provider }) => provider === slug)) return
    const endpoint = this.#withPrice(
      { provider: slug, upstreamModel: listed.id },
      listed.id,
      this.#imported.get(model.id),
    )
    additions.set(model.id, { ...model, endpoints: [...model.endpoints, endpoint] })
  }

  #discoveredRow(id: string, slug: string, listed: KnownModel): ModelRow {
    const facts = this.#imported.get(id) ?? this.#importedByNormalizedName.get(normalize(id))
    const wildcard = coveredBy(id, this.#wildcards)
    const endpoints =
      wildcard === null
        ? [this.#withPrice({ provider: slug, upstreamModel: listed.id }, listed.id, facts)]
        : this.#wildcardEndpoints(wildcard, facts)
    return { id, ...modelFacts(listed), ...modelFacts(facts), endpoints }
  }

  /**
   * Endpoints of an imported model: from the wildcard that covers it, otherwise from the providers that serve its
   * author.
   */
  #endpointsOf(model: KnownModel): EndpointRow[] {
    const wildcard = coveredBy(model.id, this.#wildcards)
    if (wildcard !== null) return this.#wildcardEndpoints(wildcard, model)
    // A variant is an offer of the list's publisher, not of the author.
    if (endsInVariant(model.id)) return []
    const slugs = this.#serving.get(model.id.slice(0, model.id.indexOf('/'))) ?? []
    return slugs.map(provider => {
      const upstreamModel = this.#providerName(provider, nameAfterAuthor(model.id))
      return this.#withPrice({ provider, upstreamModel, ...parametersField(model) }, upstreamModel, model)
    })
  }

  #wildcardEndpoints(
    { row, starText }: { readonly row: ModelRow; readonly starText: string },
    facts: KnownModel | undefined,
  ): EndpointRow[] {
    return row.endpoints.map(endpoint => {
      const upstreamModel = (endpoint.upstreamModel ?? nameAfterAuthor(row.id)).replace('*', () => starText)
      return this.#withPrice({ ...endpoint, upstreamModel }, upstreamModel, facts)
    })
  }

  /** The endpoint with price and lengths filled in from its provider's list, or from an import. */
  #withPrice(endpoint: EndpointRow, upstreamModel: string, facts: KnownModel | undefined): EndpointRow {
    const listedModel = this.#listedModel(endpoint.provider, upstreamModel)
    const { serviceTier = 'default' } = endpoint
    // Lists contain the prices of the standard tier.
    const standardPricing = serviceTier === 'default' ? (listedModel?.pricing ?? facts?.pricing) : undefined
    const pricing = endpoint.pricing ?? standardPricing
    if (listedModel === undefined && pricing === endpoint.pricing) return endpoint
    return {
      ...(listedModel?.contextLength === undefined ? {} : { contextLength: listedModel.contextLength }),
      ...(listedModel?.maxOutputTokens === undefined ? {} : { maxOutputTokens: listedModel.maxOutputTokens }),
      ...endpoint,
      ...(pricing === undefined ? {} : { pricing }),
    }
  }

  /** The provider's own spelling of a name, if its list contains it. */
  #providerName(slug: string, name: string): string {
    const list = this.#lists.get(slug)
    if (list === undefined || list.byName.has(name)) return name
    return list.byNormalizedName.get(normalize(name))?.id ?? name
  }

  #listedModel(slug: string, upstreamModel: string): KnownModel | undefined {
    return this.#lists.get(slug)?.byName.get(upstreamModel)
  }

  #factsOfAlias({ aliases = [] }: ModelRow): KnownModel | undefined {
    for (const alias of aliases) {
      const facts = this.#imported.get(alias)
      if (facts !== undefined) return facts
    }
    return undefined
  }
}

function listOf(models: readonly KnownModel[]): List {
  const oldestFirst = models.toSorted((a, b) => (a.created ?? 0) - (b.created ?? 0))
  return {
    byName: new Map(models.map(model => [model.id, model])),
    byNormalizedName: new Map(oldestFirst.map(model => [normalize(model.id), model])),
  }
}

/** The facts of a model that are also fields of a model's row. */
function modelFacts(
  model: KnownModel | undefined,
): Omit<KnownModel, 'id' | 'pricing' | 'supportedParameters'> {
  if (model === undefined) return {}
  const { id: _id, pricing: _pricing, supportedParameters: _parameters, ...facts } = model
  return facts
}

function parametersField({ supportedParameters }: KnownModel): Pick<EndpointRow, 'supportedParameters'> {
  return supportedParameters === undefined ? {} : { supportedParameters }
}
