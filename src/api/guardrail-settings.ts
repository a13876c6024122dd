/** Reads the settings of a guardrail from a body of /guardrails, and checks them. Uses no storage. */
import { setImmediate as turn } from 'node:timers/promises'
import { GatewayError } from '../errors.ts'
import { type MicroUsd, toMicroUsd } from '../money.ts'
import {
  type BuiltinEntry,
  budgetRefusal,
  defaultOverlapBytes,
  type FilterEntry,
  filtersRefusal,
  type GuardrailUpdate,
  type OutputEntry,
  patternsRefusal,
} from '../protocol/guardrails.ts'
import { OUTPUT_WINDOW_DEFAULT_BYTES } from '../protocol/limits.ts'
import { PROVIDER_SLUGS } from '../protocol/provider-slugs.ts'
import {
  type BuiltinFilter,
  type CustomFilter,
  type GuardrailChange,
  NO_RULES,
  type OutputRules,
  type ZdrRules,
} from '../storage/guardrails.ts'
import { refused } from './paging.ts'

export interface GuardrailSettingsDeps {
  /** Display name of a provider of the catalogue; null when it has none of this slug. */
  readonly providerName: (slug: string) => string | null
}

/** All that may be changed of a guardrail. */
export type GuardrailSettings = Required<GuardrailChange>

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

/** The settings after an update: what the body leaves out stays. @throws GatewayError `invalid_request` */
export function settingsAfter(
  deps: GuardrailSettingsDeps,
  before: GuardrailSettings,
  body: GuardrailUpdate,
): GuardrailSettings {
  refuse(filtersRefusal(body))
  const limit = body.limit_usd === undefined ? before.limit : amount(body.limit_usd)
  const resetInterval = kept(body.reset_interval, before.resetInterval)
  refuse(budgetRefusal(limit, resetInterval))
  const contentFilters =
    body.content_filters === undefined ? before.contentFilters : customFilters(body.content_filters)
  const output = body.output === undefined ? before.output : outputRules(body.output)
  refuse(patternsRefusal(contentFilters, output?.contentFilters ?? []))
  return {
    name: body.name ?? before.name,
    description: kept(body.description, before.description),
    limit,
    resetInterval,
    includeByokInBudgets: kept(body.include_byok_in_budgets, before.includeByokInBudgets) ?? false,
    allowedModels: kept(once(body.allowed_models), before.allowedModels),
    ignoredModels: kept(once(body.ignored_models), before.ignoredModels),
    allowedProviders: kept(providers(deps, 'allowed_providers', body), before.allowedProviders),
    ignoredProviders: kept(providers(deps, 'ignored_providers', body), before.ignoredProviders),
    enforceZdr: zdrRules(body, before.enforceZdr),
    enableFreeModelTraining: kept(body.enable_free_model_training, before.enableFreeModelTraining),
    enableFreeModelPublication: kept(body.enable_free_model_publication, before.enableFreeModelPublication),
    enablePaidModelTraining: kept(body.enable_paid_model_training, before.enablePaidModelTraining),
    allowedDataRegions: kept(once(body.allowed_data_regions), before.allowedDataRegions),
    contentFilterBuiltins:
      body.content_filter_builtins === undefined
        ? before.contentFilterBuiltins
        : builtinFilters(body.content_filter_builtins),
    contentFilters,
    output,
    failMode: kept(body.fail_mode, before.failMode) ?? NO_RULES.failMode,
  }
}

function kept<T>(value: T | undefined, before: T): T {
  return value === undefined ? before : value
}

function amount(limit: number | null): MicroUsd | null {
  if (limit === null) return null
  const micros = toMicroUsd(limit)
  if (micros === null) throw refused('limit_usd', 'must have at most 6 decimals')
  return micros
}

/** What is listed twice counts once. */
function once<T>(list: readonly T[] | null | undefined): readonly T[] | null | undefined {
  return list == null ? list : [...new Set(list)]
}

/** @throws GatewayError `invalid_request`: a provider that is misspelt would be allowed or ignored in vain. */
function providers(
  { providerName }: GuardrailSettingsDeps,
  field: 'allowed_providers' | 'ignored_providers',
  body: GuardrailUpdate,
): readonly string[] | null | undefined {
  const list = body[field]
  const at = list?.findIndex(slug => !PROVIDER_SLUGS.has(slug) && providerName(slug) === null) ?? -1
  if (at >= 0) throw refused(`${field}[${at}]`, 'must be the slug of a known provider')
  return once(list)
}

/** The older field without a vendor stands for those that the body does not name. */
function zdrRules(body: GuardrailUpdate, before: ZdrRules): ZdrRules {
  const all = body.enforce_zdr
  return {
    anthropic: kept(body.enforce_zdr_anthropic, kept(all, before.anthropic)),
    openai: kept(body.enforce_zdr_openai, kept(all, before.openai)),
    google: kept(body.enforce_zdr_google, kept(all, before.google)),
    xai: kept(body.enforce_zdr_xai, kept(all, before.xai)),
    other: kept(body.enforce_zdr_other, kept(all, before.other)),
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

/** Null when there is nothing to look for. */
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
 * Why a pattern cannot be run, in words that follow the name of its field; null when it can. `listed` counts what the
 * patterns before it in its list stand for, and is added to.
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
      // Some take tens of milliseconds, and there may be two hundred: the streams of this thread must not wait for all.
      await turn()
    }
  }
}
