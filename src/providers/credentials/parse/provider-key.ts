/**
 * Parses the provider key that an organization stores, in the formats of its provider, and creates the label that
 * people see. Pure. Errors name the documented field and never repeat the key.
 */

import type { Region } from '../../../protocol/data-regions.ts'
import type { KeyForm } from '../../../protocol/provider.ts'
import { keyFormOf } from '../../table.ts'
import { type AwsKey, type AwsWorkspaceKey, parseAwsKey, parseClaudeOnAwsKey } from './aws-key.ts'
import { type AzureKey, parseAzureKey } from './azure-key.ts'
import { keyError } from './key-json.ts'
import {
  type AddressedKey,
  type PlainKey,
  parseAccountKey,
  parseHostKey,
  parsePlainKey,
  parseRegionalKey,
} from './plain-key.ts'
import { parseVertexKey, type VertexKey } from './vertex-key.ts'

/**
 * A parsed key. In every kind `region` is the key's own value for `declared_region`, and `secrets` are the parts to
 * scrub from a provider's replies. Strings cannot be zeroed, so do not keep them longer than needed.
 */
export type ProviderKey = PlainKey | AddressedKey | AwsKey | AwsWorkspaceKey | AzureKey | VertexKey

/** Enough for a hundred deployments of Azure. */
const KEY_MAX_CHARS = 65_536

const READERS: Readonly<Record<KeyForm, (text: string) => ProviderKey>> = {
  plain: parsePlainKey,
  regional: parseRegionalKey,
  aws: parseAwsKey,
  'claude-on-aws': parseClaudeOnAwsKey,
  azure: parseAzureKey,
  vertex: parseVertexKey,
  account: parseAccountKey,
  host: parseHostKey,
}

/**
 * Parses a key in the forms of the provider with this slug.
 * @throws GatewayError `invalid_request` that begins with `key: `
 */
export function parseProviderKey(provider: string, text: string): ProviderKey {
  return parseKey(keyFormOf(provider), text)
}

/** @throws like parseProviderKey */
export function parseKey(form: KeyForm, text: string): ProviderKey {
  if (text.length > KEY_MAX_CHARS) throw keyError(`must have at most ${KEY_MAX_CHARS} characters`)
  return READERS[form](text)
}

/** The parts of a key that are stored unencrypted. */
export interface KeyDescription {
  readonly label: string
  readonly region: Region | null
}

/** Prefixes that name the provider and are not secret. Any other beginning may be part of the secret. */
const KNOWN_PREFIX = /^(?:(?:sk|rk|gsk|xai|csk|pplx|nvapi|fw|hf|r8|tgp|key)[-_]|AIza|AKIA|ABSK)/
/** In a shorter key, four characters would reveal too much. */
const LABEL_MIN_CHARS = 16
const LABEL_CHARACTERS = 4
const HIDDEN_LABEL = '****'

/**
 * Creates the label for people, such as `sk-...AbCd`: a known prefix, three dots, the last four characters; `****` for
 * a text shorter than 16. A key with several parts is labelled by the part that identifies it: the access key id of
 * AWS, the key id of a service account. Several keys are labelled by the first one and the number of others.
 */
export function maskKey(key: ProviderKey): string {
  switch (key.kind) {
    case 'plain':
    case 'addressed':
    case 'aws-workspace':
      return maskText(key.apiKey)
    case 'aws':
      return maskText(key.accessKeyId)
    case 'vertex':
      return maskText(key.privateKeyId ?? '')
    case 'azure': {
      const [first = '', ...otherKeys] = key.secrets
      return otherKeys.length === 0 ? maskText(first) : `${maskText(first)} +${otherKeys.length}`
    }
  }
}

function maskText(text: string): string {
  if (text.length < LABEL_MIN_CHARS) return HIDDEN_LABEL
  return `${KNOWN_PREFIX.exec(text)?.[0] ?? ''}...${text.slice(-LABEL_CHARACTERS)}`
}
