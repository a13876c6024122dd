/** Body of POST /credits. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { AMOUNT_MAX_USD } from '../money.ts'
import { CREDIT_NOTE_MAX_CHARS, IDENTIFIER_MAX_CHARS } from './limits.ts'
import { maybe, text } from './schema.ts'

export const CreditCreation = Type.Object(
  {
    /** US dollars; negative to take back. */
    amount: Type.Number({ minimum: -AMOUNT_MAX_USD, maximum: AMOUNT_MAX_USD }),
    note: maybe(text({ max: CREDIT_NOTE_MAX_CHARS, storable: true })),
    /** The client's own name for the entry; one that was used already adds nothing. */
    id: maybe(text({ min: 1, max: IDENTIFIER_MAX_CHARS, storable: true, singleLine: true })),
  },
  { additionalProperties: false },
)
export type CreditCreation = Static<typeof CreditCreation>
