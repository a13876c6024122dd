/**
 * Builds credential records and changes from /byok bodies: parses, validates and encrypts their keys. Uses no storage.
 */

import { randomUUID } from 'node:crypto'
import { GatewayError, refuseField } from '../../base/errors.ts'
import {
  CREDENTIAL,
  type CredentialCreation,
  type CredentialUpdate,
  flagsRefusal,
  regionIsInKey,
  regionRefusal,
} from '../../protocol/management/byok.ts'
import { PROVIDER_SLUGS } from '../../protocol/provider-slugs.ts'
import type { SecretOwner } from '../../providers/credentials/vault.ts'
import type { CredentialChange, CredentialRecord, SealedSecret } from '../../storage/store.ts'
import type { ManagementParts } from './parts.ts'

/** Builds the record of a new credential. `now`: ISO 8601 UTC. The store sets the sort order. @throws GatewayError */
export function newCredential(
  deps: ManagementParts,
  scope: Pick<CredentialRecord, 'organizationId' | 'workspaceId'>,
  body: CredentialCreation,
  now: string,
): CredentialRecord {
  const { provider } = body
  if (!PROVIDER_SLUGS.has(provider) && deps.providerName(provider) === null) {
    throw refuseField('provider', 'must be the slug of a known provider')
  }
  const settings = CREDENTIAL.readNew(body)
  refuse(flagsRefusal(settings))
  const { label, region } = deps.describeKey(provider, body.key)
  const declaredRegion = body.declared_region === undefined ? region : body.declared_region
  refuse(regionRefusal(provider, declaredRegion, region))
  const id = randomUUID()
  return {
    ...settings,
    ...scope,
    id,
    label,
    sealed: seal(deps, body.key, { ...scope, credentialId: id, provider, revision: 1 }),
    keyRevision: 1,
    sortOrder: 0,
    declaredRegion,
    createdAt: now,
    updatedAt: now,
  }
}

/** The changes of an update; empty if it changes nothing. @throws GatewayError `invalid_request` */
export function credentialChange(
  deps: ManagementParts,
  current: CredentialRecord,
  body: CredentialUpdate,
): CredentialChange {
  const { declaredRegion: _, ...settings } = CREDENTIAL.readChange(body)
  const change: CredentialChange = { ...settings, ...keyAndRegion(deps, current, body) }
  refuse(flagsRefusal({ ...current, ...change }))
  return change
}

/** A new key sets its own region, if its kind has one; otherwise the declared region stays. */
function keyAndRegion(
  deps: ManagementParts,
  current: CredentialRecord,
  body: CredentialUpdate,
): CredentialChange {
  const { provider, organizationId, workspaceId, id } = current
  const description = body.key === undefined ? null : deps.describeKey(provider, body.key)
  // The region of a stored key was determined at its creation, because the key itself is encrypted.
  const keyRegion = description === null ? current.declaredRegion : description.region
  const declared = regionIsInKey(provider) ? keyRegion : current.declaredRegion
  const declaredRegion = body.declared_region === undefined ? declared : body.declared_region
  refuse(regionRefusal(provider, declaredRegion, keyRegion))
  const region = declaredRegion === current.declaredRegion ? {} : { declaredRegion }
  if (body.key === undefined || description === null) return region
  const keyRevision = current.keyRevision + 1
  const owner = { organizationId, workspaceId, credentialId: id, provider, revision: keyRevision }
  return { ...region, label: description.label, sealed: seal(deps, body.key, owner), keyRevision }
}

function seal({ vault }: ManagementParts, key: string, owner: SecretOwner): SealedSecret {
  const secret = Buffer.from(key)
  try {
    return vault.seal(secret, owner)
  } finally {
    secret.fill(0)
  }
}

function refuse(refusal: string | null): void {
  if (refusal !== null) throw new GatewayError('invalid_request', refusal)
}
