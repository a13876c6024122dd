/**
 * Tokens that nobody saw: a model may think for minutes before its first word, a whole reply shows nothing before its
 * end, and the provider bills what the model has written until the connection closes. If the caller leaves meanwhile,
 * nobody reports the number of tokens, so it is estimated from the time. Pure.
 */

import type { Endpoint } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { mayThink } from './estimate.ts'

/** Tokens per second while the speed of an endpoint is unknown: the usual speed of a model that thinks. */
export const USUAL_TOKENS_PER_SECOND = 50

/** A model call that ended before its first content. */
export interface SilentCall {
  readonly endpoint: Endpoint
  readonly request: ResponsesRequest
  /** True if the reply is not streamed, so that its silence says nothing. */
  readonly isWhole: boolean
  /** True if the endpoint is known to stream everything that it bills, so a silent stream has written nothing. */
  readonly isVisible: boolean
  /** Milliseconds from the request to the end of the call. */
  readonly silentMs: number
  /** The endpoint's usual speed; null if it is not known. */
  readonly tokensPerSecond: number | null
  /** The maximum number of tokens that the model may write, or that the caller's limits have reserved. */
  readonly mostTokens: number
}

/** The number of tokens that the model may have written; 0 for the stream of a model that cannot think. */
export function unseenTokens(call: SilentCall): number {
  if (!call.isWhole && (call.isVisible || !mayThink(call.request, call.endpoint))) return 0
  const tokens = Math.ceil((call.silentMs / 1_000) * (call.tokensPerSecond ?? USUAL_TOKENS_PER_SECOND))
  return Math.max(0, Math.min(tokens, call.mostTokens))
}
