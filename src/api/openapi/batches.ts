/** The interface description of batches. Pure. */

import { Type } from '@sinclair/typebox'
import {
  AnyObject,
  count,
  nullable,
  nullableText,
  oneOf,
  unixSeconds,
  usd,
} from '../../protocol/json/schema.ts'
import { BATCH_WINDOW, CLIENT_LIST_DEFAULT, PAGE_MAX } from '../../protocol/limits.ts'
import { BatchCreation, CUSTOM_ID_MAX_CHARS } from '../../protocol/management/batch-creation.ts'
import {
  BATCH_ENDPOINTS,
  BATCH_STATUSES,
  BATCH_WAIT_REASONS,
  FILTER_STATUSES,
} from '../../protocol/management/batches.ts'
import { ServerToolUse } from '../../protocol/response.ts'
import {
  answer,
  header,
  listById,
  METADATA_HEADER,
  oneRecord,
  query,
  repeat,
  tagged,
  text,
} from './description.ts'

export const BatchBody = Type.Object(
  {
    ...BatchCreation.properties,
    requests: Type.Optional(
      Type.Array(
        Type.Object({
          custom_id: Type.String({ minLength: 1, maxLength: CUSTOM_ID_MAX_CHARS }),
          body: Type.Unsafe<object>({
            ...AnyObject,
            description:
              'A body of the endpoint, without stream. Each is checked when the batch is accepted.',
          }),
        }),
        { minItems: 1, description: 'Required, unless input_file_id names a file that has them.' },
      ),
    ),
  },
  { additionalProperties: false },
)

const UsageOfBatch = Type.Object({
  ...repeat(count, 'prompt_tokens', 'completion_tokens', 'total_tokens', 'input_tokens'),
  input_tokens_details: Type.Object({ cached_tokens: count }),
  output_tokens: count,
  output_tokens_details: Type.Object({ reasoning_tokens: count }),
  prompt_tokens_details: Type.Object({
    ...repeat(count, 'audio_tokens', 'cache_write_tokens', 'cached_tokens', 'file_tokens', 'video_tokens'),
  }),
  completion_tokens_details: Type.Object({
    audio_tokens: count,
    image_tokens: count,
    reasoning_tokens: count,
  }),
  cache_creation: Type.Object({ ephemeral_1h_input_tokens: count, ephemeral_5m_input_tokens: count }),
  server_tool_use: ServerToolUse,
  cost: usd,
  cost_details: Type.Object({
    upstream_inference_prompt_cost: usd,
    upstream_inference_completions_cost: usd,
    upstream_inference_cost: usd,
  }),
  is_byok: Type.Boolean(),
  iterations: Type.Array(
    Type.Object({
      type: text,
      input_tokens: count,
      output_tokens: count,
      cache_creation: Type.Null(),
      cache_creation_input_tokens: count,
      cache_read_input_tokens: count,
    }),
  ),
  service_tier: nullableText,
  speed: text,
})

export const BatchResult = Type.Object({
  custom_id: text,
  id: text,
  response: nullable(
    Type.Object({
      status_code: Type.Integer(),
      request_id: text,
      body: Type.Unsafe<object>({ ...AnyObject, description: 'The answer of the endpoint.' }),
    }),
  ),
  error: nullable(Type.Object({ message: text, type: text, param: nullableText, error_type: text })),
})

const batchFields = {
  id: text,
  object: Type.Literal('batch'),
  endpoint: oneOf(...BATCH_ENDPOINTS),
  model: text,
  completion_window: Type.Literal(BATCH_WINDOW),
  status: oneOf(...BATCH_STATUSES),
  created_at: unixSeconds,
  finalized_at: nullable(unixSeconds),
  expires_at: unixSeconds,
  provider: nullableText,
  request_counts: Type.Object({ total: count, completed: count, failed: count }),
  usage: nullable(UsageOfBatch),
  error: nullable(Type.Object({ message: text })),
  waiting: nullable(
    Type.Object(
      { reason: oneOf(...BATCH_WAIT_REASONS), since: unixSeconds },
      { description: 'Why the requests of the batch wait, and since when; null: they do not wait.' },
    ),
  ),
  input_file_id: nullableText,
  output_file_id: nullableText,
  error_file_id: nullableText,
  errors: nullable(
    Type.Object({
      object: Type.Literal('list'),
      data: Type.Array(
        Type.Object({ code: text, line: nullable(count), message: text, param: nullableText }),
      ),
    }),
  ),
  metadata: nullable(Type.Record(Type.String(), text)),
  ...repeat(nullable(unixSeconds), 'in_progress_at', 'finalizing_at', 'completed_at', 'failed_at'),
  ...repeat(nullable(unixSeconds), 'expired_at', 'cancelling_at', 'cancelled_at'),
}
export const BatchAnswer = Type.Object({ ...batchFields, results: nullable(Type.Array(BatchResult)) })

const BATCH_EXAMPLE = {
  id: 'batch_hIknf1T5spHKHCcD7MlhVTuX',
  object: 'batch',
  endpoint: '/v1/responses',
  model: 'sim/echo',
  completion_window: BATCH_WINDOW,
  status: 'validating',
  created_at: 1795384112,
  finalized_at: null,
  expires_at: 1795470512,
  provider: null,
  request_counts: { total: 1, completed: 0, failed: 0 },
  ...repeat(null, 'usage', 'error', 'waiting', 'results', 'input_file_id', 'output_file_id'),
  ...repeat(null, 'error_file_id', 'errors', 'metadata', 'in_progress_at', 'finalizing_at'),
  ...repeat(null, 'completed_at', 'failed_at', 'expired_at', 'cancelling_at', 'cancelled_at'),
}

const timeFilter = Type.String({
  description: 'Unix seconds, or ISO 8601 with seconds and a zone; exclusive',
})

export const BATCHES = tagged('Batches', {
  createBatch: {
    text: 'Once the request is answered, the batch survives a crash of the gateway.',
    parameters: [
      header(
        'Idempotency-Key',
        Type.String({ minLength: 1, maxLength: 255 }),
        'Repeated requests with the same value create only one batch.',
      ),
      METADATA_HEADER,
    ],
    body: {
      schema: BatchBody,
      examples: {
        responses: {
          endpoint: '/v1/responses',
          model: 'sim/echo',
          requests: [{ custom_id: 'greeting', body: { input: 'Hello' } }],
        },
        file: {
          endpoint: '/v1/chat/completions',
          completion_window: BATCH_WINDOW,
          input_file_id: 'gw_file_Tzj7Kt3rbMo4uCZEFCh4mPqR',
          metadata: { project: 'tea' },
        },
      },
    },
    answers: { 202: answer(BatchAnswer, 'The batch is stored.', BATCH_EXAMPLE) },
    failures: ['payment_required', 'conflict', 'not_found', 'unprocessable', 'rate_limit_exceeded'],
  },
  listBatches: {
    text: 'Newest first, without results.',
    parameters: [
      query(
        'limit',
        Type.Integer({ minimum: 1, maximum: PAGE_MAX, default: CLIENT_LIST_DEFAULT }),
        'Maximum number of batches.',
      ),
      query('after', text, 'last_id of the previous page.'),
      query('status', Type.Array(oneOf(...FILTER_STATUSES)), 'Only batches in one of these states.'),
      query('created_after', timeFilter, 'Only batches created after this time.'),
      query('created_before', timeFilter, 'Only batches created before this time.'),
    ],
    answers: { 200: listById(BatchAnswer, 'A page of batches.', BATCH_EXAMPLE) },
  },
  getBatch: {
    text: 'A batch that has ended has its results, in the order of the requests; a batch created with input_file_id has them in the files output_file_id and error_file_id.',
    answers: {
      200: answer(BatchAnswer, 'The batch.', {
        ...BATCH_EXAMPLE,
        status: 'failed',
        finalized_at: 1795384113,
        failed_at: 1795384113,
        request_counts: { total: 1, completed: 0, failed: 1 },
        results: [
          {
            custom_id: 'greeting',
            id: 'batch_req_2f7eb6af05ce3b287d9daaac',
            response: null,
            error: {
              message: 'temperature: must be a number from 0 to 2',
              type: 'invalid_request_error',
              param: 'temperature',
              error_type: 'invalid_request',
            },
          },
        ],
      }),
    },
  },
  cancelBatch: {
    text: 'Running requests are stopped, and finished results are kept. A repeated call changes nothing.',
    answers: { 200: answer(BatchAnswer, 'The batch.', { ...BATCH_EXAMPLE, status: 'cancelling' }) },
    failures: ['conflict'],
  },
  cancelBatchOfWorkspace: {
    text: 'As cancelBatch, with a management key.',
    answers: { 200: oneRecord(BatchAnswer, 'The batch.', { ...BATCH_EXAMPLE, status: 'cancelling' }) },
    failures: ['conflict'],
  },
  deleteBatch: {
    text: 'Only a batch that has ended.',
    answers: {
      200: answer(
        Type.Object({
          id: text,
          object: Type.Literal('batch'),
          deleted: Type.Literal(true),
          deletion: Type.Object({
            gateway: Type.Literal('deleted'),
            upstream: Type.Optional(Type.Object({ provider: text, status: Type.Literal('unsupported') })),
          }),
        }),
        'It was deleted here; a provider keeps its copy under its own rules.',
        { id: BATCH_EXAMPLE.id, object: 'batch', deleted: true, deletion: { gateway: 'deleted' } },
      ),
    },
    failures: ['conflict'],
  },
})
