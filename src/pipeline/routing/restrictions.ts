/** Guardrail restrictions on candidates: models, providers, the use of data, and data regions. Pure. */

import type { PolicyRestrictions, ZdrGroup } from '../../features/guardrails/policy.ts'
import type { DataRegion } from '../../protocol/data-regions.ts'
import type { Endpoint, Provider } from '../../protocol/provider.ts'
import { collectsNothing, retainsNothing } from '../../providers/credentials/catalog.ts'
import { isFree } from '../../providers/price-rows.ts'
import { isNamed, type RouteCandidate } from './candidate.ts'

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
  /** The restriction that excludes the candidate; null if it may serve. */
  excludedBy(candidate: RouteCandidate): Restriction | null
  /**
   * Like `excludedBy`, for a model that the gateway calls for its own purpose, such as a judge. The caller did not
   * choose it, so lists of models do not apply; restrictions on data do.
   */
  helperExcludedBy(candidate: RouteCandidate): Restriction | null
  /** Like `helperExcludedBy`, for a provider outside the catalogue, whose data policy is unknown. */
  providerExcludedBy(provider: Provider): Restriction | null
  /** True if any of the guardrails demands zero retention, for any models. */
  readonly zeroRetention: boolean
  /** True if requests may arrive through the host of this region; null: the global host. */
  allowsRegion(region: DataRegion | null): boolean
}

/** The host of a request, for messages. */
export function hostPhrase(region: DataRegion | null): string {
  return region === null ? 'the global host' : `the host of region ${region}`
}

/** The vendors with their own `zdr` setting, by the first part of the model id. */
const VENDOR_GROUPS: Readonly<Record<string, ZdrGroup>> = {
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

/** Restrictions on the choice of models. All others are about providers and data. */
const MODEL_RESTRICTIONS: ReadonlySet<Restriction> = new Set([
  'guardrail:allowed_models',
  'guardrail:ignored_models',
])
/** Restrictions on the use of data, which only a provider that is known to keep nothing meets. */
const USE_RESTRICTIONS: ReadonlySet<Restriction> = new Set(['guardrail:zdr', 'guardrail:training'])

/** True for lists of models and providers. All others are about the use of data. */
export function isOfLists(restriction: Restriction): boolean {
  return !USE_RESTRICTIONS.has(restriction)
}

/** True for lists of models. */
export function isOfModels(restriction: Restriction): boolean {
  return MODEL_RESTRICTIONS.has(restriction)
}

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
  const limitsFreeModels = rules.freeModelTraining === false || rules.freeModelPublication === false
  const limitsPaidModels = rules.paidModelTraining === false
  if (limitsFreeModels || limitsPaidModels) {
    // Only zero retention rules out training and publication for certain.
    add(
      'guardrail:training',
      ({ endpoint, credential }) =>
        !(isFree(endpoint) ? limitsFreeModels : limitsPaidModels) || collectsNothing(endpoint, credential),
    )
  }
  return tests
}

function vendorOf({ modelId }: Endpoint): ZdrGroup {
  const vendor = modelId.slice(0, modelId.indexOf('/'))
  return Object.hasOwn(VENDOR_GROUPS, vendor) ? (VENDOR_GROUPS[vendor] ?? 'other') : 'other'
}
