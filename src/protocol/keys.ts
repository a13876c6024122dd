/** Bodies of the operations on API keys. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { AMOUNT_MAX_USD } from '../money.ts'
import { IDENTIFIER_MAX_CHARS, RECORD_NAME_MAX_CHARS } from './limits.ts'
import { AnyObject, maybe, nullable, oneOf, text } from './schema.ts'

const name = text({ min: 1, max: RECORD_NAME_MAX_CHARS, storable: true, singleLine: true })
/** US dollars. */
const limit = Type.Number({ minimum: 0, maximum: AMOUNT_MAX_USD })
const limitReset = oneOf('daily', 'weekly', 'monthly')
/** Read by protocol/instants.ts. */
const instant = Type.String()

export const KeyCreation = Type.Object(
  {
    name,
    limit: maybe(limit),
    limit_reset: maybe(limitReset),
    include_byok_in_limit: maybe(Type.Boolean()),
    expires_at: maybe(instant),
    workspace_id: maybe(text({ min: 1, max: IDENTIFIER_MAX_CHARS, storable: true })),
    creator_user_id: maybe(text({ min: 1, max: IDENTIFIER_MAX_CHARS, storable: true, singleLine: true })),
    /** Known so that it can be refused as what it is. */
    external: maybe(AnyObject),
  },
  { additionalProperties: false },
)
export type KeyCreation = Static<typeof KeyCreation>

/** What is absent stays; null lifts the limit or the expiry. A key stays in its workspace. */
export const KeyUpdate = Type.Object(
  {
    name: Type.Optional(name),
    disabled: Type.Optional(Type.Boolean()),
    limit: Type.Optional(nullable(limit)),
    limit_reset: Type.Optional(nullable(limitReset)),
    include_byok_in_limit: Type.Optional(Type.Boolean()),
    expires_at: Type.Optional(nullable(instant)),
  },
  { additionalProperties: false },
)
export type KeyUpdate = Static<typeof KeyUpdate>
