/** What a Chat Completions provider's error body becomes, shape by shape. */
import t from 'tap'
import { openaiChat } from '../../../src/formats/openai-chat.ts'

interface Row {
  readonly name: string
  readonly status: number
  readonly body: unknown
  readonly code: string
  readonly message: string
  readonly providerCode?: string
}

const NOTHING_TOLD = 'Provider returned error'

const ROWS: readonly Row[] = [
  {
    name: 'OpenAI',
    status: 400,
    body: {
      error: {
        message: 'Too long',
        type: 'invalid_request_error',
        param: 'messages',
        code: 'context_length_exceeded',
      },
    },
    code: 'context_length_exceeded',
    message: 'Too long',
    providerCode: 'context_length_exceeded',
  },
  {
    name: 'OpenAI without a code: the type says it',
    status: 400,
    body: { error: { message: 'No', type: 'invalid_request_error', code: null } },
    code: 'invalid_request',
    message: 'No',
    providerCode: 'invalid_request_error',
  },
  {
    name: 'Azure content filter',
    status: 400,
    body: {
      error: {
        message: 'Filtered',
        code: 'content_filter',
        status: 400,
        innererror: { code: 'ResponsibleAIPolicyViolation' },
      },
    },
    code: 'content_policy_violation',
    message: 'Filtered',
    providerCode: 'content_filter',
  },
  {
    name: 'a number as code',
    status: 502,
    body: { error: { message: 'Gone', code: 502 } },
    code: 'provider_unavailable',
    message: 'Gone',
  },
  {
    name: 'a number as text',
    status: 429,
    body: { error: { message: 'Slow', code: '429' } },
    code: 'rate_limit_exceeded',
    message: 'Slow',
  },
  {
    name: 'error as text',
    status: 404,
    body: { error: 'Model not found' },
    code: 'provider_unavailable',
    message: 'Model not found',
  },
  {
    name: 'Mistral',
    status: 422,
    body: {
      object: 'error',
      message: { detail: [{ loc: ['body', 'top_p'], msg: 'must be below 1', type: 'x' }] },
      type: 'invalid_request_error',
      code: 3051,
    },
    code: 'unprocessable',
    message: 'body.top_p: must be below 1',
    providerCode: 'invalid_request_error',
  },
  {
    name: 'Mistral, flat',
    status: 429,
    body: {
      object: 'error',
      message: 'Capacity exceeded',
      type: 'service_tier_capacity_exceeded',
      param: null,
      code: '3505',
    },
    code: 'rate_limit_exceeded',
    message: 'Capacity exceeded',
    providerCode: 'service_tier_capacity_exceeded',
  },
  {
    name: 'validation list',
    status: 422,
    body: {
      detail: [
        { loc: ['body', 'messages', 0], msg: 'Field required', type: 'missing' },
        { loc: ['body'], msg: 'Bad' },
      ],
    },
    code: 'unprocessable',
    message: 'body.messages.0: Field required; body: Bad',
  },
  {
    name: 'detail as text',
    status: 401,
    body: { detail: 'Invalid token' },
    code: 'account_refused',
    message: 'Invalid token',
  },
  {
    name: 'Cerebras',
    status: 429,
    body: {
      message: 'Too many tokens',
      type: 'too_many_tokens_error',
      param: 'quota',
      code: 'token_quota_exceeded',
    },
    code: 'rate_limit_exceeded',
    message: 'Too many tokens',
    providerCode: 'token_quota_exceeded',
  },
  {
    name: 'Google: a list',
    status: 400,
    body: [{ error: { code: 400, message: 'Bad key', status: 'INVALID_ARGUMENT' } }],
    code: 'invalid_request',
    message: 'Bad key',
    providerCode: 'INVALID_ARGUMENT',
  },
  {
    name: 'a list of errors',
    status: 400,
    body: { errors: [{ message: 'One' }, { message: 'Two' }] },
    code: 'invalid_request',
    message: 'One; Two',
  },
  {
    name: 'overloaded',
    status: 529,
    body: { error: { message: 'Busy', type: 'overloaded_error' } },
    code: 'upstream_overloaded',
    message: 'Busy',
    providerCode: 'overloaded_error',
  },
  {
    name: 'unavailable',
    status: 503,
    body: { message: 'Loading model' },
    code: 'service_unavailable',
    message: 'Loading model',
  },
  {
    name: 'not our money',
    status: 402,
    body: {
      error: { message: 'Insufficient Balance', type: 'unknown_error', code: 'invalid_request_error' },
    },
    code: 'account_refused',
    message: 'Insufficient Balance',
    providerCode: 'invalid_request_error',
  },
  {
    name: 'plain text',
    status: 500,
    body: 'upstream connect error',
    code: 'provider_unavailable',
    message: 'upstream connect error',
  },
  {
    name: 'a JSON string',
    status: 400,
    body: '"no such thing"',
    code: 'invalid_request',
    message: 'no such thing',
  },
  {
    name: 'a page',
    status: 502,
    body: '<html><title>502</title></html>',
    code: 'provider_unavailable',
    message: NOTHING_TOLD,
  },
  { name: 'nothing', status: 504, body: '', code: 'upstream_timeout', message: NOTHING_TOLD },
  {
    name: 'broken JSON',
    status: 500,
    body: '{"error":{"mess',
    code: 'provider_unavailable',
    message: NOTHING_TOLD,
  },
  { name: 'an empty object', status: 413, body: {}, code: 'payload_too_large', message: NOTHING_TOLD },
  { name: 'null', status: 408, body: 'null', code: 'upstream_timeout', message: NOTHING_TOLD },
  { name: 'an empty list', status: 400, body: [], code: 'invalid_request', message: NOTHING_TOLD },
  {
    name: 'wrong types',
    status: 400,
    body: { error: { message: 7, code: {}, type: [] } },
    code: 'invalid_request',
    message: NOTHING_TOLD,
  },
]

t.test('every shape of error', async t => {
  for (const row of ROWS) {
    const body = typeof row.body === 'string' ? row.body : JSON.stringify(row.body)
    const failure = openaiChat.failure(row.status, body)
    t.same(
      { code: failure.code, message: failure.message, metadata: failure.metadata },
      {
        code: row.code,
        message: row.message,
        metadata: {
          provider_status: row.status,
          ...(row.providerCode === undefined ? {} : { provider_code: row.providerCode }),
        },
      },
      row.name,
    )
  }
})

t.test('a message is cut and tidied', async t => {
  const failure = openaiChat.failure(
    400,
    JSON.stringify({ error: { message: `a\nb\u0000${'x'.repeat(2000)}` } }),
  )
  t.ok(failure.message.length <= 501)
  t.ok(failure.message.startsWith('a b x'))
})

t.test('deeply nested details do not exhaust anything', async t => {
  let detail: unknown = 'end'
  for (let depth = 0; depth < 2000; depth++) detail = [{ msg: detail }]
  t.equal(openaiChat.failure(422, JSON.stringify({ detail })).code, 'unprocessable')
})

t.test('an error inside a stream has the status of its kind', async t => {
  const cases = [
    ['overloaded_error', 'upstream_overloaded', 529],
    ['rate_limit_error', 'rate_limit_exceeded', 429],
    ['authentication_error', 'account_refused', 401],
    ['invalid_request_error', 'invalid_request', 400],
  ] as const
  for (const [type, code, status] of cases) {
    const decoder = openaiChat.decoder(() => undefined)
    const frame = () => decoder.frame('', JSON.stringify({ error: { message: 'No', type } }))
    t.throws(frame, { code, metadata: { provider_status: status, provider_code: type } }, type)
  }
})
