/**
 * What may leave a candidate out: the caller's preferences and the data region of the request. Pure.
 * A credential's own word on data goes before the policy of its endpoint; everything else is the endpoint's alone.
 */
import { isWithin, retainsNothing } from '../../credentials/catalog.ts'
import { UNITS_PER_USD } from '../../money.ts'
import type { DataRegion } from '../../protocol/guardrails.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Endpoint } from '../../providers/provider.ts'
import type { RouteCandidate } from './candidate.ts'
import { unsupported } from './parameters.ts'

export type Preferences = NonNullable<ResponsesRequest['provider']>

/** What candidates are asked for. */
export interface Wish {
  readonly request: ResponsesRequest
  readonly preferences: Preferences
  /** Null: data may go anywhere. */
  readonly dataRegion: DataRegion | null
}

/** A reason to leave a candidate out, named as `availability.excluded_by` names it. */
export interface Filter {
  readonly excludedBy: string
  readonly applies: (wish: Wish) => boolean
  readonly admits: (candidate: RouteCandidate, wish: Wish) => boolean
}

/** One asked-for quantization may cover several stored names. */
const QUANTIZATION_FAMILIES: Readonly<Record<string, readonly string[]>> = {
  fp4: ['fp4', 'mxfp4', 'nvfp4'],
  fp8: ['fp8', 'mxfp8'],
}

const FILTERS: readonly Filter[] = [
  {
    excludedBy: 'data_region',
    applies: ({ dataRegion }) => dataRegion !== null,
    admits: ({ endpoint, credential }, { dataRegion }) =>
      dataRegion === null || isWithin(dataRegion, endpoint, credential),
  },
  {
    excludedBy: 'allowed_providers',
    applies: ({ preferences }) => preferences.only != null && preferences.only.length > 0,
    admits: ({ endpoint }, { preferences }) => isNamed(preferences.only, endpoint),
  },
  {
    excludedBy: 'ignored_providers',
    applies: ({ preferences }) => preferences.ignore != null && preferences.ignore.length > 0,
    admits: ({ endpoint }, { preferences }) => !isNamed(preferences.ignore, endpoint),
  },
  {
    excludedBy: 'allowed_providers',
    applies: ({ preferences }) =>
      preferences.allow_fallbacks === false && (preferences.order?.length ?? 0) > 0,
    admits: ({ endpoint }, { preferences }) => isNamed(preferences.order, endpoint),
  },
  {
    excludedBy: 'data_policy:zdr',
    applies: ({ preferences }) => preferences.zdr === true,
    admits: ({ endpoint, credential }) => retainsNothing(endpoint, credential),
  },
  {
    // The catalogue knows one data policy, zero retention; only that is certain not to be collection.
    excludedBy: 'data_policy:training',
    applies: ({ preferences }) => preferences.data_collection === 'deny',
    admits: ({ endpoint, credential }) => retainsNothing(endpoint, credential),
  },
  {
    // The catalogue does not say which models may be distilled, so none is known to.
    excludedBy: 'distillable_text',
    applies: ({ preferences }) => preferences.enforce_distillable_text === true,
    admits: () => false,
  },
  {
    excludedBy: 'quantization',
    applies: ({ preferences }) => preferences.quantizations != null && preferences.quantizations.length > 0,
    admits: ({ endpoint }, { preferences }) =>
      (preferences.quantizations ?? []).some(asked =>
        (QUANTIZATION_FAMILIES[asked] ?? [asked]).includes(endpoint.quantization),
      ),
  },
  {
    excludedBy: 'max_price',
    applies: ({ preferences }) => preferences.max_price != null,
    admits: ({ endpoint }, { preferences }) => withinPrice(endpoint, preferences.max_price ?? {}),
  },
  {
    excludedBy: 'require_parameters',
    applies: ({ preferences }) => preferences.require_parameters === true,
    admits: ({ endpoint }, { request }) => unsupported(request, endpoint).length === 0,
  },
]

const NONE: readonly Filter[] = []

/** The filters that have anything to say about this wish. */
export function filtersFor(wish: Wish): readonly Filter[] {
  if (wish.dataRegion === null && wish.request.provider == null) return NONE
  return FILTERS.filter(filter => filter.applies(wish))
}

/** A base slug names every region and variant of a provider; display names are accepted too. */
export function namesProvider(name: string, endpoint: Pick<Endpoint, 'provider'>): boolean {
  const { slug, name: displayName } = endpoint.provider
  const asked = name.toLowerCase()
  return asked === slug || slug.startsWith(`${asked}/`) || asked === displayName.toLowerCase()
}

function isNamed(names: readonly string[] | null | undefined, endpoint: Endpoint): boolean {
  return (names ?? []).some(name => namesProvider(name, endpoint))
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
