/** The interface description of request records. Pure. */
import { Type } from '@sinclair/typebox'
import {
  count,
  instant,
  nullable,
  nullableNumber,
  nullableText,
  oneOf,
  usd,
} from '../../protocol/json/schema.ts'
import { PAGE_DEFAULT, PAGE_MAX } from '../../protocol/limits.ts'
import { answer, KEY_HASH_FILTER, query, repeat, tagged, text } from './description.ts'

const orNoInteger = nullable(Type.Integer())

/** An endpoint that could serve the request, and the credential for it. */
const CANDIDATE_FIELDS = { provider: text, model: text, credential: Type.Optional(text) }
const TIME_FIELDS = { start_ms: Type.Number(), end_ms: Type.Number() }

const Explanation = Type.Object({
  source: oneOf('whole', 'record'),
  id: text,
  parent: nullableText,
  request_id: nullableText,
  created_at: instant,
  workspace_id: nullableText,
  key: nullableText,
  key_hash: Type.Optional(nullable(Type.String({ description: 'Shown only to management keys.' }))),
  method: nullableText,
  route: nullableText,
  status: orNoInteger,
  outcome: text,
  streamed: nullable(Type.Boolean()),
  ...repeat(nullableText, 'requested_model', 'model', 'provider', 'router', 'strategy', 'data_region'),
  rollout: Type.Optional(nullable(oneOf('base', 'candidate'))),
  duration_ms: Type.Number(),
  first_token_ms: nullableNumber,
  input_tokens: orNoInteger,
  output_tokens: orNoInteger,
  cost: nullable(usd),
  finish: nullableText,
  error: nullable(
    Type.Object({
      code: text,
      ...repeat(nullableText, 'message', 'field', 'cause', 'limit'),
      retry_after_seconds: orNoInteger,
      excluded_by: Type.Array(text),
      guardrail_id: nullableText,
    }),
  ),
  stages_ms: nullable(Type.Record(Type.String(), Type.Number())),
  choice: nullableText,
  first: Type.Optional(nullable(Type.Object(CANDIDATE_FIELDS))),
  rather: nullable(Type.Object(CANDIDATE_FIELDS)),
  attempts: Type.Array(
    Type.Object({
      ...CANDIDATE_FIELDS,
      start_ms: nullableNumber,
      end_ms: nullableNumber,
      kind: oneOf('first', 'again', 'hedge'),
      turn: count,
      status: orNoInteger,
      error: nullableText,
      cause: nullableText,
      outrun: Type.Boolean(),
      cost: usd,
    }),
  ),
  passed_over: Type.Array(
    Type.Object({
      ...CANDIDATE_FIELDS,
      state: oneOf('rate_limited', 'breaker_open'),
      wait_ms: Type.Number(),
    }),
  ),
  not_reached: Type.Array(Type.Object({ ...CANDIDATE_FIELDS, breaker_open: Type.Boolean() })),
  excluded: Type.Array(Type.Object({ ...CANDIDATE_FIELDS, by: text })),
  preferences: Type.Record(Type.String(), Type.Unknown()),
  skipped_models: Type.Array(text),
  actions: Type.Array(
    Type.Object({
      type: text,
      name: text,
      guardrail_id: Type.Optional(text),
      action: Type.Optional(text),
      summary: Type.Optional(text),
    }),
  ),
  changes: Type.Optional(
    nullable(
      Type.Array(Type.Object({ field: text, action: oneOf('dropped', 'changed', 'moved'), reason: text }), {
        description: 'Fields that were dropped, changed or moved for the last provider; null: unknown.',
      }),
    ),
  ),
  tools: Type.Array(Type.Object({ tool: text, ...TIME_FIELDS, outcome: text, cost: usd })),
  inner_calls: Type.Array(
    Type.Object({ id: text, model: nullableText, ...TIME_FIELDS, error: nullableText, cost: usd }),
  ),
  unkept_before: count,
  reasons: Type.Array(text),
})

export const Generation = Type.Object({
  id: text,
  upstream_id: nullableText,
  request_id: text,
  api_type: oneOf('completions', 'embeddings'),
  model: nullableText,
  requested_model: nullableText,
  provider_name: nullableText,
  router: Type.Null(),
  created_at: instant,
  streamed: Type.Boolean(),
  cancelled: Type.Boolean(),
  outcome: oneOf('completed', 'incomplete', 'failed', 'aborted', 'refused'),
  error: nullableText,
  finish_reason: nullableText,
  native_finish_reason: nullableText,
  latency: nullableNumber,
  generation_time: nullableNumber,
  moderation_latency: Type.Null(),
  accounting: text,
  ...repeat(count, 'tokens_prompt', 'tokens_completion', 'native_tokens_prompt'),
  ...repeat(count, 'native_tokens_completion', 'native_tokens_reasoning', 'native_tokens_cached'),
  native_tokens_completion_images: Type.Null(),
  total_cost: usd,
  usage: usd,
  cache_discount: Type.Null(),
  upstream_inference_cost: nullable(usd),
  is_byok: Type.Boolean(),
  service_tier: nullableText,
  session_id: nullableText,
  cache_miss: nullable(Type.Object({ reason: text, tokens: count })),
  ...repeat(nullableText, 'agent_id', 'parent_agent_id', 'external_user', 'workspace_id'),
  data_region: text,
  origin: text,
  http_referer: nullableText,
  user_agent: nullableText,
  app_id: orNoInteger,
  trace: nullable(Type.Record(Type.String(), Type.Union([text, Type.Number(), Type.Boolean()]))),
  preset_id: Type.Null(),
  web_search_engine: Type.Null(),
  num_search_results: orNoInteger,
  ...repeat(Type.Null(), 'num_fetches', 'num_media_prompt', 'num_media_completion'),
  ...repeat(Type.Null(), 'num_input_audio_prompt'),
  response_cache_source_id: nullableText,
  provider_responses: Type.Array(
    Type.Object({
      provider_name: text,
      id: Type.Optional(text),
      routed_service_tier: Type.Optional(text),
      model_permaslug: text,
      status: orNoInteger,
      is_byok: Type.Boolean(),
      error: nullableText,
    }),
  ),
  /** Only for a single record; not in lists. */
  explanation: Type.Optional(Explanation),
})

const ProofKey = Type.Object({
  kty: Type.Literal('OKP'),
  crv: Type.Literal('Ed25519'),
  x: text,
  kid: text,
  alg: Type.Literal('EdDSA'),
  use: Type.Literal('sig'),
})

const PROOF_KEY = {
  kty: 'OKP',
  crv: 'Ed25519',
  x: '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo',
  kid: 'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k',
  alg: 'EdDSA',
  use: 'sig',
}

export const GENERATIONS = tagged('Generations', {
  listProofKeys: {
    text: 'A JWK set, for any library of JSON Web Signatures. Older keys stay in it.',
    answers: {
      200: answer(Type.Object({ keys: Type.Array(ProofKey) }), 'The public keys.', { keys: [PROOF_KEY] }),
    },
    failures: ['service_unavailable'],
  },
  getGeneration: {
    text:
      'An inference key sees requests of its workspace, a management key those of its organization. ' +
      'The record is available a second after the answer, and the explanation of its routing two seconds after the answer. ' +
      'A request that was refused has an explanation too, for a day.',
    parameters: [query('id', text, 'The generation id, or the X-Request-Id of the answer.', true)],
    answers: {
      200: { text: 'The record of one request.', content: { schema: Type.Object({ data: Generation }) } },
    },
    failures: ['not_found'],
  },
  listGenerations: {
    text:
      'The latest requests of the organization that fit all filters, newest first. A page examines a bounded number of ' +
      'records: it may have fewer than `limit` although there are more.',
    parameters: [
      query(
        'limit',
        Type.Integer({ minimum: 1, maximum: PAGE_MAX, default: PAGE_DEFAULT }),
        'Maximum number of records.',
      ),
      query('after', text, '`last_id` of the page before.'),
      KEY_HASH_FILTER,
      query('workspace_id', text, 'Only requests of this workspace.'),
      query(
        'model',
        text,
        'Only requests that this model answered, or whose last failed attempt was at this model.',
      ),
      query('provider', text, 'Only requests of this provider, by its slug.'),
      query('user_id', text, 'Only requests of this end user.'),
      query('session_id', text, 'Only requests of this session.'),
      query('outcome', text, 'One or more of completed, incomplete, failed, aborted, separated by commas.'),
      query(
        'min_cost',
        Type.Number({ exclusiveMinimum: 0 }),
        'Only requests that cost at least this many US dollars.',
      ),
      query('created_after', instant, 'Only requests at or after this time.'),
      query('created_before', instant, 'Only requests before this time.'),
    ],
    answers: {
      200: answer(
        Type.Object({ data: Type.Array(Generation), has_more: Type.Boolean(), last_id: nullableText }),
        'A page of records; `last_id` leads to the next one.',
        { data: [], has_more: false, last_id: null },
      ),
    },
  },
})
