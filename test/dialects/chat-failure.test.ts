/** Failures in the chat dialect: the envelope, as the official client types it. */
import OpenAI, { APIError, BadRequestError, InternalServerError, RateLimitError } from 'openai'
import t from 'tap'
import { GatewayError } from '../../src/errors.ts'
import { chatCompletions } from '../support/dialects.ts'
import { METADATA, NONE, withheld } from './failures.ts'

t.test('the envelope', async t => {
  const error = new GatewayError('invalid_request', 'messages[0].role: must be a string')
  t.strictSame(chatCompletions.failure(error, { ...NONE, metadata: METADATA }), {
    error: {
      code: 400,
      message: 'messages[0].role: must be a string',
      type: 'invalid_request',
      param: 'messages[0].role',
      metadata: { error_type: 'invalid_request' },
    },
    user_id: null,
    gateway_metadata: METADATA,
  })
})

t.test('a fault of ours is masked', async t => {
  const error = new GatewayError('internal', 'a secret', { metadata: { secret: 1 } })
  t.strictSame(chatCompletions.failure(error, { ...NONE, metadata: METADATA }), {
    error: {
      code: 500,
      message: 'Internal Server Error',
      type: 'server',
      param: null,
      metadata: { error_type: 'server' },
    },
    user_id: null,
  })
})

t.test('calls that count go along; a withheld reply is told as a message', async t => {
  const error = withheld()
  const usage = {
    input_tokens: 1,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: 2,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: 3,
  }
  t.match(chatCompletions.failure(error, { ...NONE, usage }), {
    id: 'gen-1-x',
    error: {
      code: 403,
      metadata: {
        error_type: 'permission_denied',
        alignment: {
          calls: [],
          rejected: { role: 'assistant', content: 'no', tool_calls: [{ id: 'c1', function: { name: 'f' } }] },
        },
      },
    },
    usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
  })
})

t.test('the official client has a class for each', async t => {
  const cases = [
    [new GatewayError('invalid_request', 'model: is required'), BadRequestError, 'model'],
    [new GatewayError('rate_limit_exceeded', 'Too many'), RateLimitError, null],
    [new GatewayError('provider_unavailable', 'Gone'), InternalServerError, null],
  ] as const
  for (const [error, type, param] of cases) {
    const envelope = JSON.stringify(chatCompletions.failure(error, NONE))
    const client = new OpenAI({
      apiKey: 'sk-test',
      baseURL: 'http://127.0.0.1:9/v1',
      maxRetries: 0,
      fetch: async () =>
        new Response(envelope, { status: error.status, headers: { 'content-type': 'application/json' } }),
    })
    const thrown = await client.chat.completions
      .create({ model: 'acme/m', messages: [] })
      .catch((each: unknown) => each)
    t.ok(thrown instanceof type && thrown instanceof APIError)
    t.match(thrown, { status: error.status, param, type: error.errorType })
  }
})
