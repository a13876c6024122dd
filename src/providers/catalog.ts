/**
 * The catalogue of providers and models: the built-in table with the configuration's rows on top. Built once at start;
 * the hot path reads it with one Map lookup. Pure.
 */
import {
  ConfigError,
  type EndpointRow,
  Faults,
  isProxyUrl,
  type ModelRow,
  type PricingRow,
  type ProviderRow,
} from '../config/config.ts'
import { type PicoUsd, parseFactor, parseUsd } from '../money.ts'
import { didYouMean } from '../nearest.ts'
import {
  type AbortPolicy,
  type AnyFormatName,
  AUTH_OF_FORMAT,
  type AuthScheme,
  BATCH_FORMATS,
  BATCH_PRICE_FACTOR,
  type Egress,
  EMBEDDINGS_FORMAT_NAMES,
  EMBEDDINGS_OF_FORMAT,
  type Endpoint,
  FORMAT_NAMES,
  isEmbeddingsFormat,
  type Model,
  makesEmbeddings,
  type Pricing,
  type Provider,
  type TlsIdentity,
} from './provider.ts'
import { createSimilar } from './similar.ts'
import { displayName, KEY_VARIABLES, KNOWN_SLUGS, PROVIDERS, whyNotOffered } from './table.ts'

/** Names of PEM files, as a row has them. */
export type TlsFiles = NonNullable<ProviderRow['tls']>

export interface CatalogConfig {
  readonly providers: readonly ProviderRow[]
  readonly models: readonly ModelRow[]
  /** The policy of providers without one of their own. Default `finish`. */
  readonly onAbort?: AbortPolicy
  /** Keys of providers whose row gives none, by slug. Default: none. */
  readonly providerKeys?: Readonly<Record<string, string>>
  /** Reads the files of a row's `tls`; `path` names the field in errors. Needed where a row has them. */
  readonly readTls?: (files: TlsFiles, path: string) => TlsIdentity
  /** Creation date in Unix seconds of models without one. Default 0. */
  readonly created?: number
}

export interface Catalog {
  /** The model with exactly this id. */
  model(id: string): Model | undefined
  /** Up to three ids that one without a model was probably meant to be, the nearest first. */
  similar(id: string): readonly string[]
  /** In the order of the configuration. */
  models(): readonly Model[]
  provider(slug: string): Provider | undefined
  /** Built-in ones first, both in the order of their tables. */
  providers(): readonly Provider[]
}

/** @throws ConfigError with all faults of the rows, each with the path of its field. */
export function createCatalog(config: CatalogConfig): Catalog {
  const faults = new Faults()
  const providers = allProviders(config, faults)
  const models = new Map<string, Model>()
  for (const [index, row] of config.models.entries()) {
    const path = `models[${index}]`
    if (models.has(row.id)) faults.add(`${path}.id`, `duplicate id ${quote(row.id)}`)
    else models.set(row.id, modelOf(row, { path, providers, faults, created: config.created ?? 0 }))
  }
  faults.throwIfAny()
  const modelList = [...models.values()]
  const providerList = [...providers.values()].filter(provider => provider !== FAULTY)
  return {
    model: id => models.get(id),
    similar: createSimilar([...models.keys()]),
    models: () => modelList,
    provider: slug => providers.get(slug),
    providers: () => providerList,
  }
}

/** Stands for a provider whose row has a fault, so that its models are not reported too. */
const FAULTY: Provider = {
  slug: '',
  name: '',
  format: 'openai-chat',
  baseUrl: '',
  auth: 'none',
  apiKey: null,
  quirks: [],
  headers: {},
  onAbort: 'cancel',
}

function allProviders(config: CatalogConfig, faults: Faults): ReadonlyMap<string, Provider> {
  const { onAbort = 'finish', providerKeys = {} } = config
  const keyOf = (slug: string): string | null =>
    Object.hasOwn(providerKeys, slug) ? (providerKeys[slug] ?? null) : null
  const providers = new Map<string, Provider>(
    PROVIDERS.map(row => [row.slug, { ...row, apiKey: keyOf(row.slug), onAbort }]),
  )
  const seen = new Set<string>()
  for (const [index, row] of config.providers.entries()) {
    const path = `providers[${index}]`
    if (seen.has(row.slug)) faults.add(`${path}.slug`, `duplicate slug ${quote(row.slug)}`)
    seen.add(row.slug)
    const keyed = row.apiKey === undefined ? { ...row, ...keyField(keyOf(row.slug)) } : row
    const provider = faults.try(() => {
      const made = providerOf(keyed, path, providers.get(row.slug), onAbort)
      const egress = egressOf(row, path, config.readTls)
      const batch = batchOf(row, path, made.format)
      return { ...made, ...(egress === null ? {} : { egress }), ...(batch === null ? {} : { batch }) }
    })
    providers.set(row.slug, provider ?? FAULTY)
  }
  return providers
}

function keyField(apiKey: string | null): { readonly apiKey?: string } {
  return apiKey === null ? {} : { apiKey }
}

/** @throws ConfigError */
function providerOf(
  row: ProviderRow,
  path: string,
  builtIn: Provider | undefined,
  onAbort: AbortPolicy,
): Provider {
  const faults = new Faults()
  const format = row.format ?? builtIn?.format
  if (format === undefined) faults.add(`${path}.format`, noFormat(row.slug))
  const baseUrl =
    row.baseUrl === undefined
      ? (builtIn?.baseUrl ?? null)
      : baseUrlOf(row.baseUrl, problem => faults.add(`${path}.baseUrl`, problem))
  faults.throwIfAny()
  // Its absence is a fault.
  const known = format as AnyFormatName
  return {
    ...(builtIn === undefined ? {} : keptOf(builtIn, row)),
    ...definedOf({ region: row.region, tokenUrl: row.tokenUrl, hosts: row.hosts }),
    slug: row.slug,
    name: row.name ?? displayName(row.slug) ?? row.slug,
    format: known,
    baseUrl,
    auth: authOf(row, builtIn, known),
    apiKey: row.apiKey ?? builtIn?.apiKey ?? null,
    quirks: row.quirks ?? builtIn?.quirks ?? [],
    headers: { ...builtIn?.headers, ...row.headers },
    onAbort: row.accounting?.onAbort ?? onAbort,
  }
}

/** What a row keeps of the built-in one beside the fields that it may set: addresses go with the base URL. */
function keptOf(builtIn: Provider, { format, baseUrl }: ProviderRow): Partial<Provider> {
  const { baseUrls: _urls, regionUrls: _regions, embeddings: _embeddings, ...others } = builtIn
  const { baseUrls, regionUrls, embeddings } = builtIn
  return {
    ...others,
    ...(baseUrl === undefined ? definedOf({ baseUrls, regionUrls }) : {}),
    ...(format === undefined || format === builtIn.format ? definedOf({ embeddings }) : {}),
  }
}

type Defined<Fields> = { [Name in keyof Fields]?: Exclude<Fields[Name], undefined> }

function definedOf<Fields extends object>(fields: Fields): Defined<Fields> {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== undefined),
  ) as Defined<Fields>
}

/** A slug that nearly is a built-in one is more often a slip than a provider of one's own. */
function noFormat(slug: string): string {
  const why = whyNotOffered(slug)
  if (why !== null) return `is required: this provider has no built-in format, since ${why}`
  return `is required: this provider has no built-in format${didYouMean(slug, KNOWN_SLUGS)}`
}

/** Null for a row that says nothing about the way out. */
function egressOf(row: ProviderRow, path: string, readTls: CatalogConfig['readTls']): Egress | null {
  const { proxy = null, transport = 'direct', http2 = false, tls } = row
  if (proxy === null && transport === 'direct' && !http2 && tls === undefined) return null
  if (proxy !== null && proxy !== 'none' && !isProxyUrl(proxy)) {
    throw new ConfigError(
      `${path}.proxy: expected a URL of the form http://[USER:PASSWORD@]HOST:PORT, or none`,
    )
  }
  const identity = tls === undefined ? null : (readTls?.(tls, `${path}.tls`) ?? null)
  return { proxy, transport, http2, tls: identity }
}

/** Null for a row that does not ask for a batch service. @throws ConfigError */
function batchOf(
  { batch = false, batchPriceFactor }: ProviderRow,
  path: string,
  format: AnyFormatName,
): NonNullable<Provider['batch']> | null {
  if (batch && !(BATCH_FORMATS as readonly AnyFormatName[]).includes(format)) {
    throw new ConfigError(`${path}.batch: no batch service is known for the format ${format}`)
  }
  if (!batch && batchPriceFactor !== undefined) {
    throw new ConfigError(`${path}.batchPriceFactor: has no effect without batch: true`)
  }
  if (!batch) return null
  return { priceFactor: batchPriceFactor === undefined ? BATCH_PRICE_FACTOR : parseFactor(batchPriceFactor) }
}

function authOf(row: ProviderRow, builtIn: Provider | undefined, format: AnyFormatName): AuthScheme {
  if (row.auth !== undefined) return row.auth
  // A server of the operator's own that was given no key is not asked for one.
  if (builtIn === undefined && row.apiKey === undefined) return 'none'
  const known = builtIn !== undefined && builtIn.format === format ? builtIn.auth : AUTH_OF_FORMAT[format]
  // A local server asks for no key until its operator gives it one.
  return known === 'none' && row.apiKey !== undefined ? AUTH_OF_FORMAT[format] : known
}

function baseUrlOf(text: string, fault: (problem: string) => void): string {
  const url = URL.canParse(text) ? new URL(text) : null
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    fault('expected an http or https URL')
  } else if (url.search !== '' || url.hash !== '') fault('must have no query and no fragment')
  else if (url.username !== '' || url.password !== '') fault('must hold no credentials')
  return text.replace(/\/+$/, '')
}

/** The place of a row, and the rows that it is checked against. */
interface Place {
  readonly path: string
  readonly providers: ReadonlyMap<string, Provider>
  readonly faults: Faults
  readonly created: number
}

function modelOf(row: ModelRow, place: Place): Model {
  const { outputModalities = ['text'] } = row
  if (outputModalities.length > 1 && makesEmbeddings({ outputModalities })) {
    place.faults.add(`${place.path}.outputModalities`, 'embeddings must stand alone')
  }
  const endpoints = row.endpoints.map((endpoint, at) =>
    endpointOf(endpoint, row, { ...place, path: `${place.path}.endpoints[${at}]` }),
  )
  return {
    id: row.id,
    name: row.name ?? row.id,
    created: place.created,
    contextLength: row.contextLength ?? null,
    maxOutputTokens: row.maxOutputTokens ?? null,
    inputModalities: row.inputModalities ?? ['text'],
    outputModalities,
    endpoints,
  }
}

function endpointOf(row: EndpointRow, model: ModelRow, { path, providers, faults }: Place): Endpoint {
  const provider = providerFor(row, providers, problem => faults.add(`${path}.provider`, problem))
  return {
    modelId: model.id,
    upstreamModel: row.upstreamModel ?? model.id.slice(model.id.indexOf('/') + 1),
    provider,
    format: formatOf(row, model, provider, problem => faults.add(`${path}.format`, problem)),
    pricing: row.pricing === undefined ? UNKNOWN : pricingOf(row.pricing, `${path}.pricing`, faults),
    contextLength: row.contextLength ?? model.contextLength ?? null,
    maxOutputTokens: row.maxOutputTokens ?? model.maxOutputTokens ?? null,
    region: row.region ?? null,
    zdr: row.zdr ?? false,
    quantization: row.quantization ?? 'unknown',
    drawsImages: model.outputModalities?.includes('image') ?? false,
    supportedParameters: row.supportedParameters === undefined ? null : new Set(row.supportedParameters),
  }
}

/** The format that the row names, or else that of the provider for what the model makes. */
function formatOf(
  row: EndpointRow,
  { outputModalities = [] }: ModelRow,
  provider: Provider,
  fault: (problem: string) => void,
): AnyFormatName {
  const embeds = makesEmbeddings({ outputModalities })
  const format = row.format ?? defaultFormat(provider, embeds)
  if (provider !== FAULTY && isEmbeddingsFormat(format) !== embeds) fault(misfit(format, row.format))
  return format
}

/** `named`: what the row of the endpoint says; the format of a provider goes with its address. */
function misfit(format: AnyFormatName, named: AnyFormatName | undefined): string {
  const which = named ?? `the provider's format ${format}`
  if (!isEmbeddingsFormat(format)) {
    return `${which} makes no embeddings: use one of ${EMBEDDINGS_FORMAT_NAMES.join(', ')}`
  }
  const other =
    named === undefined
      ? 'change format and baseUrl of the provider under providers'
      : `use one of ${FORMAT_NAMES.join(', ')}`
  return `${which} makes embeddings only: set outputModalities: [embeddings] on the model, or ${other}`
}

function defaultFormat({ format, embeddings }: Provider, embeds: boolean): AnyFormatName {
  if (!embeds || isEmbeddingsFormat(format)) return format
  return embeddings ?? EMBEDDINGS_OF_FORMAT[format] ?? format
}

function providerFor(
  { provider: slug }: EndpointRow,
  providers: ReadonlyMap<string, Provider>,
  fault: (problem: string) => void,
): Provider {
  const provider = providers.get(slug)
  if (provider !== undefined && provider.baseUrl !== null) return provider
  if (provider !== undefined) fault(`${quote(slug)} needs a baseUrl under providers`)
  else if (KNOWN_SLUGS.includes(slug)) {
    const why = whyNotOffered(slug) ?? 'it has no built-in address'
    fault(`${quote(slug)} is not offered: ${why}. It needs a row under providers with format and baseUrl`)
  } else fault(unknownProvider(slug, [...providers.keys()]))
  return FAULTY
}

/** The near one of all known slugs, or those that can be used as they are. */
function unknownProvider(slug: string, usable: readonly string[]): string {
  const hint = didYouMean(slug, [...usable, ...KNOWN_SLUGS]) || `; there are ${usable.join(', ')}`
  return `no provider ${quote(slug)}${hint}`
}

const UNKNOWN: Pricing = {
  prompt: 0,
  completion: 0,
  request: 0,
  inputCacheRead: null,
  inputCacheWrite: null,
  isUnknown: true,
}

function pricingOf(row: PricingRow, path: string, faults: Faults): Pricing {
  const price = (name: keyof PricingRow): PicoUsd | null => {
    const text = row[name]
    if (text === undefined) return null
    try {
      return parseUsd(text)
    } catch (error) {
      faults.add(`${path}.${name}`, error instanceof RangeError ? error.message : 'is not a price')
      return null
    }
  }
  return {
    prompt: price('prompt') ?? 0,
    completion: price('completion') ?? 0,
    request: price('request') ?? 0,
    inputCacheRead: price('inputCacheRead'),
    inputCacheWrite: price('inputCacheWrite'),
  }
}

/** The environment variable that holds the key of a provider's own row; null if the table names none. */
export function keyVariable(slug: string): string | null {
  return KEY_VARIABLES.get(slug) ?? null
}

function quote(text: string): string {
  return JSON.stringify(text.length > 100 ? `${text.slice(0, 100)}…` : text)
}
