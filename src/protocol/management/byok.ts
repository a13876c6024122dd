/**
 * Schemas of the POST and PATCH /byok bodies, and the rules across their fields. Pure.
 * providers/credentials/parse/provider-key.ts defines the provider-specific forms of keys, and their regions.
 */
import { type Static, Type } from '@sinclair/typebox'
import { REGIONS, type Region } from '../data-regions.ts'
import { bodyCheck } from '../json/body.ts'
import { instant, maybe, nullable, oneOf, text } from '../json/schema.ts'
import { IDENTIFIER_MAX_CHARS, MODEL_MAX_CHARS, RECORD_NAME_MAX_CHARS } from '../limits.ts'
import { EndUserName } from './management.ts'
import { Declaration, inBodies, type RecordOf } from './record.ts'

/** Maximum elements of each list of restrictions. */
const RESTRICTION_MAX_ITEMS = 100
/** `vendor/model`, `~` before the vendor of an alias; variants after colons. */
const MODEL_SLUG_PATTERN =
  '^~?[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)+(:[A-Za-z0-9][A-Za-z0-9._-]*)*$'
export const ModelSlug = Type.String({
  maxLength: MODEL_MAX_CHARS,
  pattern: MODEL_SLUG_PATTERN,
  description: `a model id such as acme/fast, of at most ${MODEL_MAX_CHARS} characters`,
})
/** SHA-256 of an API key. */
export const KeyHash = Type.String({
  pattern: '^[a-f0-9]{64}$',
  description: 'the hash of an API key: 64 lowercase hexadecimal digits',
})

/** Null: no restriction. An empty list is refused, because it could mean nobody or everybody. */
const restriction = <Item extends ReturnType<typeof Type.String> | typeof EndUserName>(item: Item) =>
  maybe(Type.Array(item, { minItems: 1, maxItems: RESTRICTION_MAX_ITEMS }))

/** The provider decides its characters and length. */
const key = Type.String({ minLength: 1 })
const region = oneOf(...REGIONS)

const flag = {
  schema: Type.Boolean(),
  column: 'flag',
  initial: false,
  create: Type.Optional(Type.Boolean()),
  change: Type.Boolean(),
} as const
const list = {
  schema: nullable(Type.Array(Type.String())),
  column: 'json',
  initial: null,
  read: (items: readonly string[]) => [...new Set(items)],
} as const

const fields = {
  /** UUID. */
  id: { schema: Type.String() },
  name: {
    schema: nullable(Type.String()),
    initial: null,
    ...inBodies(maybe(text({ max: RECORD_NAME_MAX_CHARS, storable: true }))),
  },
  /** Slug. */
  provider: { schema: Type.String(), create: text({ min: 1, max: IDENTIFIER_MAX_CHARS }) },
  label: { schema: Type.String({ description: 'The masked key; the key itself is never returned' }) },
  workspaceId: {
    schema: Type.String(),
    create: Type.Optional(text({ min: 1, max: IDENTIFIER_MAX_CHARS, storable: true })),
  },
  createdAt: { schema: instant },
  disabled: flag,
  isRequired: flag,
  isFallback: flag,
  isByokOnly: flag,
  /** Credentials of a workspace and provider are tried in ascending order. */
  sortOrder: { schema: Type.Integer() },
  /** Null: no restriction, also in the next two fields. */
  allowedApiKeyHashes: { ...list, ...inBodies(restriction(KeyHash)) },
  allowedModels: { ...list, ...inBodies(restriction(ModelSlug)) },
  allowedUserIds: { ...list, ...inBodies(restriction(EndUserName)) },
  declaredRegion: { schema: nullable(region), initial: null, ...inBodies(maybe(region)) },
  declaredZdr: {
    schema: nullable(Type.Boolean()),
    column: 'flag',
    initial: null,
    ...inBodies(maybe(Type.Boolean())),
  },
  usable: {
    schema: Type.Boolean({
      description: 'False: the provider cannot be called, and routing ignores the key',
    }),
    only: 'answer',
  },
  unusableReason: {
    schema: nullable(Type.String({ description: 'Why no request can use the key; null: requests can' })),
    only: 'answer',
  },
  organizationId: { schema: Type.String(), only: 'stored' },
  /** Starts at 1 and grows with each new key: an older sealed key cannot be decrypted with a newer revision. */
  keyRevision: { schema: Type.Integer(), only: 'stored' },
  updatedAt: { schema: instant, only: 'stored' },
  key: { schema: Type.Null(), only: 'body', ...inBodies(key) },
} as const

export const CREDENTIAL = new Declaration(fields, [
  ...['key', 'provider', 'workspace_id', 'name', 'allowed_api_key_hashes', 'allowed_models'],
  ...['allowed_user_ids', 'declared_region', 'declared_zdr'],
])
/** All fields of a credential except its encrypted key. */
export type Credential = RecordOf<typeof fields>

export const CredentialCreation = CREDENTIAL.creation
export type CredentialCreation = Static<typeof CredentialCreation>
/** Absent fields keep their value; null clears one. The provider and the workspace of a credential never change. */
export const CredentialUpdate = CREDENTIAL.update
export type CredentialUpdate = Static<typeof CredentialUpdate>

const model = Type.Optional(ModelSlug)

/** A trial of the gateway's own key. */
export const ProviderCheck = Type.Object(
  { provider: text({ min: 1, max: IDENTIFIER_MAX_CHARS }), model },
  { additionalProperties: false },
)
/** A test of a credential. */
export const CredentialCheck = Type.Object({ model }, { additionalProperties: false })

/** Each throws GatewayError `invalid_request` that names the field. */
export const checkProviderCheck = bodyCheck(ProviderCheck)
export const checkCredentialCheck = bodyCheck(CredentialCheck)
export const checkCredentialCreation = bodyCheck(CredentialCreation)
export const checkCredentialUpdate = bodyCheck(CredentialUpdate)

interface CredentialFlags {
  readonly isRequired: boolean
  readonly isFallback: boolean
  readonly isByokOnly: boolean
}

/** The reason why the flags contradict each other, with both fields; null: they do not. */
export function flagsRefusal({ isRequired, isFallback, isByokOnly }: CredentialFlags): string | null {
  if (isFallback && isRequired) return 'is_fallback: must not be true together with is_required'
  if (isFallback && isByokOnly) return 'is_fallback: must not be true together with is_byok_only'
  return null
}

/** Providers whose keys carry their region: a declared region must be the same. */
const PROVIDERS_WITH_REGION_IN_KEY: ReadonlySet<string> = new Set(['openai', 'fireworks'])
/** Providers whose keys carry no region, but whose credentials may be declared for one. */
const PROVIDERS_WITH_DECLARED_REGION: ReadonlySet<string> = new Set(['azure'])

/** True if the key material of this provider has the region. */
export function regionIsInKey(provider: string): boolean {
  return PROVIDERS_WITH_REGION_IN_KEY.has(provider)
}

/**
 * The reason why a credential cannot be declared for this region; null: it can. `keyRegion` is the region in the key
 * material; null and `global` mean the same on both sides.
 */
export function regionRefusal(
  provider: string,
  declaredRegion: Region | null,
  keyRegion: Region | null,
): string | null {
  if (regionIsInKey(provider)) {
    return (declaredRegion ?? 'global') === (keyRegion ?? 'global')
      ? null
      : 'declared_region: must be the region of the key, or be left out, which means the same'
  }
  return isInRegion(declaredRegion) && !PROVIDERS_WITH_DECLARED_REGION.has(provider)
    ? 'declared_region: must be global or null for this provider'
    : null
}

function isInRegion(region: Region | null): boolean {
  return region !== null && region !== 'global'
}
