/**
 * POST /providers/check and POST /byok/{id}/check: makes one real call with a provider key, and reports the outcome in
 * words for the person who has to fix it.
 */

import type { GatewayError } from '../../base/errors.ts'
import type { KeyVerdict } from '../../pipeline/key-check.ts'
import { checkCredentialCheck, checkProviderCheck } from '../../protocol/management/byok.ts'
import { keyVariable } from '../../providers/provider-rows.ts'
import type { AuditObject } from '../../storage/audit.ts'
import type { CredentialRecord } from '../../storage/store.ts'
import type { ApiRequest, Handler, Reply } from '../operation.ts'
import { audited } from './audit.ts'
import { findNamed, toObject } from './byok.ts'
import type { ManagementParts } from './parts.ts'

/** Enough for a slug and a model id with every non-ASCII character escaped. */
export const KEY_CHECK_BODY_MAX_BYTES = 16 * 1024

export function checkProviderKey(deps: ManagementParts): Handler {
  return async (request, reply) => {
    const { provider, model } = checkProviderCheck(request.body)
    await answer(deps, request, reply, { provider, model, credential: null })
  }
}

/** Tests also a disabled credential, so that an operator can do so before enabling it. */
export function checkCredential(deps: ManagementParts): Handler {
  return async (request, reply) => {
    const { model } = checkCredentialCheck(request.body)
    const credential = await findNamed(deps, request)
    await answer(deps, request, reply, { provider: credential.provider, model, credential })
  }
}

interface KeyCheckTarget {
  readonly provider: string
  readonly model: string | undefined
  readonly credential: CredentialRecord | null
}

async function answer(
  deps: ManagementParts,
  request: ApiRequest,
  reply: Reply,
  target: KeyCheckTarget,
): Promise<void> {
  const { keyCheck, clock } = deps
  const prepared = keyCheck.prepare(target)
  const release = keyCheck.enter(request.key)
  try {
    const { name, auth, apiKey, slug } = prepared.provider
    const { credential } = target
    const object: AuditObject =
      credential === null ? { kind: 'provider', id: slug, name } : toObject(credential)
    const action = credential === null ? 'provider.check' : 'credential.check'
    // Written before the call, so that it is on record whatever the outcome.
    await audited(
      deps,
      request,
      action,
      async () => object,
      same => same,
    )
    const sinceMs = clock.monotonicMs()
    const verdict = await keyCheck.run(prepared, request.context.signal)
    const isMissing = credential === null && apiKey === null
    const isUnsent = isMissing && auth !== 'none'
    reply.json(200, {
      data: {
        works: verdict.error === null,
        provider: slug,
        credential_id: credential?.id ?? null,
        asked: isUnsent ? null : verdict.probe,
        model: verdict.model,
        provider_status: statusOf(verdict),
        message: verdict.error?.message ?? worksBy(name, auth !== 'none', verdict),
        ...adviceFor(verdict, { slug, name, isOwn: credential !== null, isMissing, isUnsent }),
        duration_ms: Math.round(clock.monotonicMs() - sinceMs),
      },
    })
  } finally {
    release()
  }
}

function statusOf({ error }: KeyVerdict): number | null {
  if (error === null) return 200
  const status = error.metadata?.['provider_status']
  return typeof status === 'number' ? status : null
}

function worksBy(name: string, hasKey: boolean, { probe, model }: KeyVerdict): string {
  const by = probe === 'models' ? 'it listed its models' : `${model} answered`
  return hasKey ? `${name} accepted the key: ${by}` : `${name} answers without asking for a key: ${by}`
}

interface CheckedProvider {
  readonly slug: string
  readonly name: string
  readonly isOwn: boolean
  /** True if the configuration contains no key for it. */
  readonly isMissing: boolean
  /** True if, in addition, the provider requires a key. */
  readonly isUnsent: boolean
}

/** The field to correct, if any, and how; nulls if the key works. */
interface Advice {
  readonly field: string | null
  readonly advice: string | null
}

const NO_ADVICE: Advice = { field: null, advice: null }

function adviceFor({ error, probe }: KeyVerdict, provider: CheckedProvider): Advice {
  if (error === null) return NO_ADVICE
  const { name, slug, isOwn, isMissing, isUnsent } = provider
  const action = isMissing ? 'Put a key' : 'Put a valid key'
  if (isUnsent) return keyAdvice(provider, action)
  const status = error.metadata?.['provider_status']
  switch (status) {
    case 401:
      return keyAdvice(provider, action)
    case 403:
      return {
        field: keyAdvice(provider, '').field,
        advice: `The key lacks permission for this call: check its permissions, and the region and models of its account at ${name}`,
      }
    case 402:
    case 429:
      return {
        field: null,
        advice: `${name} recognizes the key: check the credit and the limits of its account there`,
      }
    case 404:
      return probe === 'models'
        ? addressAdvice(slug, 'Nothing was found at the address')
        : {
            field: 'upstreamModel',
            advice: `${name} does not offer this model to the key: check upstreamModel in its row under models, or try another model`,
          }
  }
  if (typeof status === 'number') {
    return status < 500
      ? {
          field: null,
          advice: 'The provider refused this call, which says nothing about the key: try another model',
        }
      : { field: null, advice: `${name} has a problem of its own: try again later` }
  }
  return adviceWithoutReply(error, provider, isOwn)
}

function adviceWithoutReply(error: GatewayError, provider: CheckedProvider, isOwn: boolean): Advice {
  switch (error.metadata?.['reason']) {
    case 'nothing_to_ask':
      return {
        field: 'models',
        advice: `Add a row under models with an endpoint at ${provider.slug}, then try again`,
      }
    case 'proxy_failure':
      return { field: 'proxy', advice: 'Check the proxy for outgoing connections' }
    case 'timeout':
      return {
        field: null,
        advice: `Try again; if it keeps happening, check the network between this machine and ${provider.name}`,
      }
    case undefined:
      return isOwn
        ? { field: 'key', advice: 'Give the credential a key in a form that the provider uses' }
        : NO_ADVICE
    default:
      return addressAdvice(provider.slug, 'Nothing answers like this provider at the address')
  }
}

function keyAdvice({ slug, isOwn }: CheckedProvider, action: string): Advice {
  if (isOwn) return { field: 'key', advice: `${action} into the credential` }
  const variable = keyVariable(slug)
  const where = variable === null ? '' : `, or into the variable ${variable}`
  return {
    field: 'providers[].apiKey',
    advice: `${action} into apiKey of the row ${slug} under providers${where}, then reload or restart`,
  }
}

function addressAdvice(slug: string, why: string): Advice {
  return {
    field: 'providers[].baseUrl',
    advice: `${why}: check baseUrl of the row ${slug} under providers, and this machine's network`,
  }
}
