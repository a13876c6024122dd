/**
 * Validates request bodies of a batch with the dialect of their endpoint, as the endpoint itself would. Task worker.
 */
import { type FailureCode, GatewayError } from '../../base/errors.ts'
import { BATCH_PARSERS, type BodyParser } from '../../dialects/parsers.ts'
import { parseJson } from '../../protocol/json/json.ts'
import type { Offering } from '../../protocol/json/request-parser.ts'
import { isObject } from '../../protocol/json/schema.ts'
import { INFERENCE_BODY_MAX_BYTES } from '../../protocol/limits.ts'
import type { BatchEndpoint } from '../../protocol/management/batches.ts'
import { secretPath } from '../../protocol/tool-secrets.ts'
import type { NewLine } from '../../storage/batches.ts'

interface CheckBodiesInput {
  readonly endpoint: BatchEndpoint
  /** The model of the batch, for bodies without one. */
  readonly model: string
  readonly offered: Offering
  readonly bodies: readonly Pick<NewLine, 'number' | 'body'>[]
}

/** A body that its endpoint would refuse. */
interface RefusedBody {
  readonly number: number
  readonly code: FailureCode
  /** Names the field in the endpoint's words, and contains nothing of the body. */
  readonly message: string
}

/** The refused bodies, in order. */
export function checkBatchBodies({
  endpoint,
  model,
  offered,
  bodies,
}: CheckBodiesInput): readonly RefusedBody[] {
  const parse = BATCH_PARSERS[endpoint](offered)
  const refusedBodies: RefusedBody[] = []
  for (const { number, body } of bodies) {
    const fault = faultOf(body, model, parse)
    if (fault !== null) refusedBodies.push({ number, code: fault.code, message: fault.message })
  }
  return refusedBodies
}

/** The error with which the endpoint would refuse the body; null if it accepts it. */
function faultOf(body: string, model: string, parse: BodyParser): GatewayError | null {
  if (body === '') {
    const sizeRule = `one request may have at most ${INFERENCE_BODY_MAX_BYTES} bytes`
    return new GatewayError('payload_too_large', `Request payload too large: ${sizeRule}`)
  }
  try {
    const value = parseJson(Buffer.from(body))
    parse(isObject(value) ? withModel(value, model) : value)
    return null
  } catch (thrown) {
    if (!(thrown instanceof GatewayError)) throw thrown
    return thrown
  }
}

/** The body with a model. @throws GatewayError `invalid_request` for a body that cannot run in a batch */
function withModel(body: Record<string, unknown>, model: string): Record<string, unknown> {
  if (body['stream'] === true) {
    throw new GatewayError('invalid_request', 'stream: must be false: batch requests are answered as a whole')
  }
  const secret = secretPath(body)
  if (secret !== null) {
    throw new GatewayError(
      'invalid_request',
      `${secret}: must be left out: batch requests are stored until they run, and credentials of MCP servers must not be stored; send this request outside a batch`,
    )
  }
  return body['model'] == null ? { ...body, model } : body
}
