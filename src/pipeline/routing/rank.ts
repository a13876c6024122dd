/** Ranking: lists the candidates of a request in the order in which they are tried. Hot path. */
import type { Clock } from '../../base/clock.ts'
import { GatewayError } from '../../base/errors.ts'
import { isPending, whenReady } from '../../base/maybe-promise.ts'
import type { EndpointChoice, Metrics } from '../../base/metrics/metrics.ts'
import type { Count } from '../../base/metrics/series.ts'
import type { Quota } from '../../callers/limits/quota.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type { RankingNotes } from '../../exchange/reasons.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'
import type { InputItem } from '../../protocol/items.ts'
import { COMPACTED_BY, type CompactedBy, type NotedItem } from '../../protocol/json/request-notes.ts'
import { makesEmbeddings } from '../../protocol/provider.ts'
import type { Caller } from '../../protocol/records.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { lastMaker } from '../../protocol/sealed-content.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { CredentialCatalog } from '../../providers/credentials/catalog.ts'
import type { EndpointHealth, HealthCaller } from '../../providers/health/health.ts'
import { Exclusions, makerOf, type RouteCandidate } from './candidate.ts'
import { type NamedModel, namedModel } from './names.ts'
import type { FittingPlugins, Measures } from './needs.ts'
import type { Group, RankTerms } from './rankers.ts'
import type { Restrictions } from './restrictions.ts'
import { listGroups, ranked, route } from './route.ts'
import { SharedCandidates } from './shared-candidates.ts'
import { areAlike, type Stay, type Stickiness } from './sticky.ts'

interface RoutingOptions extends Measures {
  readonly clock: Clock
  readonly health: EndpointHealth
  /** From 0 (inclusive) to 1 (exclusive). */
  readonly random: () => number
  /** True: requests without preferences are distributed by price. False: the order of the catalogue is kept. */
  readonly balances: boolean
  /** Approximate tokens of a request. */
  readonly inputTokens: (request: ResponsesRequest) => number
  /** Silence of an endpoint after which a second one is called too. Default null: never. */
  readonly hedgeAfterMs?: number | null
}

/** Everything that ranking needs in one thread. */
export class Routing {
  readonly health: EndpointHealth
  readonly measures: Measures & Pick<RoutingOptions, 'inputTokens'>
  readonly balances: boolean
  readonly hedgeAfterMs: number | null
  readonly #options: RoutingOptions
  readonly #shared = new SharedCandidates()

  constructor(options: RoutingOptions) {
    this.#options = options
    this.health = options.health
    const { inputTokens, leastTokens, isInputBelow } = options
    this.measures = { inputTokens, leastTokens, isInputBelow }
    this.balances = options.balances
    this.hedgeAfterMs = options.hedgeAfterMs ?? null
  }

  /**
   * @param caller null: no particular caller
   * @param nowMs monotonic
   */
  terms(caller: HealthCaller | null, nowMs = this.#options.clock.monotonicMs()): RankTerms {
    const { health, random, balances } = this.#options
    return { shared: this.#shared, health, nowMs, caller, random, balances }
  }
}

export interface RankDeps {
  readonly catalog: Catalog
  readonly credentials: Pick<CredentialCatalog, 'of'>
  readonly stickiness: Stickiness
  readonly quota: Pick<Quota, 'limitsMoney'>
  readonly routing: Routing
  readonly metrics: Metrics
}

export interface Ranking extends RankingNotes {
  readonly candidates: readonly RouteCandidate[]
  /** True if a failure may move on to the next candidate. */
  readonly fallbacks: boolean
  /** The model that the request names first, as resolved. */
  readonly named: NamedModel
  /** Pins the candidate that succeeds; null if nothing is pinned. */
  readonly stay: Stay | null
}

/** The exchange as ranking needs it. */
interface RankedExchange extends Exchange {
  /** Null if no guardrail applies to the caller. */
  readonly guarding: { readonly restrictions: Restrictions | null } | null
  readonly plugins:
    | (FittingPlugins & {
        order(candidates: readonly RouteCandidate[], exchange: Exchange): readonly RouteCandidate[]
      })
    | null
}

/**
 * Filters and sorts the endpoints, moves pinned ones to the front, and lets plugins reorder them. Returns a promise
 * only if own keys or pins have to be fetched.
 * @throws (or rejects with) GatewayError of `route`.
 */
export function rankCandidates(deps: RankDeps, exchange: RankedExchange): Ranking | Promise<Ranking> {
  const { caller, dataRegion, guarding, prompt } = exchange
  const { organizationId, workspaceId, keyHash } = caller
  const { routing } = deps
  const restrictions = guarding?.restrictions ?? null
  return whenReady(deps.quota.limitsMoney(caller), isLimited =>
    whenReady(deps.credentials.of(organizationId, workspaceId), ownKeys => {
      const { dialect, plugins } = exchange
      const { embeds } = DIALECT_ABILITIES[dialect]
      const exclusions = new Exclusions()
      // A request that is refused here has exclusions too.
      exchange.ranking = { ...exchange.ranking, exclusions: exclusions.list }
      const scope = {
        exclusions,
        ownKeys,
        keyHash,
        dataRegion,
        restrictions,
        isLimited,
        embeds,
        dialect,
        plugins,
        ...routing.measures,
      }
      const terms = routing.terms(caller)
      const { candidates: all, fallbacks, skipped, named } = route(prompt, deps.catalog, scope, terms)
      const ranked = readersOnly(all, prompt)
      const found =
        exchange.batch === undefined
          ? deps.stickiness.order(exchange, ranked, terms.nowMs)
          : { candidates: ranked, stay: null }
      return whenReady(found, ({ candidates: stuck, stay }) => {
        const pinned = readersFirst(stuck, prompt)
        const candidates = exchange.plugins?.order(pinned, exchange) ?? pinned
        const choice = countChoice(deps, prompt, ranked, pinned, candidates)
        const rather = ratherThan(candidates, ranked)
        return { candidates, fallbacks, skipped, named, stay, choice, rather, exclusions: exclusions.list }
      })
    }),
  )
}

/** The part of the candidates of plain requests for one model that does not depend on their bytes. */
export interface PlainRoute extends Pick<RankingNotes, 'exclusions'> {
  readonly named: NamedModel
  /** In order; the candidates of each are not ranked. */
  readonly groups: readonly Group[]
  /** A request with up to this many tokens fits all of them; infinite if any request does. */
  readonly leastContext: number
  /** An answer with up to this many tokens fits all of them; infinite if any answer does. */
  readonly leastOutput: number
  /** Counts requests of a route with a single candidate; null if there are several, from which each request chooses. */
  readonly only: Count | null
  /** True if the user that a request names may change the candidates, because there are own keys. */
  readonly readsUser: boolean
}

/**
 * Plans the route of all plain requests of a caller for a model; null if they have to be routed one by one. Call it
 * only when own keys are loaded.
 * @param restrictions of guardrails; null: none
 */
export function planRoute(
  { catalog, credentials, metrics, quota, routing }: RankDeps,
  { caller, dataRegion, dialect, request }: Pick<Exchange, 'caller' | 'dataRegion' | 'dialect' | 'request'>,
  restrictions: Restrictions | null,
): PlainRoute | null {
  const { model } = request
  const isLimited = quota.limitsMoney(caller)
  const ownKeys = credentials.of(caller.organizationId, caller.workspaceId)
  if (model === undefined || isPending(isLimited) || isPending(ownKeys)) return null
  const scope = { ownKeys, keyHash: caller.keyHash, dataRegion, restrictions, isLimited, dialect }
  const named = namedModel(model, catalog, null)
  if (named === null || makesEmbeddings(named.model)) return null
  const terms = routing.terms(caller)
  const exclusions = new Exclusions()
  const { groups } = listGroups(named, { model, input: '' }, {}, scope, null, [], terms, exclusions)
  if (groups.length === 0) return null
  const { leastContext, leastOutput } = terms.shared.of(named.model)
  const alone =
    groups.length === 1 && groups[0]?.candidates.length === 1 ? groups[0].candidates[0] : undefined
  const only = alone === undefined ? null : metrics.ofProvider(alone.endpoint.provider.slug).chosen('only')
  const readsUser = !ownKeys.isEmpty
  return { named, groups, leastContext, leastOutput, only, readsUser, exclusions: exclusions.list }
}

/** Ranks planned candidates; null if this request may not fit all of them. Otherwise like `rankCandidates`. */
export function rankPlanned(
  deps: RankDeps,
  exchange: RankedExchange,
  { groups, leastContext, leastOutput, named, only, exclusions }: PlainRoute,
): Ranking | Promise<Ranking> | null {
  const { prompt, caller } = exchange
  const output = prompt.max_output_tokens ?? 0
  if (output > leastOutput) return null
  if (leastContext !== Number.POSITIVE_INFINITY) {
    const { isInputBelow } = deps.routing.measures
    if (isInputBelow?.(prompt, leastContext - output) !== true) return null
  }
  if (only !== null) {
    only.inc()
    const candidates = groups[0]?.candidates ?? []
    return {
      candidates,
      fallbacks: true,
      skipped: NONE,
      named,
      stay: null,
      choice: 'only',
      rather: null,
      exclusions,
    }
  }
  const terms = deps.routing.terms(caller, exchange.watch.enteredMs)
  const candidates = ranked(groups, terms)
  return whenReady(
    deps.stickiness.order(exchange, candidates, terms.nowMs),
    ({ candidates: stuck, stay }) => {
      const pinned = readersFirst(stuck, prompt)
      const choice = countChoice(deps, prompt, candidates, pinned, pinned)
      const rather = ratherThan(pinned, candidates)
      return { candidates: pinned, fallbacks: true, skipped: NONE, named, stay, choice, rather, exclusions }
    },
  )
}

const NONE: readonly string[] = []

type Candidates = readonly RouteCandidate[]

function ratherThan([first]: Candidates, [ranked]: Candidates): RouteCandidate | null {
  return ranked === undefined || ranked === first ? null : ranked
}

/**
 * Moves the candidate to the front that can read the data sealed last in the conversation, within its model and kind;
 * changes nothing if the caller sets the order.
 */
function readersFirst(candidates: Candidates, { input, provider }: ResponsesRequest): Candidates {
  if (candidates.length < 2 || typeof input === 'string' || (provider?.order?.length ?? 0) > 0)
    return candidates
  const maker = lastMaker(input)
  const at = maker === null ? -1 : candidates.findIndex(candidate => makerOf(candidate) === maker)
  const reader = candidates[at]
  if (reader === undefined) return candidates
  const first = candidates.findIndex(each => areAlike(each, reader))
  return first === at ? candidates : candidates.toSpliced(at, 1).toSpliced(first, 0, reader)
}

/**
 * The candidates that can read the provider-made summaries of the conversation.
 * @throws GatewayError `service_unavailable` if none can
 */
function readersOnly(candidates: Candidates, { input }: ResponsesRequest): Candidates {
  if (typeof input === 'string') return candidates
  let left = candidates
  for (let at = 0; at < input.length; at++) {
    const item = input[at] as InputItem & NotedItem
    const made = item.type === 'compaction' ? item[COMPACTED_BY] : undefined
    if (made === undefined) continue
    left = left.filter(candidate => makerOf(candidate) === made.maker)
    if (left.length === 0) throw noReader(at, made)
  }
  return left
}

function noReader(at: number, { provider }: CompactedBy): GatewayError {
  return new GatewayError(
    'service_unavailable',
    `input[${at}].encrypted_content: only ${provider} can read this summary, with the credential that made it, but this request cannot go there. Send the conversation itself, and compact it again`,
  )
}

/** Determines and counts the reason that the first candidate is first; null if there is no candidate. */
function countChoice(
  { routing, metrics }: RankDeps,
  request: ResponsesRequest,
  ranked: Candidates,
  pinned: Candidates,
  candidates: Candidates,
): EndpointChoice | null {
  const [first] = candidates
  if (first === undefined) return null
  const series = metrics.ofProvider(first.endpoint.provider.slug)
  const choice = reasonOf(first)
  series.chosen(choice).inc()
  return choice

  function reasonOf({ endpoint, credential, state }: RouteCandidate): EndpointChoice {
    if (candidates.length === 1) return 'only'
    if (first !== pinned[0]) return 'plugin'
    if (first !== ranked[0]) return 'pinned'
    if (credential !== null) return 'own_key'
    if (state?.isOpen === true) return 'probe'
    const { order, sort } = request.provider ?? {}
    if ((order?.length ?? 0) > 0 || sort != null) return 'preference'
    return routing.balances && endpoint.pricing.isUnknown !== true ? 'price' : 'order'
  }
}

export interface ExplainRefusedDeps {
  readonly catalog: Catalog
  readonly credentials: Pick<CredentialCatalog, 'of'>
  readonly guard: {
    restrictions(caller: Caller): Restrictions | null | Promise<Restrictions | null>
  }
}

/** The candidates that could have served the request, in order; empty if there are none. Never rejects. */
export async function explainRefused(
  { catalog, credentials, guard }: ExplainRefusedDeps,
  { prompt, dataRegion, caller, dialect }: Exchange,
): Promise<readonly RouteCandidate[]> {
  const { organizationId, workspaceId, keyHash } = caller
  try {
    const ownKeys = await credentials.of(organizationId, workspaceId)
    const restrictions = await guard.restrictions(caller)
    const { embeds } = DIALECT_ABILITIES[dialect]
    const scope = { ownKeys, keyHash, dataRegion, restrictions, dialect, embeds }
    return route(prompt, catalog, scope).candidates
  } catch {
    // The caller gets the refusal of the request, not this error.
    return []
  }
}
