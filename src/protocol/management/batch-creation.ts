/**
 * The body of POST /batches without its requests, and the limits of the requests. Pure. The body is never parsed as a
 * whole: `features/tasks/batches/` reads it request by request.
 */
import { type Static, Type } from '@sinclair/typebox'
import { bodyCheck, explain } from '../json/body.ts'
import { maybe, metadataMap, oneOf, text } from '../json/schema.ts'
import { BATCH_WINDOW, MODEL_MAX_CHARS } from '../limits.ts'
import { BATCH_ENDPOINTS } from './batches.ts'

/** `custom_id`, in characters: at four bytes each it still fits into an index of every database. */
export const CUSTOM_ID_MAX_CHARS = 500
/** `provider.only`: more than there are providers. */
const PROVIDERS_MAX = 256
const PROVIDER_MAX_CHARS = 255

const FILE_ID_MAX_CHARS = 255

export const BatchCreation = Type.Object(
  {
    endpoint: oneOf(...BATCH_ENDPOINTS),
    completion_window: maybe(Type.Literal(BATCH_WINDOW)),
    model: maybe(text({ min: 1, max: MODEL_MAX_CHARS, storable: true })),
    provider: maybe(
      Type.Object(
        {
          only: maybe(
            Type.Array(text({ min: 1, max: PROVIDER_MAX_CHARS, storable: true }), {
              maxItems: PROVIDERS_MAX,
            }),
          ),
          allow_fallbacks: maybe(Type.Boolean()),
        },
        { additionalProperties: false },
      ),
    ),
    input_file_id: maybe(text({ min: 1, max: FILE_ID_MAX_CHARS, storable: true })),
    metadata: maybe(metadataMap),
  },
  { additionalProperties: false },
)
export type BatchCreation = Static<typeof BatchCreation>

/** Throws GatewayError `invalid_request` that names the field. */
export const checkBatchCreation = bodyCheck(BatchCreation)

/** The names of all fields but `requests`. */
export const BATCH_FIELDS: ReadonlySet<string> = new Set(Object.keys(BatchCreation.properties))

/** The problem of one field's value as `<path>: …`; null: it is valid. */
export function fieldProblem(name: string, value: unknown): string | null {
  const schema = BATCH_FIELDS.has(name) ? BatchCreation.properties[name as keyof BatchCreation] : undefined
  return schema === undefined ? null : explain(schema, value, name)
}

/** Fields of similar interfaces, with what to do instead. */
export const FOREIGN_FIELDS: ReadonlyMap<string, string> = new Map([
  ['callback_url', 'is not offered by this gateway: read GET /v1/batches/{id} until the status is final'],
  [
    'output_expires_after',
    'is not offered by this gateway: results are kept as long as their batch; delete the batch when it is no longer needed',
  ],
])
