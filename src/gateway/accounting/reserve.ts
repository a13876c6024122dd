/**
 * Admission of an exchange by the limits of its caller. Comes after routing, because what a request may cost depends
 * on who may serve it.
 */
import type { Quota } from '../../limits/quota.ts'
import type { Exchange } from '../exchange.ts'
import { estimateRequest } from './estimate.ts'

/**
 * Reserves what the request may come to. `calls`: how often a model may be asked for one answer.
 * @throws GatewayError of Quota.admit; the exchange leaves no usage record then.
 */
export async function reserve(quota: Quota, exchange: Exchange, calls: number): Promise<void> {
  const { caller, prompt, candidates } = exchange
  try {
    const reserved = quota.admit(caller, estimateRequest(prompt, candidates, calls))
    exchange.reservation = reserved instanceof Promise ? await reserved : reserved
  } catch (refused) {
    exchange.overLimit = true
    throw refused
  }
}
