/** Failures in the Messages dialect: the envelope, as the official client types it. */
import Anthropic, {
  APIError,
  AuthenticationError,
  BadRequestError,
  ContentTooLargeError,
  InternalServerError,
  NotFoundError,
  OverloadedError,
  PaymentRequiredError,
  PermissionDeniedError,
  RateLimitError,
  RequestTimeoutError,
  ServiceUnavailableError,
  UnprocessableEntityError,
} from '@anthropic-ai/sdk'
import t from 'tap'
import { FAILURES, type FailureCode, GatewayError } from '../../src/errors.ts'
import { messages } from '../support/dialects.ts'
import { METADATA, NONE, withheld } from './failures.ts'
import { eventsIn, REQUEST } from './messages-stream.ts'

t.test('the envelope', async t => {
  const error = new GatewayError('invalid_request', 'messages[0].role: must be a string')
  t.strictSame(messages.failure(error, { ...NONE, metadata: METADATA }), {
    type: 'error',
    error: {
      type: 'invalid_request_error',
      message: 'messages[0].role: must be a string',
      error_type: 'invalid_request',
      param: 'messages[0].role',
    },
    request_id: 'gen-1-x',
    user_id: null,
    gateway_metadata: METADATA,
  })
})

t.test('a fault of ours is masked', async t => {
  const error = new GatewayError('internal', 'a secret', { metadata: { secret: 1 } })
  t.strictSame(messages.failure(error, { ...NONE, metadata: METADATA }), {
    type: 'error',
    error: { type: 'api_error', message: 'Internal Server Error', error_type: 'server' },
    request_id: 'gen-1-x',
    user_id: null,
  })
})

t.test('calls that count go along; a withheld reply is told as content', async t => {
  const error = withheld()
  const usage = {
    input_tokens: 5,
    input_tokens_details: { cached_tokens: 1, cache_write_tokens: 2 },
    output_tokens: 2,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: 7,
  }
  t.match(messages.failure(error, { ...NONE, usage }), {
    error: {
      type: 'permission_error',
      metadata: {
        alignment: {
          calls: [],
          rejected: {
            role: 'assistant',
            content: [
              { type: 'text', text: 'no' },
              { type: 'tool_use', id: 'c1', name: 'f', input: {} },
            ],
          },
        },
      },
    },
    usage: {
      input_tokens: 2,
      cache_read_input_tokens: 1,
      cache_creation_input_tokens: 2,
      output_tokens: 2,
    },
  })
})

t.test('a failure before the first event of a stream is its only event', async t => {
  const error = new GatewayError('deadline_exceeded', 'Operation timed out')
  const writer = messages.frames(REQUEST)
  t.same(eventsIn(writer.failure(error, { ...NONE, request: REQUEST }) + writer.end()), [
    {
      type: 'error',
      error: { type: 'timeout_error', message: 'Operation timed out', error_type: 'timeout' },
      request_id: 'gen-1-x',
      user_id: null,
    },
  ])
})

type Kind = new (...parameters: never[]) => APIError

/** Type and class of each failure. */
const KINDS: Partial<Record<FailureCode, readonly [type: string, kind: Kind]>> = {
  invalid_request: ['invalid_request_error', BadRequestError],
  content_policy_violation: ['invalid_request_error', BadRequestError],
  context_length_exceeded: ['invalid_request_error', BadRequestError],
  model_not_found: ['invalid_request_error', BadRequestError],
  authentication: ['authentication_error', AuthenticationError],
  payment_required: ['billing_error', PaymentRequiredError],
  permission_denied: ['permission_error', PermissionDeniedError],
  no_endpoints: ['not_found_error', NotFoundError],
  constraint_filtered: ['not_found_error', NotFoundError],
  deadline_exceeded: ['timeout_error', RequestTimeoutError],
  payload_too_large: ['invalid_request_error', ContentTooLargeError],
  unprocessable: ['invalid_request_error', UnprocessableEntityError],
  rate_limit_exceeded: ['rate_limit_error', RateLimitError],
  internal: ['api_error', InternalServerError],
  provider_unavailable: ['api_error', InternalServerError],
  service_unavailable: ['overloaded_error', ServiceUnavailableError],
  store_unavailable: ['api_error', ServiceUnavailableError],
  overloaded: ['overloaded_error', ServiceUnavailableError],
  upstream_timeout: ['timeout_error', InternalServerError],
  upstream_overloaded: ['overloaded_error', OverloadedError],
}

t.test('the official client has a class for each', async t => {
  for (const [code, [type, kind]] of Object.entries(KINDS) as [FailureCode, readonly [string, Kind]][]) {
    const { status, errorType } = FAILURES[code]
    const envelope = JSON.stringify(messages.failure(new GatewayError(code, 'It failed'), NONE))
    const client = new Anthropic({
      apiKey: 'sk-test',
      baseURL: 'http://127.0.0.1:9',
      maxRetries: 0,
      fetch: async () => new Response(envelope, { status, headers: { 'content-type': 'application/json' } }),
    })
    const thrown = await client.messages
      .create({ model: 'acme/m', max_tokens: 1, messages: [] })
      .catch((each: unknown) => each)
    t.ok(thrown instanceof kind && thrown instanceof APIError, code)
    t.match(
      thrown,
      { status, type, error: { error: { error_type: errorType }, request_id: 'gen-1-x' } },
      code,
    )
  }
})
