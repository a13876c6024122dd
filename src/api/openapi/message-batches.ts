/** The interface description of the batches of the Messages API. Pure. */
import { Type } from '@sinclair/typebox'
import { AnyObject, count, nullable, nullableText, oneOf } from '../../protocol/json/schema.ts'
import { CLIENT_LIST_DEFAULT, PAGE_MAX } from '../../protocol/limits.ts'
import { CUSTOM_ID_MAX_CHARS } from '../../protocol/management/batch-creation.ts'
import { BATCH_WAIT_REASONS } from '../../protocol/management/batches.ts'
import { answer, query, repeat, tagged, text } from './description.ts'

export const MessageBatchBody = Type.Object(
  {
    requests: Type.Array(
      Type.Object({
        custom_id: Type.String({ minLength: 1, maxLength: CUSTOM_ID_MAX_CHARS }),
        params: Type.Unsafe<object>({
          ...AnyObject,
          description: 'A body of POST /messages, without stream. All name the same model.',
        }),
      }),
      { minItems: 1 },
    ),
  },
  { additionalProperties: false },
)

export const MessageBatchAnswer = Type.Object({
  id: text,
  type: Type.Literal('message_batch'),
  processing_status: oneOf('in_progress', 'canceling', 'ended'),
  request_counts: Type.Object({
    ...repeat(count, 'processing', 'succeeded', 'errored', 'canceled', 'expired'),
  }),
  created_at: text,
  expires_at: text,
  ended_at: nullableText,
  cancel_initiated_at: nullableText,
  archived_at: Type.Null(),
  waiting: nullable(
    Type.Object(
      { reason: oneOf(...BATCH_WAIT_REASONS), since: text },
      { description: 'Why the requests of the batch wait, and since when; null: they do not wait.' },
    ),
  ),
  results_url: nullable(Type.String({ description: 'A path below the base URL.' })),
})

const BATCH_EXAMPLE = {
  id: 'batch_hIknf1T5spHKHCcD7MlhVTuX',
  type: 'message_batch',
  processing_status: 'in_progress',
  request_counts: { processing: 1, succeeded: 0, errored: 0, canceled: 0, expired: 0 },
  created_at: '2026-11-22T21:08:32.000Z',
  expires_at: '2026-11-23T21:08:32.000Z',
  ...repeat(null, 'ended_at', 'cancel_initiated_at', 'archived_at', 'waiting', 'results_url'),
}

export const MESSAGE_BATCHES = tagged('Batches', {
  createMessageBatch: {
    text: 'As POST /batches with the endpoint /v1/messages, in the form of the Messages API.',
    body: {
      schema: MessageBatchBody,
      examples: {
        text: {
          requests: [
            {
              custom_id: 'greeting',
              params: {
                model: 'sim/echo',
                max_tokens: 100,
                messages: [{ role: 'user', content: 'Hello' }],
              },
            },
          ],
        },
      },
    },
    answers: { 200: answer(MessageBatchAnswer, 'The batch is stored.', BATCH_EXAMPLE) },
    failures: ['payment_required', 'conflict', 'not_found', 'unprocessable', 'rate_limit_exceeded'],
  },
  listMessageBatches: {
    text: 'Newest first: batches of the endpoint /v1/messages, however they were created.',
    parameters: [
      query(
        'limit',
        Type.Integer({ minimum: 1, maximum: PAGE_MAX, default: CLIENT_LIST_DEFAULT }),
        'Maximum number of batches.',
      ),
      query('after_id', text, 'last_id of the previous page.'),
      query('before_id', text, 'first_id of the following page; not together with after_id.'),
    ],
    answers: {
      200: answer(
        Type.Object({
          data: Type.Array(MessageBatchAnswer),
          has_more: Type.Boolean(),
          first_id: nullableText,
          last_id: nullableText,
        }),
        'A page of batches.',
        { data: [BATCH_EXAMPLE], has_more: false, first_id: BATCH_EXAMPLE.id, last_id: BATCH_EXAMPLE.id },
      ),
    },
  },
  getMessageBatch: {
    answers: { 200: answer(MessageBatchAnswer, 'The batch.', BATCH_EXAMPLE) },
  },
  getMessageBatchResults: {
    text: 'One JSON document per line: first the results in the order of the requests, then a line of type expired or canceled for each request that has no result.',
    answers: {
      200: {
        text: 'The results.',
        content: { media: 'application/x-jsonl', schema: Type.Unknown() },
      },
    },
    failures: ['conflict'],
  },
  cancelMessageBatch: {
    text: 'Running requests are stopped, and finished results are kept.',
    answers: {
      200: answer(MessageBatchAnswer, 'The batch.', { ...BATCH_EXAMPLE, processing_status: 'canceling' }),
    },
    failures: ['conflict'],
  },
  deleteMessageBatch: {
    text: 'Deletes a batch that has ended. While it runs, the answer is 409: cancel it first.',
    answers: {
      200: answer(
        Type.Object({ id: text, type: Type.Literal('message_batch_deleted') }),
        'It was deleted here; a provider keeps its copy under its own rules.',
        { id: BATCH_EXAMPLE.id, type: 'message_batch_deleted' },
      ),
    },
    failures: ['conflict'],
  },
})
