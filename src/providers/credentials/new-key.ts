/**
 * Parses a key before it is stored, and rejects one whose address the provider's row does not allow. Pure. Errors name
 * the field and never repeat the key.
 */
import { GatewayError } from '../../base/errors.ts'
import type { KeyForm, Provider } from '../../protocol/provider.ts'
import { allowsHost, baseUrlFor, placeholdersOf } from '../address.ts'
import { type KeyDescription, maskKey, type ProviderKey, parseProviderKey } from './parse/provider-key.ts'

/** The error for a plain key that lacks a part, by the form of the provider's keys. */
const EXPECTED_FORMS: Readonly<Partial<Record<KeyForm, string>>> = {
  account: 'JSON with api_key and account_id',
  host: 'JSON with api_key and host',
}

/**
 * The parts of a key that are stored unencrypted. `provider`: the catalogue's provider; undefined: unknown, so that no
 * request uses the key until the operator adds a row.
 * @throws GatewayError `invalid_request` that begins with `key: `
 */
export function describeNewKey(slug: string, provider: Provider | undefined, text: string): KeyDescription {
  const key = parseProviderKey(slug, text)
  if (provider !== undefined) checkAddress(key, provider)
  return { label: maskKey(key), region: key.region }
}

function checkAddress(key: ProviderKey, provider: Provider): void {
  const { keyForm = 'plain', region, hosts = [] } = provider
  const placeholders = placeholdersOf(baseUrlFor(provider, provider.format) ?? '')
  // Every key is sent to the same address.
  if (placeholders.length === 0) return
  const refuseHost = (field: string): never => {
    throw invalidKey(`${field} must be on one of these hosts: ${hosts.join(', ')}`)
  }
  switch (key.kind) {
    case 'plain': {
      const hasAllParts = placeholders.every(placeholder => placeholder === 'region' && region !== undefined)
      if (!hasAllParts) throw invalidKey(`must be ${EXPECTED_FORMS[keyForm] ?? 'JSON'} for this provider`)
      return
    }
    case 'addressed': {
      const { host } = key.values
      if (host !== undefined && !allowsHost(provider, host)) refuseHost('host')
      return
    }
    case 'azure':
      for (const { endpointUrl } of key.deployments) {
        if (!allowsHost(provider, new URL(endpointUrl).host)) refuseHost('endpoint_url')
      }
  }
}

function invalidKey(problem: string): GatewayError {
  return new GatewayError('invalid_request', `key: ${problem}`)
}
