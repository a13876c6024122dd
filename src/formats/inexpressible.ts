/** How every encoder refuses what its wire format has no form for. Pure. */
import { GatewayError } from '../errors.ts'

/** `path` names the field as the caller sent it, e.g. `input[2].content[0]`. */
export function inexpressible(path: string, why: string): GatewayError {
  return new GatewayError('unprocessable', `${path}: ${why}`)
}
