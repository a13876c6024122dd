/** The interface description of models, endpoints and providers. Pure. */
import { Type } from '@sinclair/typebox'
import { DATA_REGIONS } from '../../protocol/data-regions.ts'
import {
  count,
  nullable,
  nullableNumber,
  nullableText,
  oneOf,
  unixSeconds,
} from '../../protocol/json/schema.ts'
import { MODEL_SEARCH_MAX_CHARS, MODELS_PAGE_MAX } from '../../protocol/limits.ts'
import {
  answer,
  header,
  oneRecord,
  type ParameterDescription,
  query,
  repeat,
  tagged,
  text,
} from './description.ts'

// Models

/** USD per token as decimal text; -1 if unknown. */
const price = Type.Optional(text)
const prices = {
  prompt: text,
  completion: text,
  ...repeat(price, 'input_cache_read', 'input_cache_write', 'input_cache_write_1h'),
  ...repeat(price, 'audio', 'internal_reasoning'),
}
const PricingAnswer = Type.Object(
  {
    ...prices,
    request: price,
    image: price,
    overrides: Type.Optional(Type.Array(Type.Object({ ...prices, min_prompt_tokens: count }))),
  },
  { description: 'US dollars per token as decimal text; -1: not known' },
)

const Architecture = Type.Object({
  modality: text,
  input_modalities: Type.Array(text),
  output_modalities: Type.Array(text),
  tokenizer: text,
  instruct_type: Type.Null(),
})

const orNoCount = nullable(count)

const modelFields = {
  id: text,
  type: Type.Literal('model'),
  canonical_slug: text,
  hugging_face_id: Type.Null(),
  name: text,
  display_name: text,
  created: unixSeconds,
  created_at: text,
  description: text,
  context_length: orNoCount,
  architecture: Architecture,
  pricing: PricingAnswer,
  top_provider: Type.Object({
    context_length: orNoCount,
    max_completion_tokens: orNoCount,
    is_moderated: Type.Boolean(),
  }),
  per_request_limits: Type.Null(),
  supported_parameters: Type.Array(text),
  ...repeat(Type.Null(), 'default_parameters', 'supported_voices', 'expiration_date', 'knowledge_cutoff'),
  links: Type.Object({ details: text }),
}
export const ModelAnswer = Type.Object(modelFields)

const MODEL_EXAMPLE = {
  id: 'acme/fast-1',
  type: 'model',
  canonical_slug: 'acme/fast-1',
  hugging_face_id: null,
  name: 'Fast 1',
  display_name: 'Fast 1',
  created: 1795373585,
  created_at: '2026-11-22T18:53:05Z',
  description: '',
  context_length: 128000,
  architecture: {
    modality: 'text->text',
    input_modalities: ['text'],
    output_modalities: ['text'],
    tokenizer: 'Other',
    instruct_type: null,
  },
  pricing: { prompt: '0.0000005', completion: '0.0000015', request: '0' },
  top_provider: { context_length: 128000, max_completion_tokens: 16384, is_moderated: false },
  per_request_limits: null,
  supported_parameters: ['temperature', 'tools'],
  ...repeat(null, 'default_parameters', 'supported_voices', 'expiration_date', 'knowledge_cutoff'),
  links: { details: '/v1/models/acme/fast-1/endpoints' },
}

const percentiles = nullable(
  Type.Object({ p50: Type.Number(), p75: Type.Number(), p90: Type.Number(), p99: Type.Number() }),
)

export const EndpointAnswer = Type.Object({
  ...repeat(text, 'name', 'model_id', 'model_name', 'tag', 'provider_name'),
  context_length: orNoCount,
  max_completion_tokens: orNoCount,
  max_prompt_tokens: Type.Null(),
  quantization: nullableText,
  pricing: PricingAnswer,
  supported_parameters: Type.Array(text),
  supports_implicit_caching: Type.Boolean(),
  supports_tool_choice: Type.Object({
    ...repeat(Type.Boolean(), 'auto', 'none', 'required', 'function'),
  }),
  status: Type.Integer(),
  uptime_last_5m: nullableNumber,
  uptime_last_30m: nullableNumber,
  uptime_last_1d: nullableNumber,
  latency_last_30m: percentiles,
  throughput_last_30m: percentiles,
})

export const ProviderAnswer = Type.Object({
  name: text,
  slug: text,
  ...repeat(Type.Null(), 'privacy_policy_url', 'terms_of_service_url', 'status_page_url'),
  ...repeat(Type.Null(), 'headquarters', 'datacenters'),
})

const amount = Type.Number({ minimum: 0 })
const FIGURE_NAMES = ['intelligence_index', 'coding_index', 'agentic_index', 'tool_success_rate']

const FILTER_PARAMETERS: readonly ParameterDescription[] = [
  query('q', Type.String({ maxLength: MODEL_SEARCH_MAX_CHARS }), 'Part of the id or the name, in any case.'),
  query('supported_parameters', text, 'Names, separated by commas; for each, an endpoint supports it.'),
  query(
    'input_modalities',
    text,
    'All that it must read, separated by commas: text, image, file, audio, video.',
  ),
  query(
    'output_modalities',
    text,
    'All that it must create, in the same way; all: any model. Default: text.',
  ),
  query('context', Type.Integer({ minimum: 1 }), 'Smallest context length, in tokens.'),
  ...['min_price', 'max_price', 'min_output_price', 'max_output_price'].map(name =>
    query(name, amount, 'US dollars per million tokens of the prompt or the output.'),
  ),
  query('model_authors', text, 'Authors, separated by commas: the parts of ids before the slash.'),
  query('providers', text, 'Slugs or names, separated by commas.'),
  query('zdr', Type.Boolean(), 'true: at least one endpoint of the model keeps no data.'),
  query(
    'region',
    oneOf('eu', ...DATA_REGIONS),
    'At least one endpoint of the model keeps the data of requests in this region.',
  ),
  ...['min_age_days', 'max_age_days'].map(name => query(name, amount, 'Days since the model was created.')),
  ...FIGURE_NAMES.flatMap(name => [`min_${name}`, `max_${name}`]).map(name =>
    query(name, amount, 'No model matches, because the gateway has no such figures.'),
  ),
]

const SORT_PARAMETERS: readonly ParameterDescription[] = [
  query(
    'sort',
    oneOf(
      'pricing-low-to-high',
      'pricing-high-to-low',
      'context-high-to-low',
      'newest',
      'throughput-high-to-low',
      'latency-low-to-high',
      'most-popular',
      'top-weekly',
      'intelligence-high-to-low',
      'coding-high-to-low',
      'agentic-high-to-low',
      'design-arena-elo-high-to-low',
    ),
    'The order. The last six keep the order of the catalogue.',
  ),
  query('offset', Type.Integer({ minimum: 0 }), 'Number of models to skip at the beginning.'),
  query(
    'limit',
    Type.Integer({ minimum: 1, maximum: MODELS_PAGE_MAX }),
    'Maximum number of models. Default: all.',
  ),
]

const IF_NONE_MATCH = header(
  'If-None-Match',
  text,
  'The ETag of an earlier answer: 304 if it is still the same.',
)
const NOT_MODIFIED = { text: 'The client already has the document.', content: null }

const VERSION_PARAMETERS: readonly ParameterDescription[] = [
  header('anthropic-version', text, 'Asks for records and pages in the shape of the Messages API.'),
]
const MESSAGES_PAGES: readonly ParameterDescription[] = [
  ...VERSION_PARAMETERS,
  query('after_id', text, 'Only with the header anthropic-version: the id after which the page begins.'),
  query('before_id', text, 'Only with the header anthropic-version: the id before which the page ends.'),
]

const capabilities = Type.Object({}, { additionalProperties: true })
const MessagesModelAnswer = Type.Object({
  type: Type.Literal('model'),
  id: text,
  display_name: text,
  created_at: text,
  capabilities,
  max_input_tokens: orNoCount,
  max_tokens: orNoCount,
  lifecycle: text,
  line: Type.Null(),
  deprecated_at: Type.Null(),
  retires_at: Type.Null(),
})

const modelsAnswer = answer(
  Type.Union([
    Type.Object({
      data: Type.Array(ModelAnswer),
      total_count: count,
      links: Type.Object({ next: nullableText }),
    }),
    Type.Object(
      {
        data: Type.Array(MessagesModelAnswer),
        has_more: Type.Boolean(),
        first_id: nullableText,
        last_id: nullableText,
      },
      { description: 'With anthropic-version' },
    ),
  ]),
  'Models, and how many there are.',
  { data: [MODEL_EXAMPLE], total_count: 1, links: { next: null } },
)

const modelAnswer = answer(
  Type.Union([
    Type.Object({ ...modelFields, object: Type.Literal('model'), owned_by: text, data: ModelAnswer }),
    MessagesModelAnswer,
  ]),
  'The model, with its fields at top level and also in data.',
  { ...MODEL_EXAMPLE, object: 'model', owned_by: 'acme', data: MODEL_EXAMPLE },
)

const ENDPOINT_EXAMPLE = {
  name: 'Acme | acme/fast-1',
  model_id: 'acme/fast-1',
  model_name: 'Fast 1',
  tag: 'acme/us',
  provider_name: 'Acme',
  context_length: 128000,
  max_completion_tokens: 16384,
  max_prompt_tokens: null,
  quantization: 'fp8',
  pricing: MODEL_EXAMPLE.pricing,
  supported_parameters: ['temperature', 'tools'],
  supports_implicit_caching: false,
  supports_tool_choice: { auto: true, none: true, required: true, function: true },
  status: 0,
  uptime_last_5m: 100,
  uptime_last_30m: 99.9,
  uptime_last_1d: null,
  latency_last_30m: { p50: 210, p75: 260, p90: 340, p99: 900 },
  throughput_last_30m: null,
}

export const CATALOGUE = tagged('Models', {
  listModels: {
    parameters: [...FILTER_PARAMETERS, ...SORT_PARAMETERS, ...MESSAGES_PAGES, IF_NONE_MATCH],
    answers: { 200: modelsAnswer, 304: NOT_MODIFIED },
  },
  countModels: {
    parameters: FILTER_PARAMETERS,
    answers: {
      200: oneRecord(Type.Object({ count }), 'How many models the listing has.', { count: 1 }),
    },
  },
  listUserModels: {
    text: 'The listing with the models that the guardrails of the key allow.',
    parameters: [...FILTER_PARAMETERS, ...SORT_PARAMETERS, ...MESSAGES_PAGES, IF_NONE_MATCH],
    answers: { 200: modelsAnswer, 304: NOT_MODIFIED },
  },
  listEmbeddingModels: {
    parameters: [
      ...FILTER_PARAMETERS.filter(({ name }) => name !== 'output_modalities'),
      ...SORT_PARAMETERS,
      IF_NONE_MATCH,
    ],
    answers: { 200: modelsAnswer, 304: NOT_MODIFIED },
  },
  getModelById: { parameters: VERSION_PARAMETERS, answers: { 200: modelAnswer } },
  getModel: { parameters: VERSION_PARAMETERS, answers: { 200: modelAnswer } },
  getModelByAlias: { parameters: VERSION_PARAMETERS, answers: { 200: modelAnswer } },
  listEndpoints: {
    answers: {
      200: oneRecord(
        Type.Object({
          id: text,
          name: text,
          created: unixSeconds,
          description: text,
          architecture: Architecture,
          endpoints: Type.Array(EndpointAnswer),
        }),
        'The model with its endpoints.',
        {
          id: MODEL_EXAMPLE.id,
          name: MODEL_EXAMPLE.name,
          created: MODEL_EXAMPLE.created,
          description: '',
          architecture: MODEL_EXAMPLE.architecture,
          endpoints: [ENDPOINT_EXAMPLE],
        },
      ),
    },
  },
  listZeroRetentionEndpoints: {
    parameters: [IF_NONE_MATCH],
    answers: {
      200: answer(Type.Object({ data: Type.Array(EndpointAnswer) }), 'All endpoints that keep no data.', {
        data: [ENDPOINT_EXAMPLE],
      }),
      304: NOT_MODIFIED,
    },
  },
  listProviders: {
    answers: {
      200: answer(Type.Object({ data: Type.Array(ProviderAnswer) }), 'All known providers.', {
        data: [
          {
            name: 'Acme',
            slug: 'acme',
            ...repeat(null, 'privacy_policy_url', 'terms_of_service_url', 'status_page_url'),
            ...repeat(null, 'headquarters', 'datacenters'),
          },
        ],
      }),
    },
  },
})
