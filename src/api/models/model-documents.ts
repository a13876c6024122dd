/**
 * Model, endpoint and provider records in the form that clients get. Fields without a data source (benchmarks, voices,
 * cut-off dates) are null, as documented. Pure.
 */
import { formatUsd } from '../../base/money.ts'
import {
  type Endpoint,
  isEmbeddingsFormat,
  type Model,
  type Pricing,
  type Provider,
  type TokenPrices,
} from '../../protocol/provider.ts'
import type { MeasuredEndpoints } from '../../providers/endpoint-figures.ts'
import { PARAMETER_NAMES } from '../../providers/parameters.ts'

/** Parameters of an endpoint that lists none: everything that the gateway can pass on. */
const ALL_PARAMETERS: readonly string[] = [...PARAMETER_NAMES, 'structured_outputs'].sort()

const ALL_PARAMETER_SET: ReadonlySet<string> = new Set(ALL_PARAMETERS)

/** Parameters of an embeddings endpoint that lists none. */
const EMBEDDINGS_PARAMETERS: readonly string[] = ['dimensions', 'encoding_format', 'input_type']

const UNKNOWN_PROVIDER_FIELDS = {
  privacy_policy_url: null,
  terms_of_service_url: null,
  status_page_url: null,
  headquarters: null,
  datacenters: null,
}

export function providerDocument({ name, slug }: Provider): object {
  return { ...UNKNOWN_PROVIDER_FIELDS, name, slug }
}

export function hasParameter({ supportedParameters, format }: Endpoint, name: string): boolean {
  if (supportedParameters !== null) return supportedParameters.has(name)
  return isEmbeddingsFormat(format) ? EMBEDDINGS_PARAMETERS.includes(name) : ALL_PARAMETER_SET.has(name)
}

function parametersOf({ supportedParameters, format }: Endpoint): readonly string[] {
  if (supportedParameters !== null) return [...supportedParameters].sort()
  return isEmbeddingsFormat(format) ? EMBEDDINGS_PARAMETERS : ALL_PARAMETERS
}

/** The parameters of all endpoints together. */
function parametersIn({ endpoints }: Model): readonly string[] {
  const [firstEndpoint] = endpoints
  const isShared = endpoints.every(
    ({ supportedParameters }) => supportedParameters === firstEndpoint?.supportedParameters,
  )
  if (firstEndpoint !== undefined && isShared) return parametersOf(firstEndpoint)
  return [...new Set(endpoints.flatMap(parametersOf))].sort()
}

/** RFC 3339, from Unix seconds. */
export function createdAt({ created }: Pick<Model, 'created'>): string {
  return new Date(created * 1000).toISOString().replace('.000Z', 'Z')
}

/** One model of a listing. */
export function modelDocument(model: Model): object {
  const firstEndpoint = model.endpoints[0]
  return {
    id: model.id,
    type: 'model',
    canonical_slug: model.id,
    hugging_face_id: null,
    name: model.name,
    display_name: model.name,
    created: model.created,
    created_at: createdAt(model),
    description: '',
    context_length: model.contextLength,
    architecture: architecture(model),
    // Prices of the first endpoint in the row.
    pricing: pricingDocument(firstEndpoint?.pricing),
    top_provider: {
      context_length: firstEndpoint?.contextLength ?? model.contextLength,
      max_completion_tokens: firstEndpoint?.maxOutputTokens ?? model.maxOutputTokens,
      is_moderated: false,
    },
    per_request_limits: null,
    supported_parameters: parametersIn(model),
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

/** Unknown prices are -1: 0 would mean free, and clients expect prices. */
function pricingDocument(pricing: Pricing | undefined): Record<string, unknown> {
  if (pricing?.isUnknown === true) return { prompt: UNKNOWN_PRICE, completion: UNKNOWN_PRICE }
  const { request = 0, image = null, overrides = null } = pricing ?? {}
  const { prompt, completion, ...others } = tokenPrices(pricing ?? FREE_PRICES)
  const document: Record<string, unknown> = { prompt, completion, request: formatUsd(request), ...others }
  if (image !== null) document['image'] = formatUsd(image)
  if (overrides !== null) {
    document['overrides'] = overrides.map(override => ({
      min_prompt_tokens: override.minPromptTokens,
      ...tokenPrices(override),
    }))
  }
  return document
}

const FREE_PRICES: TokenPrices = { prompt: 0, completion: 0, inputCacheRead: null, inputCacheWrite: null }

function tokenPrices(prices: TokenPrices): Record<string, string> {
  const document: Record<string, string> = {
    prompt: formatUsd(prices.prompt),
    completion: formatUsd(prices.completion),
  }
  const fields = {
    input_cache_read: prices.inputCacheRead,
    input_cache_write: prices.inputCacheWrite,
    input_cache_write_1h: prices.inputCacheWrite1h,
    audio: prices.audio,
    internal_reasoning: prices.internalReasoning,
  }
  for (const [name, price] of Object.entries(fields)) if (price != null) document[name] = formatUsd(price)
  return document
}

/** A model with its endpoints. */
export function endpointsDocument(model: Model, measures: MeasuredEndpoints): object {
  return {
    id: model.id,
    name: model.name,
    created: model.created,
    description: '',
    architecture: architecture(model),
    endpoints: model.endpoints.map(endpoint => endpointDocument(model, endpoint, measures)),
  }
}

export function endpointDocument(model: Model, endpoint: Endpoint, measures: MeasuredEndpoints): object {
  const figures = measures.of(endpoint)
  const parameters = parametersOf(endpoint)
  const hasToolChoice = parameters.includes('tool_choice')
  return {
    name: `${endpoint.provider.name} | ${model.id}`,
    model_id: model.id,
    model_name: model.name,
    tag: tagOf(endpoint),
    provider_name: endpoint.provider.name,
    context_length: endpoint.contextLength,
    max_completion_tokens: endpoint.maxOutputTokens,
    max_prompt_tokens: null,
    quantization: endpoint.quantization,
    pricing: pricingDocument(endpoint.pricing),
    supported_parameters: parameters,
    supports_implicit_caching: endpoint.pricing.inputCacheRead !== null,
    supports_tool_choice: {
      auto: hasToolChoice,
      none: hasToolChoice,
      required: hasToolChoice,
      function: hasToolChoice,
    },
    status: 0,
    uptime_last_5m: figures?.uptimeLast5m ?? null,
    uptime_last_30m: figures?.uptimeLast30m ?? null,
    uptime_last_1d: figures?.uptimeLast1d ?? null,
    latency_last_30m: figures?.latencyLast30m ?? null,
    throughput_last_30m: figures?.throughputLast30m ?? null,
  }
}

/** The provider's slug, with region and service tier if the endpoint has them. */
function tagOf({ provider, region, serviceTier }: Endpoint): string {
  return [provider.slug, region, serviceTier].filter(part => part != null).join('/')
}
