/**
 * Session affinity: keeps a conversation with the endpoint that has it in its prompt cache. Hot path. A pin names an
 * endpoint for an organization, model and conversation. If the caller names the conversation (a session, or a cache
 * key), its first request pins it, so that simultaneous requests use the same endpoint. The pin moves only after a
 * failure. Other conversations are identified by their first messages, and are pinned after a cache hit, if reading
 * from the cache costs less than the plain prompt. A pin moves its candidate to the front of its kind only (own keys,
 * shared, fallback keys). Models with one endpoint need no pin.
 */
import { hash } from 'node:crypto'
import { isPending } from '../../base/maybe-promise.ts'
import type { Usage } from '../../formats/format.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { HealthCaller } from '../../providers/health/caller-states.ts'
import { PROBE_DUE } from '../../providers/health/endpoint-state.ts'
import { endpointKey } from '../../providers/health/health.ts'
import type { Pins } from '../../storage/session-affinity/session-affinity.ts'
import type { RouteCandidate } from './candidate.ts'
import { conversationOf, hasAnswer } from './conversation.ts'
import { isAcrossModels } from './names.ts'

/** Most providers keep a cached prompt for five to ten minutes after its last use. */
const IDLE_MS = 600_000
const HOUR_MS = 3_600_000
const MINUTE_MS = 60_000
/** The longest time that a request can ask for. */
const TTL_MAX_MS = 24 * HOUR_MS

/** Maximum number of models pinned per request, so that one caller's long lists do not evict the pins of others. */
const MAX_PINNED_MODELS = 8

type Candidates = readonly RouteCandidate[]

/** The parts of an exchange that sticky routing reads. */
interface AffinityRequest {
  readonly caller: HealthCaller
  readonly request: ResponsesRequest
}

/** Candidates in the order of their pins. */
export interface Affinity {
  readonly candidates: Candidates
  /** Pins the candidate that succeeds; null if nothing may be pinned. */
  readonly affinity: CandidatePin | null
}

export interface CandidatePin {
  /** Never throws. `usage`: as reported by the provider. */
  noteSuccess(candidate: RouteCandidate, usage: Usage | null): void
}

export class Stickiness {
  readonly #pins: Pins

  constructor(pins: Pins) {
    this.#pins = pins
  }

  /**
   * Moves pinned candidates to the front of their kind; if the caller names the conversation, the first candidate of a
   * model without a pin is pinned. Returns a promise only if pins have to be fetched. A candidate that must not be
   * called now (`nowMs`: monotonic), or only as a probe, is not moved.
   */
  order(
    { caller, request }: AffinityRequest,
    candidates: Candidates,
    nowMs = 0,
  ): Affinity | Promise<Affinity> {
    if (candidates.length < 2 || !mayStick(request)) return { candidates, affinity: null }
    const isNamed = request.session_id !== undefined || request.prompt_cache_key != null
    const models = modelsWithChoice(candidates, isNamed)
    const conversation = models.length === 0 ? null : conversationOf(request)
    if (conversation === null) return { candidates, affinity: null }
    const ttlMs = ttlOf(request)
    const keys = new Map(models.map(id => [id, keyOf(caller.organizationId, id, conversation)]))
    const terms = { keys, ttlMs, nowMs, caller, isNamed }
    const pinLookups = [...keys].map(([modelId, key]) => this.#pinOf(modelId, key, candidates, terms))
    if (pinLookups.some(isPending)) {
      return Promise.all(pinLookups).then(pins => this.#affinityOf(candidates, terms, pins))
    }
    return this.#affinityOf(candidates, terms, pinLookups as (string | null)[])
  }

  /**
   * The model that a router chose last for the conversation; null if there is none, or if the request begins a
   * conversation.
   */
  lastModel({ caller, request }: AffinityRequest, router: string): string | null | Promise<string | null> {
    const isNamed = request.session_id !== undefined || request.prompt_cache_key != null
    // Without a name, requests that begin with the same words are not a conversation yet.
    const conversation = isNamed || hasAnswer(request) ? conversationOf(request) : null
    if (conversation === null) return null
    return this.#pins.get(keyOf(caller.organizationId, `router ${router}`, conversation))
  }

  keepModel({ caller, request }: AffinityRequest, router: string, modelId: string, ttlMs: number): void {
    const conversation = conversationOf(request)
    if (conversation === null) return
    this.#pins.set(
      keyOf(caller.organizationId, `router ${router}`, conversation),
      modelId,
      ttlMs,
      caller.keyHash,
    )
  }

  #pinOf(
    modelId: string,
    key: string,
    candidates: Candidates,
    { isNamed, caller }: Terms,
  ): string | null | Promise<string | null> {
    const first = isNamed ? candidates.find(({ endpoint }) => endpoint.modelId === modelId) : undefined
    // Only a success is worth a longer pin.
    return first === undefined
      ? this.#pins.get(key)
      : this.#pins.claim(key, pinOf(first), IDLE_MS, caller.keyHash)
  }

  #affinityOf(candidates: Candidates, terms: Terms, pinValues: readonly (string | null)[]): Affinity {
    const { keys, ttlMs, isNamed, caller } = terms
    let orderedCandidates = candidates
    const pins = new Map<string, string>()
    for (const [index, modelId] of [...keys.keys()].entries()) {
      const pin = pinValues[index] ?? null
      if (pin === null) continue
      pins.set(modelId, pin)
      orderedCandidates = promote(orderedCandidates, modelId, pin, terms)
    }
    return {
      candidates: orderedCandidates,
      affinity: {
        noteSuccess: (candidate, usage) => {
          const { modelId } = candidate.endpoint
          const key = keys.get(modelId)
          if (key === undefined) return
          const pin = pinOf(candidate)
          // An existing pin is renewed; a new pin needs a cache hit.
          const isWorthIt =
            isNamed ||
            (savesByCache(candidate) && (pins.get(modelId) === pin || (usage?.cachedTokens ?? 0) > 0))
          if (isWorthIt) this.#pins.set(key, pin, ttlMs, caller.keyHash)
        },
      },
    }
  }
}

interface Terms {
  /** Keys of the pins, by model. */
  readonly keys: ReadonlyMap<string, string>
  readonly ttlMs: number
  readonly nowMs: number
  readonly caller: HealthCaller
  /** True if the caller names the conversation. */
  readonly isNamed: boolean
}

/** False if the caller sets the order, including an order across models. */
function mayStick(request: ResponsesRequest): boolean {
  return (request.provider?.order?.length ?? 0) === 0 && !isAcrossModels(request)
}

/** The models with several candidates of one kind; unless `isAny`, only those for which the cache saves money. */
function modelsWithChoice(candidates: Candidates, isAny: boolean): readonly string[] {
  const models: string[] = []
  for (let index = 1; index < candidates.length; index++) {
    const candidate = candidates[index - 1] as RouteCandidate
    const next = candidates[index] as RouteCandidate
    if (!isAny && !savesByCache(candidate) && !savesByCache(next)) continue
    const { modelId } = next.endpoint
    // Candidates of one model and kind follow each other.
    if (models.includes(modelId) || !areAlike(candidate, next)) continue
    models.push(modelId)
    if (models.length === MAX_PINNED_MODELS) break
  }
  return models
}

export function savesByCache({ endpoint: { pricing } }: RouteCandidate): boolean {
  return pricing.inputCacheRead !== null && pricing.inputCacheRead < pricing.prompt
}

/** True if both candidates are of the same model and kind: own key, shared key, or fallback key. */
export function areAlike(a: RouteCandidate, b: RouteCandidate): boolean {
  return a.endpoint.modelId === b.endpoint.modelId && kindOf(a) === kindOf(b)
}

function kindOf({ credential }: RouteCandidate): 'own' | 'shared' | 'fallback' {
  if (credential === null) return 'shared'
  return credential.isFallback ? 'fallback' : 'own'
}

function promote(candidates: Candidates, modelId: string, pin: string, { nowMs, caller }: Terms): Candidates {
  const index = candidates.findIndex(
    candidate => candidate.endpoint.modelId === modelId && pinOf(candidate) === pin,
  )
  const pinnedCandidate = candidates[index]
  if (pinnedCandidate === undefined) return candidates
  if (pinnedCandidate.state !== undefined && pinnedCandidate.state.standingOf(nowMs, caller) >= PROBE_DUE)
    return candidates
  const first = candidates.findIndex(candidate => areAlike(candidate, pinnedCandidate))
  return first === index ? candidates : candidates.toSpliced(index, 1).toSpliced(first, 0, pinnedCandidate)
}

/** Identifies a candidate of a model, in every process that has the same catalogue. */
export function pinOf({ endpoint, credential }: RouteCandidate): string {
  return endpointKey(endpoint, credential === null ? null : credential.id)
}

/**
 * Builds the key of a pin. It is a hash, so that no prompt or session id is stored, and includes the organization, so
 * that organizations never share a pin.
 */
export function keyOf(organizationId: string, modelId: string, conversation: string): string {
  return hash('sha256', JSON.stringify([organizationId, modelId, conversation]), 'base64')
}

/** The time for which a pin is kept after its last use: at least as long as the requested lifetime of the cache. */
export function ttlOf({ cache_control, prompt_cache_options, input }: ResponsesRequest): number {
  const requestedMs = spanOf(prompt_cache_options?.ttl)
  const isLong = cache_control?.ttl === '1h' || (Array.isArray(input) && input.some(hasLongMark))
  return Math.min(TTL_MAX_MS, Math.max(IDLE_MS, requestedMs, isLong ? HOUR_MS : 0))
}

function hasLongMark(item: object): boolean {
  const content: unknown = Reflect.get(item, 'content')
  return (
    Array.isArray(content) &&
    content.some(
      (part: { readonly cache_control?: { readonly ttl?: unknown } | null } | null) =>
        part?.cache_control?.ttl === '1h',
    )
  )
}

/** `30m`, `1h`; 0 for anything else. */
function spanOf(text: string | null | undefined): number {
  const match = /^(\d{1,4})([mh])$/.exec(text ?? '')
  if (match === null) return 0
  return Number(match[1]) * (match[2] === 'h' ? HOUR_MS : MINUTE_MS)
}
