/** Failures in chat completions and messages: envelopes and ends of streams, as the official clients read them. */
import Anthropic, * as anthropic from '@anthropic-ai/sdk'
import OpenAI, * as openai from 'openai'
import t from 'tap'
import { FAILURES, type FailureCode, GatewayError } from '../../src/base/errors.ts'
import type { Dialect } from '../../src/dialects/dialect.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponsesRequest } from '../../src/protocol/request.ts'
import type { GatewayMetadata } from '../../src/protocol/response.ts'
import { chatCompletions, messages } from '../support/dialects.ts'
import { answer, TEXT } from './answers.ts'
import * as chatStream from './chat-stream.ts'
import * as messagesStream from './messages-stream.ts'

type Loose = Record<string, unknown>
type Kind = new (...parameters: never[]) => Error

const NONE = { id: 'gen-1-x', metadata: null, usage: null, request: null }
const METADATA: GatewayMetadata = {
  requested: 'acme/m',
  strategy: 'direct',
  region: 'local',
  summary: '',
  attempt: 0,
  is_byok: false,
  endpoints: { available: [], total: 0 },
}
const USAGE = {
  input_tokens: 5,
  input_tokens_details: { cached_tokens: 1, cache_write_tokens: 2 },
  output_tokens: 2,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: 7,
}

/** A reply of one text and one call, which a plugin withheld. */
function withheld(): GatewayError {
  const rejected = [
    {
      type: 'message',
      id: 'msg_1',
      role: 'assistant',
      content: [{ type: 'output_text', text: 'no', annotations: [] }],
    },
    { type: 'function_call', id: 'fc_1', call_id: 'c1', name: 'f', arguments: '{}' },
  ]
  return new GatewayError('permission_denied', 'Alignment plugin: broken', {
    metadata: { alignment: { calls: [], rejected } },
  })
}

interface Row {
  readonly dialect: Dialect
  readonly request: ResponsesRequest
  readonly refused: Loose
  readonly masked: Loose
  readonly withheld: Loose
  framesOf(events: readonly StreamEvent[]): string
  framesIn(stream: string): Loose[]
  /** The frames after the first text of a stream that failed, and the same where the fault is ours, without usage. */
  readonly midStream: readonly Loose[]
  readonly maskedFrame: Loose
  /** The only frame of a stream that failed before its first event, and what the client throws of it. */
  readonly first: Loose
  readonly firstThrown: Loose
  throughClient(frames: string): Promise<unknown>
  /** Asks the official client, which gets this reply. */
  ask(reply: () => Promise<Response>): Promise<unknown>
  readonly apiError: Kind
  /** The class of each failure, and what the error says. */
  readonly classes: readonly (readonly [code: FailureCode, kind: Kind, shows: Loose])[]
}

const CHAT_MASKED = {
  code: 500,
  message: 'Internal Server Error',
  type: 'server',
  param: null,
  metadata: { error_type: 'server' },
}
const CHAT: Row = {
  dialect: chatCompletions,
  request: chatStream.REQUEST,
  refused: {
    error: {
      code: 400,
      message: 'messages[0].role: must be a string',
      type: 'invalid_request',
      param: 'messages[0].role',
      metadata: { error_type: 'invalid_request' },
    },
    user_id: null,
    gateway_metadata: METADATA,
  },
  masked: { error: CHAT_MASKED, user_id: null },
  withheld: {
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
    usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 },
  },
  framesOf: chatStream.framesOf,
  framesIn: chatStream.chunksOf,
  midStream: [
    {
      error: {
        message: 'The provider was silent',
        type: 'timeout',
        metadata: { error_type: 'timeout', provider_code: 'x' },
      },
      choices: [{ index: 0, delta: { content: '' }, finish_reason: 'error' }],
    },
    { choices: [], usage: { total_tokens: 17 } },
  ],
  maskedFrame: { error: CHAT_MASKED },
  first: {
    id: 'gen-17-x',
    created: 17,
    model: 'acme/recorded',
    error: { code: 503, message: 'Nobody is there' },
    choices: [{ delta: { role: 'assistant', content: '' }, finish_reason: 'error' }],
  },
  firstThrown: { code: 503, type: 'provider_overloaded' },
  throughClient: chatStream.throughClient,
  ask: fetch =>
    new OpenAI({
      apiKey: 'sk-test',
      baseURL: 'http://127.0.0.1:9/v1',
      maxRetries: 0,
      fetch,
    }).chat.completions.create({ model: 'acme/m', messages: [] }),
  apiError: openai.APIError,
  classes: [
    ['invalid_request', openai.BadRequestError, { param: 'model', type: 'invalid_request' }],
    ['rate_limit_exceeded', openai.RateLimitError, { param: null, type: 'rate_limit_exceeded' }],
    ['provider_unavailable', openai.InternalServerError, { param: null, type: 'provider_unavailable' }],
  ],
}

/** Type and class of each failure. */
const MESSAGES_KINDS: Partial<Record<FailureCode, readonly [type: string, kind: Kind]>> = {
  invalid_request: ['invalid_request_error', anthropic.BadRequestError],
  content_policy_violation: ['invalid_request_error', anthropic.BadRequestError],
  context_length_exceeded: ['invalid_request_error', anthropic.BadRequestError],
  model_not_found: ['invalid_request_error', anthropic.BadRequestError],
  authentication: ['authentication_error', anthropic.AuthenticationError],
  payment_required: ['billing_error', anthropic.PaymentRequiredError],
  permission_denied: ['permission_error', anthropic.PermissionDeniedError],
  no_endpoints: ['not_found_error', anthropic.NotFoundError],
  constraint_filtered: ['not_found_error', anthropic.NotFoundError],
  deadline_exceeded: ['timeout_error', anthropic.RequestTimeoutError],
  payload_too_large: ['invalid_request_error', anthropic.ContentTooLargeError],
  unprocessable: ['invalid_request_error', anthropic.UnprocessableEntityError],
  rate_limit_exceeded: ['rate_limit_error', anthropic.RateLimitError],
  internal: ['api_error', anthropic.InternalServerError],
  provider_unavailable: ['api_error', anthropic.InternalServerError],
  service_unavailable: ['overloaded_error', anthropic.ServiceUnavailableError],
  store_unavailable: ['api_error', anthropic.ServiceUnavailableError],
  credential_unreadable: ['api_error', anthropic.ServiceUnavailableError],
  overloaded: ['overloaded_error', anthropic.ServiceUnavailableError],
  upstream_timeout: ['timeout_error', anthropic.InternalServerError],
  upstream_overloaded: ['overloaded_error', anthropic.OverloadedError],
}
const MESSAGES_MASKED = {
  type: 'error',
  error: { type: 'api_error', message: 'Internal Server Error', error_type: 'server' },
  request_id: 'gen-1-x',
}
const MESSAGES: Row = {
  dialect: messages,
  request: messagesStream.REQUEST,
  refused: {
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
  },
  masked: { ...MESSAGES_MASKED, user_id: null },
  withheld: {
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
  },
  framesOf: messagesStream.framesOf,
  framesIn: messagesStream.eventsIn,
  midStream: [
    {
      type: 'error',
      error: {
        type: 'timeout_error',
        message: 'The provider was silent',
        error_type: 'timeout',
        metadata: { provider_code: 'x' },
      },
      request_id: 'gen-1-x',
      usage: { input_tokens: 4, output_tokens: 7 },
    },
  ],
  maskedFrame: MESSAGES_MASKED,
  first: {
    type: 'error',
    error: { type: 'overloaded_error', message: 'Nobody is there', error_type: 'provider_overloaded' },
    request_id: 'gen-17-x',
  },
  firstThrown: { type: 'overloaded_error' },
  throughClient: messagesStream.throughClient,
  ask: fetch =>
    new Anthropic({
      apiKey: 'sk-test',
      baseURL: 'http://127.0.0.1:9',
      maxRetries: 0,
      fetch,
    }).messages.create({ model: 'acme/m', max_tokens: 1, messages: [] }),
  apiError: anthropic.APIError,
  classes: (Object.entries(MESSAGES_KINDS) as [FailureCode, readonly [string, Kind]][]).map(
    ([code, [type, kind]]) => [
      code,
      kind,
      { type, error: { error: { error_type: FAILURES[code].errorType }, request_id: 'gen-1-x' } },
    ],
  ),
}

for (const row of [CHAT, MESSAGES]) {
  const { dialect, request, framesOf, framesIn } = row
  const { name } = dialect

  t.test(`the envelope of ${name}`, async t => {
    const error = new GatewayError('invalid_request', 'messages[0].role: must be a string')
    t.strictSame(dialect.failure(error, { ...NONE, metadata: METADATA }), row.refused)
  })

  t.test(`a fault of ours is masked in ${name}`, async t => {
    const error = new GatewayError('internal', 'a secret', { metadata: { secret: 1 } })
    t.strictSame(dialect.failure(error, { ...NONE, metadata: METADATA }), row.masked)
  })

  t.test(`calls that count go along, and a withheld reply is told in words of ${name}`, async t => {
    t.match(dialect.failure(withheld(), { ...NONE, usage: USAGE }), row.withheld)
  })

  t.test(`the official client of ${name} has a class for each failure`, async t => {
    for (const [code, kind, shows] of row.classes) {
      const error = new GatewayError(code, 'model: It failed')
      const envelope = JSON.stringify(dialect.failure(error, NONE))
      const { status } = error
      const headers = { 'content-type': 'application/json' }
      const thrown = await row
        .ask(async () => new Response(envelope, { status, headers }))
        .catch((each: unknown) => each)
      t.ok(thrown instanceof kind && thrown instanceof row.apiError, code)
      t.match(thrown, { status, ...shows }, code)
    }
  })

  t.test(`a failure in mid-stream of ${name} is told once`, async t => {
    const error = new GatewayError('upstream_timeout', 'The provider was silent', {
      metadata: { provider_code: 'x' },
    })
    const frames = framesIn(framesOf(answer(TEXT, error)))
    const failed = frames.slice(frames.findIndex(frame => 'error' in frame))
    t.equal(failed.length, row.midStream.length, 'nothing follows')
    t.match(failed, row.midStream)
    t.equal(frames.filter(frame => 'error' in frame).length, 1)

    const ours = framesOf(answer(TEXT, new GatewayError('internal', 'a secret'), { usage: null }))
    const masked = framesIn(ours).at(-1) ?? {}
    t.strictSame({ ...row.maskedFrame, error: masked['error'] }, row.maskedFrame)
    if (row === MESSAGES) t.strictSame(masked, row.maskedFrame)
    else t.equal(framesIn(ours).length, 2)

    const writer = dialect.frames(request)
    for (const event of answer(TEXT, 'stop')) writer.write(event)
    t.equal(writer.failure(error, NONE), '', 'an answer that was told cannot fail')
  })

  t.test(`a failure before the first event of a stream of ${name} is its only frame`, async t => {
    const error = new GatewayError('service_unavailable', 'Nobody is there')
    const writer = dialect.frames(request)
    const frames = writer.failure(error, { ...NONE, id: 'gen-17-x' }) + writer.end()
    const [only, ...others] = framesIn(frames)
    t.match(only, row.first)
    t.same(others, [])
    const thrown = await row.throughClient(frames).catch((each: unknown) => each)
    t.match(thrown, row.firstThrown)
  })
}

t.test('a deadline before the first event of messages has no more fields than an envelope', async t => {
  const { REQUEST: request, eventsIn } = messagesStream
  const error = new GatewayError('deadline_exceeded', 'Operation timed out')
  const writer = messages.frames(request)
  t.same(eventsIn(writer.failure(error, { ...NONE, request }) + writer.end()), [
    {
      type: 'error',
      error: { type: 'timeout_error', message: 'Operation timed out', error_type: 'timeout' },
      request_id: 'gen-1-x',
      user_id: null,
    },
  ])
})

t.test('routing metadata goes with a failed chunk, unless the fault is ours', async t => {
  const told = (error: GatewayError) =>
    chatStream
      .chunksOf(chatStream.framesOf(answer(TEXT, error, { more: { gateway_metadata: METADATA } })))
      .at(-1)
  t.match(told(new GatewayError('provider_unavailable', 'Gone')), { gateway_metadata: METADATA })
  t.notOk('gateway_metadata' in (told(new GatewayError('internal', 'x')) ?? {}))
})
