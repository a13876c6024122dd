/**
 * Which candidates the guardrails of a caller allow, as a last filter of routing. Pure. Hot path of guarded callers.
 */
import { retainsNothing } from '../../credentials/catalog.ts'
import type { Restrictions as Rules, ZdrGroup } from '../../guardrails/policy.ts'
import type { DataRegion, Endpoint, Provider } from '../../providers/provider.ts'
import type { RouteCandidate } from './candidate.ts'
import { namesProvider } from './filters.ts'

/** Why a guardrail leaves a candidate out, as `availability.excluded_by` names it. */
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
  /** Null: it may serve. */
  refusal(candidate: RouteCandidate): Restriction | null
  /**
   * As `refusal`, for what the gateway asks on behalf of the caller: which model that is was not the caller's choice,
   * but what the caller says goes no further for it.
   */
  dataRefusal(candidate: RouteCandidate): Restriction | null
  /** As `dataRefusal`, for a service beside the catalogue: nobody has said what its provider keeps. */
  providerRefusal(provider: Provider): Restriction | null
  /** Nothing may be kept of what is sent, wherever that is said for. */
  readonly zeroRetention: boolean
  /** Whether requests may come by the host of this region; null: the global one. */
  admitsRegion(region: DataRegion | null): boolean
}

/** Vendors whose models have a setting of their own, by the first part of the model's id. */
const VENDORS: Readonly<Record<string, ZdrGroup>> = {
  anthropic: 'anthropic',
  openai: 'openai',
  google: 'google',
  'x-ai': 'xai',
  xai: 'xai',
}

interface Test {
  readonly restriction: Restriction
  readonly admits: (candidate: RouteCandidate) => boolean
}

/** About the choice of models; all others are about where data goes. */
const ABOUT_MODELS: ReadonlySet<Restriction> = new Set([
  'guardrail:allowed_models',
  'guardrail:ignored_models',
])
/** About what becomes of data where it went: only who keeps nothing is certain to meet these. */
const ABOUT_USE: ReadonlySet<Restriction> = new Set(['guardrail:zdr', 'guardrail:training'])

/** Null where they restrict nothing. */
export function restrictionsOf(rules: Rules): Restrictions | null {
  const tests = testsOf(rules)
  const regions = rules.regions === null ? null : new Set<string>(rules.regions)
  if (tests.length === 0 && regions === null) return null
  const dataTests = tests.filter(({ restriction }) => !ABOUT_MODELS.has(restriction))
  return {
    zeroRetention: tests.some(({ restriction }) => restriction === 'guardrail:zdr'),
    refusal: candidate => firstRefusal(tests, candidate),
    dataRefusal: candidate => firstRefusal(dataTests, candidate),
    providerRefusal(provider) {
      const { allowedProviders, ignoredProviders } = rules
      if (allowedProviders !== null && !isNamed(allowedProviders, { provider }))
        return 'guardrail:allowed_providers'
      if (isNamed(ignoredProviders, { provider })) return 'guardrail:ignored_providers'
      return dataTests.find(({ restriction }) => ABOUT_USE.has(restriction))?.restriction ?? null
    },
    admitsRegion: region => regions === null || regions.has(region ?? 'global'),
  }
}

function firstRefusal(tests: readonly Test[], candidate: RouteCandidate): Restriction | null {
  return tests.find(({ admits }) => !admits(candidate))?.restriction ?? null
}

function testsOf(rules: Rules): readonly Test[] {
  const tests: Test[] = []
  const add = (restriction: Restriction, admits: Test['admits']): void => {
    tests.push({ restriction, admits })
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
    // The catalogue knows one data policy, zero retention; only that is certain not to be training or publication.
    add(
      'guardrail:training',
      ({ endpoint, credential }) => !(isFree(endpoint) ? free : paid) || retainsNothing(endpoint, credential),
    )
  }
  return tests
}

function isNamed(names: readonly string[], endpoint: Pick<Endpoint, 'provider'>): boolean {
  return names.some(name => namesProvider(name, endpoint))
}

function vendorOf({ modelId }: Endpoint): ZdrGroup {
  const vendor = modelId.slice(0, modelId.indexOf('/'))
  return Object.hasOwn(VENDORS, vendor) ? (VENDORS[vendor] ?? 'other') : 'other'
}

function isFree({ pricing }: Endpoint): boolean {
  return pricing.prompt === 0 && pricing.completion === 0 && pricing.request === 0
}
