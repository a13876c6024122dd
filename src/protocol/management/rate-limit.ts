/** Limits per minute, and of requests at once, that a key, a workspace or an end user may have. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { maybe, nullable } from '../json/schema.ts'
import { inBodies } from './record.ts'

const limitField = nullable(Type.Integer({ minimum: 1, maximum: 1_000_000_000 }))
const limitFields = {
  /** Of a clock minute, including failed ones. */
  requests_per_minute: limitField,
  /** Input and output, of a clock minute. */
  tokens_per_minute: limitField,
  /** That run at the same time. */
  parallel: limitField,
}

export const RateLimit = Type.Object(limitFields)
/** A field that is null sets no limit. */
export type RateLimit = Readonly<Static<typeof RateLimit>>

const body = Type.Object(
  {
    requests_per_minute: Type.Optional(limitFields.requests_per_minute),
    tokens_per_minute: Type.Optional(limitFields.tokens_per_minute),
    parallel: Type.Optional(limitFields.parallel),
  },
  { additionalProperties: false },
)

/** The field `rate_limit` of records. A body replaces all of it. */
export const rateLimitField = {
  schema: nullable(RateLimit),
  column: 'json',
  initial: null,
  ...inBodies(maybe(body)),
  read: ({ requests_per_minute = null, tokens_per_minute = null, parallel = null }: Static<typeof body>) =>
    requests_per_minute === null && tokens_per_minute === null && parallel === null
      ? null
      : { requests_per_minute, tokens_per_minute, parallel },
} as const

/** The limits that hold for the requests of a key; null parts have none. */
export interface KeyRates {
  readonly key: RateLimit | null
  /** For the sum of the workspace's keys. */
  readonly workspace: RateLimit | null
  /** True if end users of the organization have limits. */
  readonly hasEndUserLimits: boolean
}
