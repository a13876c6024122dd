/**
 * What went wrong below HTTP, told in words of ours. The text of the real error may name hosts, addresses and bytes
 * of the provider, so it stays in `cause`. Pure.
 */
import { GatewayError } from '../errors.ts'

const LOST = 'The connection to the provider was lost'
const UNREACHABLE = 'The provider could not be reached'

const BY_CODE: ReadonlyMap<string, string> = new Map([
  ['UND_ERR_HEADERS_OVERFLOW', 'The provider sent headers that are too large'],
  ['UND_ERR_RES_EXCEEDED_MAX_SIZE', 'The provider sent a reply that is too large'],
  ['UND_ERR_RES_CONTENT_LENGTH_MISMATCH', 'The provider sent a reply of the wrong length'],
])

/** @param sent whether the request had been written to a connection */
export function transportError(error: unknown, sent: boolean): GatewayError {
  if (error instanceof GatewayError) return error
  const code = errorCode(error)
  if (code === 'ETIMEDOUT') return timeout('The provider could not be reached in time', error)
  const known = BY_CODE.get(code)
  if (known !== undefined) return unavailable(known, error)
  if (error instanceof Error && error.name === 'HTTPParserError') {
    return unavailable('The provider sent a reply that is not valid HTTP', error)
  }
  return unavailable(sent ? LOST : UNREACHABLE, error)
}

export function timeout(message: string, cause?: unknown): GatewayError {
  return new GatewayError('upstream_timeout', message, cause === undefined ? {} : { cause })
}

export function unavailable(message: string, cause?: unknown): GatewayError {
  return new GatewayError('provider_unavailable', message, cause === undefined ? {} : { cause })
}

function errorCode(error: unknown): string {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined
  return typeof code === 'string' ? code : ''
}
