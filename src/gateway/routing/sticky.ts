/**
 * Sticky routing: keeps a conversation at the provider that has it in its cache. Hot path.
 * A pin names an endpoint for an organization, model and conversation, if reading from its cache costs less than the
 * prompt. A request with a session sets it after any success, other requests after a cache hit. A pin moves its
 * candidate to the front of its kind only (own keys, shared, fallback keys). Models with one endpoint cost nothing.
 */
import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Clock } from '../../clock.ts'
import type { Usage } from '../../formats/format.ts'
import type { Caller } from '../../protocol/records.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { isPending } from '../../ready.ts'
import type { RouteCandidate } from './candidate.ts'
import { isAcrossModels } from './route.ts'

/** Store of pins. Neither verb throws or rejects: a lost pin costs a cache miss, no request. */
export interface Pins {
  /** Null when there is none, or none any more. */
  get(key: string): string | null | Promise<string | null>
  /** Kept until it was idle for as long as the keeper allows. */
  set(key: string, pin: string): void
}

/** Providers keep a cached prompt for some minutes after its last use; most of them five to ten. */
const IDLE_MS = 600_000
/** About 20 MB. */
const PINS_MAX = 50_000

/** Pins of this process, the least recently used giving way. */
export function createPins(clock: Clock, maxPins: number = PINS_MAX): Pins {
  const pins = new LRUCache<string, { readonly pin: string; readonly untilMs: number }>({ max: maxPins })
  return {
    get(key) {
      const entry = pins.get(key)
      return entry !== undefined && clock.monotonicMs() < entry.untilMs ? entry.pin : null
    },
    set(key, pin) {
      pins.set(key, { pin, untilMs: clock.monotonicMs() + IDLE_MS })
    },
  }
}

type Candidates = readonly RouteCandidate[]

/** As much of an exchange as is looked at. */
interface Asked {
  readonly caller: Pick<Caller, 'organizationId'>
  readonly request: ResponsesRequest
}

/** Candidates in the order of their pins. */
export interface Found {
  readonly candidates: Candidates
  /** Pins the candidate that succeeds; null: nothing may be pinned. */
  readonly stay: Stay | null
}

export interface Stay {
  /** Never throws. `usage`: as the provider reported it. */
  succeeded(candidate: RouteCandidate, usage: Usage | null): void
}

export class Stickiness {
  readonly #pins: Pins

  constructor(pins: Pins) {
    this.#pins = pins
  }

  /** The candidates with pinned ones first of their kind; a promise only where the pins have to be fetched. */
  order({ caller, request }: Asked, candidates: Candidates): Found | Promise<Found> {
    const models = mayStick(request) ? choices(candidates) : NONE
    if (models.length === 0) return { candidates, stay: null }
    const conversation = conversationOf(request)
    if (conversation === null) return { candidates, stay: null }
    const keys = new Map(models.map(id => [id, keyOf(caller.organizationId, id, conversation)]))
    const pinned = [...keys.values()].map(key => this.#pins.get(key))
    if (pinned.some(isPending)) {
      return Promise.all(pinned).then(pins => this.#found(request, candidates, keys, pins))
    }
    return this.#found(request, candidates, keys, pinned as (string | null)[])
  }

  #found(
    request: ResponsesRequest,
    candidates: Candidates,
    keys: ReadonlyMap<string, string>,
    pinned: readonly (string | null)[],
  ): Found {
    let ordered = candidates
    const pins = new Map<string, string>()
    for (const [index, modelId] of [...keys.keys()].entries()) {
      const pin = pinned[index] ?? null
      if (pin === null) continue
      pins.set(modelId, pin)
      ordered = promote(ordered, modelId, pin)
    }
    const isSession = request.session_id !== undefined
    return {
      candidates: ordered,
      stay: {
        succeeded: (candidate, usage) => {
          const key = keys.get(candidate.endpoint.modelId)
          if (key === undefined || !savesByCache(candidate)) return
          const pin = pinOf(candidate)
          // A pin that held is renewed; a new one needs its reason.
          const holds = pins.get(candidate.endpoint.modelId) === pin
          if (holds || isSession || (usage?.cachedTokens ?? 0) > 0) this.#pins.set(key, pin)
        },
      },
    }
  }
}

const NONE: readonly string[] = []

/** False if the caller sets the order, also for an order across models. */
function mayStick(request: ResponsesRequest): boolean {
  return (request.provider?.order?.length ?? 0) === 0 && !isAcrossModels(request)
}

/** The models that have a choice between candidates of one kind, a cache worth staying for among them. */
function choices(candidates: Candidates): readonly string[] {
  if (candidates.length < 2) return NONE
  const found = new Set<string>()
  for (const [index, candidate] of candidates.entries()) {
    // Candidates of one model and kind follow each other.
    const next = candidates[index + 1]
    if (next === undefined || !areAlike(candidate, next)) continue
    if (savesByCache(candidate) || savesByCache(next)) found.add(candidate.endpoint.modelId)
  }
  return found.size === 0 ? NONE : [...found]
}

function savesByCache({ endpoint: { pricing } }: RouteCandidate): boolean {
  return pricing.inputCacheRead !== null && pricing.inputCacheRead < pricing.prompt
}

function areAlike(a: RouteCandidate, b: RouteCandidate): boolean {
  return a.endpoint.modelId === b.endpoint.modelId && kindOf(a) === kindOf(b)
}

function kindOf({ credential }: RouteCandidate): 'own' | 'shared' | 'fallback' {
  if (credential === null) return 'shared'
  return credential.isFallback ? 'fallback' : 'own'
}

function promote(candidates: Candidates, modelId: string, pin: string): Candidates {
  const at = candidates.findIndex(
    candidate => candidate.endpoint.modelId === modelId && pinOf(candidate) === pin,
  )
  const chosen = candidates[at]
  if (chosen === undefined) return candidates
  const first = candidates.findIndex(candidate => areAlike(candidate, chosen))
  return candidates.toSpliced(at, 1).toSpliced(first, 0, chosen)
}

/** Names a candidate of a model in every process that has the same catalogue. */
function pinOf({ endpoint, credential }: RouteCandidate): string {
  const { provider, upstreamModel, format, region, quantization } = endpoint
  return [provider.slug, upstreamModel, format, region ?? '', quantization, credential?.id ?? ''].join('\n')
}

/** Hashed, so that no prompt and no name of a session is kept; bound to the organization, so that none share. */
function keyOf(organizationId: string, modelId: string, conversation: string): string {
  return hash('sha256', JSON.stringify([organizationId, modelId, conversation]), 'base64')
}

/** Enough of a message to distinguish conversations; two with the same beginning may share a cache. */
const MESSAGE_MAX_CHARS = 4_096

/** The key of a conversation; null if the request has nothing that stays the same from turn to turn. */
function conversationOf(request: ResponsesRequest): string | null {
  if (request.session_id !== undefined) return `session:${request.session_id}`
  if (request.prompt_cache_key != null) return `cache-key:${request.prompt_cache_key}`
  const { instructions, input } = request
  if (typeof input === 'string') return messages(instructions, input)
  let system: unknown = instructions ?? null
  let first: unknown = null
  for (const item of input ?? []) {
    if (!('role' in item) || !('content' in item)) continue
    if (item.role === 'system' || item.role === 'developer') system ??= item.content
    else first ??= item.content
    if (system !== null && first !== null) break
  }
  return system === null && first === null ? null : messages(system, first)
}

function messages(system: unknown, first: unknown): string {
  return `messages:${beginningOf(system)}\n${beginningOf(first)}`
}

function beginningOf(content: unknown): string {
  if (content == null) return ''
  const text = typeof content === 'string' ? content : textOf(content)
  return text.slice(0, MESSAGE_MAX_CHARS)
}

/** The texts of content parts; of images and files only the first characters. */
function textOf(content: unknown): string {
  if (!Array.isArray(content)) return ''
  return content
    .slice(0, 8)
    .flatMap((part: unknown) => (typeof part === 'object' && part !== null ? Object.values(part) : []))
    .filter(value => typeof value === 'string')
    .map(value => value.slice(0, MESSAGE_MAX_CHARS))
    .join('\n')
}
