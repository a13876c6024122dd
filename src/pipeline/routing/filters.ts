/**
 * Candidate filters, one row each: the caller's preferences (`only`, `ignore`, `zdr`, `data_collection`,
 * `quantizations`, `max_price`, `require_parameters`), the data region, and the variant in the model name. Pure. Hot
 * path. If a credential declares a data policy, that policy replaces the endpoint's.
 */

import { UNITS_PER_USD } from '../../base/money.ts'
import { type Special, says, specialParts } from '../../formats/format-abilities.ts'
import type { DataRegion } from '../../protocol/management/guardrails.ts'
import type { Endpoint, TokenPrices } from '../../protocol/provider.ts'
import { textFormat } from '../../protocol/provider.ts'
import type { DialectName, ResponsesRequest } from '../../protocol/request.ts'
import { collectsNothing, isWithin, retainsNothing } from '../../providers/credentials/catalog.ts'
import { honours, unsupported } from '../../providers/parameters.ts'
import { pricesFor } from '../../providers/pricing.ts'
import type { RouteCandidate } from './candidate.ts'
import { isTiered, type TierWish, tierSlug } from './service-tiers.ts'

export type Preferences = NonNullable<ResponsesRequest['provider']>

/** The requirements on candidates. */
export interface Wish {
  readonly request: ResponsesRequest
  readonly preferences: Preferences
  /** Null: data may go anywhere. */
  readonly dataRegion: DataRegion | null
  /** True if the caller has spending limits. */
  readonly isLimited: boolean
  /** True if the name of the model asks for endpoints that cost nothing. */
  readonly isFree: boolean
  readonly tiers: TierWish
  /** Approximate tokens of a request. Default: prices of short prompts apply. */
  readonly inputTokens?: ((request: ResponsesRequest) => number) | undefined
}

/** The name of a filter that applies even if the caller has no preferences. */
export const UNKNOWN_PRICE = 'unknown_price'

/** A reason to leave out a candidate, with its name in `availability.excluded_by`. */
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
    // Only zero retention rules out training for certain.
    excludedBy: 'data_policy:training',
    applies: ({ preferences }) => preferences.data_collection === 'deny',
    admits: ({ endpoint, credential }) => collectsNothing(endpoint, credential),
  },
  {
    excludedBy: 'free_variant',
    applies: ({ isFree }) => isFree,
    admits: ({ endpoint }) => isFree(endpoint),
  },
  {
    // The catalogue does not say which models may be distilled, so no endpoint passes.
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
    admits: ({ endpoint }, wish) => withinPrice(endpoint, wish.preferences.max_price ?? {}, wish),
  },
  {
    excludedBy: 'require_parameters',
    applies: ({ preferences }) => preferences.require_parameters === true,
    admits: ({ endpoint }, { request }) => unsupported(request, endpoint).length === 0,
  },
]

/**
 * An unknown price cannot be compared with a limit. Own credentials are allowed, because the provider bills their
 * owner.
 */
const KNOWN_PRICE: Filter = {
  excludedBy: UNKNOWN_PRICE,
  applies: ({ isLimited }) => isLimited,
  admits: ({ endpoint, credential }) => credential !== null || endpoint.pricing.isUnknown !== true,
}

const NONE: readonly SpecialFilter[] = []

/** The filters that apply to this wish. The service-tier filter is added for each model that has tiers. */
export function filtersFor(wish: Wish): readonly Filter[] {
  const limited = wish.isLimited ? [KNOWN_PRICE] : NONE
  if (wish.dataRegion === null && wish.request.provider == null && !wish.isFree) return limited
  return [...FILTERS.filter(filter => filter.applies(wish)), ...limited]
}

/** An endpoint of a service tier serves only requests that ask for the tier. */
export const TIER_ADMISSION: Filter = {
  excludedBy: 'service_tier',
  applies: () => true,
  admits: ({ endpoint }, { tiers, preferences }) =>
    !isTiered(endpoint) ||
    tiers.admits(endpoint) ||
    isTierNamed(preferences.order, endpoint) ||
    isTierNamed(preferences.only, endpoint),
}

function isTierNamed(names: readonly string[] | null | undefined, endpoint: Endpoint): boolean {
  return names?.some(name => name.toLowerCase() === tierSlug(endpoint)) === true
}

/**
 * True if a preference names this endpoint. A base slug names every region, variant and service tier of a provider, a
 * full slug names one; display names are accepted too.
 */
export function namesProvider(name: string, endpoint: NamedEndpoint): boolean {
  return isAskedFor(name.toLowerCase(), endpoint)
}

/**
 * True if the lower-case name `asked` names this endpoint. The cheapest comparisons come first, because a request may
 * have many endpoints.
 */
export function isAskedFor(asked: string, endpoint: NamedEndpoint): boolean {
  const { slug, name } = endpoint.provider
  if (asked === slug) return true
  if (slug.length > asked.length && slug[asked.length] === '/' && slug.startsWith(asked)) return true
  if (name.length === asked.length && name.toLowerCase() === asked) return true
  return endpoint.serviceTier !== undefined && asked === tierSlug(endpoint)
}

type NamedEndpoint = Pick<Endpoint, 'provider' | 'serviceTier'>

export function isNamed(names: readonly string[] | null | undefined, endpoint: NamedEndpoint): boolean {
  if (names == null) return false
  for (let at = 0; at < names.length; at++) if (namesProvider(names[at] as string, endpoint)) return true
  return false
}

/**
 * `max_price` is in US dollars: per million tokens for prompt, completion and audio, else per request or image. A price
 * that an endpoint does not have is 0.
 */
function withinPrice(
  { pricing }: Endpoint,
  limit: NonNullable<Preferences['max_price']>,
  { request, inputTokens }: Wish,
): boolean {
  if (pricing.isUnknown === true) return false
  const length = pricing.overrides == null || inputTokens === undefined ? 0 : inputTokens(request)
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

/** True if all prices are known and 0 for prompts of any length. */
export function isFree({ pricing }: Endpoint): boolean {
  const { request, image, isUnknown, overrides } = pricing
  if (isUnknown === true || request !== 0 || (image ?? 0) !== 0) return false
  return costsNothing(pricing) && (overrides == null || overrides.every(costsNothing))
}

function costsNothing(prices: TokenPrices): boolean {
  const { prompt, completion, inputCacheRead, inputCacheWrite, inputCacheWrite1h } = prices
  const others = (inputCacheRead ?? 0) + (inputCacheWrite ?? 0) + (inputCacheWrite1h ?? 0)
  return prompt + completion + others + (prices.audio ?? 0) + (prices.internalReasoning ?? 0) === 0
}

// Request parts that only some formats can express (formats/format-abilities.ts).

export interface SpecialFilter extends Filter {
  /** Message for the caller if no endpoint is left. */
  readonly message: string
}

const RESPONSES_ONLY = 'can be sent only to providers that speak the Responses format'

/** The advice for each part. */
const ADVICE: Readonly<Record<Special, string>> = {
  prompt:
    'a stored prompt belongs to an account, so it needs a BYOK credential of the workspace for a provider that speaks the Responses format; no such provider serves this model. Send its text in instructions and input instead',
  modalities:
    'no provider of this model generates images through this gateway. Choose a model whose output_modalities include image',
  agent_message: `${RESPONSES_ONLY}, but none of them serves this model. Send the text as a message instead`,
  context_compaction: `${RESPONSES_ONLY}, but none of them serves this model. Send the conversation itself instead`,
  configuration_update: 'no provider of this model accepts a reasoning effort. Leave the item out',
  mcp_servers:
    'can be sent only to providers that speak the Messages format, but none of them serves this model. Use the mcp tool of POST /v1/responses or /v1/chat/completions instead',
  computer_use:
    'only providers that speak the Responses format or the Messages format have computer use, but none of them serves this model. Choose a model by OpenAI or Anthropic',
  own_kind:
    'is known only to providers that speak the Gemini format, but none of them serves this model. Leave it out, or choose a model by Google',
  context_management:
    'this provider of the model cannot summarize the conversation. Leave these edits out, or use the context-compression plugin',
}

/** Returns one filter for each special part; usually none. */
export function specialFilters(request: ResponsesRequest, dialect: DialectName): readonly SpecialFilter[] {
  const parts = specialParts(request, dialect)
  if (parts.length === 0) return NONE
  return parts.map(({ special, path }) => ({
    excludedBy: special,
    message: `${path}: ${ADVICE[special]}`,
    applies: () => true,
    admits: ({ endpoint, credential }: RouteCandidate) =>
      (special !== 'prompt' || credential !== null) &&
      (special !== 'configuration_update' || honours(endpoint, 'reasoning')) &&
      says(textFormat(endpoint), special, dialect),
  }))
}
