/**
 * Candidates of a request, in the order in which they are tried. Pure.
 * Models keep the order of the request. Within a model, own keys come first, even before the caller's `order`; then
 * the shared endpoints; then own keys that are fallbacks. Within each of the three, the caller's preferences or else
 * the catalogue order the endpoints. Several keys for one endpoint keep their sort order.
 */
import { NO_CREDENTIALS, type WorkspaceCredentials } from '../../credentials/catalog.ts'
import { type FailureCode, GatewayError } from '../../errors.ts'
import type { DataRegion } from '../../protocol/guardrails.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Catalog } from '../../providers/catalog.ts'
import { type Endpoint, type Model, makesEmbeddings, type Provider } from '../../providers/provider.ts'
import type { RouteCandidate } from './candidate.ts'
import {
  type Filter,
  filtersFor,
  namesProvider,
  type Preferences,
  RESTRICTIONS,
  type Restrictions,
  UNKNOWN_PRICE,
  type Wish,
} from './filters.ts'
import { unsupported } from './parameters.ts'

export interface Route {
  readonly candidates: readonly RouteCandidate[]
  /** True if a failure may move on to the next candidate. */
  readonly fallbacks: boolean
  /** Models of the request that the catalogue does not have. */
  readonly skipped: readonly string[]
}

/** For whom a request is routed. */
export interface RouteScope {
  /** Of the caller's workspace. */
  readonly ownKeys: WorkspaceCredentials
  /** SHA-256 of the caller's API key. */
  readonly keyHash: string
  readonly dataRegion: DataRegion | null
  /** Restrictions of guardrails; null: none. */
  readonly restrictions?: Restrictions | null
  /** True: limits of money hold for the caller. */
  readonly isLimited?: boolean
  /** True: the caller asks for embeddings, otherwise for text. Default false. */
  readonly embeds?: boolean
}

const SHARED_ONLY: RouteScope = { ownKeys: NO_CREDENTIALS, keyHash: '', dataRegion: null }

/** Reasons of ours, beside those of the filters, to leave out the shared endpoints of a model. */
const BYOK_REQUIRED = 'byok_required'
const NO_SHARED_KEY = 'no_shared_key'

/** Parameters for which an endpoint that honours them is preferred even when that is not required. */
const PREFERRED_PARAMETERS: ReadonlySet<string> = new Set(['tools', 'response_format', 'verbosity'])

/**
 * @throws GatewayError `model_not_found` for a model that the catalogue does not have, `wrong_endpoint` for one that
 * makes something else; `permission_denied` when guardrails leave nothing, `constraint_filtered` when preferences or
 * data region do, `no_endpoints` when keys do.
 */
export function route(request: ResponsesRequest, catalog: Catalog, scope: RouteScope = SHARED_ONLY): Route {
  const { models, skipped } = knownModels(request, catalog)
  const embeds = scope.embeds === true
  for (const model of models) if (makesEmbeddings(model) !== embeds) throw wrongEndpoint(model)
  const preferences: Preferences = request.provider ?? {}
  const wish: Wish = {
    request,
    preferences,
    dataRegion: scope.dataRegion,
    isLimited: scope.isLimited === true,
  }
  const filters = filtersFor(wish)
  const excludedBy = new Set<string>()
  const perModel = models.map(model => modelTiers(model, wish, scope, filters, excludedBy))
  const tiers = isAcrossModels(request) ? [acrossModels(perModel, preferences)] : perModel
  const candidates = tiers.flatMap(({ own, shared, fallback }) => [...own, ...shared, ...fallback])
  if (candidates.length === 0) throw nothingLeft(models, wish, filters, excludedBy)
  return {
    candidates,
    fallbacks: preferences.allow_fallbacks !== false || (preferences.order?.length ?? 0) > 0,
    skipped,
  }
}

/** An unknown model of `models` is skipped as long as another one is left; an unknown `model` is an error. */
function knownModels(request: ResponsesRequest, catalog: Catalog): { models: Model[]; skipped: string[] } {
  const models: Model[] = []
  const skipped: string[] = []
  for (const id of requestedModels(request)) {
    const model = catalog.model(id)
    if (model !== undefined) models.push(model)
    else if (id === request.model) throw unknownModel(id, catalog)
    else skipped.push(id)
  }
  const [first = ''] = skipped
  if (models.length === 0) throw unknownModel(first, catalog)
  return { models, skipped }
}

function wrongEndpoint(model: Model): GatewayError {
  const message = makesEmbeddings(model)
    ? `${model.id} makes embeddings: use POST /v1/embeddings`
    : `${model.id} makes text: use POST /v1/responses, /v1/chat/completions or /v1/messages; GET /v1/embeddings/models lists models that make embeddings`
  return unavailable('wrong_endpoint', message, [model.id], [])
}

/** Suffixes that a gateway of this kind may give to any model. */
const VARIANTS = new Set(['nitro', 'floor', 'exacto', 'free', 'thinking', 'extended', 'online', 'beta'])

function unknownModel(id: string, catalog: Catalog): GatewayError {
  return unavailable('model_not_found', `${id} is not a valid model ID${adviceFor(id, catalog)}`, [id], [])
}

function adviceFor(id: string, catalog: Catalog): string {
  const at = id.lastIndexOf(':')
  const base = id.slice(0, at)
  if (at !== -1 && VARIANTS.has(id.slice(at + 1)) && catalog.model(base) !== undefined) {
    return `: the variant ${id.slice(at)} is not offered by this gateway yet, only ${base}`
  }
  if (id.startsWith('~')) return ': names of latest models are not offered by this gateway yet'
  const similar = catalog.similar(id)
  const question = similar.length === 0 ? '' : `: did you mean ${similar.join(' or ')}?`
  return `${question}${question === '' ? ':' : ''} GET /v1/models lists all ids`
}

/** One order over all models of the request, or those of the first model first. `route` is how it was once said. */
export function isAcrossModels({ provider, route }: ResponsesRequest): boolean {
  const sort = provider?.sort
  const partition = typeof sort === 'object' ? sort?.partition : null
  return partition == null ? route === 'sort' : partition === 'none'
}

/** `model` first, then `models`, each once. */
function requestedModels(request: ResponsesRequest): string[] {
  return [...new Set([...(request.model === undefined ? [] : [request.model]), ...(request.models ?? [])])]
}

/** Candidates by what goes before what. */
interface Tiers {
  readonly own: readonly RouteCandidate[]
  readonly shared: readonly RouteCandidate[]
  /** Own keys that wait until everything else was tried. */
  readonly fallback: readonly RouteCandidate[]
}

function modelTiers(
  model: Model,
  wish: Wish,
  scope: RouteScope,
  filters: readonly Filter[],
  excludedBy: Set<string>,
): Tiers {
  const own: RouteCandidate[] = []
  const shared: RouteCandidate[] = []
  const fallback: RouteCandidate[] = []
  const offer = (candidate: RouteCandidate): void => {
    const refused = filters.find(filter => !filter.admits(candidate, wish))
    // Guardrails come last: what they refuse would have served.
    const restriction =
      refused === undefined && scope.restrictions != null ? scope.restrictions.excludedBy(candidate) : null
    if (refused !== undefined) excludedBy.add(refused.excludedBy)
    else if (restriction !== null) excludedBy.add(restriction)
    else if (candidate.credential === null) shared.push(candidate)
    else if (candidate.credential.isFallback) fallback.push(candidate)
    else own.push(candidate)
  }
  const { ownKeys } = scope
  const asker = { keyHash: scope.keyHash, user: wish.request.user ?? null }
  const isReserved = !ownKeys.isEmpty && ownKeys.isByokOnly(model)
  for (const endpoint of sortEndpoints(model.endpoints, wish.preferences)) {
    const { provider } = endpoint
    if (isReserved || ownKeys.isRequiredAt(provider.slug)) excludedBy.add(BYOK_REQUIRED)
    else if (!hasSharedKey(provider)) excludedBy.add(NO_SHARED_KEY)
    else offer({ endpoint, credential: null })
    if (ownKeys.isEmpty) continue
    for (const credential of ownKeys.select(endpoint, asker)) offer({ endpoint, credential })
  }
  return preferCapable({ own, shared, fallback }, wish.request)
}

/** Only candidates that honour the preferred parameters, if there are any. */
function preferCapable(tiers: Tiers, request: ResponsesRequest): Tiers {
  const isCapable = ({ endpoint }: RouteCandidate) =>
    unsupported(request, endpoint, PREFERRED_PARAMETERS).length === 0
  const own = tiers.own.filter(isCapable)
  const shared = tiers.shared.filter(isCapable)
  const fallback = tiers.fallback.filter(isCapable)
  return own.length + shared.length + fallback.length > 0 ? { own, shared, fallback } : tiers
}

/** One order over all models. */
function acrossModels(perModel: readonly Tiers[], preferences: Preferences): Tiers {
  const merged = (tier: keyof Tiers): readonly RouteCandidate[] => {
    const candidates = perModel.flatMap(tiers => tiers[tier])
    const endpoints = sortEndpoints([...new Set(candidates.map(({ endpoint }) => endpoint))], preferences)
    return endpoints.flatMap(endpoint => candidates.filter(candidate => candidate.endpoint === endpoint))
  }
  return { own: merged('own'), shared: merged('shared'), fallback: merged('fallback') }
}

/** Stable, so that what is equal keeps the catalogue's order. */
function sortEndpoints(endpoints: readonly Endpoint[], preferences: Preferences): readonly Endpoint[] {
  const order = preferences.order ?? []
  if (order.length > 0) {
    const rank = (endpoint: Endpoint) => {
      const at = order.findIndex(name => namesProvider(name, endpoint))
      return at === -1 ? order.length : at
    }
    return endpoints.toSorted((a, b) => rank(a) - rank(b))
  }
  const by = typeof preferences.sort === 'object' ? preferences.sort?.by : preferences.sort
  if (by !== 'price') return endpoints
  const price = ({ pricing: { prompt, completion, isUnknown } }: Endpoint) =>
    isUnknown === true ? Number.MAX_VALUE : prompt + completion
  return endpoints.toSorted((a, b) => price(a) - price(b))
}

/** True if the service itself can call the provider; without a shared key only own keys can. */
function hasSharedKey({ auth, apiKey }: Provider): boolean {
  return auth === 'none' || apiKey !== null
}

function nothingLeft(
  models: readonly Model[],
  { preferences }: Wish,
  filters: readonly Filter[],
  excludedBy: ReadonlySet<string>,
): GatewayError {
  const ids = models.map(model => model.id)
  const reasons = [...excludedBy]
  const forbidden = RESTRICTIONS.filter(restriction => excludedBy.has(restriction))
  if (forbidden.length > 0) {
    const message = `A guardrail on this API key does not allow any endpoint of ${ids.join(', ')} (${forbidden.join(', ')}).`
    return unavailable('permission_denied', message, ids, reasons)
  }
  if (excludedBy.has(UNKNOWN_PRICE)) {
    const message = `The price of ${ids.join(', ')} is not known, so it cannot be compared with a spending limit, budget or credits. Use an API key without them or an own provider credential, or have the operator set its pricing.`
    return unavailable('permission_denied', message, ids, reasons)
  }
  if (!filters.some(filter => excludedBy.has(filter.excludedBy))) {
    return unavailable('no_endpoints', noKey(ids, excludedBy), ids, reasons)
  }
  const only = preferences.only ?? []
  if (only.length > 0 && excludedBy.has('allowed_providers')) {
    const serving = new Set(models.flatMap(model => model.endpoints.map(({ provider }) => provider.slug)))
    const message = `No allowed providers are available for the selected model. Providers serving ${ids.join(', ')}: ${[...serving].join(', ')}, but your request's provider.only preference permits only: ${only.join(', ')}.`
    return unavailable('constraint_filtered', message, ids, reasons)
  }
  const message = `No endpoint of ${ids.join(', ')} may serve this request: ${reasons.map(reason => WORDS[reason] ?? reason).join('; ')}.`
  return unavailable('constraint_filtered', message, ids, reasons)
}

/** Why endpoints were left out, in words for the caller. */
const WORDS: Readonly<Record<string, string>> = {
  data_region: 'none keeps data in the region of the request host',
  allowed_providers: 'provider.only or provider.order excludes all of them',
  ignored_providers: 'provider.ignore excludes all of them',
  'data_policy:zdr': 'provider.zdr asks for zero data retention',
  'data_policy:training': 'provider.data_collection is deny',
  distillable_text: 'none is known to allow provider.enforce_distillable_text',
  quantization: 'none has one of provider.quantizations',
  max_price: 'each costs more than provider.max_price',
  require_parameters: 'provider.require_parameters is set and none supports all parameters of the request',
  [BYOK_REQUIRED]: 'the workspace uses own provider credentials only, and none applies',
  [NO_SHARED_KEY]: 'no provider key is configured',
}

function noKey(ids: readonly string[], excludedBy: ReadonlySet<string>): string {
  return excludedBy.has(BYOK_REQUIRED)
    ? `${ids.join(', ')} runs on own provider credentials only in this workspace, and none of them is enabled and allowed for this model, API key and user.`
    : `No provider key is configured for ${ids.join(', ')}. Add an own provider credential to use it.`
}

function unavailable(
  code: FailureCode,
  message: string,
  requestedModels: readonly string[],
  excludedBy: readonly string[],
): GatewayError {
  return new GatewayError(code, message, {
    metadata: {
      availability: {
        code,
        retryable: false,
        requested_models: requestedModels,
        ...(excludedBy.length === 0 ? {} : { excluded_by: excludedBy }),
      },
    },
  })
}
