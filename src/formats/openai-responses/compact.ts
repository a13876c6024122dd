/**
 * Summaries that a provider of the Responses format makes itself: POST /responses/compact, and `context_management` in
 * a request. The summary is a `compaction` item, which only this provider can read. Pure.
 */
import { GatewayError } from '../../base/errors.ts'
import { parseFrame, recordOrEmpty, records } from '../../base/json.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { Decoder, Delta, ModelRequest, WireRequest } from '../format.ts'
import { ResponsesDecoder } from './decode.ts'
import { encodeResponses } from './encode.ts'
import { failureOf, reportsError } from './failure.ts'

/** The fields that the operation knows. */
const FIELDS = ['model', 'input', 'instructions', 'prompt_cache_key', 'prompt_cache_options', 'service_tier']

/**
 * The request for a summary now. The last item, the gateway's own instruction, is left out.
 * @throws GatewayError `unprocessable`
 */
export function encodeCompact(model: ModelRequest, endpoint: Endpoint): WireRequest {
  const { input } = model.request
  const conversation = typeof input === 'string' ? input : input.slice(0, -1)
  const { body } = encodeResponses({ ...model, request: { ...model.request, input: conversation } }, endpoint)
  return {
    path: '/responses/compact',
    body: Object.fromEntries(FIELDS.flatMap(name => (body[name] === undefined ? [] : [[name, body[name]]]))),
  }
}

/** A request whose answer contains a summary if its input has more than `threshold` tokens. */
export function encodeWithThreshold(model: ModelRequest, endpoint: Endpoint, threshold: number): WireRequest {
  const wire = encodeResponses(model, endpoint)
  const management = [{ type: 'compaction', compact_threshold: threshold }]
  return { ...wire, body: { ...wire.body, context_management: management } }
}

/** Decodes a reply to `encodeCompact`. Messages that the provider returns with its summary come from the request. */
export class CompactDecoder implements Decoder {
  readonly #response: ResponsesDecoder

  constructor(emit: (delta: Delta) => void) {
    this.#response = new ResponsesDecoder(emit, null)
  }

  get withheld(): number {
    return this.#response.withheld
  }

  frame(_event: string, data: string): void {
    const body = recordOrEmpty(parseFrame(data))
    if (reportsError(body)) throw failureOf(body, null)
    const output = records(body['output']).filter(({ type }) => type === 'compaction')
    if (output.length !== 1) {
      throw new GatewayError('provider_unavailable', 'The provider sent no summary of the conversation')
    }
    this.#response.frame('', JSON.stringify({ ...body, object: 'response', status: 'completed', output }))
  }

  end(): void {
    this.#response.end()
  }
}
