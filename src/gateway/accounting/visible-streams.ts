/**
 * Visible streams: endpoints known to stream everything that they bill, so that a stream under a limit can reserve its
 * cost piece by piece. The caller's own request is no proof, and streams shown to other callers are weak evidence: only
 * one stream of a key at a time may rely on it. One instance per thread. Pure state.
 */

import type { StreamTrust } from '../../exchange/exchange.ts'
import { HeldShare } from '../../fairness/held-share.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Endpoint } from '../../providers/provider.ts'
import { isThoughtless, type Said } from './estimate.ts'

/** Replies in a row that an endpoint has to show. */
const REPLIES = 20
/** They have to come from so many keys: one key alone could choose what its replies show. */
const KEYS = 2
/** Keys that are kept of one endpoint and effort. */
const KEYS_MAX = 8
/** Digits of a key's hash that are kept. */
const HASH_CHARS = 8
const QUARTERS = 4
/** A shorter text comes in so few pieces that they say nothing. */
const TEXT_MIN_TOKENS = 64
/** Of a text, in one piece. */
const PIECE_SHARE = 1 / 4
/** The provider's count may be this many times our estimate of the text, and so much more for templates of calls. */
const COUNT_RATIO = 2
const TEMPLATE_TOKENS = 64

/** The replies of one endpoint to requests of one effort. */
interface Shown {
  /** Good replies since the last other one. */
  good: number
  /** There was another one: the endpoint's row is not believed until enough good ones have followed. */
  hasHidden: boolean
  /** Short hash of a key, and the number of its last good reply; the oldest first. */
  readonly keys: Map<string, number>
}

/** A complete streamed reply, as the attempt saw it. */
export interface ShownReply extends Said {
  /** The gateway ended it. */
  readonly isCut: boolean
  /** Its reader was slow once. */
  readonly wasPaused: boolean
  /** Most of its output that came at once, in quarters of tokens. */
  readonly pieceQuarters: number
}

export class VisibleStreams {
  /** Bounded by the catalogue: what an endpoint has shown goes with it. By effort. */
  readonly #shown = new WeakMap<Endpoint, Map<string, Shown>>()
  /** Keys whose streams rely on what was shown. */
  readonly #relying = new HeldShare({ total: Number.POSITIVE_INFINITY, perKey: 1 })

  /** True if a stream of this endpoint may reserve piece by piece, because its row or its replies say so. */
  isVisible(endpoint: Endpoint, request: Pick<ResponsesRequest, 'reasoning'>): boolean {
    return this.isPromised(endpoint, request) || this.isShown(endpoint, request)
  }

  /** The endpoints on which an exchange of this key may rely; `leave` when it ends. */
  trustOf(keyHash: string): StreamTrust {
    return new KeyTrust(this, keyHash, this.#relying)
  }

  /** Its row says so, and it has shown nothing else. */
  isPromised(endpoint: Endpoint, { reasoning }: Pick<ResponsesRequest, 'reasoning'>): boolean {
    return (
      endpoint.thinks === false && this.#shown.get(endpoint)?.get(effortOf(reasoning))?.hasHidden !== true
    )
  }

  /** It has shown it. */
  isShown(endpoint: Endpoint, { reasoning }: Pick<ResponsesRequest, 'reasoning'>): boolean {
    const shown = this.#shown.get(endpoint)?.get(effortOf(reasoning))
    if (shown === undefined || shown.good < REPLIES) return false
    let keys = 0
    for (const at of shown.keys.values()) if (at > shown.good - REPLIES) keys++
    return keys >= KEYS || endpoint.thinks === false
  }

  /** Notes a whole streamed reply to a request on a key of the service. */
  note(
    endpoint: Endpoint,
    { reasoning }: Pick<ResponsesRequest, 'reasoning'>,
    keyHash: string,
    reply: ShownReply,
  ): void {
    const { usage, isCut, outputQuarters, pieceQuarters, wasPaused } = reply
    if (usage === null || isCut) return
    const isHidden = hidesTokens(reply)
    const isLong = outputQuarters >= TEXT_MIN_TOKENS * QUARTERS
    // After a pause for a slow reader, what had waited comes at once.
    if (!isHidden && (!isLong || wasPaused)) return
    const shown = this.#of(endpoint, effortOf(reasoning))
    if (isHidden || pieceQuarters > outputQuarters * PIECE_SHARE) {
      shown.good = 0
      shown.hasHidden = true
      shown.keys.clear()
      return
    }
    const key = keyHash.slice(0, HASH_CHARS)
    shown.good++
    shown.keys.delete(key)
    shown.keys.set(key, shown.good)
    if (shown.keys.size <= KEYS_MAX) return
    const [oldest] = shown.keys.keys()
    if (oldest !== undefined) shown.keys.delete(oldest)
  }

  #of(endpoint: Endpoint, effort: string): Shown {
    let efforts = this.#shown.get(endpoint)
    if (efforts === undefined) {
      efforts = new Map()
      this.#shown.set(endpoint, efforts)
    }
    let shown = efforts.get(effort)
    if (shown === undefined) {
      shown = { good: 0, hasHidden: false, keys: new Map() }
      efforts.set(effort, shown)
    }
    return shown
  }
}

/**
 * The endpoints on which one exchange may rely. An endpoint may have shown short replies to easy prompts, and think
 * about others: two keys can teach it, and a third one would have many streams that are reserved for a small part.
 */
class KeyTrust implements StreamTrust {
  readonly #streams: VisibleStreams
  readonly #keyHash: string
  readonly #relying: HeldShare
  /** Null: nobody has asked yet. */
  #mayRely: boolean | null = null

  constructor(streams: VisibleStreams, keyHash: string, relying: HeldShare) {
    this.#streams = streams
    this.#keyHash = keyHash
    this.#relying = relying
  }

  isVisible(endpoint: Endpoint, request: Pick<ResponsesRequest, 'reasoning'>): boolean {
    if (this.#streams.isPromised(endpoint, request)) return true
    if (!this.#streams.isShown(endpoint, request)) return false
    this.#mayRely ??= this.#relying.take(this.#keyHash, 1) === 'taken'
    return this.#mayRely
  }

  leave(): void {
    if (this.#mayRely === true) this.#relying.give(this.#keyHash, 1)
    this.#mayRely = false
  }
}

/** True if the provider counts more than anybody saw. */
function hidesTokens({ usage, isThoughtSeen, outputQuarters }: ShownReply): boolean {
  if (usage === null) return false
  if (usage.reasoningTokens > 0 && !isThoughtSeen) return true
  return usage.outputTokens > (outputQuarters / QUARTERS) * COUNT_RATIO + TEMPLATE_TOKENS
}

/** One of about ten words. */
function effortOf(reasoning: ResponsesRequest['reasoning']): string {
  if (reasoning == null) return 'unsaid'
  if (isThoughtless(reasoning)) return 'none'
  if (reasoning.max_tokens != null) return 'tokens'
  return reasoning.effort ?? (reasoning.enabled === true ? 'enabled' : 'unsaid')
}
