/** Records and bodies of captures. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { bodyCheck } from '../json/body.ts'
import { instant, maybe, nullable, oneOf, text } from '../json/schema.ts'
import { IDENTIFIER_MAX_CHARS } from '../limits.ts'
import { KeyHash } from './byok.ts'
import { computedFields, Declaration, type RecordOf } from './record.ts'

/** Minutes are enough to record one problem, and the docs promise that a forgotten capture ends. */
const CAPTURE_MINUTES_MAX = 60
/** A few requests. */
const CAPTURE_MIN_BYTES = 65_536

const countField = { schema: Type.Integer({ minimum: 0 }), column: 'big', initial: 0 } as const

const fields = {
  id: { schema: Type.String() },
  ...computedFields(oneOf('running', 'ending', 'ended'), 'status'),
  /** Hash of the API key whose requests it records; null: it records a workspace's requests. */
  keyHash: { schema: nullable(Type.String()), initial: null, create: maybe(KeyHash) },
  /** Null: requests of an API key. */
  workspaceId: {
    schema: nullable(Type.String()),
    initial: null,
    create: maybe(text({ min: 1, max: IDENTIFIER_MAX_CHARS, storable: true })),
  },
  /** Label of the key that created it. */
  createdBy: { schema: Type.String() },
  maxBytes: {
    schema: Type.Integer({ minimum: 0 }),
    column: 'big',
    create: maybe(Type.Integer({ minimum: CAPTURE_MIN_BYTES, maximum: Number.MAX_SAFE_INTEGER })),
  },
  /** The bytes of all files together. */
  bytes: countField,
  /** Requests in it. */
  requests: countField,
  /** Number of requests that did not fit. */
  leftOut: countField,
  createdAt: { schema: instant },
  /** Requests that begin later are not captured. */
  endsAt: { schema: instant },
  /** Set if it ended before `endsAt`. */
  endedAt: { schema: nullable(instant), initial: null },
  /** `size`: it ended early because it was full. */
  endedBy: { schema: nullable(oneOf('size')), initial: null },
  /** Its files and rows are removed then. */
  expiresAt: { schema: instant },
  parts: {
    schema: Type.Array(
      Type.Object({
        node: Type.String(),
        host: Type.String(),
        bytes: countField.schema,
        requests: countField.schema,
        left_out: countField.schema,
      }),
    ),
    only: 'answer',
  },
  organizationId: { schema: Type.String(), only: 'stored' },
  minutes: {
    schema: Type.Null(),
    only: 'body',
    create: Type.Integer({ minimum: 1, maximum: CAPTURE_MINUTES_MAX }),
  },
} as const

/** A body has either `key_hash` or `workspace_id`. */
export const CAPTURE = new Declaration(fields, ['key_hash', 'workspace_id', 'minutes'])
export type CaptureRecord = RecordOf<typeof fields>
export type CaptureCreation = Static<typeof CAPTURE.creation>

/** Throws GatewayError `invalid_request` that names the field. */
export const checkCaptureCreation = bodyCheck(CAPTURE.creation)
