/**
 * The error body of every operation. Pure. An internal error reveals nothing about its cause: it has a fixed message,
 * no provider fields and no routing metadata.
 */
import { type GatewayError, INTERNAL_MESSAGE } from '../base/errors.ts'
import type { GatewayMetadata, ResponseUsage } from './response.ts'

interface ErrorBody {
  /** Equal to the HTTP status. */
  code: number
  message: string
  metadata: { error_type: string } & Record<string, unknown>
  /** Only if no endpoint could serve the request, for callers that requested routing metadata. */
  error_type?: string
  http_status?: number
  availability?: unknown
}

interface ErrorEnvelope {
  /** Generation id; only together with `usage`. */
  id?: string
  error: ErrorBody
  /** Always null: the user is not shown to clients. */
  user_id: null
  gateway_metadata?: GatewayMetadata
  /** Usage of model calls that count although the client gets no output from them. */
  usage?: ResponseUsage
}

/** The envelope of an error. `gatewayMetadata` is for callers that requested it, once routing has begun. */
export function errorEnvelope(error: GatewayError, gatewayMetadata?: GatewayMetadata | null): ErrorEnvelope {
  if (error.status === 500) {
    const metadata = { error_type: error.errorType }
    return { error: { code: 500, message: INTERNAL_MESSAGE, metadata }, user_id: null }
  }
  const body: ErrorBody = {
    code: error.status,
    message: error.message,
    // Last, so that details of a failure cannot replace its type.
    metadata: { ...error.metadata, error_type: error.errorType },
    ...availabilityOf(error, gatewayMetadata),
  }
  const envelope: ErrorEnvelope = { error: body, user_id: null }
  if (gatewayMetadata != null) envelope.gateway_metadata = gatewayMetadata
  return envelope
}

/** The reasons why no endpoint could serve the request; empty unless the caller requested routing metadata. */
export function availabilityOf(
  { metadata, errorType, status }: GatewayError,
  gatewayMetadata: GatewayMetadata | null | undefined,
): Pick<ErrorBody, 'error_type' | 'http_status' | 'availability'> {
  const availability = metadata?.['availability']
  if (availability === undefined || gatewayMetadata == null) return {}
  return { error_type: errorType, http_status: status, availability }
}
