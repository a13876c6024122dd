/**
 * Notes that the gateway attaches to a request, or to an item of its input. Their names are symbols, so no client can
 * send them, no encoder writes them, and copies of the object keep them. Pure.
 */

/** Of a request over a WebSocket: the id of the response that it continues, as the client sent it. */
export const CONTINUES = Symbol('continues')

/** Of a request that wants a summary of the conversation, from a provider that can make one itself. */
export const COMPACTS = Symbol('compacts')

/** Of an item of the input: the provider's own summary, which nobody else can read. */
export const COMPACTED_BY = Symbol('compacted by')

interface CompactionWish {
  /** Input tokens from which on it is made; null: it is made now, and nothing else is asked. */
  readonly threshold: number | null
}

export interface CompactedBy {
  /** As `makerOf` names provider and credential. */
  readonly maker: string
  /** Display name of the provider. */
  readonly provider: string
}

/** The notes that a request may have. */
export interface NotedRequest {
  readonly [CONTINUES]?: string
  readonly [COMPACTS]?: CompactionWish
}

/** The note that an item may have. */
export interface NotedItem {
  readonly [COMPACTED_BY]?: CompactedBy
}
