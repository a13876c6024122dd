/** The header that carries a provider's key. Keys travel in headers only, never in URLs. Pure. */
import { GatewayError } from '../errors.ts'
import type { AuthScheme } from '../providers/provider.ts'

const PRINTABLE = /^[\x21-\x7e]+$/

const HEADERS: Readonly<Record<AuthScheme, (key: string) => Record<string, string>>> = {
  bearer: key => ({ authorization: `Bearer ${key}` }),
  'x-api-key': key => ({ 'x-api-key': key }),
  'x-goog-api-key': key => ({ 'x-goog-api-key': key }),
  none: () => ({}),
}

/**
 * Headers of a scheme for one key.
 * @throws GatewayError `provider_unavailable`, without echoing the key, when it is missing or has bytes that no
 * header may carry.
 */
export function authHeaders(scheme: AuthScheme, key: string | null): Record<string, string> {
  if (scheme === 'none') return HEADERS.none('')
  if (key === null) {
    throw new GatewayError('provider_unavailable', 'No key is configured for this provider')
  }
  if (!PRINTABLE.test(key)) {
    throw new GatewayError('provider_unavailable', 'The key configured for this provider cannot be sent')
  }
  return HEADERS[scheme](key)
}
