/**
 * Schemas of the POST and PATCH /byok bodies, and the rules across their fields. Pure.
 * providers/credentials/parse/provider-key.ts defines the provider-specific forms of keys, and their regions.
 */
import { type Static, Type } from '@sinclair/typebox'
import { bodyCheck } from '../json/body.ts'
import { maybe, oneOf, text } from '../json/schema.ts'
import { IDENTIFIER_MAX_CHARS, MODEL_MAX_CHARS, RECORD_NAME_MAX_CHARS } from '../limits.ts'
import { EndUserName } from './management.ts'

/** Elements of each list of restrictions. */
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

/** Null: no restriction. An empty list is refused, since readers could take it for nobody or for everybody. */
const restriction = <Item extends ReturnType<typeof Type.String> | typeof EndUserName>(item: Item) =>
  maybe(Type.Array(item, { minItems: 1, maxItems: RESTRICTION_MAX_ITEMS }))

/** The provider decides its characters and length. */
const key = Type.String({ minLength: 1 })

const settings = {
  name: maybe(text({ max: RECORD_NAME_MAX_CHARS, storable: true })),
  allowed_api_key_hashes: restriction(KeyHash),
  allowed_models: restriction(ModelSlug),
  allowed_user_ids: restriction(EndUserName),
  declared_region: maybe(oneOf('global', 'europe', 'us')),
  declared_zdr: maybe(Type.Boolean()),
  disabled: Type.Optional(Type.Boolean()),
  is_required: Type.Optional(Type.Boolean()),
  is_fallback: Type.Optional(Type.Boolean()),
  is_byok_only: Type.Optional(Type.Boolean()),
}

export const CredentialCreation = Type.Object(
  {
    key,
    provider: text({ min: 1, max: IDENTIFIER_MAX_CHARS }),
    workspace_id: Type.Optional(text({ min: 1, max: IDENTIFIER_MAX_CHARS, storable: true })),
    ...settings,
  },
  { additionalProperties: false },
)
export type CredentialCreation = Static<typeof CredentialCreation>

/** Absent fields keep their value; null clears one. The provider and the workspace of a credential never change. */
export const CredentialUpdate = Type.Object(
  { key: Type.Optional(key), ...settings },
  { additionalProperties: false },
)
export type CredentialUpdate = Static<typeof CredentialUpdate>

const model = Type.Optional(ModelSlug)

/** A trial of the gateway's own key. */
export const ProviderCheck = Type.Object(
  { provider: text({ min: 1, max: IDENTIFIER_MAX_CHARS }), model },
  { additionalProperties: false },
)
/** A trial of a credential. */
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

type Region = 'global' | 'europe' | 'us'

/** Providers whose keys carry their region: a declared region must be the same. */
const REGION_IN_KEY: ReadonlySet<string> = new Set(['openai', 'fireworks'])
/** Providers whose keys carry no region, but whose credentials may be declared for one. */
const REGION_DECLARED: ReadonlySet<string> = new Set(['azure'])

/** True if the key material of this provider has the region. */
export function regionIsInKey(provider: string): boolean {
  return REGION_IN_KEY.has(provider)
}

/**
 * The reason why a credential cannot be declared for this region; null: it can. `ofKey` is the region in the key
 * material; null and `global` mean the same on both sides.
 */
export function regionRefusal(
  provider: string,
  declared: Region | null,
  ofKey: Region | null,
): string | null {
  if (regionIsInKey(provider)) {
    return (declared ?? 'global') === (ofKey ?? 'global')
      ? null
      : 'declared_region: must be the region of the key, or be left out, which means the same'
  }
  return isInRegion(declared) && !REGION_DECLARED.has(provider)
    ? 'declared_region: must be global or null for this provider'
    : null
}

function isInRegion(region: Region | null): boolean {
  return region !== null && region !== 'global'
}
