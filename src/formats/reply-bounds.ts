/** How much one reply may hold: a loop in a model, or a hostile provider, must not become a loop of ours. Pure. */
import { GatewayError } from '../errors.ts'

/** Items of one reply, and parts of all its messages; the longest replies seen have some hundreds. */
export const ITEMS_MAX = 4_096

/** Passes on the number of things so far when one more is allowed. @throws GatewayError `provider_unavailable`. */
export function oneMore(count: number, things: string): number {
  if (count < ITEMS_MAX) return count
  throw new GatewayError('provider_unavailable', `The provider sent too many ${things}`)
}
