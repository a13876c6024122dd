/**
 * Filters of candidates: the caller's preferences, the data region, and the restrictions of guardrails. Pure. Hot path.
 * If a credential says where its data goes, that counts and not the policy of its endpoint.
 */
import { isWithin, retainsNothing } from '../../credentials/catalog.ts'
import type { PolicyRestrictions, ZdrGroup } from '../../guardrails/policy.ts'
import { UNITS_PER_USD } from '../../money.ts'
import type { DataRegion } from '../../protocol/guardrails.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Endpoint, Provider } from '../../providers/provider.ts'
import type { RouteCandidate } from './candidate.ts'
import { unsupported } from './parameters.ts'

export type Preferences = NonNullable<ResponsesRequest['provider']>

/** The requirements on candidates. */
export interface Wish {
  readonly request: ResponsesRequest
  readonly preferences: Preferences
  /** Null: data may go anywhere. */
  readonly dataRegion: DataRegion | null
  /** True: limits of money hold for the caller. */
  readonly isLimited: boolean
}

/** The name of the filter that no preference asks for. */
export const UNKNOWN_PRICE = 'unknown_price'

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

/** An unknown price cannot be compared with a limit; with an own credential the provider bills the rest. */
const KNOWN_PRICE: Filter = {
  excludedBy: UNKNOWN_PRICE,
  applies: ({ isLimited }) => isLimited,
  admits: ({ endpoint, credential }) => credential !== null || endpoint.pricing.isUnknown !== true,
}

const NONE: readonly Filter[] = []

/** The filters that have anything to say about this wish. */
export function filtersFor(wish: Wish): readonly Filter[] {
  const limited = wish.isLimited ? [KNOWN_PRICE] : NONE
  if (wish.dataRegion === null && wish.request.provider == null) return limited
  return [...FILTERS.filter(filter => filter.applies(wish)), ...limited]
}

/** A base slug names every region and variant of a provider; display names are accepted too. */
export function namesProvider(name: string, endpoint: Pick<Endpoint, 'provider'>): boolean {
  const { slug, name: displayName } = endpoint.provider
  const asked = name.toLowerCase()
  return asked === slug || slug.startsWith(`${asked}/`) || asked === displayName.toLowerCase()
}

function isNamed(names: readonly string[] | null | undefined, endpoint: Pick<Endpoint, 'provider'>): boolean {
  return (names ?? []).some(name => namesProvider(name, endpoint))
}

/** `max_price` is in US dollars: per million tokens for prompt and completion, per request for request. */
function withinPrice(endpoint: Endpoint, limit: NonNullable<Preferences['max_price']>): boolean {
  const { pricing } = endpoint
  if (pricing.isUnknown === true) return false
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

/** The names of restrictions in `availability.excluded_by`. */
export const RESTRICTIONS = [
  'guardrail:allowed_models',
  'guardrail:ignored_models',
  'guardrail:allowed_providers',
  'guardrail:ignored_providers',
  'guardrail:zdr',
  'guardrail:training',
] as const
export type Restriction = (typeof RESTRICTIONS)[number]

export interface Restrictions {
  /** The restriction that excludes the candidate; null: it may serve. */
  excludedBy(candidate: RouteCandidate): Restriction | null
  /**
   * As `excludedBy`, for a model that the gateway asks on behalf of the caller. The caller did not choose it, so lists
   * of models do not count; restrictions on where data may go do.
   */
  helperExcludedBy(candidate: RouteCandidate): Restriction | null
  /** As `helperExcludedBy`, for a provider outside the catalogue, whose data policy is unknown. */
  providerExcludedBy(provider: Provider): Restriction | null
  /** True if nothing of a request may be kept, for any group of models. */
  readonly zeroRetention: boolean
  /** True if requests may come by the host of this region; null: the global host. */
  allowsRegion(region: DataRegion | null): boolean
}

/** The vendors with a `zdr` setting of their own, by the first part of the model id. */
const VENDORS: Readonly<Record<string, ZdrGroup>> = {
  anthropic: 'anthropic',
  openai: 'openai',
  google: 'google',
  'x-ai': 'xai',
  xai: 'xai',
}

interface Test {
  readonly restriction: Restriction
  readonly allows: (candidate: RouteCandidate) => boolean
}

/** Restrictions on the choice of models; all others are about where data goes. */
const MODEL_RESTRICTIONS: ReadonlySet<Restriction> = new Set([
  'guardrail:allowed_models',
  'guardrail:ignored_models',
])
/** Restrictions on the use of data: only a provider that is known to keep nothing meets these. */
const USE_RESTRICTIONS: ReadonlySet<Restriction> = new Set(['guardrail:zdr', 'guardrail:training'])

/** Compiles the restrictions; null if there are none. */
export function restrictionsOf(rules: PolicyRestrictions): Restrictions | null {
  const tests = testsOf(rules)
  const regions = rules.regions === null ? null : new Set<string>(rules.regions)
  if (tests.length === 0 && regions === null) return null
  const dataTests = tests.filter(({ restriction }) => !MODEL_RESTRICTIONS.has(restriction))
  return {
    zeroRetention: tests.some(({ restriction }) => restriction === 'guardrail:zdr'),
    excludedBy: candidate => firstFailed(tests, candidate),
    helperExcludedBy: candidate => firstFailed(dataTests, candidate),
    providerExcludedBy(provider) {
      const { allowedProviders, ignoredProviders } = rules
      if (allowedProviders !== null && !isNamed(allowedProviders, { provider }))
        return 'guardrail:allowed_providers'
      if (isNamed(ignoredProviders, { provider })) return 'guardrail:ignored_providers'
      return dataTests.find(({ restriction }) => USE_RESTRICTIONS.has(restriction))?.restriction ?? null
    },
    allowsRegion: region => regions === null || regions.has(region ?? 'global'),
  }
}

function firstFailed(tests: readonly Test[], candidate: RouteCandidate): Restriction | null {
  return tests.find(({ allows }) => !allows(candidate))?.restriction ?? null
}

function testsOf(rules: PolicyRestrictions): readonly Test[] {
  const tests: Test[] = []
  const add = (restriction: Restriction, allows: Test['allows']): void => {
    tests.push({ restriction, allows })
  }
  const { allowedProviders, ignoredProviders, zdr } = rules
  if (rules.allowedModels !== null) {
    const models = new Set(rules.allowedModels)
    add('guardrail:allowed_models', ({ endpoint }) => models.has(endpoint.modelId))
  }
  if (rules.ignoredModels.length > 0) {
    const models = new Set(rules.ignoredModels)
    add('guardrail:ignored_models', ({ endpoint }) => !models.has(endpoint.modelId))
  }
  if (allowedProviders !== null) {
    add('guardrail:allowed_providers', ({ endpoint }) => isNamed(allowedProviders, endpoint))
  }
  if (ignoredProviders.length > 0) {
    add('guardrail:ignored_providers', ({ endpoint }) => !isNamed(ignoredProviders, endpoint))
  }
  if (Object.values(zdr).includes(true)) {
    add(
      'guardrail:zdr',
      ({ endpoint, credential }) => !zdr[vendorOf(endpoint)] || retainsNothing(endpoint, credential),
    )
  }
  const free = rules.freeModelTraining === false || rules.freeModelPublication === false
  const paid = rules.paidModelTraining === false
  if (free || paid) {
    // The catalogue has one data policy, zero retention: only that rules out training and publication for certain.
    add(
      'guardrail:training',
      ({ endpoint, credential }) => !(isFree(endpoint) ? free : paid) || retainsNothing(endpoint, credential),
    )
  }
  return tests
}

function vendorOf({ modelId }: Endpoint): ZdrGroup {
  const vendor = modelId.slice(0, modelId.indexOf('/'))
  return Object.hasOwn(VENDORS, vendor) ? (VENDORS[vendor] ?? 'other') : 'other'
}

function isFree({ pricing }: Endpoint): boolean {
  const { prompt, completion, request, isUnknown } = pricing
  return isUnknown !== true && prompt === 0 && completion === 0 && request === 0
}
