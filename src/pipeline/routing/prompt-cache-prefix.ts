/**
 * Prefixes of prompts that a conversation has sent before. They show whether cache marks pay off, and why a provider
 * that had a prompt in its cache does not find it there now. Serve threads. Only hashes are kept, next to the pins of
 * conversations, and only for conversations that have a name, or that contain an answer and use a provider that caches
 * marked prompts; in either case, reading from the cache must cost less than the plain prompt.
 */
import { createHash, hash as digest } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import { listOrEmpty, parseJson } from '../../base/json.ts'
import { isPending } from '../../base/maybe-promise.ts'
import type { Exchange, PromptPrefix } from '../../exchange/exchange.ts'
import type { Usage } from '../../formats/format.ts'
import { MARKED_FORMATS } from '../../formats/marks/own-marks.ts'
import { type Endpoint, type PromptCaching, textFormat } from '../../protocol/provider.ts'
import type { CacheMiss, CacheMissReason } from '../../protocol/records.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Pins } from '../../storage/session-affinity/session-affinity.ts'
import type { RouteCandidate } from './candidate.ts'
import { conversationOf, hasAnswer } from './conversation.ts'
import { keyOf, pinOf, savesByCache } from './sticky.ts'

/** Time that providers keep a marked prompt after its last use, unless a longer time was requested. */
const CACHED_MS = 300_000
/** Longer than caches keep prompts, so that a miss after a pause can be explained. */
const KEPT_MS = 7_200_000
/** Prompts kept for conversations that share a name, such as subagents. */
const MAX_PROMPTS = 3
/** Characters of a hash: 72 bits. */
const HASH_CHARS = 12

/** One prompt that was sent, as hashes of its parts. */
interface SentPrompt {
  readonly endpoint: string
  readonly atMs: number
  readonly cachedTokens: number
  readonly tools: string
  readonly system: string
  /** Number of items after the system prompt, and their hash. */
  readonly items: number
  readonly hash: string
}

/** The current prompt, with hashes of the beginnings that have the length of earlier prompts. */
interface HashedPrompt {
  readonly tools: string
  readonly system: string
  readonly items: number
  readonly hash: string
  /** Keyed by number of items. */
  readonly beginnings: ReadonlyMap<number, string>
}

interface PrefixesDeps {
  readonly pins: Pins
  readonly clock: Clock
  /** For providers whose row does not set it. */
  readonly promptCaching: PromptCaching
}

/** The parts of an exchange that are remembered. */
interface RememberedExchange extends Pick<Exchange, 'batch' | 'caller' | 'client' | 'parent' | 'request'> {
  readonly candidates: readonly RouteCandidate[]
}

export class Prefixes {
  readonly #deps: PrefixesDeps

  constructor(deps: PrefixesDeps) {
    this.#deps = deps
  }

  /** Prompts that the conversation sent before; null if it is not remembered. */
  of(exchange: RememberedExchange): Prefix | null {
    const { batch, caller, candidates, client, parent, request } = exchange
    const [first] = candidates
    if (first === undefined || batch !== undefined || parent !== undefined) return null
    const isNamed = request.session_id !== undefined || request.prompt_cache_key != null
    if (!(isNamed ? candidates.some(savesByCache) : hasAnswer(request) && this.#marks(first))) return null
    const conversation = conversationOf(request)
    if (conversation === null) return null
    const agent = client?.agent ?? ''
    const name = `prefix ${agent}\n${conversation}`
    const key = keyOf(caller.organizationId, first.endpoint.modelId, name)
    return new Prefix(this.#deps, request, key, caller.keyHash)
  }

  #marks(candidate: RouteCandidate): boolean {
    const { provider } = candidate.endpoint
    return (
      savesByCache(candidate) &&
      needsMarks(candidate.endpoint) &&
      (candidate.endpoint.promptCaching ?? provider.promptCaching ?? this.#deps.promptCaching) === 'auto'
    )
  }
}

function needsMarks(endpoint: Endpoint): boolean {
  return MARKED_FORMATS.has(textFormat(endpoint))
}

/** The prompts of one conversation, for one exchange. */
export class Prefix implements PromptPrefix {
  /** Null if no miss is known. */
  miss: CacheMiss | null = null
  readonly #deps: PrefixesDeps
  readonly #request: ResponsesRequest
  readonly #key: string
  readonly #owner: string
  #lookup: Promise<void> | null
  #sentPrompts: readonly SentPrompt[] = []
  #hashedPrompt: HashedPrompt | null = null
  #isNoted = false

  constructor(deps: PrefixesDeps, request: ResponsesRequest, key: string, owner: string) {
    this.#deps = deps
    this.#request = request
    this.#key = key
    this.#owner = owner
    const pin = deps.pins.get(key)
    this.#lookup = isPending(pin) ? pin.then(value => this.#readPin(value)) : null
    if (!isPending(pin)) this.#readPin(pin)
  }

  /** Resolves once the earlier prompts are known; null if they are, or if nothing at this endpoint depends on them. */
  waitFor(endpoint: Endpoint): Promise<void> | null {
    return this.#lookup !== null && needsMarks(endpoint) ? this.#lookup : null
  }

  /** True if the prompt begins with one that was sent recently enough to still be in a cache. */
  readonly isSeen = (): boolean => {
    if (this.#sentPrompts.length === 0) return false
    const earlier = this.#earlier(this.#current())
    return earlier !== null && this.#deps.clock.nowMs() - earlier.atMs < CACHED_MS
  }

  /** Notes the first model call of the exchange. `usage`: as reported by the provider. */
  note(candidate: RouteCandidate, usage: Usage | null): void {
    if (this.#isNoted || usage === null || usage.inputTokens === 0) return
    this.#isNoted = true
    const current = this.#current()
    const earlier = this.#earlier(current)
    const last = earlier ?? (hasAnswer(this.#request) ? (this.#sentPrompts[0] ?? null) : null)
    const endpoint = shortHash(pinOf(candidate))
    const atMs = this.#deps.clock.nowMs()
    const { inputTokens, cachedTokens } = usage
    if (last !== null) {
      const tokens = Math.min(last.cachedTokens, inputTokens) - cachedTokens
      if (tokens > 0)
        this.miss = { reason: reasonOf(last, current, endpoint, atMs, earlier === null), tokens }
    }
    const { tools, system, items, hash } = current
    const sentPrompt = { endpoint, atMs, cachedTokens, tools, system, items, hash }
    const otherPrompts = this.#sentPrompts.filter(prompt => prompt !== earlier).slice(0, MAX_PROMPTS - 1)
    this.#deps.pins.set(this.#key, encodePrompts([sentPrompt, ...otherPrompts]), KEPT_MS, this.#owner)
  }

  #readPin(pin: string | null): void {
    this.#lookup = null
    this.#sentPrompts = pin === null ? [] : readPrompts(pin)
  }

  #current(): HashedPrompt {
    this.#hashedPrompt ??= hashPrompt(this.#request, new Set(this.#sentPrompts.map(({ items }) => items)))
    return this.#hashedPrompt
  }

  /** The longest earlier prompt with which the current one begins. */
  #earlier({ tools, system, beginnings }: HashedPrompt): SentPrompt | null {
    let longest: SentPrompt | null = null
    for (const prompt of this.#sentPrompts) {
      if (prompt.tools !== tools || prompt.system !== system || beginnings.get(prompt.items) !== prompt.hash)
        continue
      if (longest === null || prompt.items > longest.items) longest = prompt
    }
    return longest
  }
}

function reasonOf(
  last: SentPrompt,
  current: HashedPrompt,
  endpoint: string,
  atMs: number,
  isOther: boolean,
): CacheMissReason {
  if (last.tools !== current.tools) return 'tools'
  if (last.system !== current.system) return 'system'
  if (isOther) return 'earlier_turn'
  if (last.endpoint !== endpoint) return 'endpoint'
  return atMs - last.atMs >= CACHED_MS ? 'time' : 'other'
}

/** `counts`: numbers of items whose beginnings are needed. One pass. */
function hashPrompt(
  { tools, instructions, input }: ResponsesRequest,
  counts: ReadonlySet<number>,
): HashedPrompt {
  const items: readonly unknown[] = typeof input === 'string' ? [input] : input
  let from = 0
  while (from < items.length && isSystem(items[from])) from++
  const digest = createHash('sha256')
  const beginnings = new Map<number, string>()
  for (let index = from; index < items.length; index++) {
    digest.update(unmark(items[index])).update('\n')
    const count = index + 1 - from
    if (counts.has(count)) beginnings.set(count, digest.copy().digest('base64url').slice(0, HASH_CHARS))
  }
  return {
    tools: shortHash(unmark(tools ?? [])),
    system: shortHash(unmark([instructions ?? '', ...items.slice(0, from)])),
    items: items.length - from,
    hash: digest.digest('base64url').slice(0, HASH_CHARS),
    beginnings,
  }
}

function isSystem(item: unknown): boolean {
  const role = (item as { readonly role?: unknown } | null)?.role
  return role === 'system' || role === 'developer'
}

/** Marks move from call to call, and are not part of what is cached. Within a text, their quotes would be escaped. */
const CACHE_MARK = /"(?:cache_control|prompt_cache_breakpoint)":(?:\{[^{}]*\}|null),?/g

function unmark(value: unknown): string {
  const text = JSON.stringify(value)
  return text.includes('"cache_control"') || text.includes('"prompt_cache_breakpoint"')
    ? text.replace(CACHE_MARK, '').replaceAll(',}', '}')
    : text
}

function shortHash(text: string): string {
  return digest('sha256', text, 'base64url').slice(0, HASH_CHARS)
}

function encodePrompts(prompts: readonly SentPrompt[]): string {
  return JSON.stringify(
    prompts.map(({ endpoint, atMs, cachedTokens, tools, system, items, hash }) => [
      endpoint,
      atMs,
      cachedTokens,
      tools,
      system,
      items,
      hash,
    ]),
  )
}

/** Rows of an unknown form are left out: another version may have written the pin. */
function readPrompts(pin: string): readonly SentPrompt[] {
  const rows = listOrEmpty(parseJson(pin))
  return rows.slice(0, MAX_PROMPTS).flatMap(row => {
    if (!Array.isArray(row)) return []
    const [endpoint, atMs, cachedTokens, tools, system, items, hash] = row as readonly unknown[]
    const areNumbers = [atMs, cachedTokens, items].every(Number.isSafeInteger)
    const areTexts = [endpoint, tools, system, hash].every(text => typeof text === 'string')
    return areNumbers && areTexts
      ? [{ endpoint, atMs, cachedTokens, tools, system, items, hash } as SentPrompt]
      : []
  })
}
