/** Errors in the OpenAPI document: the statuses that an operation can return, and their envelopes. Pure. */

import { type TSchema, Type } from '@sinclair/typebox'
import { FAILURES, type FailureCode } from '../../base/errors.ts'
import type { DialectName } from '../../protocol/request.ts'
import { GatewayMetadata, ResponseUsage } from '../../protocol/response.ts'
import { ChatErrorFields, ChatUsage, ERROR_FACTS } from './chat.ts'
import { text } from './description.ts'
import { MessageFailure } from './message.ts'

const availability = {
  error_type: Type.Optional(text),
  http_status: Type.Optional(Type.Integer()),
  availability: Type.Optional(Type.Unknown({ description: 'Why no endpoint could serve the request' })),
}
const metadataField = { gateway_metadata: Type.Optional(GatewayMetadata) }
const generation = Type.Optional(Type.String({ description: 'The generation id; only together with usage' }))

const Failure = Type.Object({
  id: generation,
  error: Type.Object({
    code: Type.Integer({ description: 'The HTTP status' }),
    message: text,
    metadata: ERROR_FACTS,
    ...availability,
  }),
  user_id: Type.Null(),
  usage: Type.Optional(ResponseUsage),
  ...metadataField,
})

const ResponseFailure = Type.Object({
  ...Failure.properties,
  error: Type.Object({
    ...Failure.properties.error.properties,
    type: text,
    error_type: text,
    param: Type.Union([Type.String({ description: 'The path of the faulty field' }), Type.Null()]),
  }),
})

const ChatFailure = Type.Object({
  id: generation,
  error: Type.Object({ ...ChatErrorFields.properties, ...availability }),
  user_id: Type.Null(),
  usage: Type.Optional(ChatUsage),
  ...metadataField,
})

const GeminiFailure = Type.Object({
  error: Type.Object(
    {
      code: Type.Integer({ description: 'The HTTP status' }),
      message: text,
      status: text,
      details: Type.Array(Type.Object({ '@type': text }, { additionalProperties: true })),
      metadata: Type.Optional(ERROR_FACTS),
      ...availability,
    },
    { additionalProperties: true },
  ),
  responseId: text,
  ...metadataField,
})

type Family = 'Gateway' | 'Responses' | 'Chat' | 'Messages' | 'Gemini'

export const ENVELOPES: Readonly<Record<Family, TSchema>> = {
  Gateway: Failure,
  Responses: ResponseFailure,
  Chat: ChatFailure,
  Messages: MessageFailure,
  Gemini: GeminiFailure,
}

const FAMILIES: Readonly<Record<DialectName, Family>> = {
  responses: 'Responses',
  'chat-completions': 'Chat',
  embeddings: 'Chat',
  messages: 'Messages',
  gemini: 'Gemini',
}

/** The part of a row that its errors follow from. */
interface FailingRow {
  readonly path: string
  readonly key: 'none' | 'inference' | 'management' | 'any'
  readonly accept: 'json' | 'none' | 'raw'
  readonly dialect: { readonly name: DialectName } | null
  readonly generates?: false
}

export function familyOf({ dialect }: FailingRow): Family {
  return dialect === null ? 'Gateway' : FAMILIES[dialect.name]
}

/** Failures that belong to no single operation: of connections, framing and unknown paths. */
const CONNECTION_FAILURES: ReadonlySet<string> = new Set<FailureCode>([
  'method_not_allowed',
  'expectation_failed',
  'headers_too_large',
  'not_implemented',
  'client_closed',
])
/** Failures about single records; an operation has them only if its description lists them. */
const RECORD_FAILURES: ReadonlySet<string> = new Set<FailureCode>(['conflict', 'gone'])
/** Failures of operations with a body. */
const BODY_FAILURES: readonly FailureCode[] = [
  'deadline_exceeded',
  'length_required',
  'payload_too_large',
  'unsupported_media_type',
]

/** The statuses of all failures of an operation, in ascending order. */
export function statusesOf(row: FailingRow, ownCodes: readonly FailureCode[] = []): readonly number[] {
  const codes: FailureCode[] = ['invalid_request', 'internal', 'service_unavailable', ...ownCodes]
  if (row.key !== 'none') codes.push('authentication', 'rate_limit_exceeded')
  if (row.key === 'inference' || row.key === 'management') codes.push('permission_denied')
  if (row.path.includes('{')) codes.push('not_found')
  if (row.accept !== 'none') codes.push(...BODY_FAILURES)
  if (row.dialect !== null && row.generates !== false) {
    const allCodes = Object.keys(FAILURES) as FailureCode[]
    codes.push(...allCodes.filter(code => !RECORD_FAILURES.has(code) && !CONNECTION_FAILURES.has(code)))
  }
  return [...new Set(codes.map(code => FAILURES[code].status))].sort((a, b) => a - b)
}

/** The error types with this status. */
export function errorTypesOf(status: number): readonly string[] {
  const types = Object.values(FAILURES).filter(failure => failure.status === status)
  return [...new Set(types.map(({ errorType }) => errorType))]
}
