/**
 * The candidates of a request, in groups. Pure. Hot path. Models keep the order of the request. Within a model, own
 * keys come first, even before the caller's `order`; then the shared endpoints; then own keys that are fallbacks.
 * Within such a group the rankers order the endpoints. Several keys for one endpoint keep their sort order.
 */

import { has } from '../../formats/format-abilities.ts'
import type { DataRegion } from '../../protocol/management/guardrails.ts'
import { type Endpoint, makesEmbeddings, textFormat } from '../../protocol/provider.ts'
import type { DialectName, ResponsesRequest } from '../../protocol/request.ts'
import { routerOf } from '../../protocol/routers.ts'
import type { Catalog } from '../../providers/catalog.ts'
import { NO_CREDENTIALS, type WorkspaceCredentials } from '../../providers/credentials/catalog.ts'
import { honours, usedOf } from '../../providers/parameters.ts'
import { Exclusions, type RouteCandidate } from './candidate.ts'
import type { Filter, Preferences, SpecialFilter, Wish } from './filters.ts'
import { filtersFor, specialFilters, TIER_ADMISSION } from './filters.ts'
import { type NamedModel, namedModel, type SortBy } from './names.ts'
import { type FittingPlugins, type Measures, Needs } from './needs.ts'
import { type Group, type RankTerms, rankGroup, wantsPrice } from './rankers.ts'
import { BYOK_REQUIRED, NO_SHARED_KEY, nothingLeft, unknownModel, wrongEndpoint } from './refusal.ts'
import type { Restrictions } from './restrictions.ts'
import { isOfTier, tierWish } from './service-tiers.ts'
import { hasSharedKey, SharedCandidates } from './shared-candidates.ts'

interface Route {
  readonly candidates: readonly RouteCandidate[]
  /** True if a failure may move on to the next candidate. */
  readonly fallbacks: boolean
  /** Models of the request that the catalogue does not have. */
  readonly skipped: readonly string[]
  /** The model that the request names first, as resolved. */
  readonly named: NamedModel
}

/** The facts about the caller that routing needs. */
export interface RouteScope extends Measures {
  /** Those of the caller's workspace. */
  readonly ownKeys: WorkspaceCredentials
  /** SHA-256 of the caller's API key. */
  readonly keyHash: string
  readonly dataRegion: DataRegion | null
  /** Restrictions of guardrails; null: none. */
  readonly restrictions?: Restrictions | null
  /** True if the caller has spending limits. */
  readonly isLimited?: boolean
  /** True if the caller asks for embeddings, otherwise for text. Default false. */
  readonly embeds?: boolean
  /** The plugins of the request; null: none. */
  readonly plugins?: FittingPlugins | null
  /** The caller's dialect. Default: Responses. */
  readonly dialect?: DialectName
  /** Collects candidates that are left out, with the reasons. Default: they are not collected. */
  readonly exclusions?: Exclusions
}

const SHARED_ONLY: RouteScope = { ownKeys: NO_CREDENTIALS, keyHash: '', dataRegion: null }

/** If some endpoints honour these parameters, only those are called, even without `require_parameters`. */
const PREFERRED_PARAMETERS = ['tools', 'response_format', 'verbosity'] as const

/** Terms for a route without health and without a draw. */
function neutralTerms(): RankTerms {
  return {
    shared: new SharedCandidates(),
    health: null,
    nowMs: 0,
    caller: null,
    random: () => 0,
    balances: false,
  }
}

/**
 * Finds the candidates of a request.
 * @throws GatewayError `model_not_found`, or the dialect's own error, for a model that the catalogue does not have;
 * `wrong_endpoint` for a model with another kind of output; `permission_denied` if guardrails leave nothing;
 * `constraint_filtered` if preferences or the data region do, or if no endpoint accepts the input or so long an answer;
 * `context_length_exceeded` if no endpoint has room for the prompt; `no_endpoints` if no usable key is left.
 */
export function route(
  request: ResponsesRequest,
  catalog: Catalog,
  scope: RouteScope = SHARED_ONLY,
  terms: RankTerms = neutralTerms(),
): Route {
  const { models, skipped } = knownModels(request, catalog, scope.dialect ?? 'responses')
  const embeds = scope.embeds === true
  for (const { model } of models) if (makesEmbeddings(model) !== embeds) throw wrongEndpoint(model)
  const preferences: Preferences = request.provider ?? NO_PREFERENCES
  const needs = embeds ? null : new Needs(request, scope, scope.plugins ?? null, scope.isLimited === true)
  const special = embeds ? NO_FILTERS : specialFilters(request, scope.dialect ?? 'responses')
  const [first] = models
  // There is at least one: knownModels has refused a request without any.
  const named = first as NamedModel
  const exclusions = scope.exclusions ?? new Exclusions()
  const list = (): RouteList =>
    listCandidates(models, request, preferences, scope, needs, special, terms, exclusions)
  let listed = list()
  if (listed.candidates.length === 0 && needs?.admitCuts() === true) {
    exclusions.clear()
    listed = list()
  }
  const { candidates, filters } = listed
  if (candidates.length === 0) {
    throw nothingLeft({
      models: models.map(({ model }) => model),
      preferences,
      filters,
      excludedBy: exclusions.reasons,
      needs,
      special,
    })
  }
  return {
    candidates,
    fallbacks: preferences.allow_fallbacks !== false || (preferences.order?.length ?? 0) > 0,
    skipped,
    named,
  }
}

interface RouteList {
  readonly candidates: readonly RouteCandidate[]
  readonly filters: readonly Filter[]
}

/** Lists the candidates of all models, in the order in which they are tried. */
function listCandidates(
  models: readonly NamedModel[],
  request: ResponsesRequest,
  preferences: Preferences,
  scope: RouteScope,
  needs: Needs | null,
  special: readonly SpecialFilter[],
  terms: RankTerms,
  exclusions: Exclusions,
): RouteList {
  const [first, second] = models
  if (first !== undefined && second === undefined) {
    const { groups, filters } = listGroups(
      first,
      request,
      preferences,
      scope,
      needs,
      special,
      terms,
      exclusions,
    )
    return { candidates: ranked(groups, terms), filters }
  }
  const perModel = models.map(model =>
    listGroups(model, request, preferences, scope, needs, special, terms, exclusions),
  )
  const groups = isAcrossModels(request)
    ? acrossModels(perModel, preferences)
    : perModel.flatMap(each => each.groups)
  return { candidates: ranked(groups, terms), filters: perModel.flatMap(each => each.filters) }
}

const NO_PREFERENCES: Preferences = {}
const NO_FILTERS: readonly SpecialFilter[] = []
const NONE: readonly string[] = []

/** Ranks the candidates of groups, in the order in which they are tried. */
export function ranked(groups: readonly Group[], terms: RankTerms): readonly RouteCandidate[] {
  const [only] = groups
  if (only !== undefined && groups.length === 1) return rankGroup(only, terms)
  return groups.flatMap(group => rankGroup(group, terms))
}

/** An unknown model of `models` is skipped as long as another one is left; an unknown `model` is an error. */
function knownModels(
  request: ResponsesRequest,
  catalog: Catalog,
  dialect: DialectName,
): { models: readonly NamedModel[]; skipped: readonly string[] } {
  const mode = request.reasoning?.mode
  const { model, models: list } = request
  if (model !== undefined && (list === undefined || list.length === 0)) {
    const named = namedModel(model, catalog, mode)
    if (named === null) throw unknownModel(model, catalog, dialect)
    return { models: [named], skipped: NONE }
  }
  const models: NamedModel[] = []
  const skipped: string[] = []
  for (const id of requestedModels(request)) {
    const named = namedModel(id, catalog, mode)
    if (named !== null) {
      if (!models.some(known => known.model === named.model)) models.push(named)
    } else if (id === request.model) throw unknownModel(id, catalog, dialect)
    else skipped.push(id)
  }
  const [first = ''] = skipped
  if (models.length === 0) throw unknownModel(first, catalog, dialect)
  return { models, skipped }
}

/** The id of the model, or the router, that a request names first. @throws GatewayError for an unknown model */
export function modelAskedFor(request: ResponsesRequest, catalog: Catalog, dialect: DialectName): string {
  const router = routerOf(request)
  if (router !== null) return router.slug
  const [named] = knownModels(request, catalog, dialect).models
  return (named as NamedModel).model.id
}

/** True for one order over all models of a request, false for model by model. `route: "sort"` is the old spelling. */
export function isAcrossModels({ provider, route }: ResponsesRequest): boolean {
  const sort = provider?.sort
  const partition = typeof sort === 'object' ? sort?.partition : null
  return partition == null ? route === 'sort' : partition === 'none'
}

/** `model` first, then `models`, each once. */
function requestedModels(request: ResponsesRequest): string[] {
  return [...new Set([...(request.model === undefined ? [] : [request.model]), ...(request.models ?? [])])]
}

function sortOf({ sort }: Preferences): SortBy | null {
  return (typeof sort === 'object' ? sort?.by : sort) ?? null
}

interface Listed {
  /** In order, without empty ones. */
  readonly groups: readonly Group[]
  readonly filters: readonly Filter[]
}

/** All candidates of a model that may serve the request, unranked; empty if there are none. */
export function servable(
  named: NamedModel,
  request: ResponsesRequest,
  scope: RouteScope,
  terms: RankTerms,
): readonly RouteCandidate[] {
  // Routers compare lengths and modalities themselves.
  const preferences = request.provider ?? NO_PREFERENCES
  const special = specialFilters(request, scope.dialect ?? 'responses')
  const { groups } = listGroups(named, request, preferences, scope, null, special, terms, null)
  const [only] = groups
  return only !== undefined && groups.length === 1
    ? only.candidates
    : groups.flatMap(group => group.candidates)
}

/** Lists the candidates of one model that may serve the request. `exclusions` is null if they are not needed. */
export function listGroups(
  named: NamedModel,
  request: ResponsesRequest,
  preferences: Preferences,
  scope: RouteScope,
  needs: Needs | null,
  special: readonly Filter[],
  terms: RankTerms,
  exclusions: Exclusions | null,
): Listed {
  const { model, isFree } = named
  const candidates = terms.shared.of(model)
  const { all, plain, hasTiers, lengthsDiffer } = candidates
  const tiers = tierWish(request.service_tier, named.tier)
  const sort = sortOf(preferences) ?? named.sort
  const wanted = { preferences, sort, tiers, hasTools: (request.tools?.length ?? 0) > 0 }
  const { ownKeys, restrictions = null, dataRegion } = scope
  const { isLimited = false } = scope
  const inputTokens = scope.embeds === true ? undefined : scope.inputTokens
  const wish: Wish = { request, preferences, dataRegion, isLimited, isFree, tiers, inputTokens }
  const known = filtersFor(wish)
  const needed = needs?.filters(candidates) ?? NO_FILTERS
  const filters =
    hasTiers || needed.length > 0 || special.length > 0
      ? [...(hasTiers ? [TIER_ADMISSION] : NO_FILTERS), ...known, ...needed, ...special]
      : known
  const isPlain = filters.length === 0 && restrictions === null && ownKeys.isEmpty && plain.length > 0
  let own: RouteCandidate[] = []
  let shared: readonly RouteCandidate[] = plain
  let fallback: RouteCandidate[] = []
  if (!isPlain) {
    const open: RouteCandidate[] = []
    const offer = (candidate: RouteCandidate): void => {
      const refused = refusedBy(filters, candidate, wish)
      // Guardrails come last, so that they are named only if the candidate would have served otherwise.
      const restriction = refused === undefined ? (restrictions?.excludedBy(candidate) ?? null) : null
      if (refused !== undefined) exclusions?.add(candidate, refused.excludedBy)
      else if (restriction !== null) exclusions?.add(candidate, restriction)
      else if (candidate.credential === null) open.push(candidate)
      else if (candidate.credential.isFallback) fallback.push(candidate)
      else own.push(candidate)
    }
    const asker = { keyHash: scope.keyHash, user: request.user ?? null }
    const isReserved = !ownKeys.isEmpty && ownKeys.isByokOnly(model)
    // A list that is filtered in the order of prices need not be sorted. Own keys keep the order of the file.
    const isByPrice = ownKeys.isEmpty && wantsPrice({ kind: 'shared', ...wanted }, terms)
    for (const candidate of isByPrice ? terms.shared.allByPrice(all) : all) {
      const { endpoint } = candidate
      const { provider } = endpoint
      if (isReserved || ownKeys.isRequiredAt(provider.slug)) exclusions?.add(candidate, BYOK_REQUIRED)
      else if (!hasSharedKey(provider)) exclusions?.add(candidate, NO_SHARED_KEY)
      else offer(candidate)
      if (ownKeys.isEmpty) continue
      for (const credential of ownKeys.select(endpoint, asker)) offer({ endpoint, credential })
      exclusions?.restrict(endpoint, ownKeys.unfit(endpoint, asker))
    }
    if (isByPrice) terms.shared.noteSorted(open)
    shared = open
  }
  const narrow = (by: string, isBetter: (endpoint: Endpoint) => boolean): void => {
    const fits = ({ endpoint }: RouteCandidate): boolean => isBetter(endpoint)
    if (!own.some(fits) && !shared.some(fits) && !fallback.some(fits)) return
    exclusions?.prefer(by, fits, own, shared, fallback)
    own = own.filter(fits)
    // The same list if nothing is removed, because its order by price is cached.
    if (!shared.every(fits)) shared = shared.filter(fits)
    fallback = fallback.filter(fits)
  }
  if (hasTiers && tiers.only !== null) {
    const { only } = tiers
    narrow('other_service_tier', endpoint => isOfTier(endpoint, only))
  }
  const used = usedOf(request, PREFERRED_PARAMETERS)
  if (used.length > 0) narrow('fewer_parameters', endpoint => used.every(name => honours(endpoint, name)))
  // Formats without this mode get a hint in words, which is less reliable.
  if (request.text?.format?.type === 'json_object')
    narrow('no_json_object', endpoint => has(textFormat(endpoint), 'json_object'))
  if (lengthsDiffer && needs !== null) narrow('probably_too_short', endpoint => needs.fits(endpoint))
  const groups: Group[] = []
  if (own.length > 0) groups.push({ kind: 'own', candidates: own, ...wanted })
  if (shared.length > 0) groups.push({ kind: 'shared', candidates: shared, ...wanted })
  if (fallback.length > 0) groups.push({ kind: 'fallback', candidates: fallback, ...wanted })
  return { groups, filters }
}

/** The first filter that leaves the candidate out. Not `find`, because a closure for each candidate takes time. */
function refusedBy(filters: readonly Filter[], candidate: RouteCandidate, wish: Wish): Filter | undefined {
  for (let at = 0; at < filters.length; at++) {
    const filter = filters[at] as Filter
    if (!filter.admits(candidate, wish)) return filter
  }
  return undefined
}

/** One order over all models. */
function acrossModels(perModel: readonly Listed[], preferences: Preferences): readonly Group[] {
  const groups = perModel.flatMap(each => each.groups)
  const [first] = groups
  if (first === undefined) return groups
  return (['own', 'shared', 'fallback'] as const).flatMap(kind => {
    const candidates = groups.flatMap(group => (group.kind === kind ? group.candidates : []))
    return candidates.length === 0 ? [] : [{ ...first, kind, candidates, preferences }]
  })
}
