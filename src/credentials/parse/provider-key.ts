/**
 * A provider key that an organization brings: what forms it has at which provider, what the upstream needs of it, and
 * the label by which people know it. Pure. A refusal names the documented field and never repeats the key.
 */
import type { DeclaredRegion } from '../../storage/store.ts'
import { type AzureKey, parseAzureKey } from './azure-key.ts'
import { KeyFields, keyRefusal, looksLikeJson, parseKeyJson } from './key-json.ts'
import { type PlainKey, parsePlainKey, parseRegionalKey, plainKey } from './plain-key.ts'
import { parseVertexKey, type VertexKey } from './vertex-key.ts'

export interface AwsKey {
  readonly kind: 'aws'
  readonly accessKeyId: string
  readonly secretAccessKey: string
  /** Where the key is used; part of the provider's host name. */
  readonly awsRegion: string
  readonly region: null
  readonly secrets: readonly string[]
}

/**
 * Of every kind: `region` is what the key itself declares for `declared_region`, `secrets` all that has to be taken
 * out of what a provider answers. Strings, so what was read cannot be wiped: keep it no longer than it is needed.
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
 * Reads a key as the provider of this slug has them.
 * @throws GatewayError `invalid_request` that begins with `key: `
 */
export function parseProviderKey(provider: string, text: string): ProviderKey {
  if (text.length > KEY_MAX_CHARS) throw keyRefusal(`must have at most ${KEY_MAX_CHARS} characters`)
  return (READERS.get(provider) ?? parsePlainKey)(text)
}

/** What is kept of a key in clear. @throws as parseProviderKey */
export function readKey(
  provider: string,
  text: string,
): { readonly label: string; readonly region: DeclaredRegion | null } {
  const key = parseProviderKey(provider, text)
  return { label: maskKey(key), region: key.region }
}

/** Beginnings that say whose key it is and nothing of the key. Any other beginning may be part of the secret. */
const KNOWN_PREFIX = /^(?:(?:sk|rk|gsk|xai|csk|pplx|nvapi|fw|hf|r8|tgp|key)[-_]|AIza|AKIA|ABSK)/
/** Shorter ones would lose too much of themselves by four characters. */
const LABEL_MIN_CHARS = 16
const LABEL_CHARACTERS = 4
const HIDDEN = '****'

/**
 * The label for people, as `sk-...AbCd`: a known prefix, three dots, the last four characters; `****` for anything
 * shorter than 16. Of a key with several parts it is the part that names it: the access key id of AWS, the key id of
 * a service account; of several keys the first, and how many more there are.
 */
export function maskKey(key: ProviderKey): string {
  switch (key.kind) {
    case 'plain':
      return masked(key.apiKey)
    case 'aws':
      return masked(key.accessKeyId)
    case 'vertex':
      return masked(key.privateKeyId ?? '')
    case 'azure': {
      const [first = '', ...others] = key.secrets
      return others.length === 0 ? masked(first) : `${masked(first)} +${others.length}`
    }
  }
}

function masked(text: string): string {
  if (text.length < LABEL_MIN_CHARS) return HIDDEN
  return `${KNOWN_PREFIX.exec(text)?.[0] ?? ''}...${text.slice(-LABEL_CHARACTERS)}`
}

/** Of a user, whose keys begin with AKIA; those of sessions (ASIA) need a token and end within hours. */
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
