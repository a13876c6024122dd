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
import type { ManagementParts, PatternProblem } from './parts.ts'

/** The settings of a new guardrail. @throws GatewayError `invalid_request` that names the field. */
export function newSettings(deps: ManagementParts, body: GuardrailCreation) {
  return settingsAfter(deps, { ...GUARDRAIL.initial, name: body.name }, body)
}

/** The settings after an update; absent fields keep their value. @throws GatewayError `invalid_request` */
export function settingsAfter<Settings extends Required<GuardrailChange>>(
  deps: ManagementParts,
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

/** @throws GatewayError `invalid_request` for an unknown slug, because a misspelt one would have no effect. */
function checkProviders(
  { providerName }: ManagementParts,
  field: 'allowed_providers' | 'ignored_providers',
  body: GuardrailUpdate,
): void {
  const list = body[field]
  const index = list?.findIndex(slug => !PROVIDER_SLUGS.has(slug) && providerName(slug) === null) ?? -1
  if (index >= 0) throw refuseField(`${field}[${index}]`, 'must be the slug of a known provider')
}

/** The older field without a vendor applies to vendors that the body does not name. */
function zdrRules(body: GuardrailUpdate, before: ZdrRules): ZdrRules {
  const common = body.enforce_zdr
  return {
    anthropic: keepUnless(body.enforce_zdr_anthropic, keepUnless(common, before.anthropic)),
    openai: keepUnless(body.enforce_zdr_openai, keepUnless(common, before.openai)),
    google: keepUnless(body.enforce_zdr_google, keepUnless(common, before.google)),
    xai: keepUnless(body.enforce_zdr_xai, keepUnless(common, before.xai)),
    other: keepUnless(body.enforce_zdr_other, keepUnless(common, before.other)),
  }
}

function refuse(refusal: string | null): void {
  if (refusal !== null) throw new GatewayError('invalid_request', refusal)
}

/** @throws GatewayError `invalid_request` that names the first pattern of the body that cannot be run. */
export async function checkPatterns(patternProblem: PatternProblem, body: GuardrailUpdate): Promise<void> {
  for (const [path, filters] of [
    ['content_filters', body.content_filters],
    ['output.content_filters', body.output?.content_filters],
  ] as const) {
    const total = { positions: 0 }
    for (const [index, { pattern }] of (filters ?? []).entries()) {
      const problem = patternProblem(pattern, total)
      if (problem !== null) {
        throw new GatewayError('invalid_request', `${path}[${index}].pattern: ${problem}`, {
          metadata: { code: 'invalid_regex_pattern' },
        })
      }
      // One check may take tens of milliseconds, and there may be two hundred, so other streams of this thread run in
      // between.
      await turn()
    }
  }
}
