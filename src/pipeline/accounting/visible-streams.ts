/**
 * Visible streams: endpoints known to stream everything that they bill, so that a stream under a limit can reserve its
 * cost piece by piece. The caller's own request is no proof, and streams shown to other callers are weak evidence: only
 * one stream of a key at a time may rely on it. One instance per thread. Pure state.
 */
import type { StreamTrust } from '../../exchange/exchange.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { isThoughtless, type ObservedReply } from './estimate.ts'

/** Consecutive replies that an endpoint must have shown. */
const MIN_VISIBLE_REPLIES = 20
/**
 * They must come from this many keys, because a single key could choose what its replies show; from one key if the row
 * says that the model does not think.
 */
const MIN_KEYS = 2
/** Keys kept per endpoint and effort. */
const MAX_KEYS = 8
/** Digits of a key hash that are kept. */
const HASH_CHARS = 8
const QUARTERS = 4
/** A shorter text arrives in too few pieces to prove anything. */
const TEXT_MIN_TOKENS = 64
/** Largest share of a text in one piece. */
const PIECE_SHARE = 1 / 4
/** The provider's count may be this many times our estimate of the text, plus an allowance for templates of calls. */
const COUNT_RATIO = 2
const TEMPLATE_TOKENS = 64

/** The replies of one endpoint to requests of one effort. */
interface ReplyHistory {
  /** Consecutive visible replies since the last reply with hidden output. */
  visibleReplies: number
  /**
   * True after a reply with hidden output: the endpoint's row is not trusted until enough visible replies have
   * followed.
   */
  hasHidden: boolean
  /** Keyed by short hash of a key: the number of its last visible reply, oldest first. */
  readonly keys: Map<string, number>
}

/** A complete streamed reply, as the attempt received it. */
export interface ShownReply extends ObservedReply {
  /** True if the gateway ended it. */
  readonly isCut: boolean
  /** True if its reader was slow at some point. */
  readonly wasPaused: boolean
  /** The largest piece of its output that arrived at once, in quarters of tokens. */
  readonly pieceQuarters: number
}

export class VisibleStreams {
  /** Keyed by effort. Bounded by the catalogue: the replies of an endpoint are forgotten with it. */
  readonly #histories = new WeakMap<Endpoint, Map<string, ReplyHistory>>()
  /** Hashes of the keys of which a stream relies on observed replies. */
  readonly #relyingKeys = new Set<string>()

  /** True if a stream of this endpoint may reserve piece by piece, because of its row or its replies. */
  isVisible(endpoint: Endpoint, request: Pick<ResponsesRequest, 'reasoning'>): boolean {
    return this.isPromised(endpoint, request) || this.isShown(endpoint, request)
  }

  /** The endpoints that an exchange of this key may rely on; call `leave` when the exchange ends. */
  trustOf(keyHash: string): StreamTrust {
    return new KeyTrust(this, keyHash, this.#relyingKeys)
  }

  /** True if the endpoint's row says that it streams everything, and no reply has contradicted the row. */
  isPromised(endpoint: Endpoint, { reasoning }: Pick<ResponsesRequest, 'reasoning'>): boolean {
    return (
      endpoint.thinks === false && this.#histories.get(endpoint)?.get(effortOf(reasoning))?.hasHidden !== true
    )
  }

  /** True if the endpoint's replies have proved that it streams everything. */
  isShown(endpoint: Endpoint, { reasoning }: Pick<ResponsesRequest, 'reasoning'>): boolean {
    const history = this.#histories.get(endpoint)?.get(effortOf(reasoning))
    if (history === undefined || history.visibleReplies < MIN_VISIBLE_REPLIES) return false
    let keys = 0
    for (const replyNumber of history.keys.values())
      if (replyNumber > history.visibleReplies - MIN_VISIBLE_REPLIES) keys++
    return keys >= MIN_KEYS || endpoint.thinks === false
  }

  /** Notes a complete streamed reply to a request on a key of the service. */
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
    // After a pause for a slow reader, everything that had waited arrives at once.
    if (!isHidden && (!isLong || wasPaused)) return
    const history = this.#of(endpoint, effortOf(reasoning))
    if (isHidden || pieceQuarters > outputQuarters * PIECE_SHARE) {
      history.visibleReplies = 0
      history.hasHidden = true
      history.keys.clear()
      return
    }
    const key = keyHash.slice(0, HASH_CHARS)
    history.visibleReplies++
    history.keys.delete(key)
    history.keys.set(key, history.visibleReplies)
    if (history.keys.size <= MAX_KEYS) return
    const [oldest] = history.keys.keys()
    if (oldest !== undefined) history.keys.delete(oldest)
  }

  #of(endpoint: Endpoint, effort: string): ReplyHistory {
    let efforts = this.#histories.get(endpoint)
    if (efforts === undefined) {
      efforts = new Map()
      this.#histories.set(endpoint, efforts)
    }
    let history = efforts.get(effort)
    if (history === undefined) {
      history = { visibleReplies: 0, hasHidden: false, keys: new Map() }
      efforts.set(effort, history)
    }
    return history
  }
}

/**
 * The endpoints that one exchange may rely on. An endpoint may show everything in short replies to easy prompts, and
 * think on others: two keys could make it look reliable, and a third could then open many streams that reserve only a
 * small part.
 */
class KeyTrust implements StreamTrust {
  readonly #streams: VisibleStreams
  readonly #keyHash: string
  readonly #relyingKeys: Set<string>
  /** Null if it has not been determined yet. */
  #mayRely: boolean | null = null

  constructor(streams: VisibleStreams, keyHash: string, relyingKeys: Set<string>) {
    this.#streams = streams
    this.#keyHash = keyHash
    this.#relyingKeys = relyingKeys
  }

  isVisible(endpoint: Endpoint, request: Pick<ResponsesRequest, 'reasoning'>): boolean {
    if (this.#streams.isPromised(endpoint, request)) return true
    if (!this.#streams.isShown(endpoint, request)) return false
    if (this.#mayRely === null) {
      this.#mayRely = !this.#relyingKeys.has(this.#keyHash)
      this.#relyingKeys.add(this.#keyHash)
    }
    return this.#mayRely
  }

  leave(): void {
    if (this.#mayRely === true) this.#relyingKeys.delete(this.#keyHash)
    this.#mayRely = false
  }
}

/** True if the provider counts more tokens than were visible. */
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
