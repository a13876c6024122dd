/**
 * Whether guardrails let what a caller says go to the helpers of the gateway: models that it asks by itself and the
 * provider of OCR. Answered before anything is asked, so that the caller is told why.
 */
import type { RuleAgainst } from '../../plugins/plugin.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { Provider } from '../../providers/provider.ts'
import type { Restriction, Restrictions } from '../routing/restrictions.ts'
import type { Guard } from './guard.ts'

export interface RuleAgainstTools {
  readonly guard: Pick<Guard, 'restrictions'>
  readonly catalog: Pick<Catalog, 'model'>
  /** Null: there is none. */
  readonly ocrProvider: Provider | null
}

export function createRuleAgainst({ guard, catalog, ocrProvider }: RuleAgainstTools): RuleAgainst {
  return async (caller, helper) => {
    const restrictions = await guard.restrictions(caller)
    if (restrictions === null) return null
    if (helper === 'ocr') return ocrProvider === null ? null : restrictions.providerRefusal(ocrProvider)
    return againstModel(restrictions, catalog, helper.model)
  }
}

/** Null when one of its endpoints is left, on the service's own keys; the first rule when there is none. */
function againstModel(
  restrictions: Restrictions,
  catalog: Pick<Catalog, 'model'>,
  id: string,
): Restriction | null {
  let first: Restriction | null = null
  for (const endpoint of catalog.model(id)?.endpoints ?? []) {
    const refusal = restrictions.dataRefusal({ endpoint, credential: null })
    if (refusal === null) return null
    first ??= refusal
  }
  return first
}
