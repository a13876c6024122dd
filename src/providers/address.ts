/**
 * Provider addresses with placeholders, such as `{region}`, which are filled in from a key or the provider's row. Pure.
 * A host from a key must match a pattern of the row, so that a key cannot send requests to an arbitrary host.
 */
import { GatewayError } from '../base/errors.ts'
import type { AnyFormatName, Provider } from '../protocol/provider.ts'

/** The values of placeholders by name: `region`, `host`, `account`, `project`, `location`. */
export type PlaceholderValues = Readonly<Record<string, string>>

const PLACEHOLDER = /\{([a-z]+)\}/g

/** The base URL of a format at a provider, with its placeholders; null if the operator must configure it. */
export function baseUrlFor(
  { baseUrl, baseUrls }: Pick<Provider, 'baseUrl' | 'baseUrls'>,
  format: AnyFormatName,
): string | null {
  return baseUrls?.[format] ?? baseUrl
}

/** The names of the placeholders in an address. */
export function placeholdersOf(url: string): readonly string[] {
  return [...url.matchAll(PLACEHOLDER)].map(([, name = '']) => name)
}

/**
 * The address with all placeholders filled in. Values without a placeholder are ignored.
 * @throws GatewayError `provider_unavailable` if a placeholder has no value, or the host matches no pattern of the row
 */
export function fillPlaceholders(
  url: string,
  values: PlaceholderValues,
  provider: Pick<Provider, 'name' | 'hosts'>,
): string {
  const placeholders = placeholdersOf(url)
  if (placeholders.length === 0) return url
  const missingName = placeholders.find(name => values[name] === undefined)
  if (missingName !== undefined) {
    const remedy =
      missingName === 'region'
        ? 'set region in its row under providers, or give the key as JSON with a region'
        : `give the key as JSON with ${missingName}, or set baseUrl in its row under providers to the whole address`
    throw new GatewayError(
      'provider_unavailable',
      `The address of ${provider.name} needs ${PLACEHOLDER_NAMES[missingName] ?? missingName}: ${remedy}`,
    )
  }
  const isInHost = (name: string): boolean => url.indexOf(`{${name}}`) < endOfHost(url)
  const filledUrl = url.replace(PLACEHOLDER, (_, name: string) =>
    isInHost(name) ? (values[name] ?? '') : encodeURIComponent(values[name] ?? ''),
  )
  if (
    placeholders.some(isInHost) &&
    !(URL.canParse(filledUrl) && allowsHost(provider, new URL(filledUrl).host))
  ) {
    throw new GatewayError(
      'provider_unavailable',
      `The address that the key gives for ${provider.name} is not on one of the provider's hosts`,
    )
  }
  return filledUrl
}

const PLACEHOLDER_NAMES: Readonly<Record<string, string>> = {
  region: 'a region',
  host: 'a host',
  account: 'an account',
  project: 'a project',
  location: 'a location',
}

function endOfHost(url: string): number {
  const end = url.indexOf('/', url.indexOf('://') + 3)
  return end === -1 ? url.length : end
}

/** True if a key may name this host. A host with a port never matches. */
export function allowsHost({ hosts = [] }: Pick<Provider, 'hosts'>, host: string): boolean {
  return hosts.some(pattern => matches(pattern, host.toLowerCase()))
}

/** `*` matches letters, digits and hyphens: one label, or a part of a label. */
function matches(pattern: string, host: string): boolean {
  const source = pattern
    .split('*')
    .map(part => part.replace(/[.\\+?^${}()|[\]]/g, '\\$&'))
    .join('[a-z0-9-]+')
  return new RegExp(`^${source}$`).test(host)
}
