/** The interface description of API keys. Pure. */
import { Type } from '@sinclair/typebox'
import { REGIONS } from '../../protocol/data-regions.ts'
import { count, instant, nullable, nullableText, oneOf } from '../../protocol/json/schema.ts'
import { KEY, KeyCreation, KeyRotation, KeyUpdate } from '../../protocol/management/keys.ts'
import { RateLimit } from '../../protocol/management/rate-limit.ts'
import {
  answer,
  DELETED_ANSWER,
  flag,
  listOf,
  oneRecord,
  PAGE_PARAMETERS,
  query,
  repeat,
  tagged,
  text,
  type UntaggedDescription,
} from './description.ts'

const orNoInstant = nullable(instant)

/** The fields of limits and usage. */
function spendingFields<Value>(fields: Readonly<Record<string, Value>>): Readonly<Record<string, Value>> {
  return Object.fromEntries(Object.entries(fields).filter(([name]) => /limit|usage/.test(name)))
}

export const KeyDetail = Type.Object({
  ...KEY.answer.properties,
  secrets: Type.Array(Type.Object({ label: text, created_at: instant, expires_at: orNoInstant }), {
    description: 'The valid secrets, newest first',
  }),
})

export const OwnKey = Type.Object({
  label: text,
  ...spendingFields(KEY.answer.properties),
  is_free_tier: Type.Boolean(),
  is_management_key: Type.Boolean(),
  is_provisioning_key: Type.Boolean(),
  role: nullable(oneOf('viewer', 'operator', 'admin')),
  expires_at: orNoInstant,
  secret_expires_at: orNoInstant,
  creator_user_id: nullableText,
  organization_id: text,
  workspace_id: nullableText,
  free_model_daily_requests: Type.Object({
    limit: Type.Integer(),
    used: count,
    remaining: Type.Integer(),
  }),
  rate_limit: Type.Object({
    requests: Type.Integer(),
    interval: text,
    note: text,
    ...RateLimit.properties,
  }),
  allowed_data_regions: Type.Array(oneOf(...REGIONS)),
  capture: nullable(Type.Object({ id: text, ends_at: instant })),
})

export const EXAMPLE_KEY_HASH = '5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef'
const KEY_EXAMPLE = KEY.toExample({
  hash: EXAMPLE_KEY_HASH,
  label: 'sk-gw-v1-0e6…1c2',
  name: 'CI',
  is_management_key: false,
  limit: 25,
  limit_remaining: 24.5,
  limit_reset: 'monthly',
  usage: 0.5,
  usage_daily: 0.25,
  usage_weekly: 0.5,
  usage_monthly: 0.5,
  ...repeat(0, 'byok_usage', 'byok_usage_daily', 'byok_usage_weekly', 'byok_usage_monthly'),
  created_at: '2026-07-16T12:00:00.000Z',
  updated_at: '2026-07-16T12:00:00.000Z',
  workspace_id: 'ws_default',
})
const KEY_DETAIL_EXAMPLE = {
  ...KEY_EXAMPLE,
  secrets: [{ label: KEY_EXAMPLE.label, created_at: KEY_EXAMPLE.created_at, expires_at: null }],
}
const ROTATED_KEY_EXAMPLE = {
  ...KEY_EXAMPLE,
  label: 'sk-gw-v1-7d2…e90',
  rotated_at: '2026-08-16T12:00:00.000Z',
  updated_at: '2026-08-16T12:00:00.000Z',
  secrets: [
    { label: 'sk-gw-v1-7d2…e90', created_at: '2026-08-16T12:00:00.000Z', expires_at: null },
    { label: KEY_EXAMPLE.label, created_at: KEY_EXAMPLE.created_at, expires_at: '2026-08-16T13:00:00.000Z' },
  ],
}

const ownKey: UntaggedDescription = {
  text: 'Any key may read itself. Fields that this version does not support have fixed values.',
  answers: {
    200: oneRecord(OwnKey, 'The calling key, with its remaining budget.', {
      label: KEY_EXAMPLE.label,
      ...spendingFields(KEY_EXAMPLE),
      is_free_tier: false,
      is_management_key: false,
      is_provisioning_key: false,
      ...repeat(null, 'role', 'expires_at', 'secret_expires_at', 'creator_user_id'),
      organization_id: 'default',
      workspace_id: 'ws_default',
      free_model_daily_requests: { limit: -1, used: 0, remaining: -1 },
      rate_limit: {
        requests: -1,
        interval: '10s',
        note: 'Deprecated: always -1.',
        requests_per_minute: 60,
        tokens_per_minute: null,
        parallel: null,
      },
      allowed_data_regions: ['global', 'europe', 'us'],
      capture: null,
    }),
  },
}

export const KEYS = tagged('Keys', {
  getCurrentKey: ownKey,
  getCurrentKeyByOldPath: ownKey,
  listKeys: {
    text: 'Newest first.',
    parameters: [
      ...PAGE_PARAMETERS,
      query('include_disabled', flag, 'true: disabled keys too.'),
      query('workspace_id', text, 'Only keys of this workspace.'),
    ],
    answers: { 200: listOf(KEY.answer, KEY_EXAMPLE) },
  },
  createKey: {
    text: 'The key itself is shown only this once; only its hash is stored. With a role, it is a management key, which only an admin can create.',
    body: {
      schema: KeyCreation,
      examples: {
        limited: { name: 'CI', limit: 25, limit_reset: 'monthly' },
        slow: { name: 'CI', rate_limit: { requests_per_minute: 60, parallel: 4 } },
      },
    },
    answers: {
      201: answer(Type.Object({ data: KeyDetail, key: text }), 'The new key.', {
        data: KEY_DETAIL_EXAMPLE,
        key: 'sk-gw-v1-…',
      }),
    },
  },
  getKey: { answers: { 200: oneRecord(KeyDetail, 'The key.', KEY_DETAIL_EXAMPLE) } },
  rotateKey: {
    text: 'The key itself is shown only this once. Its other secrets expire after the overlap, or earlier if they would expire sooner anyway.',
    body: { schema: KeyRotation, examples: { hour: { overlap_seconds: 3600 } } },
    answers: {
      200: answer(Type.Object({ data: KeyDetail, key: text }), 'The new secret.', {
        data: ROTATED_KEY_EXAMPLE,
        key: 'sk-gw-v1-…',
      }),
    },
    failures: ['conflict'],
  },
  updateKey: {
    text: 'Absent fields keep their value; null removes a limit or the expiry. A `rate_limit` replaces the whole object.',
    body: { schema: KeyUpdate, examples: { disable: { disabled: true } } },
    answers: { 200: oneRecord(KeyDetail, 'The changed key.', { ...KEY_DETAIL_EXAMPLE, disabled: true }) },
  },
  deleteKey: { text: 'Its usage stays in the ledger.', answers: { 200: DELETED_ANSWER } },
})
