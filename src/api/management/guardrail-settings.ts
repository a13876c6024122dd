/** Parses and validates the settings of a guardrail from a /guardrails body. Uses no storage. */
import { setImmediate as turn } from 'node:timers/promises'
import { GatewayError, refuseField } from '../../base/errors.ts'
import {
  budgetRefusal,
  filtersRefusal,
  GUARDRAIL,
  type GuardrailChange,
  type GuardrailCreation,
  type GuardrailUpdate,
  patternsRefusal,
  type ZdrRules,
} from '../../protocol/management/guardrails.ts'
import { PROVIDER_SLUGS } from '../../protocol/provider-slugs.ts'

export interface GuardrailSettingsDeps {
  /** Display name of a provider; null when the catalogue has none of this slug. */
  readonly providerName: (slug: string) => string | null
}

/** The settings of a new guardrail. @throws GatewayError `invalid_request` that names the field. */
export function newSettings(deps: GuardrailSettingsDeps, body: GuardrailCreation) {
  return settingsAfter(deps, { ...GUARDRAIL.initial, name: body.name }, body)
}

/** The settings after an update; fields that the body leaves out stay. @throws GatewayError `invalid_request` */
export function settingsAfter<Settings extends Required<GuardrailChange>>(
  deps: GuardrailSettingsDeps,
  before: Settings,
  body: GuardrailUpdate,
): Settings {
  refuse(filtersRefusal(body))
  const after = {
    ...before,
    ...GUARDRAIL.readChange(body),
    enforceZdr: zdrRules(body, before.enforceZdr),
  }
  refuse(budgetRefusal(after.limit, after.resetInterval))
  refuse(patternsRefusal(after.contentFilters, after.output?.contentFilters ?? []))
  checkProviders(deps, 'allowed_providers', body)
  checkProviders(deps, 'ignored_providers', body)
  return after
}

function keepUnless<T>(value: T | undefined, before: T): T {
  return value === undefined ? before : value
}

/** @throws GatewayError `invalid_request` for an unknown slug: a misspelt one would have no effect. */
function checkProviders(
  { providerName }: GuardrailSettingsDeps,
  field: 'allowed_providers' | 'ignored_providers',
  body: GuardrailUpdate,
): void {
  const list = body[field]
  const at = list?.findIndex(slug => !PROVIDER_SLUGS.has(slug) && providerName(slug) === null) ?? -1
  if (at >= 0) throw refuseField(`${field}[${at}]`, 'must be the slug of a known provider')
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
