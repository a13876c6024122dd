/**
 * Notes that the gateway attaches to a request, or to an item of its input. Their names are symbols, so no client can
 * send them, no encoder writes them, and copies of the object keep them. Pure.
 */

/** For a request over a WebSocket: the id of the response that it continues, as sent by the client. */
export const CONTINUES = Symbol('continues')

/** For a request that wants a summary of the conversation from a provider that can create one itself. */
export const COMPACTS = Symbol('compacts')

/** For an input item: the provider's own summary, which only that provider can read. */
export const COMPACTED_BY = Symbol('compacted by')

interface CompactionRequest {
  /** Input tokens from which a summary is created; null: it is created now, and nothing else is requested. */
  readonly threshold: number | null
}

export interface CompactedBy {
  /** The name of provider and credential, made by `makerOf`. */
  readonly maker: string
  /** Display name of the provider. */
  readonly provider: string
}

/** The notes that a request may have. */
export interface NotedRequest {
  readonly [CONTINUES]?: string
  readonly [COMPACTS]?: CompactionRequest
}

/** The note that an item may have. */
export interface NotedItem {
  readonly [COMPACTED_BY]?: CompactedBy
}
