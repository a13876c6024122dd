/** Errors in the chat format: the envelope, and the `error` of a chunk. Pure. */
import { fieldIn, type GatewayError, INTERNAL_MESSAGE, statusOf } from '../../base/errors.ts'
import { availabilityOf, errorEnvelope } from '../../protocol/envelope.ts'
import type { OutputItem } from '../../protocol/items.ts'
import { isObject } from '../../protocol/json/schema.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { ResponseResource } from '../../protocol/response.ts'
import type { FailureDetails } from '../dialect.ts'
import { type ChatFields, chatUsage } from './answer.ts'
import { Message } from './body.ts'
import { inChatNames } from './paths.ts'

/** The public client reads `code`, `type` and `param`. */
export interface ChatError extends ChatFields {
  /** The HTTP status of the error, even if another one has been sent already. */
  readonly code: number
  readonly message: string
  readonly type: string
  readonly param: string | null
  readonly metadata: ChatFields & { readonly error_type: string }
}

export function chatError(
  errorType: string | null,
  message: string,
  metadata: Readonly<Record<string, unknown>> = {},
  status: number = statusOf(errorType),
): ChatError {
  if (status === 500) {
    const type = 'server'
    return { code: 500, message: INTERNAL_MESSAGE, type, param: null, metadata: { error_type: type } }
  }
  const type = errorType ?? 'unmapped'
  return {
    code: status,
    message,
    type,
    param: status === 400 || status === 422 ? (fieldIn(message) ?? null) : null,
    metadata: { ...inChatForm(metadata), error_type: type },
  }
}

/** The error of a response that failed in mid-stream. */
export function failureOf(response: ResponseResource, request: ResponsesRequest): ChatError {
  const { error, error_type: errorType } = response
  return chatError(
    errorType ?? null,
    inChatNames(error?.message ?? INTERNAL_MESSAGE, request),
    error?.metadata,
  )
}

/** The body of a failure. */
export function chatFailure(
  error: GatewayError,
  { id, metadata, usage, request }: FailureDetails,
): ChatFields {
  const message = request === null ? error.message : inChatNames(error.message, request)
  const { error: _, ...envelopeFields } = errorEnvelope(error, metadata)
  return {
    ...(usage === null ? {} : { id }),
    error: {
      ...chatError(error.errorType, message, error.metadata, error.status),
      ...availabilityOf(error, metadata),
    },
    ...envelopeFields,
    ...(usage === null ? {} : { usage: chatUsage(usage) }),
  }
}

/** If alignment withheld a reply, the error shows it as the message it would have been. */
function inChatForm(metadata: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const { alignment } = metadata
  if (!isObject(alignment) || !Array.isArray(alignment['rejected'])) return metadata
  const message = new Message(false)
  for (const item of alignment['rejected'] as OutputItem[]) message.add(item)
  return { ...metadata, alignment: { ...alignment, rejected: message.fields() } }
}
