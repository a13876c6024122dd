/** Parses and validates the settings of a guardrail from a /guardrails body. Uses no storage. */
import { setImmediate as turn } from 'node:timers/promises'
import { GatewayError, refuseField } from '../../base/errors.ts'
import { type MicroUsd, toMicroUsd } from '../../base/money.ts'
import { OUTPUT_WINDOW_DEFAULT_BYTES } from '../../protocol/limits.ts'
import {
  type BuiltinEntry,
  budgetRefusal,
  defaultOverlapBytes,
  type FilterEntry,
  filtersRefusal,
  type GuardrailUpdate,
  type OutputEntry,
  patternsRefusal,
} from '../../protocol/management/guardrails.ts'
import { PROVIDER_SLUGS } from '../../protocol/provider-slugs.ts'
import {
  type BuiltinFilter,
  type CustomFilter,
  type GuardrailChange,
  NO_RULES,
  type OutputRules,
  type ZdrRules,
} from '../../storage/guardrails.ts'

export interface GuardrailSettingsDeps {
  /** Display name of a provider; null when the catalogue has none of this slug. */
  readonly providerName: (slug: string) => string | null
}

/** All changeable fields of a guardrail. */
type GuardrailSettings = Required<GuardrailChange>

const NO_SETTINGS: Omit<GuardrailSettings, 'name'> = {
  ...NO_RULES,
  description: null,
  limit: null,
  resetInterval: null,
  includeByokInBudgets: false,
}

/** The settings of a new guardrail. @throws GatewayError `invalid_request` that names the field. */
export function newSettings(
  deps: GuardrailSettingsDeps,
  body: GuardrailUpdate & { readonly name: string },
): GuardrailSettings {
  return settingsAfter(deps, { ...NO_SETTINGS, name: body.name }, body)
}

/** The settings after an update; fields that the body leaves out stay. @throws GatewayError `invalid_request` */
export function settingsAfter(
  deps: GuardrailSettingsDeps,
  before: GuardrailSettings,
  body: GuardrailUpdate,
): GuardrailSettings {
  refuse(filtersRefusal(body))
  const limit = body.limit_usd === undefined ? before.limit : amount(body.limit_usd)
  const resetInterval = keepUnless(body.reset_interval, before.resetInterval)
  refuse(budgetRefusal(limit, resetInterval))
  const contentFilters =
    body.content_filters === undefined ? before.contentFilters : customFilters(body.content_filters)
  const output = body.output === undefined ? before.output : outputRules(body.output)
  refuse(patternsRefusal(contentFilters, output?.contentFilters ?? []))
  return {
    name: body.name ?? before.name,
    description: keepUnless(body.description, before.description),
    limit,
    resetInterval,
    includeByokInBudgets: keepUnless(body.include_byok_in_budgets, before.includeByokInBudgets) ?? false,
    allowedModels: keepUnless(dedupe(body.allowed_models), before.allowedModels),
    ignoredModels: keepUnless(dedupe(body.ignored_models), before.ignoredModels),
    allowedProviders: keepUnless(providers(deps, 'allowed_providers', body), before.allowedProviders),
    ignoredProviders: keepUnless(providers(deps, 'ignored_providers', body), before.ignoredProviders),
    enforceZdr: zdrRules(body, before.enforceZdr),
    enableFreeModelTraining: keepUnless(body.enable_free_model_training, before.enableFreeModelTraining),
    enableFreeModelPublication: keepUnless(
      body.enable_free_model_publication,
      before.enableFreeModelPublication,
    ),
    enablePaidModelTraining: keepUnless(body.enable_paid_model_training, before.enablePaidModelTraining),
    allowedDataRegions: keepUnless(dedupe(body.allowed_data_regions), before.allowedDataRegions),
    contentFilterBuiltins:
      body.content_filter_builtins === undefined
        ? before.contentFilterBuiltins
        : builtinFilters(body.content_filter_builtins),
    contentFilters,
    output,
    failMode: keepUnless(body.fail_mode, before.failMode) ?? NO_RULES.failMode,
  }
}

function keepUnless<T>(value: T | undefined, before: T): T {
  return value === undefined ? before : value
}

function amount(limit: number | null): MicroUsd | null {
  if (limit === null) return null
  const micros = toMicroUsd(limit)
  if (micros === null) throw refuseField('limit_usd', 'must have at most 6 decimals')
  return micros
}

/** Removes repeated elements. */
function dedupe<T>(list: readonly T[] | null | undefined): readonly T[] | null | undefined {
  return list == null ? list : [...new Set(list)]
}

/** @throws GatewayError `invalid_request` for an unknown slug: a misspelt one would have no effect. */
function providers(
  { providerName }: GuardrailSettingsDeps,
  field: 'allowed_providers' | 'ignored_providers',
  body: GuardrailUpdate,
): readonly string[] | null | undefined {
  const list = body[field]
  const at = list?.findIndex(slug => !PROVIDER_SLUGS.has(slug) && providerName(slug) === null) ?? -1
  if (at >= 0) throw refuseField(`${field}[${at}]`, 'must be the slug of a known provider')
  return dedupe(list)
}

/** The older field without a vendor applies to vendors that the body does not name. */
function zdrRules(body: GuardrailUpdate, before: ZdrRules): ZdrRules {
  const all = body.enforce_zdr
  return {
    anthropic: keepUnless(body.enforce_zdr_anthropic, keepUnless(all, before.anthropic)),
    openai: keepUnless(body.enforce_zdr_openai, keepUnless(all, before.openai)),
    google: keepUnless(body.enforce_zdr_google, keepUnless(all, before.google)),
    xai: keepUnless(body.enforce_zdr_xai, keepUnless(all, before.xai)),
    other: keepUnless(body.enforce_zdr_other, keepUnless(all, before.other)),
  }
}

function builtinFilters(
  entries: readonly Pick<BuiltinEntry, 'slug' | 'action' | 'scan_scope'>[] | null | undefined,
): readonly BuiltinFilter[] {
  return (entries ?? []).map(({ slug, action, scan_scope: scope }) => ({
    slug,
    action,
    scanScope: scope ?? 'all_messages',
  }))
}

function customFilters(entries: readonly FilterEntry[] | null | undefined): readonly CustomFilter[] {
  return (entries ?? []).map(({ pattern, action, label }) => ({ pattern, action, label: label ?? null }))
}

/** Null without output rules. */
function outputRules(output: OutputEntry | null): OutputRules | null {
  if (output === null) return null
  const windowBytes = output.window_bytes ?? OUTPUT_WINDOW_DEFAULT_BYTES
  return {
    contentFilterBuiltins: builtinFilters(output.content_filter_builtins),
    contentFilters: customFilters(output.content_filters),
    windowBytes,
    overlapBytes: output.overlap_bytes ?? defaultOverlapBytes(windowBytes),
  }
}

function refuse(refusal: string | null): void {
  if (refusal !== null) throw new GatewayError('invalid_request', refusal)
}

/**
 * Checks a pattern. Returns the problem in words that follow the name of its field, or null. `listed` sums the size of
 * the patterns of one list; each call adds to it.
 */
export type PatternProblem = (pattern: string, listed: { positions: number }) => string | null

/** @throws GatewayError `invalid_request` that names the first pattern of the body that cannot be run. */
export async function checkPatterns(patternProblem: PatternProblem, body: GuardrailUpdate): Promise<void> {
  for (const [path, filters] of [
    ['content_filters', body.content_filters],
    ['output.content_filters', body.output?.content_filters],
  ] as const) {
    const listed = { positions: 0 }
    for (const [at, { pattern }] of (filters ?? []).entries()) {
      const problem = patternProblem(pattern, listed)
      if (problem !== null) {
        throw new GatewayError('invalid_request', `${path}[${at}].pattern: ${problem}`, {
          metadata: { code: 'invalid_regex_pattern' },
        })
      }
      // One check may take tens of milliseconds, and there may be two hundred: streams of this thread go on in between.
      await turn()
    }
  }
}
