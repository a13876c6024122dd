/**
 * Azure keys: a JSON array of resources, each with a key for all its models, and of deployments, each with a key and an
 * address for one model. Pure.
 */
import { isIP } from 'node:net'
import { API_KEY, API_KEY_EXPECTED, KeyFields, keyError, parseKeyJson } from './key-json.ts'

export interface AzureResource {
  readonly apiKey: string
  /** First label of the resource's host name. */
  readonly resourceName: string
  readonly resourceType: 'ai_foundry' | 'openai'
}

export interface AzureDeployment {
  readonly apiKey: string
  /** The catalogue's model that the deployment serves. */
  readonly modelSlug: string
  /**
   * HTTPS with a public name. The name is not resolved here: the transport must refuse private addresses, as for every
   * address from a caller.
   */
  readonly endpointUrl: string
  /** The deployment's own name for the model. */
  readonly modelId: string
}

export interface AzureKey {
  readonly kind: 'azure'
  readonly resources: readonly AzureResource[]
  readonly deployments: readonly AzureDeployment[]
  readonly region: null
  readonly secrets: readonly string[]
}

const ELEMENTS_MAX = 100
const URL_MAX_CHARS = 2048
const RESOURCE_FIELDS = ['api_key', 'resource_name', 'resource_type']
const DEPLOYMENT_FIELDS = ['model_slug', 'endpoint_url', 'api_key', 'model_id']
const RESOURCE_NAME = /^[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?$/
const MODEL_SLUG = /^(?=.{1,256}$)~?[A-Za-z0-9][\w.:-]*(?:\/[A-Za-z0-9][\w.:-]*)+$/
/** Safe as a part of a path. */
const MODEL_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/
/** Last labels of names outside public DNS. */
const LOCAL_DOMAINS = new Set([
  ...['localhost', 'local', 'localdomain', 'internal', 'intranet', 'private', 'corp', 'home', 'lan'],
  ...['test', 'example', 'invalid', 'onion', 'alt', 'arpa'],
])

/** @throws GatewayError `invalid_request` that begins with `key: ` */
export function parseAzureKey(text: string): AzureKey {
  const value = parseKeyJson(text)
  if (!Array.isArray(value) || value.length === 0 || value.length > ELEMENTS_MAX) {
    throw keyError(`must be a JSON array of 1 to ${ELEMENTS_MAX} resources and deployments`)
  }
  const resources: AzureResource[] = []
  const deployments: AzureDeployment[] = []
  for (const [index, element] of value.entries()) {
    const fields = new KeyFields(element, `[${index}].`)
    if (DEPLOYMENT_FIELDS.some(name => name !== 'api_key' && fields.has(name))) {
      deployments.push(readDeployment(fields.only(DEPLOYMENT_FIELDS)))
    } else resources.push(readResource(fields.only(RESOURCE_FIELDS)))
  }
  if (new Set(deployments.map(({ modelSlug }) => modelSlug)).size < deployments.length) {
    throw keyError('must not have two deployments with the same model_slug')
  }
  const secrets = [...new Set([...deployments, ...resources].map(({ apiKey }) => apiKey))]
  return { kind: 'azure', resources, deployments, region: null, secrets }
}

/**
 * Selects the targets for a model, in the order in which they are tried: only its own deployment, or otherwise every
 * resource.
 */
export function azureTargets(key: AzureKey, modelId: string): readonly (AzureDeployment | AzureResource)[] {
  const ownDeployments = key.deployments.filter(({ modelSlug }) => modelSlug === modelId)
  return ownDeployments.length > 0 ? ownDeployments : key.resources
}

function readResource(fields: KeyFields): AzureResource {
  const type = fields.text(
    'resource_type',
    value => value === 'ai_foundry' || value === 'openai',
    'ai_foundry or openai',
  )
  return {
    apiKey: fields.text('api_key', API_KEY, API_KEY_EXPECTED),
    resourceName: fields.text('resource_name', RESOURCE_NAME, 'the name of a resource, without a domain'),
    resourceType: type === 'openai' ? 'openai' : 'ai_foundry',
  }
}

function readDeployment(fields: KeyFields): AzureDeployment {
  return {
    apiKey: fields.text('api_key', API_KEY, API_KEY_EXPECTED),
    modelSlug: fields.text('model_slug', MODEL_SLUG, 'a model slug of the form vendor/model'),
    endpointUrl: new URL(
      fields.text(
        'endpoint_url',
        isPublicHttps,
        'an https URL with a public host name, without user or port, and with no query parameter other than api-version',
      ),
    ).href,
    modelId: fields.text('model_id', MODEL_ID, 'the name of a deployed model'),
  }
}

function isPublicHttps(text: string): boolean {
  // Checked before parsing: the URL parser drops tabs, converts backslashes and accepts an empty user.
  if (text.length > URL_MAX_CHARS || !/^https:\/\/[^\s\\@/?#]+(?:[/?][!-~]*)?$/i.test(text)) return false
  if (!URL.canParse(text)) return false
  const { hostname, port, hash, searchParams, username, password } = new URL(text)
  if (port !== '' || hash !== '' || text.includes('#') || username !== '' || password !== '') return false
  // Other parameters may contain keys, which do not belong in URLs.
  if ([...searchParams.keys()].some(name => name !== 'api-version')) return false
  return isPublicName(hostname)
}

function isPublicName(hostname: string): boolean {
  if (isIP(hostname) !== 0 || hostname.startsWith('[')) return false
  const labels = hostname.split('.')
  const topLabel = labels.at(-1) ?? ''
  return labels.length >= 2 && labels.every(label => label !== '') && !LOCAL_DOMAINS.has(topLabel)
}
