/**
 * Parses the provider key that an organization brings, by the forms of its provider, and makes the label that people
 * see. Pure. Errors name the documented field and never repeat the key.
 */
import type { DeclaredRegion } from '../../storage/store.ts'
import { type AzureKey, parseAzureKey } from './azure-key.ts'
import { API_KEY, API_KEY_EXPECTED, KeyFields, keyError, looksLikeJson, parseKeyJson } from './key-json.ts'
import { parseVertexKey, type VertexKey } from './vertex-key.ts'

export interface AwsKey {
  readonly kind: 'aws'
  readonly accessKeyId: string
  readonly secretAccessKey: string
  /** AWS region of the key; part of the provider's host name. */
  readonly awsRegion: string
  readonly region: null
  readonly secrets: readonly string[]
}

/**
 * A parsed key. In every kind `region` is the key's own value for `declared_region`, and `secrets` are the parts to
 * scrub from a provider's replies. Strings cannot be zeroed: keep them no longer than needed.
 */
export type ProviderKey = PlainKey | AwsKey | AzureKey | VertexKey

/** Long enough for a hundred deployments of Azure. */
const KEY_MAX_CHARS = 65_536

const READERS = new Map<string, (text: string) => ProviderKey>([
  ['amazon-bedrock', parseAwsKey],
  ['amazon-bedrock/claude-on-aws', parseAwsKey],
  ['azure', parseAzureKey],
  ['google-vertex', parseVertexKey],
  ['openai', parseRegionalKey],
  ['fireworks', parseRegionalKey],
])

/**
 * Parses a key by the forms of the provider with this slug.
 * @throws GatewayError `invalid_request` that begins with `key: `
 */
export function parseProviderKey(provider: string, text: string): ProviderKey {
  if (text.length > KEY_MAX_CHARS) throw keyError(`must have at most ${KEY_MAX_CHARS} characters`)
  return (READERS.get(provider) ?? parsePlainKey)(text)
}

/** Reads the parts of a key that are stored unencrypted. @throws as parseProviderKey */
export function describeKey(
  provider: string,
  text: string,
): { readonly label: string; readonly region: DeclaredRegion | null } {
  const key = parseProviderKey(provider, text)
  return { label: maskKey(key), region: key.region }
}

/** Prefixes that name the provider and are no secret. Any other beginning may be part of the secret. */
const KNOWN_PREFIX = /^(?:(?:sk|rk|gsk|xai|csk|pplx|nvapi|fw|hf|r8|tgp|key)[-_]|AIza|AKIA|ABSK)/
/** Four characters would reveal too much of a shorter key. */
const LABEL_MIN_CHARS = 16
const LABEL_CHARACTERS = 4
const HIDDEN = '****'

/**
 * Makes the label for people, as `sk-...AbCd`: a known prefix, three dots, the last four characters; `****` for a text
 * shorter than 16. A key with several parts is labelled by the part that names it: the access key id of AWS, the key
 * id of a service account; several keys by the first one and the number of others.
 */
export function maskKey(key: ProviderKey): string {
  switch (key.kind) {
    case 'plain':
      return maskText(key.apiKey)
    case 'aws':
      return maskText(key.accessKeyId)
    case 'vertex':
      return maskText(key.privateKeyId ?? '')
    case 'azure': {
      const [first = '', ...others] = key.secrets
      return others.length === 0 ? maskText(first) : `${maskText(first)} +${others.length}`
    }
  }
}

function maskText(text: string): string {
  if (text.length < LABEL_MIN_CHARS) return HIDDEN
  return `${KNOWN_PREFIX.exec(text)?.[0] ?? ''}...${text.slice(-LABEL_CHARACTERS)}`
}

/** A user's access key (AKIA). Session keys (ASIA) need a token and expire within hours. */
const ACCESS_KEY_ID = /^AKIA[A-Z0-9]{12,124}$/
const SECRET_ACCESS_KEY = /^[A-Za-z0-9/+=]{16,128}$/
const AWS_REGION = /^[a-z]{2,3}(?:-[a-z]{2,12}){1,2}-\d{1,2}$/

/** An API key of Bedrock, or the access key of a user as JSON. */
function parseAwsKey(text: string): PlainKey | AwsKey {
  if (!looksLikeJson(text)) return plainKey(text)
  const fields = new KeyFields(parseKeyJson(text)).only(['accessKeyId', 'secretAccessKey', 'region'])
  const secretAccessKey = fields.text('secretAccessKey', SECRET_ACCESS_KEY, 'a secret access key')
  const accessKeyId = fields.text('accessKeyId', ACCESS_KEY_ID, 'the id of an access key of a user (AKIA…)')
  return {
    kind: 'aws',
    accessKeyId,
    secretAccessKey,
    awsRegion: fields.text('region', AWS_REGION, 'a region such as us-east-1'),
    region: null,
    secrets: [secretAccessKey, accessKeyId],
  }
}

export interface PlainKey {
  readonly kind: 'plain'
  readonly apiKey: string
  readonly region: DeclaredRegion | null
  readonly secrets: readonly string[]
}

const REGIONS: readonly string[] = ['us', 'europe', 'global'] satisfies DeclaredRegion[]

/** @throws GatewayError `invalid_request` that begins with `key: ` */
export function parsePlainKey(text: string): PlainKey {
  if (looksLikeJson(text)) throw keyError('must be the plain key for this provider, not JSON')
  return plainKey(text)
}

/** A plain key, or JSON that names its region too. @throws GatewayError `invalid_request` */
export function parseRegionalKey(text: string): PlainKey {
  if (!looksLikeJson(text)) return plainKey(text)
  const fields = new KeyFields(parseKeyJson(text)).only(['api_key', 'region'])
  const apiKey = fields.text('api_key', API_KEY, API_KEY_EXPECTED)
  const region = fields.optionalText('region', isRegion, 'us, europe or global')
  return { ...plainKey(apiKey), region: region !== null && isRegion(region) ? region : null }
}

/** @throws GatewayError `invalid_request` */
export function plainKey(text: string): PlainKey {
  if (!API_KEY.test(text)) throw keyError(`must be ${API_KEY_EXPECTED}`)
  return { kind: 'plain', apiKey: text, region: null, secrets: [text] }
}

function isRegion(text: string): text is DeclaredRegion {
  return REGIONS.includes(text)
}
