/** When an equal request may get an earlier answer: the field `cache` of keys and workspaces. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { maybe, nullable, oneOf } from '../json/schema.ts'
import { inBodies } from './record.ts'

export const CACHE_SECONDS_MAX = 86_400
export const CACHE_SCOPES = ['key', 'workspace'] as const
export const CACHE_SECONDS_DEFAULT = 300

const policyFields = {
  enabled: Type.Boolean(),
  /** How long an answer is kept after its end, and its maximum age when it is used. */
  seconds: Type.Integer({ minimum: 1, maximum: CACHE_SECONDS_MAX }),
  /** `key`: only requests of the same key get it; `workspace`: requests of all keys there that have this scope. */
  scope: oneOf(...CACHE_SCOPES),
}

export const CachePolicy = Type.Object(policyFields)
export type CachePolicy = Readonly<Static<typeof CachePolicy>>

const body = Type.Object(
  {
    enabled: policyFields.enabled,
    seconds: Type.Optional(policyFields.seconds),
    scope: Type.Optional(policyFields.scope),
  },
  { additionalProperties: false },
)

/** Of a key, null: as its workspace; of a workspace, null: as the configuration says. */
export const cacheField = {
  schema: nullable(CachePolicy),
  column: 'json',
  initial: null,
  ...inBodies(maybe(body)),
  read: ({ enabled, seconds = CACHE_SECONDS_DEFAULT, scope = 'key' }: Static<typeof body>): CachePolicy => ({
    enabled,
    seconds,
    scope,
  }),
} as const

/** The response cache for the requests of a key. */
export interface KeyCaching {
  /** Of the key, or else of its workspace. */
  readonly policy: CachePolicy
  /** Changes whenever the record of the workspace does; null: it has no record. */
  readonly generation: string | null
}
