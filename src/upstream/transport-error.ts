/**
 * What went wrong on the way to a provider, told in words of ours. The text of the real error may name hosts, addresses
 * and bytes of the provider, so it stays in `cause`. Pure.
 */
import { GatewayError } from '../errors.ts'

const LOST = 'The connection to the provider was lost'
const UNREACHABLE = 'The provider could not be reached'

/** @param sent whether the request had been written to a connection */
export function transportError(error: unknown, sent: boolean): GatewayError {
  if (error instanceof GatewayError) return error
  if (isTimedOut(error)) return timeout('The provider could not be reached in time', error)
  return unavailable(sent ? LOST : UNREACHABLE, error)
}

export function timeout(message: string, cause?: unknown): GatewayError {
  return new GatewayError('upstream_timeout', message, cause === undefined ? {} : { cause })
}

export function unavailable(message: string, cause?: unknown): GatewayError {
  return new GatewayError('provider_unavailable', message, cause === undefined ? {} : { cause })
}

function isTimedOut(error: unknown): boolean {
  return error instanceof Error && Reflect.get(error, 'code') === 'ETIMEDOUT'
}
