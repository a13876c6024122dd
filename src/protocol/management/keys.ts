/** API keys: their records, and the bodies that create, change and rotate them. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { refuseField } from '../../base/errors.ts'
import { AMOUNT_MAX_USD, type MicroUsd, toMicroUsd } from '../../base/money.ts'
import { AnyObject, instant, maybe, nullable, oneOf, text, usd } from '../json/schema.ts'
import { IDENTIFIER_MAX_CHARS, KEY_OVERLAP_MAX_SECONDS, RECORD_NAME_MAX_CHARS } from '../limits.ts'
import { type LoopPolicy, loopsField } from './loops.ts'
import { parseInstant } from './management.ts'
import { type KeyRates, rateLimitField } from './rate-limit.ts'
import {
  type ChangeOf,
  computedFields,
  Declaration,
  fixedFields,
  type ReadingContext,
  type RecordOf,
} from './record.ts'
import { cacheField, type KeyCaching } from './response-cache.ts'

const name = text({ min: 1, max: RECORD_NAME_MAX_CHARS, storable: true, singleLine: true })
const limit = Type.Number({ minimum: 0, maximum: AMOUNT_MAX_USD })
const limitReset = oneOf('daily', 'weekly', 'monthly')
const role = oneOf('viewer', 'operator', 'admin')

export type KeyKind = 'inference' | 'management'
/** The rights of a management key: to read; to make everyday changes; to do everything. */
export type KeyRole = Static<typeof role>
/** Period of a spending limit. Days begin at midnight UTC, weeks on Monday. */
export type LimitReset = Static<typeof limitReset>

const fields = {
  /** SHA-256 of its first secret, 64 lowercase hexadecimal characters. The key's permanent id. */
  hash: { schema: Type.String() },
  /** Masked form for display, e.g. `sk-gw-v1-abc...123`. */
  label: { schema: Type.String() },
  name: { schema: Type.String(), create: name, change: name },
  kind: { schema: oneOf('inference', 'management'), only: 'stored' },
  organizationId: { schema: Type.String(), only: 'stored' },
  disabled: { schema: Type.Boolean(), column: 'flag', initial: false, change: Type.Boolean() },
  isManagementKey: { schema: Type.Boolean(), only: 'answer' },
  /** For a management key; null: `admin`. A body with a role creates a management key. */
  role: { schema: nullable(role), initial: null, create: maybe(role), change: role },
  /** Spending limit for each period of `limitReset`, or in total; null: no limit. */
  limit: {
    schema: nullable(usd),
    column: 'big',
    // `limit` is an SQL keyword.
    as: 'spendLimit',
    initial: null,
    create: maybe(limit),
    change: nullable(limit),
    read: readAmount,
  },
  limitRemaining: { schema: nullable(usd), only: 'answer' },
  limitReset: {
    schema: nullable(limitReset),
    initial: null,
    create: maybe(limitReset),
    change: nullable(limitReset),
  },
  /** True if requests on own provider credentials count towards the limit. */
  includeByokInLimit: {
    schema: Type.Boolean(),
    column: 'flag',
    initial: false,
    create: maybe(Type.Boolean()),
    change: Type.Boolean(),
  },
  rateLimit: rateLimitField,
  loops: loopsField,
  cache: cacheField,
  ...computedFields(usd, 'usage', 'usageDaily', 'usageWeekly', 'usageMonthly'),
  ...computedFields(usd, 'byokUsage', 'byokUsageDaily', 'byokUsageWeekly', 'byokUsageMonthly'),
  createdAt: { schema: instant },
  updatedAt: { schema: instant },
  /** Creation time of its newest secret; null: it has its first one. */
  rotatedAt: { schema: nullable(instant), initial: null },
  /** ISO 8601 UTC; null: never. */
  expiresAt: {
    schema: nullable(instant),
    initial: null,
    create: maybe(Type.String()),
    change: nullable(Type.String()),
    read: readExpiry,
  },
  creatorUserId: {
    schema: nullable(Type.String()),
    initial: null,
    create: maybe(text({ min: 1, max: IDENTIFIER_MAX_CHARS, storable: true, singleLine: true })),
  },
  ...fixedFields(Type.Null(), null, 'externalUser'),
  workspaceId: {
    schema: nullable(Type.String()),
    initial: null,
    create: maybe(text({ min: 1, max: IDENTIFIER_MAX_CHARS, storable: true })),
  },
  /** True if the sampled flag of its requests decides about their traces. */
  traceTrusted: {
    schema: Type.Boolean(),
    column: 'flag',
    initial: false,
    create: maybe(Type.Boolean()),
    change: Type.Boolean(),
  },
  /** Issuer and subject, separated by a space, of the user who signed in to the console; null: not a session key. */
  identity: { schema: nullable(Type.String()), only: 'stored', initial: null },
  /** Always refused; declared so that the error can name it. */
  external: { schema: Type.Null(), only: 'body', create: maybe(AnyObject) },
} as const

export const KEY = new Declaration(fields, [
  ...['name', 'disabled', 'limit', 'limit_reset', 'include_byok_in_limit', 'expires_at', 'workspace_id'],
  ...['creator_user_id', 'role'],
])

/** A stored API key: hashes of its secrets, never a secret itself. */
export interface KeyRecord extends RecordOf<typeof fields> {
  /** Expiry of the secret with which the key was found; null: it expires with the key. */
  readonly secretExpiresAt: string | null
  /** Null: no rate limit holds for its requests. Set only for a key that was looked up for a request. */
  readonly rates: KeyRates | null
  /** Of the key or else of its workspace; null: none. Set only for a key that was looked up for a request. */
  readonly loopPolicy: LoopPolicy | null
  /** Null: neither the key nor its workspace has a policy. Set only for a key that was looked up for a request. */
  readonly caching: KeyCaching | null
}

/** Changes to a key; absent fields keep their value. */
export type KeyChange = ChangeOf<typeof fields>

/** The workspace of a key never changes. */
export const KeyCreation = KEY.creation
export const KeyUpdate = KEY.update

/** The old secrets of the key stay valid for the overlap. */
export const KeyRotation = Type.Object(
  { overlap_seconds: Type.Integer({ minimum: 0, maximum: KEY_OVERLAP_MAX_SECONDS }) },
  { additionalProperties: false },
)

function readAmount(limit: number, { field }: ReadingContext): MicroUsd {
  const micros = toMicroUsd(limit)
  if (micros === null) throw refuseField(field, 'must be 0, or at least 0.000001 with at most 6 decimals')
  return micros
}

/** Converts to UTC. */
function readExpiry(text: string, { field, nowMs }: ReadingContext): string {
  const ms = parseInstant(text)
  if (ms === null) throw refuseField(field, 'must be an ISO 8601 time with seconds and Z or an offset')
  if (ms <= nowMs) throw refuseField(field, 'must be in the future')
  return new Date(ms).toISOString()
}
