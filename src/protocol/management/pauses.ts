/** Providers out of service for a time: the body that pauses one, and a pause as the API shows it. */
import { type Static, Type } from '@sinclair/typebox'
import { bodyCheck } from '../json/body.ts'
import { instant, maybe, nullableText, text } from '../json/schema.ts'

/** A week: for a longer time, change the configuration. */
export const PAUSE_MINUTES_MAX = 7 * 24 * 60
const REASON_MAX_CHARS = 200

export const PauseCreation = Type.Object({
  minutes: Type.Integer({ minimum: 1, maximum: PAUSE_MINUTES_MAX }),
  reason: maybe(text({ max: REASON_MAX_CHARS, storable: true })),
})

/** Throws GatewayError `invalid_request` that names the field. */
export const checkPauseCreation = bodyCheck(PauseCreation)

export const PauseAnswer = Type.Object({
  provider: Type.String({ description: 'Its slug. Its regions, such as google-vertex/us, are paused too.' }),
  since: instant,
  until: instant,
  reason: nullableText,
  actor_label: Type.String({ description: 'Label of the management key, or the name of the person.' }),
})
export type PauseAnswer = Static<typeof PauseAnswer>
