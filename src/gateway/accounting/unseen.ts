/**
 * Thoughts that nobody saw: a model may think for minutes before its first word, and its provider bills what it has
 * thought until the connection closes. If the caller leaves meanwhile, nobody reports the number of tokens, so it is
 * estimated from the time. Pure.
 */
import type { ResponsesRequest } from '../../protocol/request.ts'
import { honours } from '../../providers/parameters.ts'
import type { Endpoint } from '../../providers/provider.ts'
import { isThoughtless } from './estimate.ts'

/** Tokens per second where the speed of an endpoint is not known yet: that of a usual model that thinks. */
export const USUAL_TOKENS_PER_SECOND = 50

/** A model call that ended before its first content. */
export interface SilentCall {
  readonly endpoint: Endpoint
  readonly request: ResponsesRequest
  /** True if the endpoint is known to stream everything that it bills, so that its silence means that it did not think. */
  readonly isVisible: boolean
  /** Milliseconds from the request to the end of the call. */
  readonly silentMs: number
  /** The endpoint's usual speed; null if it is not known. */
  readonly tokensPerSecond: number | null
  /** The maximum number of tokens that the model may write, or that the caller's limits have reserved. */
  readonly mostTokens: number
}

/** The number of tokens that the model may have thought; 0 if it cannot think. */
export function unseenThoughts(call: SilentCall): number {
  if (call.isVisible || !mayThink(call)) return 0
  const tokens = Math.ceil((call.silentMs / 1_000) * (call.tokensPerSecond ?? USUAL_TOKENS_PER_SECOND))
  return Math.max(0, Math.min(tokens, call.mostTokens))
}

function mayThink({ endpoint, request: { reasoning } }: SilentCall): boolean {
  if (endpoint.thinks === false || !honours(endpoint, 'reasoning')) return false
  return reasoning == null || !isThoughtless(reasoning)
}
