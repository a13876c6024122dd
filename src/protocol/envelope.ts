/**
 * The error body that every operation answers with. Pure. An internal error says nothing about its cause: no
 * message of ours, no provider fields, no routing metadata.
 */
import { type GatewayError, INTERNAL_MESSAGE } from '../errors.ts'
import type { GatewayMetadata, ResponseUsage } from './response.ts'

export interface ErrorBody {
  /** Equal to the HTTP status. */
  code: number
  message: string
  metadata: { error_type: string } & Record<string, unknown>
}

export interface ErrorEnvelope {
  /** Generation id; only beside `usage`. */
  id?: string
  error: ErrorBody
  gateway_metadata?: GatewayMetadata
  /** Of the calls that were made and count, although nothing of them is delivered. */
  usage?: ResponseUsage
}

/** The envelope of an error; `gatewayMetadata` goes along when the caller asked for it and routing had begun. */
export function errorEnvelope(error: GatewayError, gatewayMetadata?: GatewayMetadata | null): ErrorEnvelope {
  if (error.status === 500) {
    return { error: { code: 500, message: INTERNAL_MESSAGE, metadata: { error_type: error.errorType } } }
  }
  const body: ErrorBody = {
    code: error.status,
    message: error.message,
    // Ours comes last: details of a failure must not be able to restate its type.
    metadata: { ...error.metadata, error_type: error.errorType },
  }
  return gatewayMetadata == null ? { error: body } : { error: body, gateway_metadata: gatewayMetadata }
}
