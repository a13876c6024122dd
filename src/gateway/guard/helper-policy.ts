/**
 * Checks if the guardrails of a caller allow a helper of the gateway: a model that it asks by itself, or the OCR
 * provider. Asked before the helper is used, so that the caller gets the reason.
 */
import type { PolicyAgainst } from '../../plugins/plugin.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { Provider } from '../../providers/provider.ts'
import type { Restriction, Restrictions } from '../routing/restrictions.ts'
import type { Guard } from './guard.ts'

export interface HelperPolicyDeps {
  readonly guard: Pick<Guard, 'restrictions'>
  readonly catalog: Pick<Catalog, 'model'>
  /** Null: OCR is not configured. */
  readonly ocrProvider: Provider | null
}

export function createPolicyAgainst({ guard, catalog, ocrProvider }: HelperPolicyDeps): PolicyAgainst {
  return async (caller, helper) => {
    const restrictions = await guard.restrictions(caller)
    if (restrictions === null) return null
    if (helper === 'ocr') return ocrProvider === null ? null : restrictions.providerExcludedBy(ocrProvider)
    return modelExcludedBy(restrictions, catalog, helper.model)
  }
}

/** Null if one of the model's endpoints is allowed, on the service's own keys; otherwise the first restriction. */
function modelExcludedBy(
  restrictions: Restrictions,
  catalog: Pick<Catalog, 'model'>,
  id: string,
): Restriction | null {
  let first: Restriction | null = null
  for (const endpoint of catalog.model(id)?.endpoints ?? []) {
    const restriction = restrictions.helperExcludedBy({ endpoint, credential: null })
    if (restriction === null) return null
    first ??= restriction
  }
  return first
}
