/** Warnings about valid settings that will fail or leak later: one line each, beginning with the setting. */

import type { Provider } from '../../protocol/provider.ts'
import { placeholdersOf } from '../../providers/address.ts'
import type { Catalog } from '../../providers/catalog.ts'
import { readShared, sharedKeyProblem } from '../../providers/credentials/outgoing-key.ts'
import { keyVariable } from '../../providers/provider-rows.ts'
import type { ProviderRow } from '../../providers/row-schemas.ts'
import { proxyUrl } from '../../providers/upstream/egress.ts'
import { isExposed } from '../../server/certificate.ts'
import type { Config } from '../config/settings.ts'
import { discovers, importedFile } from '../wiring/catalog.ts'
import type { CheckedStart } from './start-failure.ts'

export function startWarnings({
  config,
  catalog,
}: Pick<CheckedStart, 'config' | 'catalog'>): readonly string[] {
  const providerWarnings = usedProviders(config, catalog).flatMap(provider => {
    const index = config.providers.findIndex(({ slug }) => slug === provider.slug)
    const row = index === -1 ? `providers (${provider.slug})` : `providers[${index}]`
    return [
      ...keyWarnings(provider, row),
      ...addressWarnings(provider, row),
      ...loopWarnings(provider, row, config),
    ]
  })
  return [
    ...providerWarnings,
    ...config.providers.flatMap((row, index) => encryptionWarnings(row, `providers[${index}]`)),
    ...exposedFileWarnings(config),
    ...priceWarnings(config, catalog),
    ...importWarnings(config, catalog),
  ]
}

/** Secrets in files that others can read. */
function exposedFileWarnings({ listen: { tls }, console: { oidc }, providers }: Config): readonly string[] {
  const files = [
    ...providers.flatMap(({ apiKeyFile }, index) =>
      apiKeyFile === undefined ? [] : [[`providers[${index}].apiKeyFile`, apiKeyFile] as const],
    ),
    ...(tls === null ? [] : [['listen.tls.key', tls.key] as const]),
    ...(oidc === null ? [] : [['console.oidc.clientSecretFile', oidc.clientSecretFile] as const]),
  ]
  return files
    .filter(([, path]) => isExposed(path))
    .map(
      ([field]) =>
        `${field}: every user of this machine can read the file; remove that permission (chmod o-r)`,
    )
}

/** Endpoints in rows whose price is not stated. Prices from providers are known only later. */
function priceWarnings(config: Config, catalog: Catalog): readonly string[] {
  if (discovers(config)) return []
  const rows = config.models.filter(({ id, endpoints }) => {
    const builtEndpoints = catalog.model(id)?.endpoints
    return endpoints.some(({ pricing }, index) =>
      builtEndpoints === undefined
        ? pricing === undefined
        : builtEndpoints[index]?.pricing.isUnknown === true,
    )
  })
  const [first] = rows
  if (first === undefined) return []
  const subject = rows.length === 1 ? 'the price of this model is' : `the prices of ${rows.length} models are`
  return [
    `models[${config.models.indexOf(first)}].endpoints: ${subject} not known, so requests cost nothing, and callers with a limit, budget or credits are refused; set pricing, or import a list of models`,
  ]
}

/** Models of the imported file that no provider here serves. */
function importWarnings(config: Config, catalog: Catalog): readonly string[] {
  const unserved = importedFile(config).filter(({ id }) => catalog.model(id) === undefined)
  const [first] = unserved
  if (first === undefined) return []
  return [
    `catalogue.import: ${unserved.length} models, such as ${first.id}, have no provider here and are not offered; add their author's provider, or a wildcard row`,
  ]
}

/** The providers of configured models, and those whose model lists would be read if they had a key. */
function usedProviders(config: Config, catalog: Catalog): readonly Provider[] {
  const rows = config.models.flatMap(({ endpoints }) => endpoints.map(({ provider }) => provider))
  const slugs = discovers(config) ? config.providers.map(({ slug }) => slug) : []
  return [...new Set([...rows, ...slugs])].flatMap(slug => catalog.provider(slug) ?? [])
}

function keyWarnings({ slug, auth, apiKey }: Provider, row: string): readonly string[] {
  if (auth === 'none' || apiKey !== null) return []
  const variable = keyVariable(slug)
  const remedy = variable === null ? 'set it' : `set it or ${variable}`
  return [`${row}.apiKey: is missing, so ${slug} serves only callers with their own credentials; ${remedy}`]
}

/** Keys without an address, at a provider whose address depends on the key. */
function addressWarnings(provider: Provider, row: string): readonly string[] {
  const { slug, apiKey, region } = provider
  const problem = sharedKeyProblem(provider)
  if (problem !== null) return [`${row}.apiKey: ${problem}`]
  if (apiKey === null || readShared(provider)?.kind !== 'plain') return []
  const missingParts = placeholdersOf(provider.baseUrl ?? '').filter(
    gap => gap !== 'region' || region === undefined,
  )
  if (missingParts.length === 0) return []
  const remedy = missingParts.includes('region')
    ? 'set region, or give the key as JSON'
    : 'give the key as JSON, or set baseUrl to the whole address'
  return [
    `${row}.apiKey: does not contain the ${missingParts.join(', ')} that the address of ${slug} needs; ${remedy}`,
  ]
}

/** A local server whose usual port is also the gateway's. */
function loopWarnings({ slug, baseUrl }: Provider, row: string, { listen }: Config): readonly string[] {
  if (baseUrl === null || !URL.canParse(baseUrl)) return []
  const { hostname, port } = new URL(baseUrl)
  const isLocal = hostname === 'localhost' || hostname === '[::1]' || /^127\./.test(hostname)
  if (!isLocal || Number(port) !== listen.port) return []
  return [
    `${row}.baseUrl: port ${port} is the port of this gateway, not of ${slug}; set another port here or in listen.port`,
  ]
}

const LOOPBACK = /^(?:localhost|.*\.localhost|127(?:\.\d{1,3}){3}|\[::1\])$/

/** Keys and prompts that leave the machine without TLS. */
function encryptionWarnings({ baseUrl, proxy }: ProviderRow, row: string): readonly string[] {
  const warnings: string[] = []
  if (isPlainRemote(baseUrl)) {
    warnings.push(`${row}.baseUrl: is not https, so keys and prompts can be read in transit`)
  }
  if (proxy !== undefined && proxy !== 'none' && hasUser(proxy) && isPlainRemote(proxyUrl(proxy))) {
    warnings.push(`${row}.proxy: is not https, so its password is sent unencrypted`)
  }
  return warnings
}

function hasUser(proxy: string): boolean {
  return URL.canParse(proxyUrl(proxy)) && new URL(proxyUrl(proxy)).username !== ''
}

function isPlainRemote(text: string | undefined): boolean {
  if (text === undefined || !URL.canParse(text)) return false
  const { protocol, hostname } = new URL(text)
  return protocol === 'http:' && !LOOPBACK.test(hostname)
}
