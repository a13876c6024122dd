/** Bodies of capture operations. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { bodyCheck } from '../json/body.ts'
import { maybe, text } from '../json/schema.ts'
import { IDENTIFIER_MAX_CHARS } from '../limits.ts'
import { KeyHash } from './byok.ts'

/** Whoever wants to see one fault needs minutes; the docs promise that a forgotten capture ends. */
const CAPTURE_MINUTES_MAX = 60
/** A few requests. */
const CAPTURE_MIN_BYTES = 65_536

/** One of `key_hash` and `workspace_id`. */
export const CaptureCreation = Type.Object(
  {
    key_hash: maybe(KeyHash),
    workspace_id: maybe(text({ min: 1, max: IDENTIFIER_MAX_CHARS, storable: true })),
    minutes: Type.Integer({ minimum: 1, maximum: CAPTURE_MINUTES_MAX }),
    max_bytes: maybe(Type.Integer({ minimum: CAPTURE_MIN_BYTES, maximum: Number.MAX_SAFE_INTEGER })),
  },
  { additionalProperties: false },
)
export type CaptureCreation = Static<typeof CaptureCreation>

/** Throws GatewayError `invalid_request` that names the field. */
export const checkCaptureCreation = bodyCheck(CaptureCreation)
