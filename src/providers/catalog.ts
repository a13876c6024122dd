/**
 * Providers and models of this gateway: the built-in table with the configuration's rows on top. Pure; built
 * once at start, read on the hot path by one Map lookup.
 */
import { type PicoUsd, parseUsd } from '../money.ts'
import {
  type AbortPolicy,
  AUTH_OF_FORMAT,
  type AuthScheme,
  type DataRegion,
  type Endpoint,
  type FormatName,
  type Model,
  type Pricing,
  type Provider,
  QUIRKS,
} from './provider.ts'
import { PROVIDERS } from './table.ts'

/** A provider of the configuration file: new, or what differs from the built-in one of the same slug. */
export interface ProviderConfig {
  readonly slug: string
  readonly name?: string
  readonly format?: string
  readonly baseUrl?: string
  readonly apiKey?: string
  readonly auth?: string
  readonly quirks?: readonly string[]
  readonly headers?: Readonly<Record<string, string>>
  readonly accounting?: { readonly onAbort?: AbortPolicy }
}

/** Prices are decimal strings of US dollars per token; `request` per request. */
export interface PricingConfig {
  readonly prompt?: string
  readonly completion?: string
  readonly request?: string
  readonly inputCacheRead?: string
  readonly inputCacheWrite?: string
}

export interface EndpointConfig {
  readonly provider: string
  /** Default: the part of the model's id after the first slash. */
  readonly upstreamModel?: string
  /** Default: the provider's. */
  readonly format?: string
  readonly pricing?: PricingConfig
  readonly region?: string
  readonly zdr?: boolean
  readonly quantization?: string
  /** Absent: all. */
  readonly supportedParameters?: readonly string[]
  /** Default: the model's. */
  readonly contextLength?: number
  readonly maxOutputTokens?: number
}

export interface ModelConfig {
  readonly id: string
  readonly name?: string
  readonly contextLength?: number
  readonly maxOutputTokens?: number
  readonly inputModalities?: readonly string[]
  readonly outputModalities?: readonly string[]
  readonly endpoints: readonly EndpointConfig[]
}

export interface CatalogConfig {
  readonly providers: readonly ProviderConfig[]
  readonly models: readonly ModelConfig[]
  /** What a provider does that says nothing of its own. Default `cancel`. */
  readonly onAbort?: AbortPolicy
  /** Unix seconds that models without a date of their own carry. Default 0. */
  readonly created?: number
}

/** Rows that do not fit together; the message begins with the path of the field. */
export class CatalogError extends Error {
  override readonly name = 'CatalogError'
  readonly path: string

  constructor(path: string, problem: string) {
    super(`${path}: ${problem}`)
    this.path = path
  }
}

export interface Catalog {
  /** The model of exactly this id. */
  model(id: string): Model | undefined
  /** In the order of the configuration. */
  models(): readonly Model[]
  provider(slug: string): Provider | undefined
  /** Built-in ones first, both in the order of their tables. */
  providers(): readonly Provider[]
}

const FORMATS: readonly FormatName[] = [
  'openai-responses',
  'openai-chat',
  'anthropic-messages',
  'google-gemini',
]
const AUTH_SCHEMES: readonly AuthScheme[] = ['bearer', 'x-api-key', 'x-goog-api-key', 'none']
const REGIONS: readonly DataRegion[] = ['europe', 'us']

/** `vendor/model` with further slashes allowed, `~` before the vendor of an alias; variants after colons. */
const MODEL_ID = /^~?[a-z0-9][a-z0-9._-]*(?:\/[a-z0-9][a-z0-9._-]*)+(?::[a-z0-9][a-z0-9._-]*)*$/i

/** @throws CatalogError that names the field at fault. */
export function createCatalog(config: CatalogConfig): Catalog {
  const providers = allProviders(config)
  const models = new Map<string, Model>()
  for (const [index, row] of config.models.entries()) {
    const path = `models[${index}]`
    if (models.has(row.id)) throw new CatalogError(`${path}.id`, `${quoted(row.id)} is there twice`)
    models.set(row.id, modelOf(row, path, providers, config.created ?? 0))
  }
  const modelList = [...models.values()]
  const providerList = [...providers.values()]
  return {
    model: id => models.get(id),
    models: () => modelList,
    provider: slug => providers.get(slug),
    providers: () => providerList,
  }
}

function allProviders(config: CatalogConfig): ReadonlyMap<string, Provider> {
  const onAbort = config.onAbort ?? 'cancel'
  const providers = new Map<string, Provider>(PROVIDERS.map(row => [row.slug, { ...row, onAbort }]))
  const seen = new Set<string>()
  for (const [index, row] of config.providers.entries()) {
    const path = `providers[${index}]`
    if (seen.has(row.slug)) throw new CatalogError(`${path}.slug`, `${quoted(row.slug)} is there twice`)
    seen.add(row.slug)
    providers.set(row.slug, providerOf(row, path, providers.get(row.slug), onAbort))
  }
  return providers
}

function providerOf(
  row: ProviderConfig,
  path: string,
  builtIn: Provider | undefined,
  onAbort: AbortPolicy,
): Provider {
  const format = row.format === undefined ? builtIn?.format : oneOf(FORMATS, row.format, `${path}.format`)
  if (format === undefined) throw new CatalogError(`${path}.format`, 'is required for a provider of your own')
  return {
    slug: row.slug,
    name: row.name ?? builtIn?.name ?? row.slug,
    format,
    baseUrl:
      row.baseUrl === undefined ? (builtIn?.baseUrl ?? null) : baseUrlOf(row.baseUrl, `${path}.baseUrl`),
    auth: authOf(row, path, builtIn, format),
    apiKey: row.apiKey ?? builtIn?.apiKey ?? null,
    quirks:
      row.quirks?.map((quirk, at) => oneOf(QUIRKS, quirk, `${path}.quirks[${at}]`)) ?? builtIn?.quirks ?? [],
    headers: { ...builtIn?.headers, ...row.headers },
    onAbort: row.accounting?.onAbort ?? onAbort,
  }
}

function authOf(
  row: ProviderConfig,
  path: string,
  builtIn: Provider | undefined,
  format: FormatName,
): AuthScheme {
  if (row.auth !== undefined) return oneOf(AUTH_SCHEMES, row.auth, `${path}.auth`)
  // A server of the operator's own that was given no key is not asked for one.
  if (builtIn === undefined && row.apiKey === undefined) return 'none'
  const known = builtIn !== undefined && builtIn.format === format ? builtIn.auth : AUTH_OF_FORMAT[format]
  // A local server asks for no key until its operator gives it one.
  return known === 'none' && row.apiKey !== undefined ? AUTH_OF_FORMAT[format] : known
}

function baseUrlOf(text: string, path: string): string {
  const url = URL.canParse(text) ? new URL(text) : null
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    throw new CatalogError(path, 'expected an http or https URL')
  }
  if (url.search !== '' || url.hash !== '') throw new CatalogError(path, 'must have no query and no fragment')
  if (url.username !== '' || url.password !== '') throw new CatalogError(path, 'must hold no credentials')
  return text.replace(/\/+$/, '')
}

function modelOf(
  row: ModelConfig,
  path: string,
  providers: ReadonlyMap<string, Provider>,
  created: number,
): Model {
  if (!MODEL_ID.test(row.id)) throw new CatalogError(`${path}.id`, 'expected the form vendor/model')
  const endpoints = row.endpoints.map((endpoint, at) =>
    endpointOf(endpoint, row, `${path}.endpoints[${at}]`, providers),
  )
  if (endpoints.length === 0) throw new CatalogError(`${path}.endpoints`, 'must not be empty')
  return {
    id: row.id,
    name: row.name ?? row.id,
    created,
    contextLength: row.contextLength ?? null,
    maxOutputTokens: row.maxOutputTokens ?? null,
    inputModalities: row.inputModalities ?? ['text'],
    outputModalities: row.outputModalities ?? ['text'],
    endpoints,
  }
}

function endpointOf(
  row: EndpointConfig,
  model: ModelConfig,
  path: string,
  providers: ReadonlyMap<string, Provider>,
): Endpoint {
  const provider = providers.get(row.provider)
  if (provider === undefined)
    throw new CatalogError(`${path}.provider`, `no provider ${quoted(row.provider)}`)
  if (provider.baseUrl === null) {
    throw new CatalogError(`${path}.provider`, `${quoted(row.provider)} needs a baseUrl under providers`)
  }
  return {
    modelId: model.id,
    upstreamModel: row.upstreamModel ?? model.id.slice(model.id.indexOf('/') + 1),
    provider,
    format: row.format === undefined ? provider.format : oneOf(FORMATS, row.format, `${path}.format`),
    pricing: row.pricing === undefined ? FREE : pricingOf(row.pricing, `${path}.pricing`),
    contextLength: row.contextLength ?? model.contextLength ?? null,
    maxOutputTokens: row.maxOutputTokens ?? model.maxOutputTokens ?? null,
    region: row.region === undefined ? null : oneOf(REGIONS, row.region, `${path}.region`),
    zdr: row.zdr ?? false,
    quantization: row.quantization ?? 'unknown',
    drawsImages: model.outputModalities?.includes('image') ?? false,
    supportedParameters: row.supportedParameters === undefined ? null : new Set(row.supportedParameters),
  }
}

const FREE: Pricing = { prompt: 0, completion: 0, request: 0, inputCacheRead: null, inputCacheWrite: null }

function pricingOf(row: PricingConfig, path: string): Pricing {
  const price = (name: keyof PricingConfig): PicoUsd | null => {
    const text = row[name]
    if (text === undefined) return null
    try {
      return parseUsd(text)
    } catch (error) {
      throw new CatalogError(`${path}.${name}`, error instanceof RangeError ? error.message : 'is no price')
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

function oneOf<T extends string>(values: readonly T[], text: string, path: string): T {
  const found = values.find(value => value === text)
  if (found === undefined) throw new CatalogError(path, `expected one of ${values.join(', ')}`)
  return found
}

function quoted(text: string): string {
  return JSON.stringify(text.length > 100 ? `${text.slice(0, 100)}…` : text)
}
