/** What is no fault of a configuration, and yet will fail: one line each, which begins with the setting. */
import type { Config } from '../config/config.ts'
import { type Catalog, keyVariable } from '../providers/catalog.ts'
import type { Provider } from '../providers/provider.ts'
import type { CheckedStart } from './start-failure.ts'

export function startWarnings({
  config,
  catalog,
}: Pick<CheckedStart, 'config' | 'catalog'>): readonly string[] {
  return usedProviders(catalog).flatMap(provider => {
    const at = config.providers.findIndex(({ slug }) => slug === provider.slug)
    const row = at === -1 ? `providers (${provider.slug})` : `providers[${at}]`
    return [...keyless(provider, row), ...circular(provider, row, config)]
  })
}

function usedProviders(catalog: Catalog): readonly Provider[] {
  const endpoints = catalog.models().flatMap(model => model.endpoints)
  return [...new Set(endpoints.map(({ provider }) => provider))]
}

function keyless({ slug, auth, apiKey }: Provider, row: string): readonly string[] {
  if (auth === 'none' || apiKey !== null) return []
  const variable = keyVariable(slug)
  const way = variable === null ? 'set it' : `set it or ${variable}`
  return [`${row}.apiKey: is missing, and ${slug} serves only callers with credentials of their own; ${way}`]
}

/** A local server whose usual port is that of the gateway. */
function circular({ slug, baseUrl }: Provider, row: string, { listen }: Config): readonly string[] {
  const { hostname, port } = new URL(baseUrl ?? 'http://nowhere.invalid')
  const isLocal = hostname === 'localhost' || hostname === '[::1]' || /^127\./.test(hostname)
  if (!isLocal || Number(port) !== listen.port) return []
  return [
    `${row}.baseUrl: port ${port} is that of this gateway, not of ${slug}; set another one here or as listen.port`,
  ]
}
