/**
 * The rankers, in one list: price, speed, shares, thresholds, tool calls, service tier, `order`, health. Each one sorts
 * the candidates of a group and keeps the order of equal ones. A later ranker therefore outweighs the earlier ones. Hot
 * path.
 *
 * A group has the candidates of one model (or of all models, if the caller asks for one order over them) and of one
 * kind: own keys, shared endpoints, or own keys as fallbacks. No ranker moves a candidate out of its group.
 */

import type { Percentiles } from '../../providers/endpoint-figures.ts'
import {
  BLOCKED,
  type EndpointState,
  FAILING,
  PROBE_DUE,
  STEADY,
} from '../../providers/health/endpoint-state.ts'
import type { EndpointHealth } from '../../providers/health/health.ts'
import { matchesName, priceOf, type RouteCandidate } from './candidate.ts'
import type { SortBy } from './names.ts'
import type { Preferences, RankTerms } from './rank-input.ts'
import { type TierWish, tierRank } from './service-tiers.ts'

export interface Group {
  readonly kind: 'own' | 'shared' | 'fallback'
  readonly candidates: readonly RouteCandidate[]
  /** The sort order that the caller asks for; null if none. */
  readonly sort: SortBy | null
  readonly tiers: TierWish
  /** Preferences of a route's target, combined with the request's; absent: only the request's. */
  readonly preferences?: Preferences
}

interface Ranker {
  readonly name: string
  /** May return the list itself. */
  rank(candidates: readonly RouteCandidate[], group: Group, terms: RankTerms): readonly RouteCandidate[]
}

/** In the order of their use: the last one is the most important. */
const RANKERS: readonly Ranker[] = [
  { name: 'price', rank: byPrice },
  { name: 'speed', rank: bySpeed },
  { name: 'shares', rank: byShares },
  { name: 'thresholds', rank: byThresholds },
  { name: 'tool_calls', rank: byToolCalls },
  { name: 'service_tier', rank: byServiceTier },
  { name: 'order', rank: byOrder },
  { name: 'health', rank: byHealth },
]

/** The candidates of groups in the order in which they are tried. */
export function rankGroups(groups: readonly Group[], terms: RankTerms): readonly RouteCandidate[] {
  const [only] = groups
  if (only !== undefined && groups.length === 1) return rankGroup(only, terms)
  return groups.flatMap(group => rankGroup(group, terms))
}

function rankGroup(group: Group, terms: RankTerms): readonly RouteCandidate[] {
  let { candidates } = group
  if (candidates.length < 2) return candidates
  const { preferences } = group
  const groupTerms = preferences === undefined ? terms : { ...terms, preferences }
  for (const { rank } of RANKERS) candidates = rank(candidates, group, groupTerms)
  return candidates
}

/** True if the first candidate is drawn at random by price, because the caller asks for no order. */
function isDistributed(
  { kind, sort, tiers }: Omit<Group, 'candidates'>,
  { routing, preferences }: RankTerms,
): boolean {
  const isAsked = sort !== null || tiers.first.length > 0 || hasOrder(preferences)
  return routing.balances && kind === 'shared' && !isAsked
}

function hasOrder({ order }: Preferences): boolean {
  return order != null && order.length > 0
}

function byPrice(
  candidates: readonly RouteCandidate[],
  group: Group,
  terms: RankTerms,
): readonly RouteCandidate[] {
  return wantsPrice(group, terms) ? terms.routing.shared.byPrice(candidates) : candidates
}

/** True if the candidates of the group are sorted by price first. */
export function wantsPrice(group: Omit<Group, 'candidates'>, terms: RankTerms): boolean {
  return group.sort !== null || group.tiers.only !== null || isDistributed(group, terms)
}

/** Fastest first; candidates without recent measurements last. */
function bySpeed(
  candidates: readonly RouteCandidate[],
  { sort, tiers }: Group,
  terms: RankTerms,
): readonly RouteCandidate[] {
  const { nowMs, routing } = terms
  const { health } = routing
  const sortBy = tiers.first.length > 0 && sort === null ? 'throughput' : sort
  if (health === null || sortBy === null || sortBy === 'price') return candidates
  const slowness = new Float64Array(candidates.length)
  let isMeasured = false
  for (let index = 0; index < candidates.length; index++) {
    const candidateSlowness = slownessOf(stateOf(health, candidates[index] as RouteCandidate), sortBy, nowMs)
    slowness[index] = candidateSlowness
    isMeasured ||= candidateSlowness !== Number.POSITIVE_INFINITY
  }
  return isMeasured ? sortedBy(candidates, slowness) : candidates
}

/** Lower is better; infinite if nothing was measured. */
function slownessOf(state: EndpointState, by: Exclude<SortBy, 'price'>, nowMs: number): number {
  if (by === 'latency') return state.latency?.percentiles(nowMs)?.p50 ?? Number.POSITIVE_INFINITY
  const speed = state.throughput?.percentiles(nowMs)?.p50
  if (speed === undefined) return Number.POSITIVE_INFINITY
  if (by === 'throughput') return -speed
  return -state.uptime(nowMs) * (state.calls?.share(nowMs) ?? 1) * speed
}

/**
 * Draws the first candidate at random, with the weight 1 / price², among those that work well, miss no threshold and
 * make few faulty tool calls; if some of them are free, among the free ones. The others follow by price; those with
 * unknown prices come last, in order.
 */
function byShares(
  candidates: readonly RouteCandidate[],
  group: Group,
  terms: RankTerms,
): readonly RouteCandidate[] {
  if (!isDistributed(group, terms)) return candidates
  const firstChoice = drawIndex(candidates, terms)
  if (firstChoice <= 0) return candidates
  const orderedCandidates = [...candidates]
  const first = candidates[firstChoice]
  if (first === undefined) return candidates
  orderedCandidates.copyWithin(1, 0, firstChoice)
  orderedCandidates[0] = first
  return orderedCandidates
}

/** The index of the drawn candidate; -1 if none may be drawn. */
function drawIndex(candidates: readonly RouteCandidate[], terms: RankTerms): number {
  const { caller, nowMs, preferences, routing } = terms
  const { health } = routing
  const checksSpeed = wantsSpeed(preferences)
  const checksCalls = hasTools(terms)
  const weights = new Float64Array(candidates.length)
  let total = 0
  let pricedCount = 0
  let isFree = false
  for (; pricedCount < candidates.length; pricedCount++) {
    const candidate = candidates[pricedCount] as RouteCandidate
    const price = priceOf(candidate.endpoint)
    // Candidates are sorted by price, so all further prices are unknown. If there are free ones, only they are drawn.
    if (price === Number.POSITIVE_INFINITY || (isFree && price > 0)) break
    if (health !== null) {
      const state = stateOf(health, candidate)
      if (state.standingOf(nowMs, caller) !== STEADY) continue
      if (checksSpeed && misses(state, preferences, nowMs)) continue
      if (checksCalls && state.calls?.isPoor(nowMs) === true) continue
    }
    isFree ||= price === 0
    const weight = price === 0 ? 1 : 1 / (price * price)
    weights[pricedCount] = weight
    total += weight
  }
  if (total === 0) return -1
  let threshold = routing.random() * total
  let lastIndex = -1
  for (let index = 0; index < pricedCount; index++) {
    const weight = weights[index] ?? 0
    if (weight === 0) continue
    lastIndex = index
    threshold -= weight
    if (threshold < 0) break
  }
  return lastIndex
}

function wantsSpeed({ preferred_max_latency, preferred_min_throughput }: Preferences): boolean {
  return preferred_max_latency != null || preferred_min_throughput != null
}

/** Moves candidates that miss a threshold to the end. */
function byThresholds(
  candidates: readonly RouteCandidate[],
  _: Group,
  { nowMs, preferences, routing: { health } }: RankTerms,
): readonly RouteCandidate[] {
  if (health === null || !wantsSpeed(preferences)) return candidates
  return groupedBy(candidates, candidate => (misses(stateOf(health, candidate), preferences, nowMs) ? 1 : 0))
}

type Threshold = Preferences['preferred_max_latency']

/** True if the endpoint misses a threshold of the caller. Without measurements it misses none. */
function misses(state: EndpointState, preferences: Preferences, nowMs: number): boolean {
  const { preferred_max_latency: latency, preferred_min_throughput: throughput } = preferences
  return (
    (latency != null &&
      exceeds(state.latency?.percentiles(nowMs), latency, (ms, seconds) => ms > seconds * 1_000)) ||
    (throughput != null &&
      exceeds(state.throughput?.percentiles(nowMs), throughput, (speed, least) => speed < least))
  )
}

const PERCENTILES = ['p50', 'p75', 'p90', 'p99'] as const

function exceeds(
  measured: Percentiles | null | undefined,
  threshold: NonNullable<Threshold>,
  isWorse: (measured: number, cutoff: number) => boolean,
): boolean {
  if (measured == null) return false
  if (typeof threshold === 'number') return isWorse(measured.p50, threshold)
  return PERCENTILES.some(share => {
    const cutoff = threshold[share]
    return cutoff != null && isWorse(measured[share], cutoff)
  })
}

function hasTools({ request: { tools } }: RankTerms): boolean {
  return tools != null && tools.length > 0
}

/** If the caller sets no order, endpoints whose tool calls are often faulty come after the others. */
function byToolCalls(
  candidates: readonly RouteCandidate[],
  { sort }: Group,
  terms: RankTerms,
): readonly RouteCandidate[] {
  const { nowMs, preferences, routing } = terms
  const { health } = routing
  if (health === null || !hasTools(terms) || sort !== null || hasOrder(preferences)) return candidates
  return groupedBy(candidates, candidate =>
    stateOf(health, candidate).calls?.isPoor(nowMs) === true ? 1 : 0,
  )
}

function byServiceTier(candidates: readonly RouteCandidate[], { tiers }: Group): readonly RouteCandidate[] {
  if (tiers.first.length === 0) return candidates
  return groupedBy(candidates, ({ endpoint }) => tierRank(endpoint, tiers))
}

function byOrder(
  candidates: readonly RouteCandidate[],
  _: Group,
  { preferences }: RankTerms,
): readonly RouteCandidate[] {
  if (!hasOrder(preferences)) return candidates
  const order = (preferences.order ?? []).map(name => name.toLowerCase())
  return groupedBy(candidates, ({ endpoint }) => {
    for (let index = 0; index < order.length; index++)
      if (matchesName(order[index] as string, endpoint)) return index
    return order.length
  })
}

/**
 * Moves candidates that must not be called to the end. If the caller sets no order, endpoints that often fail come
 * after the others. If requests are distributed by price, an endpoint that is due for a probe goes first, because an
 * expensive one would otherwise wait long for its probe.
 */
function byHealth(
  candidates: readonly RouteCandidate[],
  group: Group,
  terms: RankTerms,
): readonly RouteCandidate[] {
  const { caller, nowMs, preferences, routing } = terms
  const { health } = routing
  if (health === null) return candidates
  const isFree = group.sort === null && !hasOrder(preferences)
  let isMixed = false
  for (let index = 0; index < candidates.length && !isMixed; index++) {
    isMixed = stateOf(health, candidates[index] as RouteCandidate).standingOf(nowMs, caller) !== STEADY
  }
  if (!isMixed) return candidates
  const probesFirst = isDistributed(group, terms)
  let hasProbe = false
  return groupedBy(candidates, candidate => {
    const standing = stateOf(health, candidate).standingOf(nowMs, caller)
    if (standing === BLOCKED) return LAST_RANK
    if (standing === PROBE_DUE) {
      if (!probesFirst) return FIRST_RANK + 1
      // One probe per request: if it fails, the next candidate must be one that works.
      if (hasProbe) return LAST_RANK
      hasProbe = true
      return FIRST_RANK
    }
    return FIRST_RANK + 1 + (isFree && standing <= FAILING ? standing : STEADY)
  })
}

/** Ranks of the groups by health. */
const FIRST_RANK = 0
const LAST_RANK = 5

/** The health of a candidate, stored with it, because hundreds of lookups cost more than the rest of the ranking. */
function stateOf(health: EndpointHealth, candidate: RouteCandidate): EndpointState {
  const { state } = candidate
  if (state !== undefined && !state.isForgotten) return state
  const { endpoint, credential } = candidate
  const endpointHealth = health.of(endpoint, credential === null ? null : credential.id)
  candidate.state = endpointHealth
  return endpointHealth
}

/** Stable sort by keys that are whole numbers from 0 on. Computes each key once, in the order of the candidates. */
function groupedBy(
  candidates: readonly RouteCandidate[],
  keyOf: (candidate: RouteCandidate) => number,
): readonly RouteCandidate[] {
  const groups: RouteCandidate[][] = []
  let isOrdered = true
  let last = 0
  for (let index = 0; index < candidates.length; index++) {
    const candidate = candidates[index] as RouteCandidate
    const key = keyOf(candidate)
    if (key < last) isOrdered = false
    last = key
    const group = groups[key]
    if (group === undefined) groups[key] = [candidate]
    else group.push(candidate)
  }
  if (isOrdered) return candidates
  // flat() skips the places without a group.
  return groups.flat()
}

/** Stable; keys may be infinite. */
function sortedBy(candidates: readonly RouteCandidate[], keys: Float64Array): readonly RouteCandidate[] {
  const indexes = candidates.map((_, index) => index)
  indexes.sort((a, b) => {
    const keyA = keys[a] ?? 0
    const keyB = keys[b] ?? 0
    return keyA === keyB ? a - b : keyA < keyB ? -1 : 1
  })
  return indexes.map(index => candidates[index] as RouteCandidate)
}
