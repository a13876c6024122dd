/** The request header with a provider's key. Keys travel in headers only, never in URLs. Pure. */
import { GatewayError } from '../../base/errors.ts'
import type { AuthScheme } from '../../protocol/provider.ts'

const PRINTABLE = /^[\x21-\x7e]+$/

const bearer = (key: string): Record<string, string> => ({ authorization: `Bearer ${key}` })

const HEADERS_OF_SCHEME: Readonly<Record<AuthScheme, (key: string) => Record<string, string>>> = {
  bearer,
  authorization: key => ({ authorization: key }),
  'x-api-key': key => ({ 'x-api-key': key }),
  'api-key': key => ({ 'api-key': key }),
  'x-goog-api-key': key => ({ 'x-goog-api-key': key }),
  // A key that needs no signature is a Bedrock API key.
  'aws-sigv4': bearer,
  // The key of the attempt is the token.
  'google-service-account': bearer,
  none: () => ({}),
}

/**
 * The headers of an authentication scheme for one key.
 * @throws GatewayError `provider_unavailable`, without the key, if the key is missing or not allowed in a header.
 */
export function authHeaders(scheme: AuthScheme, key: string | null): Record<string, string> {
  if (scheme === 'none') return HEADERS_OF_SCHEME.none('')
  if (key === null) {
    throw new GatewayError(
      'provider_unavailable',
      'No key is configured for this provider (apiKey in its row under providers)',
    )
  }
  if (!PRINTABLE.test(key)) {
    throw new GatewayError(
      'provider_unavailable',
      'The key configured for this provider has characters that cannot be sent in a header (apiKey in its row under providers)',
    )
  }
  return HEADERS_OF_SCHEME[scheme](key)
}
