/** Parses the summary from the admin port defensively, because it may come from another version. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'

const text = Type.String()
const number = Type.Number()
const orNoText = Type.Union([text, Type.Null()])
const orNoNumber = Type.Union([number, Type.Null()])
const FirstToken = Type.Object({ p50: orNoNumber, p95: orNoNumber })

const SummarySchema = Type.Object({
  now: text,
  version: text,
  in_flight: number,
  open_streams: number,
  problems: Type.Array(Type.Object({ text, is_serious: Type.Boolean() })),
  money: Type.Object({
    today: number,
    month: number,
    month_at_this_pace: orNoNumber,
    credits_left: orNoNumber,
  }),
  window_seconds: number,
  requests: number,
  failed: number,
  cost: number,
  first_token_ms: FirstToken,
  models: Type.Array(
    Type.Object({
      model: orNoText,
      requests: number,
      failed: number,
      cost: number,
      first_token_ms: FirstToken,
    }),
  ),
  latest: Type.Array(
    Type.Object({
      created_at: text,
      model: orNoText,
      provider: orNoText,
      status: number,
      outcome: text,
      error: orNoText,
      first_token_ms: orNoNumber,
      duration_ms: number,
      input_tokens: orNoNumber,
      output_tokens: orNoNumber,
      cost: orNoNumber,
    }),
  ),
})
export type Summary = Static<typeof SummarySchema>

/** Null: it is not a summary. Unknown fields are kept. */
export function readSummary(json: string): Summary | null {
  try {
    const document: unknown = JSON.parse(json)
    return Value.Check(SummarySchema, document) ? document : null
  } catch {
    return null
  }
}
