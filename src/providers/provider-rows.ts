/** Providers: the built-in table with the validated rows of the configuration on top. Pure. */

import { didYouMean } from '../base/did-you-mean.ts'
import { parseFactor } from '../base/money.ts'
import { ConfigError, Faults } from '../base/settings/check.ts'
import { isProxyUrl } from '../base/settings/setting.ts'
import {
  type AbortPolicy,
  type AnyFormatName,
  AUTH_OF_FORMAT,
  type AuthScheme,
  BATCH_FORMATS,
  BATCH_PRICE_FACTOR,
  type Egress,
  type Provider,
  type SupportedSettings,
  type TlsIdentity,
} from '../protocol/provider.ts'
import type { ProviderRow } from './row-schemas.ts'
import { displayName, KEY_VARIABLES, KNOWN_SLUGS, PROVIDERS, whyNotOffered } from './table.ts'

/** Names of PEM files, as written in a row. */
export type TlsFiles = NonNullable<ProviderRow['tls']>

export interface ProvidersConfig {
  readonly providers: readonly ProviderRow[]
  /** For providers without their own setting. Default `finish`. */
  readonly onAbort?: AbortPolicy
  /** Keys of providers whose row contains none, by slug: from files and the environment. Default: none. */
  readonly providerKeys?: Readonly<Record<string, string>>
  /** Reads the files of a row's `tls`; `path` is the field in errors. Needed if a row has such files. */
  readonly readTls?: (files: TlsFiles, path: string) => TlsIdentity
}

/** Replaces a provider whose row has an error, so that errors of its models are not reported too. */
export const FAULTY_PROVIDER: Provider = {
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

/** All providers by slug. A provider whose row has an error is FAULTY. */
export function providersOf(config: ProvidersConfig, faults: Faults): ReadonlyMap<string, Provider> {
  const { onAbort = 'finish', providerKeys = {} } = config
  const keyOf = (slug: string): string | null =>
    Object.hasOwn(providerKeys, slug) ? (providerKeys[slug] ?? null) : null
  const providers = new Map<string, Provider>(
    PROVIDERS.map(row => [row.slug, { ...row, apiKey: keyOf(row.slug), onAbort }]),
  )
  const seenSlugs = new Set<string>()
  for (const [index, row] of config.providers.entries()) {
    const path = `providers[${index}]`
    if (seenSlugs.has(row.slug)) faults.add(`${path}.slug`, `duplicate slug ${quote(row.slug)}`)
    seenSlugs.add(row.slug)
    const rowWithKey = row.apiKey === undefined ? { ...row, ...keyField(keyOf(row.slug)) } : row
    const provider = faults.try(() => {
      const newProvider = providerOf(rowWithKey, path, providers.get(row.slug), onAbort)
      const egress = egressOf(row, path, config.readTls)
      const batch = batchOf(row, path, newProvider.format)
      return { ...newProvider, ...(egress === null ? {} : { egress }), ...(batch === null ? {} : { batch }) }
    })
    providers.set(row.slug, provider ?? FAULTY_PROVIDER)
  }
  return providers
}

/** The settings in a row that say what its models take. */
export function supportedSettings({
  efforts,
  jsonFormats,
  jsonBesideTools,
}: SupportedSettings): SupportedSettings {
  return definedFields({ efforts, jsonFormats, jsonBesideTools })
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
  // A missing format was reported above.
  const knownFormat = format as AnyFormatName
  return {
    ...(builtIn === undefined ? {} : keptFields(builtIn, row)),
    ...definedFields({
      region: row.region,
      tokenUrl: row.tokenUrl,
      hosts: row.hosts,
      authors: row.authors,
      promptCaching: row.promptCaching,
      compaction: row.compaction,
      continueStreams: row.continueStreams,
      continues: row.continues,
      ...supportedSettings(row),
      customTools: row.customTools,
      propagateTrace: row.propagateTrace,
    }),
    slug: row.slug,
    name: row.name ?? displayName(row.slug) ?? row.slug,
    format: knownFormat,
    baseUrl,
    auth: authOf(row, builtIn, knownFormat),
    apiKey: row.apiKey ?? builtIn?.apiKey ?? null,
    quirks: row.quirks ?? builtIn?.quirks ?? [],
    headers: { ...builtIn?.headers, ...row.headers },
    onAbort: row.accounting?.onAbort ?? onAbort,
  }
}

/**
 * The fields of the built-in row that the operator's row keeps. Other addresses are dropped together with the base URL.
 * The provider's data policy, custom tools and way to continue are dropped too, because someone else may run the server.
 */
function keptFields(builtIn: Provider, { format, baseUrl }: ProviderRow): Partial<Provider> {
  const {
    baseUrls: _urls,
    regionUrls: _regions,
    embeddings: _embeddings,
    policy: _policy,
    customTools: _customTools,
    continues: _continues,
    ...otherFields
  } = builtIn
  const { baseUrls, regionUrls, embeddings, policy, customTools, continues } = builtIn
  return {
    ...otherFields,
    ...(baseUrl === undefined ? definedFields({ baseUrls, regionUrls, policy, customTools, continues }) : {}),
    ...(format === undefined || format === builtIn.format ? definedFields({ embeddings }) : {}),
  }
}

type DefinedFields<Fields> = { [Name in keyof Fields]?: Exclude<Fields[Name], undefined> }

function definedFields<Fields extends object>(fields: Fields): DefinedFields<Fields> {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== undefined),
  ) as DefinedFields<Fields>
}

/** A slug that is similar to a built-in one is more likely a typing error than another provider. */
function noFormat(slug: string): string {
  const reason = whyNotOffered(slug)
  if (reason !== null) return `is required: this provider has no built-in format, since ${reason}`
  return `is required: this provider has no built-in format${didYouMean(slug, KNOWN_SLUGS)}`
}

/** Null for a row without connection settings. */
function egressOf(row: ProviderRow, path: string, readTls: ProvidersConfig['readTls']): Egress | null {
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

/** Null for a row that does not configure a batch service. @throws ConfigError */
function batchOf(
  { batch = false, batchPriceFactor }: ProviderRow,
  path: string,
  format: AnyFormatName,
): NonNullable<Provider['batch']> | null {
  if (batch && !(BATCH_FORMATS as readonly AnyFormatName[]).includes(format)) {
    throw new ConfigError(`${path}.batch: there is no batch service for the format ${format}`)
  }
  if (!batch && batchPriceFactor !== undefined) {
    throw new ConfigError(`${path}.batchPriceFactor: has no effect without batch: true`)
  }
  if (!batch) return null
  return { priceFactor: batchPriceFactor === undefined ? BATCH_PRICE_FACTOR : parseFactor(batchPriceFactor) }
}

function authOf(row: ProviderRow, builtIn: Provider | undefined, format: AnyFormatName): AuthScheme {
  if (row.auth !== undefined) return row.auth
  // The operator's own server needs no key if its row has none.
  if (builtIn === undefined && row.apiKey === undefined) return 'none'
  const scheme = builtIn !== undefined && builtIn.format === format ? builtIn.auth : AUTH_OF_FORMAT[format]
  // A local server gets a key only if its row has one.
  return scheme === 'none' && row.apiKey !== undefined ? AUTH_OF_FORMAT[format] : scheme
}

function baseUrlOf(text: string, addFault: (problem: string) => void): string {
  const url = URL.canParse(text) ? new URL(text) : null
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    addFault('expected an http or https URL')
  } else if (url.search !== '' || url.hash !== '') addFault('must not have a query or a fragment')
  else if (url.username !== '' || url.password !== '') addFault('must not contain credentials')
  return text.replace(/\/+$/, '')
}

/** The environment variable with the key of a built-in provider; null if the table names none. */
export function keyVariable(slug: string): string | null {
  return KEY_VARIABLES.get(slug) ?? null
}

export function quote(text: string): string {
  return JSON.stringify(text.length > 100 ? `${text.slice(0, 100)}…` : text)
}
