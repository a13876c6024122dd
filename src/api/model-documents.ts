/**
 * The documents of models, endpoints and providers. Fields without data here (benchmarks, voices, cut-off dates)
 * are null, as documented. Pure.
 */
import { PARAMETER_NAMES } from '../gateway/routing/rank.ts'
import { formatUsd } from '../money.ts'
import {
  type Endpoint,
  isEmbeddingsFormat,
  type Model,
  type Pricing,
  type Provider,
} from '../providers/provider.ts'

/** Parameters of an endpoint that names none: everything the gateway can pass on. */
const ALL_PARAMETERS: readonly string[] = [...PARAMETER_NAMES, 'structured_outputs'].sort()

/** The same of an endpoint of embeddings. */
const EMBEDDINGS_PARAMETERS: readonly string[] = ['dimensions', 'encoding_format', 'input_type']

const UNKNOWN_OF_PROVIDER = {
  privacy_policy_url: null,
  terms_of_service_url: null,
  status_page_url: null,
  headquarters: null,
  datacenters: null,
}

export function providerDocument({ name, slug }: Provider): object {
  return { ...UNKNOWN_OF_PROVIDER, name, slug }
}

export function parametersOf({ supportedParameters, format }: Endpoint): readonly string[] {
  if (supportedParameters !== null) return [...supportedParameters].sort()
  return isEmbeddingsFormat(format) ? EMBEDDINGS_PARAMETERS : ALL_PARAMETERS
}

/** One model of a listing. */
export function modelDocument(model: Model, supportedParameters: readonly string[]): object {
  const first = model.endpoints[0]
  return {
    id: model.id,
    canonical_slug: model.id,
    hugging_face_id: null,
    name: model.name,
    created: model.created,
    description: '',
    context_length: model.contextLength,
    architecture: architecture(model),
    // The endpoint that is tried first.
    pricing: pricingDocument(first?.pricing),
    top_provider: {
      context_length: first?.contextLength ?? model.contextLength,
      max_completion_tokens: first?.maxOutputTokens ?? model.maxOutputTokens,
      is_moderated: false,
    },
    per_request_limits: null,
    supported_parameters: supportedParameters,
    default_parameters: null,
    supported_voices: null,
    expiration_date: null,
    knowledge_cutoff: null,
    links: { details: `/v1/models/${model.id}/endpoints` },
  }
}

function architecture(model: Model): object {
  return {
    modality: `${model.inputModalities.join('+')}->${model.outputModalities.join('+')}`,
    input_modalities: model.inputModalities,
    output_modalities: model.outputModalities,
    tokenizer: 'Other',
    instruct_type: null,
  }
}

const UNKNOWN_PRICE = '-1'

/** Prices of -1 where none is known: it is not 0, and clients expect prices. */
function pricingDocument(pricing: Pricing | undefined): Record<string, string> {
  if (pricing?.isUnknown === true) return { prompt: UNKNOWN_PRICE, completion: UNKNOWN_PRICE }
  const document: Record<string, string> = {
    prompt: formatUsd(pricing?.prompt ?? 0),
    completion: formatUsd(pricing?.completion ?? 0),
    request: formatUsd(pricing?.request ?? 0),
  }
  const { inputCacheRead = null, inputCacheWrite = null } = pricing ?? {}
  if (inputCacheRead !== null) document['input_cache_read'] = formatUsd(inputCacheRead)
  if (inputCacheWrite !== null) document['input_cache_write'] = formatUsd(inputCacheWrite)
  return document
}

/** A model with its endpoints. */
export function endpointsDocument(model: Model): object {
  return {
    id: model.id,
    name: model.name,
    created: model.created,
    description: '',
    architecture: architecture(model),
    endpoints: model.endpoints.map(endpoint => endpointDocument(model, endpoint)),
  }
}

export function endpointDocument(model: Model, endpoint: Endpoint): object {
  const parameters = parametersOf(endpoint)
  const choice = parameters.includes('tool_choice')
  return {
    name: `${endpoint.provider.name} | ${model.id}`,
    model_id: model.id,
    model_name: model.name,
    tag: endpoint.provider.slug,
    provider_name: endpoint.provider.name,
    context_length: endpoint.contextLength,
    max_completion_tokens: endpoint.maxOutputTokens,
    max_prompt_tokens: null,
    quantization: endpoint.quantization,
    pricing: pricingDocument(endpoint.pricing),
    supported_parameters: parameters,
    supports_implicit_caching: endpoint.pricing.inputCacheRead !== null,
    supports_tool_choice: { auto: choice, none: choice, required: choice, function: choice },
    status: 0,
    uptime_last_5m: null,
    uptime_last_30m: null,
    uptime_last_1d: null,
    latency_last_30m: null,
    throughput_last_30m: null,
  }
}
