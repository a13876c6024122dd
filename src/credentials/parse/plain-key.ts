/** Keys that are one string, alone or with the region in which they are valid. Pure. */
import type { DeclaredRegion } from '../../storage/store.ts'
import { KeyFields, keyError, looksLikeJson, parseKeyJson } from './key-json.ts'

export interface PlainKey {
  readonly kind: 'plain'
  readonly apiKey: string
  readonly region: DeclaredRegion | null
  readonly secrets: readonly string[]
}

/** The characters that a header can carry; no provider's key is nearly this long. */
export const API_KEY = /^[\x21-\x7e]{1,4096}$/
export const API_KEY_EXPECTED = 'an API key of 1 to 4096 printable ASCII characters without spaces'
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
