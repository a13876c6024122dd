/**
 * Which endpoints may serve a request, in the order in which they are tried. Pure.
 * Models come in the order asked for; inside a model the caller's preferences filter and sort its endpoints,
 * and without preferences the catalogue's own order stands.
 */
import { type FailureCode, GatewayError } from '../errors.ts'
import { UNITS_PER_USD } from '../money.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { Catalog } from '../providers/catalog.ts'
import type { Endpoint, Model } from '../providers/provider.ts'
import { unsupported } from './parameters.ts'

export interface Route {
  readonly candidates: readonly Endpoint[]
  /** Whether a failure may move on to the next candidate. */
  readonly fallbacks: boolean
}

type Preferences = NonNullable<ResponsesRequest['provider']>

/** A reason to leave an endpoint out, named as `availability.excluded_by` names it. */
interface Filter {
  readonly excludedBy: string
  readonly applies: (preferences: Preferences) => boolean
  readonly admits: (endpoint: Endpoint, preferences: Preferences, request: ResponsesRequest) => boolean
}

/** One asked-for quantization may cover several stored names. */
const QUANTIZATION_FAMILIES: Readonly<Record<string, readonly string[]>> = {
  fp4: ['fp4', 'mxfp4', 'nvfp4'],
  fp8: ['fp8', 'mxfp8'],
}

const FILTERS: readonly Filter[] = [
  {
    excludedBy: 'allowed_providers',
    applies: preferences => preferences.only != null && preferences.only.length > 0,
    admits: (endpoint, preferences) => (preferences.only ?? []).some(name => namesProvider(name, endpoint)),
  },
  {
    excludedBy: 'ignored_providers',
    applies: preferences => preferences.ignore != null && preferences.ignore.length > 0,
    admits: (endpoint, preferences) =>
      !(preferences.ignore ?? []).some(name => namesProvider(name, endpoint)),
  },
  {
    excludedBy: 'allowed_providers',
    applies: preferences => preferences.allow_fallbacks === false && (preferences.order?.length ?? 0) > 0,
    admits: (endpoint, preferences) => (preferences.order ?? []).some(name => namesProvider(name, endpoint)),
  },
  {
    excludedBy: 'data_policy:zdr',
    applies: preferences => preferences.zdr === true,
    admits: endpoint => endpoint.zdr,
  },
  {
    // The catalogue knows one data policy, zero retention; only that is certain not to be collection.
    excludedBy: 'data_policy:training',
    applies: preferences => preferences.data_collection === 'deny',
    admits: endpoint => endpoint.zdr,
  },
  {
    // The catalogue does not say which models may be distilled, so none is known to.
    excludedBy: 'distillable_text',
    applies: preferences => preferences.enforce_distillable_text === true,
    admits: () => false,
  },
  {
    excludedBy: 'quantization',
    applies: preferences => preferences.quantizations != null && preferences.quantizations.length > 0,
    admits: (endpoint, preferences) =>
      (preferences.quantizations ?? []).some(asked =>
        (QUANTIZATION_FAMILIES[asked] ?? [asked]).includes(endpoint.quantization),
      ),
  },
  {
    excludedBy: 'max_price',
    applies: preferences => preferences.max_price != null,
    admits: (endpoint, preferences) => withinPrice(endpoint, preferences.max_price ?? {}),
  },
  {
    excludedBy: 'require_parameters',
    applies: preferences => preferences.require_parameters === true,
    admits: (endpoint, _, request) => unsupported(request, endpoint).length === 0,
  },
]

/** Parameters for which an endpoint that honours them is preferred even when that is not required. */
const PREFERRED_PARAMETERS: ReadonlySet<string> = new Set(['tools', 'response_format', 'verbosity'])

/**
 * @throws GatewayError `model_not_found` for a model that the catalogue does not have; `no_endpoints` or
 * `constraint_filtered` when the caller's preferences leave nothing.
 */
export function route(request: ResponsesRequest, catalog: Catalog): Route {
  const models = requestedModels(request).map(id => {
    const model = catalog.model(id)
    if (model === undefined) {
      throw unavailable('model_not_found', `${id} is not a valid model ID`, [id], [])
    }
    return model
  })
  const preferences: Preferences = request.provider ?? {}
  const excludedBy = new Set<string>()
  let candidates: readonly Endpoint[] = models.flatMap(model =>
    modelCandidates(model, request, preferences, excludedBy),
  )
  if (candidates.length === 0) throw nothingLeft(models, preferences, excludedBy)
  if (typeof preferences.sort === 'object' && preferences.sort?.partition === 'none') {
    candidates = sorted(candidates, preferences)
  }
  return {
    candidates,
    fallbacks: preferences.allow_fallbacks !== false || (preferences.order?.length ?? 0) > 0,
  }
}

/** `model` first, then `models`, each once. */
function requestedModels(request: ResponsesRequest): string[] {
  return [...new Set([...(request.model === undefined ? [] : [request.model]), ...(request.models ?? [])])]
}

function modelCandidates(
  model: Model,
  request: ResponsesRequest,
  preferences: Preferences,
  excludedBy: Set<string>,
): readonly Endpoint[] {
  const filters = FILTERS.filter(filter => filter.applies(preferences))
  const admitted = model.endpoints.filter(endpoint => {
    const refused = filters.find(filter => !filter.admits(endpoint, preferences, request))
    if (refused !== undefined) excludedBy.add(refused.excludedBy)
    return refused === undefined
  })
  const capable = admitted.filter(
    endpoint => unsupported(request, endpoint, PREFERRED_PARAMETERS).length === 0,
  )
  return sorted(capable.length > 0 ? capable : admitted, preferences)
}

/** Stable, so that what is equal keeps the catalogue's order. */
function sorted(endpoints: readonly Endpoint[], preferences: Preferences): readonly Endpoint[] {
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
  const price = ({ pricing }: Endpoint) => pricing.prompt + pricing.completion
  return endpoints.toSorted((a, b) => price(a) - price(b))
}

/** A base slug names every region and variant of a provider; display names are accepted too. */
function namesProvider(name: string, endpoint: Endpoint): boolean {
  const { slug, name: displayName } = endpoint.provider
  const asked = name.toLowerCase()
  return asked === slug || slug.startsWith(`${asked}/`) || asked === displayName.toLowerCase()
}

/** `max_price` is in US dollars: per million tokens for prompt and completion, per request for request. */
function withinPrice(endpoint: Endpoint, limit: NonNullable<Preferences['max_price']>): boolean {
  const { pricing } = endpoint
  return (
    underLimit(pricing.prompt * 1e6, limit.prompt) &&
    underLimit(pricing.completion * 1e6, limit.completion) &&
    underLimit(pricing.request, limit.request)
  )
}

function underLimit(price: number, limit: unknown): boolean {
  if (limit == null) return true
  return price <= Number(limit) * UNITS_PER_USD
}

function nothingLeft(
  models: readonly Model[],
  preferences: Preferences,
  excludedBy: ReadonlySet<string>,
): GatewayError {
  const ids = models.map(model => model.id)
  const serving = [
    ...new Set(models.flatMap(model => model.endpoints.map(endpoint => endpoint.provider.slug))),
  ]
  const only = preferences.only ?? []
  const message =
    only.length > 0 && excludedBy.has('allowed_providers')
      ? `No allowed providers are available for the selected model. Providers serving ${ids.join(', ')}: ${serving.join(', ')}, but your request's provider.only preference permits only: ${only.join(', ')}.`
      : `No endpoint of ${ids.join(', ')} meets the request's provider preferences (${[...excludedBy].join(', ')}).`
  return unavailable('constraint_filtered', message, ids, [...excludedBy])
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
