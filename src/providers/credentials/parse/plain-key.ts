/** Keys that are a single string, alone or in JSON with their region or host. Pure. */
import { REGIONS, type Region } from '../../../protocol/data-regions.ts'
import { API_KEY, API_KEY_EXPECTED, KeyFields, keyError, looksLikeJson, parseKeyJson } from './key-json.ts'

export interface PlainKey {
  readonly kind: 'plain'
  readonly apiKey: string
  readonly region: Region | null
  readonly secrets: readonly string[]
}

/** A key with a part of its provider's address that only its owner knows. */
export interface AddressedKey {
  readonly kind: 'addressed'
  readonly apiKey: string
  /** That part, by the name of its placeholder. */
  readonly values: Readonly<Record<string, string>>
  readonly region: null
  readonly secrets: readonly string[]
}

const ACCOUNT = /^[A-Za-z0-9_-]{1,128}$/
/** A host without a port; patterns of the provider's row restrict it. */
const HOST = /^(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?)+$/

/** @throws GatewayError `invalid_request` that begins with `key: ` */
export function parsePlainKey(text: string): PlainKey {
  if (looksLikeJson(text)) throw keyError('must be the plain key for this provider, not JSON')
  return plainKey(text)
}

/** A plain key, or JSON that also contains its region. @throws GatewayError `invalid_request` */
export function parseRegionalKey(text: string): PlainKey {
  if (!looksLikeJson(text)) return plainKey(text)
  const fields = new KeyFields(parseKeyJson(text)).only(['api_key', 'region'])
  const apiKey = fields.text('api_key', API_KEY, API_KEY_EXPECTED)
  const region = fields.optionalText('region', isRegion, 'us, europe or global')
  return { ...plainKey(apiKey), region: region !== null && isRegion(region) ? region : null }
}

/** JSON with the key and its account. A plain key is enough if the operator's row has the complete address. */
export function parseAccountKey(text: string): PlainKey | AddressedKey {
  return addressedKey(text, 'account_id', 'account', ACCOUNT, 'the id of an account')
}

/** JSON with the key and its host. A plain key is enough if the operator's row has the complete address. */
export function parseHostKey(text: string): PlainKey | AddressedKey {
  return addressedKey(text, 'host', 'host', HOST, 'a host name in lower case, without scheme, port or path')
}

function addressedKey(
  text: string,
  field: string,
  placeholder: string,
  pattern: RegExp,
  expected: string,
): PlainKey | AddressedKey {
  if (!looksLikeJson(text)) return plainKey(text)
  const fields = new KeyFields(parseKeyJson(text)).only(['api_key', field])
  const apiKey = fields.text('api_key', API_KEY, API_KEY_EXPECTED)
  const values = { [placeholder]: fields.text(field, pattern, expected) }
  return { kind: 'addressed', apiKey, values, region: null, secrets: [apiKey] }
}

/** @throws GatewayError `invalid_request` */
export function plainKey(text: string): PlainKey {
  if (!API_KEY.test(text)) throw keyError(`must be ${API_KEY_EXPECTED}`)
  return { kind: 'plain', apiKey: text, region: null, secrets: [text] }
}

function isRegion(text: string): text is Region {
  return (REGIONS as readonly string[]).includes(text)
}
