/**
 * Whether the limits of the caller allow the request, and what is set aside for it. Comes after routing, because what
 * a request may cost depends on who may serve it. Not called for callers whom nothing limits.
 */

import type { Clock } from '../../clock.ts'
import type { Quota } from '../../limits/quota.ts'
import type { Exchange } from '../exchange.ts'
import { estimateRequest } from './estimate.ts'

/** @throws GatewayError of Quota.admit; the exchange leaves no usage record then. */
export async function admit(
  tools: { readonly quota: Quota; readonly clock: Clock },
  exchange: Exchange,
): Promise<void> {
  const { caller, prompt, candidates, marks } = exchange
  try {
    const reserved = tools.quota.admit(caller, estimateRequest(prompt, candidates))
    exchange.reservation = reserved instanceof Promise ? await reserved : reserved
  } catch (refused) {
    // Only admitted requests are accounted.
    exchange.accounted = true
    throw refused
  } finally {
    marks.admittedMs = tools.clock.monotonicMs()
  }
}
