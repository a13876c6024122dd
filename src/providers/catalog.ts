/**
 * The catalogue of providers and models: the built-in table with the configuration's rows on top. Built once at start;
 * the hot path reads it with one Map lookup. Pure.
 */

import type { EndpointRow, ModelRow, PricingRow, ProviderRow } from '../config/config.ts'
import { isProxyUrl } from '../config/config.ts'
import { type PicoUsd, parseUsd } from '../money.ts'
import {
  type AbortPolicy,
  AUTH_OF_FORMAT,
  type AuthScheme,
  type Egress,
  type Endpoint,
  type FormatName,
  type Model,
  type Pricing,
  type Provider,
  type TlsIdentity,
} from './provider.ts'
import { displayName, PROVIDERS } from './table.ts'

/** Names of PEM files, as a row has them. */
export type TlsFiles = NonNullable<ProviderRow['tls']>

export interface CatalogConfig {
  readonly providers: readonly ProviderRow[]
  readonly models: readonly ModelRow[]
  /** The policy of providers without one of their own. Default `cancel`. */
  readonly onAbort?: AbortPolicy
  /** Reads the files of a row's `tls`; `path` names the field in errors. Needed where a row has them. */
  readonly readTls?: (files: TlsFiles, path: string) => TlsIdentity
  /** Creation date in Unix seconds of models without one. Default 0. */
  readonly created?: number
}

/** An error in the rows; its message begins with the path of the field. */
export class CatalogError extends Error {
  override readonly name = 'CatalogError'
  readonly path: string

  constructor(path: string, problem: string) {
    super(`${path}: ${problem}`)
    this.path = path
  }
}

export interface Catalog {
  /** The model with exactly this id. */
  model(id: string): Model | undefined
  /** In the order of the configuration. */
  models(): readonly Model[]
  provider(slug: string): Provider | undefined
  /** Built-in ones first, both in the order of their tables. */
  providers(): readonly Provider[]
}

/** @throws CatalogError that names the wrong field. */
export function createCatalog(config: CatalogConfig): Catalog {
  const providers = allProviders(config)
  const models = new Map<string, Model>()
  for (const [index, row] of config.models.entries()) {
    const path = `models[${index}]`
    if (models.has(row.id)) throw new CatalogError(`${path}.id`, `duplicate id ${quote(row.id)}`)
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
    if (seen.has(row.slug)) throw new CatalogError(`${path}.slug`, `duplicate slug ${quote(row.slug)}`)
    seen.add(row.slug)
    const egress = egressOf(row, path, config.readTls)
    const provider = providerOf(row, path, providers.get(row.slug), onAbort)
    providers.set(row.slug, egress === null ? provider : { ...provider, egress })
  }
  return providers
}

function providerOf(
  row: ProviderRow,
  path: string,
  builtIn: Provider | undefined,
  onAbort: AbortPolicy,
): Provider {
  const format = row.format ?? builtIn?.format
  if (format === undefined)
    throw new CatalogError(`${path}.format`, 'is required: this provider has no built-in format')
  return {
    slug: row.slug,
    name: row.name ?? displayName(row.slug) ?? row.slug,
    format,
    baseUrl:
      row.baseUrl === undefined ? (builtIn?.baseUrl ?? null) : baseUrlOf(row.baseUrl, `${path}.baseUrl`),
    auth: authOf(row, builtIn, format),
    apiKey: row.apiKey ?? builtIn?.apiKey ?? null,
    quirks: row.quirks ?? builtIn?.quirks ?? [],
    headers: { ...builtIn?.headers, ...row.headers },
    onAbort: row.accounting?.onAbort ?? onAbort,
  }
}

/** Null for a row that says nothing about the way out. */
function egressOf(row: ProviderRow, path: string, readTls: CatalogConfig['readTls']): Egress | null {
  const { proxy = null, transport = 'direct', http2 = false, tls } = row
  if (proxy === null && transport === 'direct' && !http2 && tls === undefined) return null
  if (proxy !== null && proxy !== 'none' && !isProxyUrl(proxy)) {
    throw new CatalogError(
      `${path}.proxy`,
      'expected a URL of the form http://[USER:PASSWORD@]HOST:PORT, or none',
    )
  }
  const identity = tls === undefined ? null : (readTls?.(tls, `${path}.tls`) ?? null)
  return { proxy, transport, http2, tls: identity }
}

function authOf(row: ProviderRow, builtIn: Provider | undefined, format: FormatName): AuthScheme {
  if (row.auth !== undefined) return row.auth
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
  row: ModelRow,
  path: string,
  providers: ReadonlyMap<string, Provider>,
  created: number,
): Model {
  const endpoints = row.endpoints.map((endpoint, at) =>
    endpointOf(endpoint, row, `${path}.endpoints[${at}]`, providers),
  )
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
  row: EndpointRow,
  model: ModelRow,
  path: string,
  providers: ReadonlyMap<string, Provider>,
): Endpoint {
  const provider = providers.get(row.provider)
  if (provider === undefined) throw new CatalogError(`${path}.provider`, `no provider ${quote(row.provider)}`)
  if (provider.baseUrl === null) {
    throw new CatalogError(`${path}.provider`, `${quote(row.provider)} needs a baseUrl under providers`)
  }
  return {
    modelId: model.id,
    upstreamModel: row.upstreamModel ?? model.id.slice(model.id.indexOf('/') + 1),
    provider,
    format: row.format ?? provider.format,
    pricing: row.pricing === undefined ? FREE : pricingOf(row.pricing, `${path}.pricing`),
    contextLength: row.contextLength ?? model.contextLength ?? null,
    maxOutputTokens: row.maxOutputTokens ?? model.maxOutputTokens ?? null,
    region: row.region ?? null,
    zdr: row.zdr ?? false,
    quantization: row.quantization ?? 'unknown',
    drawsImages: model.outputModalities?.includes('image') ?? false,
    supportedParameters: row.supportedParameters === undefined ? null : new Set(row.supportedParameters),
  }
}

const FREE: Pricing = { prompt: 0, completion: 0, request: 0, inputCacheRead: null, inputCacheWrite: null }

function pricingOf(row: PricingRow, path: string): Pricing {
  const price = (name: keyof PricingRow): PicoUsd | null => {
    const text = row[name]
    if (text === undefined) return null
    try {
      return parseUsd(text)
    } catch (error) {
      throw new CatalogError(
        `${path}.${name}`,
        error instanceof RangeError ? error.message : 'is not a price',
      )
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

function quote(text: string): string {
  return JSON.stringify(text.length > 100 ? `${text.slice(0, 100)}…` : text)
}
