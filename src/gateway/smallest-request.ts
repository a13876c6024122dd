/** The smallest request that any model of an endpoint answers, and whether a text is an answer to it. Pure. */
import { GatewayError } from '../errors.ts'
import { EMBEDDINGS_FORMATS } from '../formats/embeddings/table.ts'
import type { WireRequest } from '../formats/format.ts'
import { parseJson, record } from '../formats/json.ts'
import { outgoingRequest } from '../formats/outgoing.ts'
import { FORMATS } from '../formats/table.ts'
import { fitRequest } from '../providers/parameters.ts'
import { type Endpoint, isEmbeddingsFormat } from '../providers/provider.ts'

/** The least that every known API takes. */
const OUTPUT_TOKENS = 16

export function smallestRequest(endpoint: Endpoint): WireRequest {
  const { format, modelId: model } = endpoint
  if (isEmbeddingsFormat(format)) {
    const request = { model, input: [{ type: 'message' as const, role: 'user' as const, content: 'Hi' }] }
    const settings = { dimensions: null, encoding: 'float', inputType: null, isList: false } as const
    return EMBEDDINGS_FORMATS[format].encode({ request, settings, endUser: null }, endpoint)
  }
  const prompt = { model, input: 'Hi', max_output_tokens: OUTPUT_TOKENS }
  const request = outgoingRequest(fitRequest(prompt, endpoint), FORMATS[format], 'responses')
  return FORMATS[format].encode({ request, stream: false, endUser: null }, endpoint)
}

/** @throws GatewayError if the text tells a failure, or is no answer */
export function readSmallest(text: string, endpoint: Endpoint): void {
  if (isEmbeddingsFormat(endpoint.format)) {
    const reply = record(parseJson(text))
    if (reply === null || reply['error'] != null) {
      throw new GatewayError('provider_unavailable', 'The provider sent a reply that cannot be understood')
    }
    return
  }
  const decoder = FORMATS[endpoint.format].decoder(() => undefined, endpoint)
  decoder.frame('', text)
  decoder.end()
}
