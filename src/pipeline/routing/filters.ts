/**
 * Filters: reasons to leave out candidates of a model, one row each, in the order in which they apply: keys, service
 * tier, data region and preferences, spending limits, needs of the request. Guardrails follow them
 * (restrictions.ts). Pure. Hot path. If a credential declares a data policy, that policy replaces the endpoint's.
 */

import { UNITS_PER_USD } from '../../base/money.ts'
import { hasAbility } from '../../formats/format-abilities.ts'
import { type Endpoint, textFormat } from '../../protocol/provider.ts'
import { collectsNothing, retainsNothing, staysInRegion } from '../../providers/credentials/catalog.ts'
import { supportsParameter, unsupportedParameters } from '../../providers/parameters.ts'
import { isFree, pricesFor } from '../../providers/price-rows.ts'
import { type Filter, hasSharedKey, isNamed, type ModelCandidates } from './candidate.ts'
import type { Needs } from './needs.ts'
import { NO_PREFERENCES, type Preferences, type RankInput } from './rank-input.ts'
import { isOfTier, isTiered, type TierWish, tierSlug } from './service-tiers.ts'

/** The demands of a request, and of the model's name in it, on the candidates of that model. */
interface Wish {
  readonly input: RankInput
  readonly needs: Needs
  readonly candidates: ModelCandidates
  /** True if the name of the model requests endpoints that cost nothing. */
  readonly isFree: boolean
  readonly tiers: TierWish
}

/** A filter, if the request needs it. */
interface Row {
  readonly excludedBy: string
  readonly test: (wish: Wish) => Filter['admits'] | false
}

/** The filters that the errors for a request without candidates mention by name. */
export const BYOK_REQUIRED = 'byok_required'
export const NO_SHARED_KEY = 'no_shared_key'
export const UNKNOWN_PRICE = 'unknown_price'
export const INPUT_MODALITIES = 'input_modalities'
export const MAX_OUTPUT_TOKENS = 'max_output_tokens'
export const CONTEXT_LENGTH = 'context_length'

/** One requested quantization may cover several stored names. */
const QUANTIZATION_FAMILIES: Readonly<Record<string, readonly string[]>> = {
  fp4: ['fp4', 'mxfp4', 'nvfp4'],
  fp8: ['fp8', 'mxfp8'],
}

const ADMITS_NONE = (): boolean => false

const KEY_FILTERS: readonly Row[] = [
  {
    excludedBy: BYOK_REQUIRED,
    test: ({ candidates: { model }, input: { ownKeys } }) => {
      if (ownKeys.isEmpty) return false
      const isReserved = ownKeys.isByokOnly(model)
      return ({ endpoint, credential }) =>
        credential !== null || !(isReserved || ownKeys.isRequiredAt(endpoint.provider.slug))
    },
  },
  {
    excludedBy: NO_SHARED_KEY,
    test: ({ candidates }) =>
      candidates.lacksKeys &&
      (({ endpoint, credential }) => credential !== null || hasSharedKey(endpoint.provider)),
  },
  {
    // An endpoint of a service tier serves only requests for that tier.
    excludedBy: 'service_tier',
    test: ({ candidates, tiers, input: { preferences } }) =>
      candidates.hasTiers &&
      (({ endpoint }) =>
        !isTiered(endpoint) ||
        tiers.admits(endpoint) ||
        isTierNamed(preferences.order, endpoint) ||
        isTierNamed(preferences.only, endpoint)),
  },
]

const PREFERENCE_FILTERS: readonly Row[] = [
  {
    excludedBy: 'data_region',
    test: ({ input: { dataRegion } }) =>
      dataRegion !== null && (({ endpoint, credential }) => staysInRegion(dataRegion, endpoint, credential)),
  },
  {
    excludedBy: 'allowed_providers',
    test: ({ input: { preferences } }) =>
      preferences.only != null &&
      preferences.only.length > 0 &&
      (({ endpoint }) => isNamed(preferences.only, endpoint)),
  },
  {
    excludedBy: 'ignored_providers',
    test: ({ input: { preferences } }) =>
      preferences.ignore != null &&
      preferences.ignore.length > 0 &&
      (({ endpoint }) => !isNamed(preferences.ignore, endpoint)),
  },
  {
    excludedBy: 'allowed_providers',
    test: ({ input: { preferences } }) =>
      preferences.allow_fallbacks === false &&
      (preferences.order?.length ?? 0) > 0 &&
      (({ endpoint }) => isNamed(preferences.order, endpoint)),
  },
  {
    excludedBy: 'data_policy:zdr',
    test: ({ input: { preferences } }) =>
      preferences.zdr === true && (({ endpoint, credential }) => retainsNothing(endpoint, credential)),
  },
  {
    // Only zero retention rules out training for certain.
    excludedBy: 'data_policy:training',
    test: ({ input: { preferences } }) =>
      preferences.data_collection === 'deny' &&
      (({ endpoint, credential }) => collectsNothing(endpoint, credential)),
  },
  { excludedBy: 'free_variant', test: wish => wish.isFree && (({ endpoint }) => isFree(endpoint)) },
  {
    // The catalogue does not say which models may be distilled, so no endpoint passes.
    excludedBy: 'distillable_text',
    test: ({ input: { preferences } }) => preferences.enforce_distillable_text === true && ADMITS_NONE,
  },
  {
    excludedBy: 'quantization',
    test: ({ input: { preferences } }) => {
      const { quantizations } = preferences
      if (quantizations == null || quantizations.length === 0) return false
      return ({ endpoint: { quantization } }) =>
        quantizations.some(name => (QUANTIZATION_FAMILIES[name] ?? [name]).includes(quantization))
    },
  },
  {
    excludedBy: 'max_price',
    test: ({ needs, input: { preferences } }) => {
      const { max_price: limit } = preferences
      return limit != null && (({ endpoint }) => withinPrice(endpoint, limit, needs))
    },
  },
  {
    excludedBy: 'require_parameters',
    test: ({ input: { preferences, request } }) =>
      preferences.require_parameters === true &&
      (({ endpoint }) => unsupportedParameters(request, endpoint).length === 0),
  },
]

const NEED_FILTERS: readonly Row[] = [
  {
    // An unknown price cannot be compared with a limit. The provider of a caller's credential bills its owner.
    excludedBy: UNKNOWN_PRICE,
    test: ({ input }) =>
      input.isLimited &&
      (({ endpoint, credential }) => credential !== null || endpoint.pricing.isUnknown !== true),
  },
  {
    excludedBy: INPUT_MODALITIES,
    test: ({ needs, candidates }) => needs.isCompared && needs.hasOtherThan(candidates) && ADMITS_NONE,
  },
  {
    excludedBy: MAX_OUTPUT_TOKENS,
    test: ({ needs, candidates, input }) =>
      needs.isCompared &&
      !input.isLimited &&
      needs.output > candidates.leastOutput &&
      (({ endpoint }) => needs.output <= (endpoint.maxOutputTokens ?? needs.output)),
  },
  {
    excludedBy: CONTEXT_LENGTH,
    test: ({ needs, candidates }) =>
      needs.isCompared && needs.mayExceed(candidates) && (({ endpoint }) => needs.hasRoom(endpoint)),
  },
]

/** The first filter that leaves a candidate out is the reason that callers see. */
const ALL_FILTERS = [...KEY_FILTERS, ...PREFERENCE_FILTERS, ...NEED_FILTERS]
const FILTERS_WITHOUT_PREFERENCES = [...KEY_FILTERS, ...NEED_FILTERS]

/** Reasons to prefer other candidates: each leaves candidates out only if others remain. */
const PREFERRED_FILTERS: readonly Row[] = [
  {
    excludedBy: 'other_service_tier',
    test: ({ candidates, tiers: { only } }) =>
      candidates.hasTiers && only !== null && (({ endpoint }) => isOfTier(endpoint, only)),
  },
  {
    excludedBy: 'fewer_parameters',
    test: ({ needs: { usedParameters } }) =>
      usedParameters.length > 0 &&
      (({ endpoint }) => usedParameters.every(name => supportsParameter(endpoint, name))),
  },
  {
    // Formats without this mode get a hint in words, which is less reliable.
    excludedBy: 'no_json_object',
    test: ({ input: { request } }) =>
      request.text?.format?.type === 'json_object' &&
      (({ endpoint }) => hasAbility(textFormat(endpoint), 'json_object')),
  },
  {
    excludedBy: 'probably_too_short',
    test: ({ needs, candidates }) =>
      needs.isCompared && candidates.lengthsDiffer && (({ endpoint }) => needs.fits(endpoint)),
  },
]

/** The filters that apply, in order. */
export function filtersFor(wish: Wish): readonly Filter[] {
  const { input, isFree, needs } = wish
  const { special } = needs
  const pauseFilter = input.routing.pauses?.filter ?? null
  const hasPreferences = input.preferences !== NO_PREFERENCES || input.dataRegion !== null || isFree
  const filters = activeFilters(hasPreferences ? ALL_FILTERS : FILTERS_WITHOUT_PREFERENCES, wish)
  if (special.length === 0 && pauseFilter === null) return filters
  // A pause comes last, so that it is named only if the candidate would have served otherwise.
  return [...filters, ...special, ...(pauseFilter === null ? NO_FILTERS : [pauseFilter])]
}

/** Filters that leave out candidates only if others remain. */
export function preferredFor(wish: Wish): readonly Filter[] {
  return activeFilters(PREFERRED_FILTERS, wish)
}

function activeFilters(rows: readonly Row[], wish: Wish): readonly Filter[] {
  let filters: Filter[] | null = null
  for (let index = 0; index < rows.length; index++) {
    const { excludedBy, test } = rows[index] as Row
    const admits = test(wish)
    if (admits === false) continue
    filters ??= []
    filters.push({ excludedBy, admits })
  }
  return filters ?? NO_FILTERS
}

const NO_FILTERS: readonly Filter[] = []

function isTierNamed(names: readonly string[] | null | undefined, endpoint: Endpoint): boolean {
  return names?.some(name => name.toLowerCase() === tierSlug(endpoint)) === true
}

/**
 * `max_price` is in US dollars: per million tokens for prompt, completion and audio, else per request or image. Without
 * a price of their own, images cost 0, and audio costs as much as the prompt.
 */
function withinPrice(
  { pricing }: Endpoint,
  limit: NonNullable<Preferences['max_price']>,
  needs: Pick<Needs, 'tokens'>,
): boolean {
  if (pricing.isUnknown === true) return false
  const length = pricing.overrides == null ? 0 : needs.tokens
  const { prompt, completion, audio, internalReasoning } = pricesFor(pricing, length)
  return (
    underLimit(prompt * 1e6, limit.prompt) &&
    underLimit(Math.max(completion, internalReasoning ?? 0) * 1e6, limit.completion) &&
    underLimit(pricing.request, limit.request) &&
    underLimit(pricing.image ?? 0, limit.image) &&
    underLimit((audio ?? prompt) * 1e6, limit.audio)
  )
}

function underLimit(price: number, limit: unknown): boolean {
  if (limit == null) return true
  return price <= Number(limit) * UNITS_PER_USD
}
