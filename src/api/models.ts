/**
 * GET /models, GET /models/{author}/{slug}/endpoints and GET /providers: the public catalogue. Documents are made once,
 * together with the catalogue; a request only filters them. Unknown fields (benchmarks, voices, cut-off dates) are
 * null, as documented.
 */
import { GatewayError } from '../errors.ts'
import { PARAMETER_NAMES } from '../gateway/routing/rank.ts'
import { formatUsd } from '../money.ts'
import type { Catalog } from '../providers/catalog.ts'
import type { Endpoint, Model, Pricing } from '../providers/provider.ts'
import type { Handler } from './operation.ts'

/** Page size when only an offset is given, and the largest one. */
const PAGE_DEFAULT = 500
const PAGE_MAX = 1000
const SEARCH_MAX_CHARACTERS = 256

const INPUT_MODALITIES: readonly string[] = ['text', 'image', 'file', 'audio', 'video']
const OUTPUT_MODALITIES: readonly string[] = ['text', 'image', 'audio', 'video', 'embeddings']

/** Parameters of an endpoint that names none: everything the gateway can pass on. */
const ALL_PARAMETERS: readonly string[] = [...PARAMETER_NAMES, 'structured_outputs'].sort()

/** One model with its document and the values that filters compare. */
interface Listed {
  readonly model: Model
  readonly parameters: ReadonlySet<string>
  /** Id and name in lower case. */
  readonly searchText: string
  readonly document: object
}

export interface Listing {
  /** One page of models. @throws GatewayError `invalid_request` that names the query parameter at fault. */
  models(query: URLSearchParams): object
  /** The endpoints of a model; null when there is no such model. */
  endpoints(id: string): object | null
  providers(): object
}

export function createListing(catalog: Catalog): Listing {
  const all = catalog.models().map(toListed)
  const providers = {
    data: catalog.providers().map(({ name, slug }) => ({ ...UNKNOWN_OF_PROVIDER, name, slug })),
  }
  return {
    models(query) {
      const wanted = filters(query)
      const found = all.filter(entry => wanted.every(matches => matches(entry)))
      const { from, to } = page(query)
      const next = to < found.length ? nextPage(query, to, to - from) : null
      return {
        data: found.slice(from, to).map(entry => entry.document),
        total_count: found.length,
        links: { next },
      }
    },
    endpoints(id) {
      const model = catalog.model(id)
      return model === undefined ? null : { data: endpointsDocument(model) }
    },
    providers: () => providers,
  }
}

export function listModels(listing: Listing): Handler {
  return (request, reply) => reply.json(200, listing.models(request.query))
}

export function listEndpoints(listing: Listing): Handler {
  return (request, reply) => {
    const document = listing.endpoints(`${request.params.get('author')}/${request.params.get('slug')}`)
    if (document === null) throw new GatewayError('not_found', 'Model not found')
    reply.json(200, document)
  }
}

export function listProviders(listing: Listing): Handler {
  return (_request, reply) => reply.json(200, listing.providers())
}

const UNKNOWN_OF_PROVIDER = {
  privacy_policy_url: null,
  terms_of_service_url: null,
  status_page_url: null,
  headquarters: null,
  datacenters: null,
}

type Filter = (entry: Listed) => boolean

function filters(query: URLSearchParams): readonly Filter[] {
  const search = (single(query, 'q') ?? '').trim().toLowerCase()
  if (search.length > SEARCH_MAX_CHARACTERS)
    throw bad('q', `must be at most ${SEARCH_MAX_CHARACTERS} characters`)
  const parameters = words(query, 'supported_parameters', null)
  const input = words(query, 'input_modalities', INPUT_MODALITIES)
  const output = words(query, 'output_modalities', [...OUTPUT_MODALITIES, 'all']) ?? ['text']
  return [
    ({ searchText }) => search === '' || searchText.includes(search),
    entry => parameters === null || parameters.every(name => entry.parameters.has(name)),
    ({ model }) => input === null || input.every(modality => model.inputModalities.includes(modality)),
    // Most clients look for chat models; others are listed when they are named, or with `all`.
    ({ model }) =>
      output.includes('all') || output.every(modality => model.outputModalities.includes(modality)),
  ]
}

function page(query: URLSearchParams): { readonly from: number; readonly to: number } {
  const offset = integer(query, 'offset', 0, Number.MAX_SAFE_INTEGER)
  const limit = integer(query, 'limit', 1, PAGE_MAX)
  const from = offset ?? 0
  if (offset === null && limit === null) return { from, to: Number.POSITIVE_INFINITY }
  return { from, to: from + (limit ?? PAGE_DEFAULT) }
}

function nextPage(query: URLSearchParams, offset: number, limit: number): string {
  const next = new URLSearchParams(query)
  next.set('offset', String(offset))
  next.set('limit', String(limit))
  return `/v1/models?${next}`
}

function single(query: URLSearchParams, name: string): string | null {
  if (query.getAll(name).length > 1) throw bad(name, 'is given twice')
  return query.get(name)
}

function integer(query: URLSearchParams, name: string, minimum: number, maximum: number): number | null {
  const text = single(query, name)
  if (text === null) return null
  const value = Number(text)
  if (!/^\d{1,16}$/.test(text) || value < minimum || value > maximum) {
    const range =
      maximum === Number.MAX_SAFE_INTEGER ? `not less than ${minimum}` : `from ${minimum} to ${maximum}`
    throw bad(name, `must be an integer ${range}`)
  }
  return value
}

/** A comma-separated list; `known` null takes any word. */
function words(
  query: URLSearchParams,
  name: string,
  known: readonly string[] | null,
): readonly string[] | null {
  const text = single(query, name)
  if (text === null || text === '') return null
  const list = text.split(',').map(word => word.trim())
  if (known === null) {
    if (!list.every(word => /^[a-z0-9_]{1,64}$/.test(word)))
      throw bad(name, 'must be parameter names with commas between')
  } else if (!list.every(word => known.includes(word))) {
    throw bad(name, `must be some of ${known.join(', ')}`)
  }
  return list
}

function bad(name: string, problem: string): GatewayError {
  return new GatewayError('invalid_request', `${name} ${problem}`)
}

function toListed(model: Model): Listed {
  const parameters = new Set(model.endpoints.flatMap(parametersOf))
  return {
    model,
    parameters,
    searchText: `${model.id}\n${model.name}`.toLowerCase(),
    document: modelDocument(model, [...parameters].sort()),
  }
}

function parametersOf({ supportedParameters }: Endpoint): readonly string[] {
  return supportedParameters === null ? ALL_PARAMETERS : [...supportedParameters].sort()
}

function modelDocument(model: Model, supportedParameters: readonly string[]): object {
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

/** Without a price where none is known: it is not 0. */
function pricingDocument(pricing: Pricing | undefined): Record<string, string> {
  if (pricing?.isUnknown === true) return {}
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

function endpointsDocument(model: Model): object {
  return {
    id: model.id,
    name: model.name,
    created: model.created,
    description: '',
    architecture: architecture(model),
    endpoints: model.endpoints.map(endpoint => endpointDocument(model, endpoint)),
  }
}

function endpointDocument(model: Model, endpoint: Endpoint): object {
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
