/**
 * The key of one attempt: decrypted, parsed, in the form that is sent (plain, Google token, AWS signature), and with
 * the address that it belongs to, such as the hosts of Vertex and Azure. A host from key material must match the
 * patterns of the provider's row. If the operator configured a complete address, every key is sent there. A key that
 * cannot be used fails before anything is sent, and the next candidate is tried.
 */
import { GatewayError } from '../../base/errors.ts'
import { whenReady } from '../../base/maybe-promise.ts'
import type { Region } from '../../protocol/data-regions.ts'
import type { Endpoint, OutgoingKey, Provider } from '../../protocol/provider.ts'
import {
  allowsHost,
  baseUrlFor,
  fillPlaceholders,
  type PlaceholderValues,
  placeholdersOf,
} from '../address.ts'
import { API_OF_FORMAT } from '../format-apis.ts'
import type { Credential } from './catalog.ts'
import type { DecryptedKeys } from './decrypted-keys.ts'
import type { FailedResources } from './failed-resources.ts'
import type { AwsKey } from './parse/aws-key.ts'
import { type AzureDeployment, type AzureKey, type AzureResource, azureTargets } from './parse/azure-key.ts'
import { looksLikeJson } from './parse/key-json.ts'
import { parsePlainKey } from './parse/plain-key.ts'
import { type ProviderKey, parseKey } from './parse/provider-key.ts'
import type { VertexKey } from './parse/vertex-key.ts'

/** Helpers for keys that need more than a header, from `upstream/`. */
export interface KeySchemes {
  readonly signer: (
    access: Pick<AwsKey, 'accessKeyId' | 'secretAccessKey'>,
    scope: { readonly region: string; readonly service: string },
  ) => NonNullable<OutgoingKey['sign']>
  /** A promise only if no cached token can be used. */
  readonly token: (
    account: Pick<VertexKey, 'clientEmail' | 'privateKey' | 'privateKeyId'>,
    endpoint: { readonly tokenUrl: string; readonly egress?: Provider['egress'] },
  ) => string | Promise<string>
  /** Absent: the first resource of a key is always used. */
  readonly failedResources?: FailedResources
}

/** Part of an endpoint that decides how a key is used. */
type KeyedEndpoint = Pick<Endpoint, 'provider' | 'format' | 'modelId'>

/** Prepares the keys of attempts. One per thread. */
export class OutgoingKeys {
  readonly #keys: Pick<DecryptedKeys, 'open'>
  readonly #schemes: KeySchemes
  /** The operator's own keys, parsed. Null: plain keys, which are part of the provider's row. */
  readonly #shared = new WeakMap<Provider, ProviderKey | null>()

  constructor(keys: Pick<DecryptedKeys, 'open'>, schemes: KeySchemes) {
    this.#keys = keys
    this.#schemes = schemes
  }

  /**
   * Prepares the key of a credential; a promise only if the Store has to be read, or a token is missing.
   * @throws (or rejects with) GatewayError like `DecryptedKeys.open`, or `provider_unavailable` for a kind of key that
   * the endpoint cannot be called with.
   */
  ownKey(credential: Credential, endpoint: KeyedEndpoint): OutgoingKey | Promise<OutgoingKey> {
    const { name } = endpoint.provider
    return whenReady(this.#keys.open(credential), key =>
      toOutgoingKey(key, endpoint, this.#schemes, `Your ${name} credential`, credential.id),
    )
  }

  /**
   * The operator's own key if it needs more than a header; otherwise, for most providers, null.
   * @throws (or rejects with) GatewayError `provider_unavailable`
   */
  sharedKey(endpoint: KeyedEndpoint): OutgoingKey | null | Promise<OutgoingKey | null> {
    const { provider } = endpoint
    if (provider.keyForm === undefined) return null
    let key = this.#shared.get(provider)
    if (key === undefined) {
      key = readShared(provider)
      this.#shared.set(provider, key)
    }
    if (key === null) return null
    return toOutgoingKey(key, endpoint, this.#schemes, `The gateway's key for ${provider.name}`)
  }
}

/**
 * Parses the operator's own key for a provider; null if it is sent unchanged. Text that is not JSON is the key itself,
 * whatever form customers' keys have.
 * @throws GatewayError `provider_unavailable`, whose cause describes the problem without the key
 */
export function readShared(provider: Provider): ProviderKey | null {
  const { apiKey, baseUrl, keyForm = 'plain' } = provider
  if (apiKey === null) return null
  let key: ProviderKey
  try {
    key = looksLikeJson(apiKey) ? parseKey(keyForm, apiKey) : parsePlainKey(apiKey)
  } catch (cause) {
    throw new GatewayError(
      'provider_unavailable',
      `The gateway's key for ${provider.name} is malformed; sluice check says how to correct it`,
      {
        cause,
      },
    )
  }
  const isBare = key.kind === 'plain' && key.apiKey === apiKey && placeholdersOf(baseUrl ?? '').length === 0
  return isBare ? null : key
}

/** The problem with the operator's own key for a provider, without the key; null: there is none. */
export function sharedKeyProblem(provider: Provider): string | null {
  try {
    readShared(provider)
    return null
  } catch (error) {
    const { cause } = error as GatewayError
    return cause instanceof GatewayError ? cause.message.replace(/^key: /, '') : 'cannot be read'
  }
}

/**
 * The parts of a key that an attempt at an endpoint needs. `subject`: the beginning of an error message; `keyId`:
 * identifies the key.
 * @throws (or rejects with) GatewayError `provider_unavailable`
 */
export function toOutgoingKey(
  key: ProviderKey,
  endpoint: KeyedEndpoint,
  schemes: KeySchemes,
  subject = 'The key',
  keyId = `shared ${endpoint.provider.slug}`,
): OutgoingKey | Promise<OutgoingKey> {
  const { provider } = endpoint
  const { secrets } = key
  switch (key.kind) {
    case 'plain':
      return { text: key.apiKey, secrets, ...addressOf(endpoint, plainValues(provider), key.region) }
    case 'addressed':
      return { text: key.apiKey, secrets, ...addressOf(endpoint, key.values) }
    case 'aws-workspace':
      return {
        text: key.apiKey,
        secrets,
        scheme: 'x-api-key',
        headers: workspaceHeader(key.workspaceId),
        ...addressOf(endpoint, { region: key.awsRegion }),
      }
    case 'aws':
      return {
        text: null,
        secrets,
        sign: schemes.signer(key, { region: key.awsRegion, service: provider.awsService ?? 'bedrock' }),
        ...(key.workspaceId === null ? undefined : { headers: workspaceHeader(key.workspaceId) }),
        ...addressOf(endpoint, { region: key.awsRegion }),
      }
    case 'azure':
      return azureKey(key, endpoint, subject, keyId, schemes.failedResources)
    case 'vertex': {
      const { tokenUrl, egress } = provider
      if (tokenUrl === undefined)
        throw unusableKey(subject, 'is a service account, but the provider has no tokenUrl')
      const address = addressOf(endpoint, vertexValues(key))
      return whenReady(schemes.token(key, { tokenUrl, egress }), token => ({
        text: token,
        secrets: [...secrets, token],
        ...address,
      }))
    }
  }
}

/** Values of the row for keys that name nothing. */
function plainValues({ region }: Provider): PlaceholderValues {
  return region === undefined ? {} : { region }
}

function workspaceHeader(id: string): Readonly<Record<string, string>> {
  return { 'anthropic-workspace-id': id }
}

/** The base URL that belongs to the key; empty if the row's address is used. */
function addressOf(
  { provider, format }: KeyedEndpoint,
  values: PlaceholderValues,
  region: Region | null = null,
): Pick<OutgoingKey, 'baseUrl'> {
  const regionUrl = region === null || region === 'global' ? undefined : provider.regionUrls?.[region]
  if (regionUrl !== undefined) return { baseUrl: regionUrl }
  const url = baseUrlFor(provider, format)
  return url === null || placeholdersOf(url).length === 0
    ? {}
    : { baseUrl: fillPlaceholders(url, values, provider) }
}

function vertexValues({ projectId, location }: VertexKey): PlaceholderValues {
  return { host: vertexHost(location), project: projectId, location }
}

/** Multi-regions have their own hosts. */
function vertexHost(location: string): string {
  if (location === 'global') return 'aiplatform.googleapis.com'
  if (/^[a-z]+$/.test(location)) return `aiplatform.${location}.rep.googleapis.com`
  return `${location}-aiplatform.googleapis.com`
}

// Azure

/** Domains of the two kinds of resources. The name of the resource precedes them. */
const AZURE_DOMAINS = { openai: 'openai.azure.com', ai_foundry: 'services.ai.azure.com' } as const

/** The possible ends of deployment addresses. */
const CALL_PATHS = Object.values(API_OF_FORMAT).flatMap(({ deploymentPath }) => deploymentPath ?? [])

function azureKey(
  key: AzureKey,
  endpoint: KeyedEndpoint,
  subject: string,
  keyId: string,
  failed: FailedResources | undefined,
): OutgoingKey {
  const allTargets = azureTargets(key, endpoint.modelId)
  if (failed === undefined || allTargets.length < 2) return azureTarget(key, allTargets, endpoint, subject)
  const hosts = allTargets.map(hostOfTarget)
  const order = failed.order(keyId, hosts)
  const targets = allTargets.toSorted(
    (a, b) => order.indexOf(hostOfTarget(a)) - order.indexOf(hostOfTarget(b)),
  )
  const firstHost = order[0] ?? ''
  const target = azureTarget(key, targets, endpoint, subject)
  // A fixed address in the provider's row serves all resources, so a failure says nothing about one of them.
  if (target.baseUrl === undefined) return target
  const resources = { count: new Set(hosts).size, failed: () => failed.note(keyId, firstHost) }
  return { ...target, resources }
}

function azureTarget(
  key: AzureKey,
  targets: readonly (AzureDeployment | AzureResource)[],
  endpoint: KeyedEndpoint,
  subject: string,
): OutgoingKey {
  const { secrets } = key
  const rowUrl = baseUrlFor(endpoint.provider, endpoint.format)
  const isFixed = rowUrl !== null && placeholdersOf(rowUrl).length === 0
  const target = isFixed
    ? (targets.find(candidate => hostOfTarget(candidate) === hostOf(rowUrl)) ?? targets[0])
    : targets[0]
  if (target === undefined) throw unusableKey(subject, 'has no resource or deployment for this model')
  if ('endpointUrl' in target) {
    return {
      text: target.apiKey,
      secrets,
      upstreamModel: target.modelId,
      ...(isFixed ? undefined : { callUrl: deploymentUrl(target, endpoint, subject) }),
    }
  }
  return { text: target.apiKey, secrets, ...addressOf(endpoint, { host: hostOfTarget(target) }) }
}

function hostOfTarget(target: AzureDeployment | AzureResource): string {
  return 'endpointUrl' in target
    ? (hostOf(target.endpointUrl) ?? '')
    : `${target.resourceName.toLowerCase()}.${AZURE_DOMAINS[target.resourceType]}`
}

function hostOf(url: string): string | null {
  return URL.canParse(url) ? new URL(url).host : null
}

/**
 * The address of each call at a deployment: unchanged if it already names the call, otherwise with the path of the
 * format.
 */
function deploymentUrl({ endpointUrl }: AzureDeployment, endpoint: KeyedEndpoint, subject: string): string {
  const url = new URL(endpointUrl)
  if (!allowsHost(endpoint.provider, url.host)) {
    throw unusableKey(subject, "names a deployment on a host that is not one of the provider's hosts")
  }
  const path = API_OF_FORMAT[endpoint.format].deploymentPath
  if (path === null)
    throw unusableKey(
      subject,
      'names a deployment, but deployments cannot be called in the format of this endpoint',
    )
  const trimmedPath = url.pathname.replace(/\/+$/, '')
  const callPath = CALL_PATHS.find(end => trimmedPath.endsWith(end))
  if (callPath !== undefined && callPath !== path) {
    throw unusableKey(subject, `names a deployment at ${callPath}, but this model is called at ${path}`)
  }
  url.pathname = callPath === undefined ? `${trimmedPath}${path}` : trimmedPath
  return url.href
}

function unusableKey(subject: string, problem: string): GatewayError {
  return new GatewayError('provider_unavailable', `${subject} ${problem}`)
}
