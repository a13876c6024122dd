/**
 * What a body of /byok makes of a credential: a new record, or a change of one, with its key read, checked and
 * sealed. Knows no storage.
 */
import { randomUUID } from 'node:crypto'
import { describeKey } from '../credentials/parse/provider-key.ts'
import type { SecretOwner, Vault } from '../credentials/vault.ts'
import { GatewayError } from '../errors.ts'
import {
  type CredentialCreation,
  type CredentialUpdate,
  flagsRefusal,
  regionIsInKey,
  regionRefusal,
} from '../protocol/byok.ts'
import { PROVIDER_SLUGS } from '../protocol/provider-slugs.ts'
import type { CredentialChange, CredentialRecord, SealedSecret } from '../storage/store.ts'
import { refused } from './paging.ts'

export interface SettingsDeps {
  readonly vault: Pick<Vault, 'seal'>
  /** Display name of a provider of the catalogue; null when it has none of this slug. */
  readonly providerName: (slug: string) => string | null
}

/** @throws GatewayError `invalid_request`. `now`: ISO 8601 UTC. The sort order is the store's to give. */
export function newCredential(
  deps: SettingsDeps,
  place: Pick<CredentialRecord, 'organizationId' | 'workspaceId'>,
  body: CredentialCreation,
  now: string,
): CredentialRecord {
  const { provider } = body
  if (!PROVIDER_SLUGS.has(provider) && deps.providerName(provider) === null) {
    throw refused('provider', 'must be the slug of a known provider')
  }
  const flags = {
    isRequired: body.is_required ?? false,
    isFallback: body.is_fallback ?? false,
    isByokOnly: body.is_byok_only ?? false,
  }
  refuse(flagsRefusal(flags))
  const { label, region } = describeKey(provider, body.key)
  const declaredRegion = body.declared_region === undefined ? region : body.declared_region
  refuse(regionRefusal(provider, declaredRegion, region))
  const id = randomUUID()
  return {
    ...place,
    id,
    provider,
    name: body.name ?? null,
    label,
    sealed: seal(deps, body.key, { ...place, credentialId: id, provider }),
    disabled: body.disabled ?? false,
    ...flags,
    sortOrder: 0,
    allowedApiKeyHashes: once(body.allowed_api_key_hashes) ?? null,
    allowedModels: once(body.allowed_models) ?? null,
    allowedUserIds: once(body.allowed_user_ids) ?? null,
    declaredRegion,
    declaredZdr: body.declared_zdr ?? null,
    createdAt: now,
    updatedAt: now,
  }
}

/** What an update changes; empty when it changes nothing. @throws GatewayError `invalid_request` */
export function credentialChange(
  deps: SettingsDeps,
  current: CredentialRecord,
  body: CredentialUpdate,
): CredentialChange {
  const change: CredentialChange = {
    ...given({
      name: body.name,
      allowedApiKeyHashes: once(body.allowed_api_key_hashes),
      allowedModels: once(body.allowed_models),
      allowedUserIds: once(body.allowed_user_ids),
      declaredZdr: body.declared_zdr,
      disabled: body.disabled,
      isRequired: body.is_required,
      isFallback: body.is_fallback,
      isByokOnly: body.is_byok_only,
    }),
    ...keyAndRegion(deps, current, body),
  }
  refuse(flagsRefusal({ ...current, ...change }))
  return change
}

/** A new key brings its own region where keys have one; otherwise the one it was declared for stays. */
function keyAndRegion(
  deps: SettingsDeps,
  current: CredentialRecord,
  body: CredentialUpdate,
): CredentialChange {
  const { provider, organizationId, workspaceId, id } = current
  const read = body.key === undefined ? null : describeKey(provider, body.key)
  // Of a key that stays only the region is known, from when it came.
  const ofKey = read === null ? current.declaredRegion : read.region
  const kept = regionIsInKey(provider) ? ofKey : current.declaredRegion
  const declaredRegion = body.declared_region === undefined ? kept : body.declared_region
  refuse(regionRefusal(provider, declaredRegion, ofKey))
  const region = declaredRegion === current.declaredRegion ? {} : { declaredRegion }
  if (body.key === undefined || read === null) return region
  const sealed = seal(deps, body.key, { organizationId, workspaceId, credentialId: id, provider })
  return { ...region, label: read.label, sealed }
}

function seal({ vault }: SettingsDeps, key: string, owner: SecretOwner): SealedSecret {
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

/** What is listed twice counts once. */
function once(list: readonly string[] | null | undefined): readonly string[] | null | undefined {
  return list == null ? list : [...new Set(list)]
}

type Given<Fields> = { [Name in keyof Fields]?: Exclude<Fields[Name], undefined> }

/** Leaves out what is undefined, so that it changes nothing. */
function given<Fields extends object>(fields: Fields): Given<Fields> {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== undefined),
  ) as Given<Fields>
}
