/**
 * The key that an attempt sends for a provider credential. A key goes only to the fixed address of its provider. So an
 * Azure resource serves only where the provider's row has its host; a key that needs signing or a token exchange is
 * not supported yet. Such an attempt fails before anything is sent, and the next candidate is tried.
 */
import { GatewayError } from '../errors.ts'
import type { Endpoint, OutgoingKey } from '../providers/provider.ts'
import { whenReady } from '../ready.ts'
import type { Credential } from './catalog.ts'
import type { OpenedKeys } from './opened.ts'
import { azureTargets } from './parse/azure-key.ts'
import type { ProviderKey } from './parse/provider-key.ts'

/** Domains of the two kinds of resource; the name of the resource stands before them. */
const AZURE_DOMAINS = { openai: 'openai.azure.com', ai_foundry: 'services.ai.azure.com' } as const

/**
 * Opens the key of a credential; a promise only when the cache has to ask the Store.
 * @throws (or rejects with) GatewayError as `OpenedKeys.open` does, or `provider_unavailable` for a kind of key that
 * the endpoint cannot be called with.
 */
export function openKey(
  keys: Pick<OpenedKeys, 'open'>,
  credential: Credential,
  endpoint: Endpoint,
): OutgoingKey | Promise<OutgoingKey> {
  return whenReady(keys.open(credential), key => toOutgoingKey(key, endpoint))
}

/** @throws GatewayError `provider_unavailable` */
export function toOutgoingKey(key: ProviderKey, endpoint: Endpoint): OutgoingKey {
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
      if (resource === undefined) throw unusable(endpoint, 'has no resource for the configured base URL')
      return { text: resource.apiKey, secrets: key.secrets }
    }
    case 'aws':
      throw unusable(
        endpoint,
        'is an AWS access key. This gateway cannot sign requests yet: use an API key instead',
      )
    case 'vertex':
      throw unusable(endpoint, 'is a service account, which this gateway does not support yet')
  }
}

function hostOf({ provider: { baseUrl } }: Endpoint): string | null {
  return baseUrl === null ? null : new URL(baseUrl).hostname
}

function unusable({ provider }: Endpoint, why: string): GatewayError {
  return new GatewayError('provider_unavailable', `Your ${provider.name} credential ${why}`)
}
