import t from 'tap'
import { googleGemini } from '../../../src/formats/google-gemini.ts'

function body(error: Record<string, unknown>): string {
  return JSON.stringify({ error })
}

const retryInfo = (retryDelay: unknown) => ({
  '@type': 'type.googleapis.com/google.rpc.RetryInfo',
  retryDelay,
})

t.test('errors of the provider by status and body', async t => {
  const cases: readonly [status: number, body: string, expected: Record<string, unknown>][] = [
    [
      400,
      body({ code: 400, status: 'INVALID_ARGUMENT', message: 'Bad' }),
      { code: 'invalid_request', status: 400, message: 'Bad' },
    ],
    [
      400,
      body({ code: 400, status: 'FAILED_PRECONDITION', message: 'Not here' }),
      { code: 'invalid_request' },
    ],
    [
      400,
      body({
        code: 400,
        status: 'INVALID_ARGUMENT',
        message: 'The input token count (1200005) exceeds the maximum number of tokens allowed (1048576).',
      }),
      { code: 'context_length_exceeded', status: 400 },
    ],
    [
      400,
      body({
        code: 400,
        status: 'INVALID_ARGUMENT',
        message: 'API key not valid.',
        details: [{ reason: 'API_KEY_INVALID' }],
      }),
      {
        code: 'account_refused',
        status: 502,
        metadata: { provider_status: 400, provider_code: 'API_KEY_INVALID' },
      },
    ],
    [
      401,
      body({ code: 401, status: 'UNAUTHENTICATED' }),
      { code: 'account_refused', message: 'Provider returned error' },
    ],
    [
      403,
      body({ code: 403, status: 'PERMISSION_DENIED', message: 'No' }),
      { code: 'provider_unavailable', metadata: { provider_status: 403 } },
    ],
    [
      404,
      body({ code: 404, status: 'NOT_FOUND', message: 'No model' }),
      { code: 'provider_unavailable', status: 502 },
    ],
    [413, '', { code: 'payload_too_large', status: 413 }],
    [
      429,
      body({ code: 429, status: 'RESOURCE_EXHAUSTED', details: [retryInfo('34.4s')] }),
      { code: 'rate_limit_exceeded', status: 429, retryAfterSeconds: 35 },
    ],
    [
      429,
      body({ code: 429, details: [{}, 'x', retryInfo({ seconds: 7, nanos: 1 })] }),
      { retryAfterSeconds: 7 },
    ],
    [429, body({ code: 429, details: [retryInfo('999999999s')] }), { retryAfterSeconds: 86_400 }],
    [
      429,
      body({ code: 429, details: [retryInfo('soon'), retryInfo('-1s'), retryInfo(null)] }),
      { retryAfterSeconds: undefined },
    ],
    [
      500,
      body({ code: 500, status: 'INTERNAL', message: 'Oops' }),
      { code: 'provider_unavailable', status: 502 },
    ],
    [
      503,
      body({ code: 503, status: 'UNAVAILABLE', message: 'Overloaded' }),
      { code: 'service_unavailable', status: 503 },
    ],
    [504, body({ code: 504, status: 'DEADLINE_EXCEEDED' }), { code: 'upstream_timeout', status: 524 }],
    [529, '', { code: 'upstream_overloaded', status: 529 }],
    [
      429,
      `[${body({ code: 429, status: 'RESOURCE_EXHAUSTED', message: 'In a list' })}]`,
      { code: 'rate_limit_exceeded', message: 'In a list' },
    ],
    [
      502,
      '<!DOCTYPE html><title>Error 502</title>',
      { code: 'provider_unavailable', message: 'Provider returned error' },
    ],
    [400, 'Invalid\r\nrequest', { code: 'invalid_request', message: 'Invalid request' }],
    [400, '', { code: 'invalid_request', message: 'Provider returned error' }],
    [400, 'null', { code: 'invalid_request', message: 'Provider returned error' }],
    [400, '"text"', { code: 'invalid_request' }],
    [400, '[]', { code: 'invalid_request' }],
    [400, '{"error":"plain"}', { code: 'invalid_request', message: 'plain' }],
    [
      400,
      '{"error":{"message":{"a":1},"status":7,"details":7}}',
      { code: 'invalid_request', message: 'Provider returned error' },
    ],
  ]
  for (const [status, text, expected] of cases) {
    t.match(googleGemini.failure(status, text), expected, `${status} ${text.slice(0, 60)}`)
  }
})

t.test('a page of text never becomes a page of error', async t => {
  t.ok(googleGemini.failure(500, 'x'.repeat(100_000)).message.length <= 501)
})
