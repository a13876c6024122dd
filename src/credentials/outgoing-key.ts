/**
 * What an attempt sends of an own provider credential. A key goes only to the fixed address of its provider, so a kind
 * that brings its own address serves where the provider's row names the same host; a kind that has to sign or to be
 * exchanged serves nowhere yet. Such an attempt fails before anything is sent, and the next candidate is tried.
 */

import { GatewayError } from '../errors.ts'
import type { SentKey } from '../gateway/exchange.ts'
import type { Endpoint } from '../providers/provider.ts'
import type { CredentialCache } from './opened.ts'
import type { Credential } from './own-keys.ts'
import { azureTargets } from './parse/azure-key.ts'
import type { ProviderKey } from './parse/provider-key.ts'

/** Domains of the two kinds of resource; the name of the resource stands before them. */
const AZURE_DOMAINS = { openai: 'openai.azure.com', ai_foundry: 'services.ai.azure.com' } as const

/**
 * Opens the key of a credential; a promise only when the cache has to ask the Store.
 * @throws (or rejects with) GatewayError as the cache does, or `provider_unavailable` for a kind of key that the
 * endpoint cannot be called with.
 */
export function openKey(
  cache: Pick<CredentialCache, 'open'>,
  credential: Credential,
  endpoint: Endpoint,
): SentKey | Promise<SentKey> {
  const opened = cache.open(credential)
  return opened instanceof Promise ? opened.then(key => sentKey(key, endpoint)) : sentKey(opened, endpoint)
}

/** @throws GatewayError `provider_unavailable` */
export function sentKey(key: ProviderKey, endpoint: Endpoint): SentKey {
  switch (key.kind) {
    case 'plain':
      return { text: key.apiKey, secrets: key.secrets }
    case 'azure': {
      const host = hostOf(endpoint)
      const resource = azureTargets(key, endpoint.modelId)
        .filter(target => 'resourceName' in target)
        .find(
          ({ resourceName, resourceType }) =>
            `${resourceName.toLowerCase()}.${AZURE_DOMAINS[resourceType]}` === host,
        )
      if (resource === undefined) {
        throw unusable(endpoint, 'names no resource at the address that is configured for this provider')
      }
      return { text: resource.apiKey, secrets: key.secrets }
    }
    case 'aws':
      throw unusable(
        endpoint,
        'is an AWS access key, which this gateway cannot sign with yet: use an API key',
      )
    case 'vertex':
      throw unusable(endpoint, 'is a service account, which this gateway cannot use yet')
  }
}

function hostOf({ provider: { baseUrl } }: Endpoint): string | null {
  return baseUrl === null ? null : new URL(baseUrl).hostname
}

function unusable({ provider }: Endpoint, why: string): GatewayError {
  return new GatewayError('provider_unavailable', `The own credential for ${provider.name} ${why}`)
}
