/** Settings of the store, of Redis, and of retention times. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import {
  Address,
  Days,
  type Frozen,
  group,
  Milliseconds,
  nullable,
  oneOf,
  redisUrl,
  setting,
  storageUrl,
} from '../base/settings/setting.ts'
import {
  CACHE_SCOPES,
  CACHE_SECONDS_DEFAULT,
  CACHE_SECONDS_MAX,
} from '../protocol/management/response-cache.ts'

export const storageSettings = group({
  url: setting(
    Address,
    "`sqlite:PATH`, or `postgres://USER:PASSWORD@HOST/DATABASE` with parameters of `pg` such as `?sslmode=verify-full`. Usage records wait on this machine's disk until they are stored: in `spool` next to the SQLite file, or in `./data/spool`",
    {
      default: 'sqlite:./data/gateway.db',
      env: 'DATABASE_URL',
      secret: true,
      required: true,
      ...storageUrl,
    },
  ),
})

export interface StorageSettings extends Frozen<Static<typeof storageSettings>> {}

export const redisSettings = group({
  url: setting(
    nullable(Address),
    '`redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]`, or `rediss://…` for TLS. Several instances count limits and announce changes through it; one server, no cluster. Without Redis, each instance counts limits in its memory, and PostgreSQL, if it is the storage, announces changes',
    {
      env: 'REDIS_URL',
      secret: true,
      required: true,
      ...redisUrl,
    },
  ),
  prefix: setting(
    Type.String({ pattern: '^[\\x21-\\x7e]{1,64}$' }),
    'prefix of every key and channel in Redis; must be the same for all instances that belong together',
    { default: 'sluice:' },
  ),
  silenceMs: setting(
    Milliseconds,
    'if Redis does not answer for this long while requests wait, it is treated as unavailable, and this instance uses its own share of the limits. A normal answer takes half a millisecond',
    { default: 50 },
  ),
})

export interface RedisSettings extends Frozen<Static<typeof redisSettings>> {}

export const retentionSettings = group({
  usageDays: setting(
    Days,
    'usage records older than this are deleted. Their daily totals are kept, for limits, `GET /key`, `GET /credits` and `GET /activity`',
    { default: 400 },
  ),
  unaskedRecords: setting(
    Type.Integer({ minimum: 100, maximum: 100_000_000 }),
    'how many usage records a workspace keeps for requests that never reached a model (unknown models, refused fields, guardrails). The oldest ones above this are deleted within minutes; their totals are kept, except totals by end user, which do not count these requests',
    { default: 10_000 },
  ),
  auditDays: setting(Days, 'audit records older than this are deleted', { default: 400 }),
  batchDays: setting(Days, 'finished batches older than this are deleted', { default: 30 }),
})

export const idempotencySettings = group({
  keepSeconds: setting(
    Type.Integer({ minimum: 1, maximum: 86_400 }),
    'how long the answer to a request with an [`Idempotency-Key`](idempotency.md) is kept after its end, in the memory of `resume.maxBytesPerKey`',
    { default: 600 },
  ),
})

export const cacheSettings = group({
  enabled: setting(
    Type.Boolean(),
    'true: equal requests get the answer of the first one, from the [response cache](response-cache.md). Keys and workspaces may say otherwise in their field `cache`, and requests in `X-Gateway-Cache`',
    { default: false },
  ),
  seconds: setting(
    Type.Integer({ minimum: 1, maximum: CACHE_SECONDS_MAX }),
    'how long an answer is kept after its end',
    { default: CACHE_SECONDS_DEFAULT },
  ),
  scope: setting(
    oneOf(CACHE_SCOPES),
    '`key`: an answer is given to requests of the same API key only. `workspace`: to those of all keys of the workspace',
    { default: 'key' },
  ),
  maxBytesPerWorkspace: setting(
    Type.Integer({ minimum: 65_536 }),
    'bytes of cached answers that an instance keeps for one workspace. The oldest are dropped first. Answers of other workspaces displace them only if all buffers together exceed `limits.maxBufferedBytes`',
    { default: 67_108_864 },
  ),
})

export const resumeSettings = group({
  windowMs: setting(
    Type.Integer({ minimum: 1_000, maximum: 3_600_000 }),
    'how long a [resumable stream](resumable-streams.md) can be resumed after its end, and how long it continues without a reader',
    { default: 120_000 },
  ),
  maxBytesPerKey: setting(
    Type.Integer({ minimum: 65_536 }),
    'bytes of resumable streams, and of answers with an [`Idempotency-Key`](idempotency.md), that an instance keeps for one API key. The oldest finished ones are dropped first; a running stream that exceeds this on its own can no longer be resumed. The limit for all keys together is `limits.maxBufferedBytes`',
    { default: 16_777_216 },
  ),
})
