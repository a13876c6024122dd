/**
 * The smallest request that any model of an endpoint answers, the endpoint at which it costs least, and its answer.
 * Pure.
 */

import { GatewayError } from '../base/errors.ts'
import { parseJson, record } from '../base/json.ts'
import { EMBEDDINGS_FORMATS } from '../formats/embeddings/table.ts'
import type { WireRequest } from '../formats/format.ts'
import { outgoingRequest } from '../formats/outgoing.ts'
import { FORMATS } from '../formats/table.ts'
import { type Endpoint, isEmbeddingsFormat, type Provider } from '../protocol/provider.ts'
import type { Catalog } from '../providers/catalog.ts'
import type { Credential } from '../providers/credentials/catalog.ts'
import { fitRequest } from '../providers/parameters.ts'

/** The minimum that every known API accepts. */
const MIN_OUTPUT_TOKENS = 16

export function smallestRequest(endpoint: Endpoint): WireRequest {
  const { format, modelId: model } = endpoint
  if (isEmbeddingsFormat(format)) {
    const request = { model, input: [{ type: 'message' as const, role: 'user' as const, content: 'Hi' }] }
    const settings = { dimensions: null, encoding: 'float', inputType: null, isList: false } as const
    return EMBEDDINGS_FORMATS[format].encode({ request, settings, endUser: null }, endpoint)
  }
  const prompt = { model, input: 'Hi', max_output_tokens: MIN_OUTPUT_TOKENS }
  const request = outgoingRequest(fitRequest(prompt, endpoint), FORMATS[format], 'responses')
  return FORMATS[format].encode({ request, stream: false, endUser: null }, endpoint)
}

/** Reads the smallest reply. @throws GatewayError if the text reports a failure, or is not an answer */
export function readSmallestReply(text: string, endpoint: Endpoint): void {
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

/**
 * The endpoints at a provider: those that write only text before those that draw images, embeddings last; of each kind,
 * endpoints without a service tier first.
 */
export function endpointsOf(endpoints: readonly Endpoint[], { slug }: Provider): readonly Endpoint[] {
  const rank = ({ format, serviceTier, drawsImages }: Endpoint): number =>
    (isEmbeddingsFormat(format) ? 4 : 0) + (drawsImages ? 2 : 0) + (serviceTier === undefined ? 0 : 1)
  return endpoints.filter(({ provider }) => provider.slug === slug).toSorted((a, b) => rank(a) - rank(b))
}

/**
 * The first of `endpointsOf`, the cheapest of equals; null if the credential may serve none of the provider's
 * endpoints.
 */
export function cheapestEndpoint(
  catalog: Pick<Catalog, 'models'>,
  provider: Provider,
  credential: Credential | null,
): Endpoint | null {
  const allowed = credential?.allowedModels ?? null
  const allowedEndpoints = catalog
    .models()
    .filter(({ id }) => allowed === null || allowed.includes(id))
    .flatMap(({ endpoints }) => endpoints)
  const price = ({ pricing }: Endpoint): number =>
    pricing.isUnknown === true ? Number.MAX_SAFE_INTEGER : Number(pricing.prompt) + Number(pricing.completion)
  return (
    endpointsOf(
      allowedEndpoints.toSorted((a, b) => price(a) - price(b)),
      provider,
    )[0] ?? null
  )
}
