/**
 * Ranking: finds the candidates of a request, in the order in which they are tried. Hot path.
 *
 * names -> endpoints and own keys -> filters -> groups -> rankers -> only readers of summaries -> session affinity ->
 * readers of sealed content first -> order of plugins -> reason
 *
 * Models keep the order of the request. Within a model, own keys come first, even before the caller's `order`; then the
 * shared endpoints; then own keys that are fallbacks. Within such a group the rankers order the endpoints. Several keys
 * for one endpoint keep their sort order. Plain requests begin at the rankers: their plan has the groups (plans.ts).
 */
import { GatewayError } from '../../base/errors.ts'
import { whenReady } from '../../base/maybe-promise.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { Count } from '../../base/metrics/series.ts'
import type { EndpointChoice } from '../../base/metrics/table.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type { Exclusion, RankingNotes } from '../../exchange/reasons.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'
import type { InputItem } from '../../protocol/items.ts'
import { COMPACTED_BY, type CompactedBy, type NotedItem } from '../../protocol/json/request-notes.ts'
import { type Model, makesEmbeddings } from '../../protocol/provider.ts'
import type { Caller } from '../../protocol/records.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Route, RouteTarget } from '../../protocol/route.ts'
import { lastMaker } from '../../protocol/sealed-content.ts'
import { type Filter, makerOf, type RouteCandidate, SharedCandidates } from './candidate.ts'
import { filtersFor, NO_SHARED_KEY, preferredFor } from './filters.ts'
import { isAcrossModels, type NamedModel, resolveModel, resolveModels } from './names.ts'
import { Needs } from './needs.ts'
import { PROVIDER_PAUSED } from './pauses.ts'
import {
  type FittingPlugins,
  NO_PREFERENCES,
  type RankFacts,
  type RankInput,
  type RankInputDeps,
  type RankTerms,
  type Routing,
  rankInput,
  routedOf,
} from './rank-input.ts'
import { type Group, rankGroups, wantsPrice } from './rankers.ts'
import { allPaused, nothingLeft, wrongEndpoint } from './refusal.ts'
import type { Restrictions } from './restrictions.ts'
import { drawnTargets } from './route-targets.ts'
import { tierWish } from './service-tiers.ts'
import { areAlike, type CandidatePin, type Stickiness } from './sticky.ts'

export interface RankDeps extends RankInputDeps {
  readonly stickiness: Stickiness
  readonly routing: Routing
  readonly metrics: Metrics
}

/** The exchange as ranking needs it. */
interface RankedExchange extends Exchange {
  /** Null if no guardrail applies to the caller. */
  readonly guarding: { readonly restrictions: Restrictions | null } | null
  readonly plugins:
    | (FittingPlugins & {
        order(candidates: Candidates, exchange: Exchange): Candidates
      })
    | null
  /** Null or absent if it takes the general path. */
  readonly plan?: PlannedRoute | null
}

type Candidates = readonly RouteCandidate[]

/** The endpoints and own keys that may serve a request. */
export interface Listing {
  /** The model that the request names first, as resolved. */
  readonly namedModel: NamedModel
  /** Models of the request that the catalogue does not have. */
  readonly skipped: readonly string[]
  /** In order; the candidates of each are not ranked. None is empty. */
  readonly groups: readonly Group[]
  /** True if a failure may move on to the next candidate. */
  readonly fallbacks: boolean
  readonly exclusions: readonly Exclusion[]
}

/** The listing of plain requests for one model, which does not depend on their bytes. */
export interface PlainRoute extends Listing {
  /** A request with up to this many tokens fits all endpoints; infinite if any request does. */
  readonly leastContext: number
  /** An answer with up to this many tokens fits all endpoints; infinite if any answer does. */
  readonly leastOutput: number
  /**
   * The ranking if it is the same for every request, and its count; null if requests choose from several candidates.
   */
  readonly only: { readonly ranking: Ranking; readonly count: Count } | null
}

/** The listings of plain requests for a route, one for each target that may serve the caller. */
export interface PlainSplit {
  readonly route: Route
  readonly routes: ReadonlyMap<RouteTarget, PlainRoute>
}

/** The part of a plan about routing. */
export interface PlannedRoute {
  readonly route: PlainRoute
  /** Null: the request names a model. */
  readonly split: PlainSplit | null
  readonly restrictions: Restrictions | null
}

export interface Ranking extends RankingNotes, Omit<Listing, 'groups'> {
  readonly candidates: Candidates
  /** Pins the candidate that succeeds; null if nothing is pinned. */
  readonly affinity: CandidatePin | null
}

/**
 * Finds the candidates of an exchange for its prompt in its current form, and notes them. Returns a promise only if
 * limits, own keys or pins have to be fetched.
 * @throws (or rejects with) GatewayError as `listCandidates`, or `service_unavailable` if no candidate can read a
 * summary in the conversation
 */
export function rankCandidates(deps: RankDeps, exchange: RankedExchange): Ranking | Promise<Ranking> {
  const { caller, dataRegion, dialect, guarding, plan, plugins, prompt: request } = exchange
  const { routing } = deps
  const restrictions = guarding?.restrictions ?? null
  const output = request.max_output_tokens ?? 0
  const plainRoute =
    plan == null ? null : plan.split === null ? plan.route : plainRouteOf(plan.split, exchange, routing)
  // Guardrails may have been reloaded since the plan was made, and a long request may not fit all of its endpoints.
  if (
    plainRoute !== null &&
    plan?.restrictions === restrictions &&
    output <= plainRoute.leastOutput &&
    (plainRoute.leastContext === Number.POSITIVE_INFINITY ||
      routing.isInputBelow?.(request, plainRoute.leastContext - output) === true)
  ) {
    const { only } = plainRoute
    if (only === null) {
      const nowMs = exchange.watch.enteredMs
      return rank(deps, exchange, plainRoute, {
        routing,
        request,
        preferences: NO_PREFERENCES,
        caller,
        nowMs,
      })
    }
    only.count.inc()
    return noteRanking(exchange, only.ranking)
  }
  return whenReady(
    rankInput(deps, { request, caller, dialect, dataRegion, restrictions, plugins, exchange }),
    input => {
      // A request that is refused here has exclusions too.
      exchange.ranking = { ...exchange.ranking, exclusions: input.exclusions?.list ?? [] }
      const listing = listCandidates(input)
      exchange.rollout = listing.namedModel.rollout ?? null
      return rank(deps, exchange, listing, input)
    },
  )
}

/** Orders the candidates of a listing. */
function rank(
  deps: RankDeps,
  exchange: RankedExchange,
  { groups, namedModel, skipped, fallbacks, exclusions }: Listing,
  terms: RankTerms,
): Ranking | Promise<Ranking> {
  const { plugins, prompt } = exchange
  const ranked = readersOnly(rankGroups(groups, terms), prompt)
  const orderedCandidates =
    exchange.batch === undefined
      ? deps.stickiness.order(exchange, ranked, terms.nowMs)
      : { candidates: ranked, affinity: null }
  return whenReady(orderedCandidates, ({ candidates: stickyCandidates, affinity }) => {
    const pinnedCandidates = readersFirst(stickyCandidates, prompt)
    const candidates = plugins?.order(pinnedCandidates, exchange) ?? pinnedCandidates
    const [first] = candidates
    let choice: EndpointChoice | null = null
    if (first !== undefined) {
      if (candidates.length === 1) choice = 'only'
      else if (first !== pinnedCandidates[0]) choice = 'plugin'
      else if (first !== ranked[0]) choice = 'pinned'
      else choice = reasonOf(first, groups, terms)
      deps.metrics.ofProvider(first.endpoint.provider.slug).endpointChoice(choice).inc()
    }
    const rather = first === ranked[0] ? null : (ranked[0] ?? null)
    const { route } = namedModel
    return noteRanking(exchange, {
      candidates,
      fallbacks,
      skipped,
      namedModel,
      route,
      affinity,
      choice,
      rather,
      exclusions,
    })
  })
}

/** Notes the candidates, their order and the reasons, and applies the settings in the name of the model. */
function noteRanking(exchange: RankedExchange, ranking: Ranking): Ranking {
  const { kind, isThinking, model } = ranking.namedModel
  exchange.candidates = ranking.candidates
  exchange.ranking = ranking
  if (kind !== 'plain' && exchange.strategy === 'direct') exchange.strategy = kind
  if (isThinking && !makesEmbeddings(model)) exchange.prompt = withReasoning(exchange.prompt)
  return ranking
}

/** The prompt with reasoning on; the caller's own setting takes precedence. */
function withReasoning(prompt: ResponsesRequest): ResponsesRequest {
  const { effort, max_tokens, enabled } = prompt.reasoning ?? {}
  if (effort != null || max_tokens != null || enabled != null) return prompt
  return { ...prompt, reasoning: { ...prompt.reasoning, enabled: true } }
}

/** The reason that the rankers put a candidate first. */
function reasonOf(
  { endpoint, credential, state }: RouteCandidate,
  groups: readonly Group[],
  { preferences: { order, sort }, routing }: RankTerms,
): EndpointChoice {
  if (credential !== null) return 'own_key'
  if (state?.isOpen === true) return 'probe'
  // Candidates of other groups come later, whatever their order is.
  for (const { candidates } of groups)
    if (candidates.length === 1 && candidates[0]?.endpoint === endpoint) return 'only'
  if ((order?.length ?? 0) > 0 || sort != null) return 'preference'
  return routing.balances && endpoint.pricing.isUnknown !== true ? 'price' : 'order'
}

/**
 * Lists the candidates of all models of a request.
 * @throws GatewayError `model_not_found`, or the dialect's own error, for a model that the catalogue does not have;
 * `wrong_endpoint` for a model with another kind of output; `permission_denied` if guardrails leave nothing;
 * `constraint_filtered` if preferences or the data region do, or if no endpoint accepts the input or so long an answer;
 * `service_unavailable` if the providers that could serve the request are paused; `context_length_exceeded` if no
 * endpoint has room for the prompt; `no_endpoints` if no usable key is left.
 */
export function listCandidates(input: RankInput): Listing {
  const { catalog, dialect, exclusions, preferences, request } = input
  const { models, skipped } = resolveModels(request, catalog, dialect)
  const { embeds } = DIALECT_ABILITIES[dialect]
  for (const { model } of models) if (makesEmbeddings(model) !== embeds) throw wrongEndpoint(model)
  const needs = new Needs(input, true)
  let listing = listModels(models, needs, input)
  if (listing.groups.length === 0 && needs.admitCuts()) {
    exclusions?.clear()
    listing = listModels(models, needs, input)
  }
  if (listing.groups.length === 0) {
    const requestedModels = models.map(({ model }) => model)
    if (exclusions?.reasons.has(PROVIDER_PAUSED)) throw allPaused(requestedModels, exclusions, input.routing)
    if (exclusions?.reasons.size === 0 && models[0].route !== undefined) throw noTarget(models[0].route)
    throw nothingLeft(requestedModels, preferences, needs, exclusions?.reasons ?? new Set())
  }
  const { groups, namedModel } = listing
  const { allow_fallbacks, order } = groups[0]?.preferences ?? preferences
  return {
    namedModel,
    skipped,
    groups,
    fallbacks: allow_fallbacks !== false || (order?.length ?? 0) > 0,
    exclusions: exclusions?.list ?? [],
  }
}

/** The groups of a request, and the model that comes first in them. */
interface ModelListing {
  readonly groups: readonly Group[]
  readonly namedModel: NamedModel
}

function listModels(
  models: readonly [NamedModel, ...NamedModel[]],
  needs: Needs,
  input: RankInput,
): ModelListing {
  const [namedModel] = models
  if (models.length === 1) return listNamed(namedModel, needs, input)
  const listings = models.map(model => listNamed(model, needs, input))
  const groups = listings.flatMap(listing => listing.groups)
  const [first] = groups
  const chosenModel = listings[0]?.namedModel ?? namedModel
  // A route has an order of its own.
  if (
    first === undefined ||
    !isAcrossModels(input.request) ||
    models.some(({ route }) => route !== undefined)
  )
    return { groups, namedModel: chosenModel }
  const mergedGroups = (['own', 'shared', 'fallback'] as const).flatMap(kind => {
    const candidates = groups.flatMap(group => (group.kind === kind ? group.candidates : []))
    return candidates.length === 0 ? [] : [{ ...first, kind, candidates }]
  })
  return { groups: mergedGroups, namedModel: chosenModel }
}

function listNamed(namedModel: NamedModel, needs: Needs, input: RankInput): ModelListing {
  const { route } = namedModel.model
  return route === undefined
    ? { groups: listModel(namedModel, needs, input), namedModel }
    : listRoute(namedModel, route, needs, input)
}

/**
 * The candidate of a rollout if the request belongs to it, otherwise the first target with an endpoint that may serve
 * the request; then the fallbacks of the route.
 */
function listRoute(namedModel: NamedModel, route: Route, needs: Needs, input: RankInput): ModelListing {
  const { routed, routing } = input
  const trial = routed === null ? null : (routing.rollouts?.of(route) ?? null)
  const candidateTarget = trial === null ? null : listTarget(namedModel, trial.candidate, needs, input)
  // Only requests that the candidate may serve are compared.
  const part = routed === null || trial === null || candidateTarget === null ? null : trial.part(routed)
  let target: ModelListing | null = part?.arm === 'candidate' ? candidateTarget : null
  if (target === null)
    for (const routeTarget of routed === null ? route.targets : drawnTargets(route, routed)) {
      target = listTarget(namedModel, routeTarget, needs, input)
      if (target !== null) break
    }
  const fallbacks = listFallbacks(namedModel, route, target?.namedModel.model ?? null, needs, input)
  const [first] = fallbacks
  const groups = [...(target?.groups ?? []), ...fallbacks.flatMap(fallback => fallback.groups)]
  if (target === null) return { groups, namedModel: first?.namedModel ?? namedModel }
  return { groups, namedModel: part === null ? target.namedModel : { ...target.namedModel, rollout: part } }
}

/** Null if no endpoint of the target may serve the request. */
export function listTarget(
  namedModel: NamedModel,
  { model, preferences }: RouteTarget,
  needs: Needs,
  input: RankInput,
): ModelListing | null {
  const targetModel = resolveBehindRoute(namedModel, model, input)
  if (targetModel === null) return null
  if (preferences === null) {
    const groups = listModel(targetModel, needs, input)
    return groups.length === 0 ? null : { groups, namedModel: targetModel }
  }
  const mergedPreferences = { ...input.preferences, ...preferences }
  const groups = listModel(targetModel, needs, { ...input, preferences: mergedPreferences })
  return groups.length === 0
    ? null
    : { groups: groups.map(group => ({ ...group, preferences: mergedPreferences })), namedModel: targetModel }
}

/** The fallbacks of a route that may serve the request, without the model that comes before them. */
export function listFallbacks(
  namedModel: NamedModel,
  { fallback }: Route,
  before: Model | null,
  needs: Needs,
  input: RankInput,
): readonly ModelListing[] {
  return fallback.flatMap(id => {
    const fallbackModel = resolveBehindRoute(namedModel, id, input)
    if (fallbackModel === null || fallbackModel.model === before) return []
    const groups = listModel(fallbackModel, needs, input)
    return groups.length === 0 ? [] : [{ groups, namedModel: fallbackModel }]
  })
}

/** A model behind a route, with what the name of the route asks for; null: the catalogue does not have it. */
function resolveBehindRoute({ route, ...wish }: NamedModel, id: string, input: RankInput): NamedModel | null {
  const resolvedModel = resolveModel(id, input.catalog, input.request.reasoning?.mode)
  if (resolvedModel === null || resolvedModel.model.route !== undefined || route === undefined) return null
  return { ...resolvedModel, ...wish, model: resolvedModel.model, route }
}

function plainRouteOf(
  { route, routes }: PlainSplit,
  exchange: RankedExchange,
  routing: RankFacts,
): PlainRoute | null {
  const routed = routedOf(exchange, routing)
  const trial = route.rollout === null ? null : (routing.rollouts?.of(route) ?? null)
  const candidateRoute = trial === null ? undefined : routes.get(trial.candidate)
  if (trial !== null && candidateRoute !== undefined) {
    const part = trial.part(routed)
    exchange.rollout = part
    if (part.arm === 'candidate') return candidateRoute
  }
  for (const target of drawnTargets(route, routed)) {
    const plainRoute = routes.get(target)
    if (plainRoute !== undefined) return plainRoute
  }
  return null
}

function noTarget(route: string): GatewayError {
  return new GatewayError(
    'constraint_filtered',
    `No target of the route ${route} can serve this request, and the route has no fallback. Have the operator add a target without conditions.`,
  )
}

/** The candidates of one model that may serve the request, in groups without empty ones. */
export function listModel(namedModel: NamedModel, needs: Needs, input: RankInput): readonly Group[] {
  const { exclusions, preferences, request, routing } = input
  const candidates = routing.shared.of(namedModel.model)
  const tiers = tierWish(request.service_tier, namedModel.tier)
  const sort =
    (typeof preferences.sort === 'object' ? preferences.sort?.by : preferences.sort) ?? namedModel.sort
  const wish = { input, needs, candidates, isFree: namedModel.isFree, tiers }
  const filters = filtersFor(wish)
  const orderTerms = { sort, tiers }
  // All candidates at hand have shared keys.
  const isPlain =
    (filters.length === 0 || (filters.length === 1 && filters[0]?.excludedBy === NO_SHARED_KEY)) &&
    input.restrictions === null &&
    candidates.plain.length > 0
  let groups: readonly Group[] = isPlain
    ? [{ kind: 'shared', candidates: candidates.plain, ...orderTerms }]
    : filterCandidates(candidates.unfiltered, filters, orderTerms, input)
  for (const preferred of preferredFor(wish)) {
    const fittingGroups = groups.map(group => fittingOf(group, preferred))
    const nonEmpty = fittingGroups.filter(group => group.candidates.length > 0)
    if (nonEmpty.length === 0) continue
    for (const group of groups)
      if (!fittingGroups.includes(group)) exclusions?.addUnpreferred(group.candidates, preferred)
    groups = nonEmpty
  }
  return groups
}

/** The same group if all its candidates fit, because the order of its list by price is cached. */
function fittingOf(group: Group, { admits }: Filter): Group {
  const candidates = group.candidates.filter(admits)
  return candidates.length === group.candidates.length ? group : { ...group, candidates }
}

/** Puts the endpoints, and the own keys for them, through the filters. */
function filterCandidates(
  unfiltered: Candidates,
  filters: readonly Filter[],
  orderTerms: Pick<Group, 'sort' | 'tiers'>,
  input: RankInput,
): readonly Group[] {
  const { caller, exclusions, ownKeys, request, restrictions } = input
  const { shared } = input.routing
  const ownCandidates: RouteCandidate[] = []
  const sharedCandidates: RouteCandidate[] = []
  const fallbackCandidates: RouteCandidate[] = []
  const offer = (candidate: RouteCandidate): void => {
    // Guardrails come last, so that they are named only if the candidate would have served otherwise.
    const by = refusedBy(filters, candidate) ?? restrictions?.excludedBy(candidate) ?? null
    if (by !== null) exclusions?.add(candidate, by)
    else if (candidate.credential === null) sharedCandidates.push(candidate)
    else if (candidate.credential.isFallback) fallbackCandidates.push(candidate)
    else ownCandidates.push(candidate)
  }
  const asker = { keyHash: caller.keyHash, user: request.user ?? null }
  // A list that is filtered in the order of prices need not be sorted. Own keys keep the order of the file.
  const isByPrice = ownKeys.isEmpty && wantsPrice({ kind: 'shared', ...orderTerms }, input)
  for (const candidate of isByPrice ? shared.allByPrice(unfiltered) : unfiltered) {
    const { endpoint } = candidate
    offer(candidate)
    if (ownKeys.isEmpty) continue
    for (const credential of ownKeys.select(endpoint, asker)) offer({ endpoint, credential })
    exclusions?.addRestricted(endpoint, ownKeys.unfit(endpoint, asker))
  }
  if (isByPrice) shared.noteSorted(sharedCandidates)
  const groups: readonly Group[] = [
    { kind: 'own', candidates: ownCandidates, ...orderTerms },
    { kind: 'shared', candidates: sharedCandidates, ...orderTerms },
    { kind: 'fallback', candidates: fallbackCandidates, ...orderTerms },
  ]
  return groups.filter(group => group.candidates.length > 0)
}

/** The first filter that leaves the candidate out. Not `find`, because a closure for each candidate takes time. */
function refusedBy(filters: readonly Filter[], candidate: RouteCandidate): string | null {
  for (let index = 0; index < filters.length; index++) {
    const { admits, excludedBy } = filters[index] as Filter
    if (!admits(candidate)) return excludedBy
  }
  return null
}

/**
 * Moves the candidate to the front that can read the data sealed last in the conversation, within its model and kind;
 * changes nothing if the caller sets the order.
 */
function readersFirst(candidates: Candidates, { input, provider }: ResponsesRequest): Candidates {
  if (candidates.length < 2 || typeof input === 'string' || (provider?.order?.length ?? 0) > 0)
    return candidates
  const maker = lastMaker(input)
  const readerIndex = maker === null ? -1 : candidates.findIndex(candidate => makerOf(candidate) === maker)
  const reader = candidates[readerIndex]
  if (reader === undefined) return candidates
  const firstIndex = candidates.findIndex(candidate => areAlike(candidate, reader))
  return firstIndex === readerIndex
    ? candidates
    : candidates.toSpliced(readerIndex, 1).toSpliced(firstIndex, 0, reader)
}

/**
 * The candidates that can read the provider-made summaries of the conversation.
 * @throws GatewayError `service_unavailable` if none can
 */
function readersOnly(candidates: Candidates, { input }: ResponsesRequest): Candidates {
  if (typeof input === 'string') return candidates
  let remaining = candidates
  for (let index = 0; index < input.length; index++) {
    const item = input[index] as InputItem & NotedItem
    const summary = item.type === 'compaction' ? item[COMPACTED_BY] : undefined
    if (summary === undefined) continue
    remaining = remaining.filter(candidate => makerOf(candidate) === summary.maker)
    if (remaining.length === 0) throw noReader(index, summary)
  }
  return remaining
}

function noReader(index: number, { provider }: CompactedBy): GatewayError {
  return new GatewayError(
    'service_unavailable',
    `input[${index}].encrypted_content: only ${provider} can read this summary, with the credential that made it, but this request cannot go there. Send the conversation itself, and compact it again`,
  )
}

export interface ExplainRefusedDeps extends Pick<RankInputDeps, 'catalog' | 'credentials'> {
  readonly guard: {
    restrictions(caller: Caller): Restrictions | null | Promise<Restrictions | null>
  }
}

/**
 * Notes the candidates that could have served a refused request, for its metadata. They are listed in order; there may be
 * none. Never rejects.
 */
export async function explainRefused(
  { catalog, credentials, guard }: ExplainRefusedDeps,
  exchange: RankedExchange,
): Promise<void> {
  const { candidates, caller, dataRegion, dialect, pipeline, prompt: request, withMetadata } = exchange
  if (!withMetadata || candidates.length > 0 || pipeline.length === 0) return
  const quota = { limitsMoney: () => false }
  try {
    const restrictions = await guard.restrictions(caller)
    const subject = { request, caller, dialect, dataRegion, restrictions, plugins: null }
    const input = await rankInput({ catalog, credentials, quota, routing: nothingKnown() }, subject)
    exchange.candidates = rankGroups(listCandidates(input).groups, input)
  } catch {
    // The caller gets the refusal of the request, not this error.
  }
}

/** The order of the catalogue: no health, no draw, no lengths. */
function nothingKnown(): RankInputDeps['routing'] {
  return {
    clock: { monotonicMs: () => 0, nowMs: () => 0 },
    shared: new SharedCandidates(),
    health: null,
    random: () => 0,
    balances: false,
  }
}
