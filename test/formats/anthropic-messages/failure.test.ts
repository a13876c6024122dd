import t from 'tap'
import type { FailureCode } from '../../../src/base/errors.ts'
import { anthropicMessages } from '../../../src/formats/anthropic-messages.ts'

interface Case {
  readonly name: string
  readonly status: number
  readonly body: string
  readonly code: FailureCode
  readonly message: string
  readonly providerCode?: string
}

function envelope(type: string, message: string): string {
  return JSON.stringify({ type: 'error', error: { type, message }, request_id: 'req_1' })
}

const NOTHING_SAID = 'Provider returned error'

const CASES: readonly Case[] = [
  ...(
    [
      [400, 'invalid_request_error', 'invalid_request'],
      [401, 'authentication_error', 'account_refused'],
      [402, 'billing_error', 'account_refused'],
      [403, 'permission_error', 'provider_unavailable'],
      [404, 'not_found_error', 'provider_unavailable'],
      [413, 'request_too_large', 'payload_too_large'],
      [429, 'rate_limit_error', 'rate_limit_exceeded'],
      [500, 'api_error', 'provider_unavailable'],
      [504, 'timeout_error', 'upstream_timeout'],
      [529, 'overloaded_error', 'upstream_overloaded'],
    ] as const
  ).map(([status, type, code]) => ({
    name: `the API's own ${type}`,
    status,
    body: envelope(type, 'Because.'),
    code,
    message: 'Because.',
    providerCode: type,
  })),
  {
    name: 'a prompt that is too long',
    status: 400,
    body: envelope('invalid_request_error', 'prompt is too long: 210000 tokens > 200000 maximum'),
    code: 'context_length_exceeded',
    message: 'prompt is too long: 210000 tokens > 200000 maximum',
  },
  {
    name: 'a prompt that leaves no room for the reply',
    status: 400,
    body: envelope(
      'invalid_request_error',
      'input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000',
    ),
    code: 'context_length_exceeded',
    message: 'input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000',
  },
  {
    name: 'the cloud in front: its envelope',
    status: 429,
    body: JSON.stringify({ error: { code: 429, message: 'Quota exceeded', status: 'RESOURCE_EXHAUSTED' } }),
    code: 'rate_limit_exceeded',
    message: 'Quota exceeded',
    providerCode: 'RESOURCE_EXHAUSTED',
  },
  {
    name: 'the cloud in front: a list of errors',
    status: 403,
    body: JSON.stringify([
      { error: { code: 403, message: 'Permission denied', status: 'PERMISSION_DENIED' } },
    ]),
    code: 'provider_unavailable',
    message: 'Permission denied',
    providerCode: 'PERMISSION_DENIED',
  },
  {
    name: 'a bare message',
    status: 400,
    body: '{"message":"Malformed input"}',
    code: 'invalid_request',
    message: 'Malformed input',
  },
  {
    name: 'a detail',
    status: 422,
    body: '{"detail":"No such field"}',
    code: 'unprocessable',
    message: 'No such field',
  },
  {
    name: 'an error that is a text',
    status: 503,
    body: '{"error":"draining"}',
    code: 'service_unavailable',
    message: 'draining',
  },
  {
    name: 'plain text',
    status: 502,
    body: 'upstream connect error',
    code: 'provider_unavailable',
    message: 'upstream connect error',
  },
  {
    name: 'a JSON text',
    status: 502,
    body: '"bad gateway"',
    code: 'provider_unavailable',
    message: 'bad gateway',
  },
  {
    name: 'HTML',
    status: 524,
    body: '<!DOCTYPE html><html><body>A timeout occurred</body></html>',
    code: 'upstream_timeout',
    message: NOTHING_SAID,
  },
  { name: 'nothing', status: 529, body: '', code: 'upstream_overloaded', message: NOTHING_SAID },
  {
    name: 'JSON of wrong types',
    status: 500,
    body: '{"type":7,"error":{"type":[],"message":{}}}',
    code: 'provider_unavailable',
    message: NOTHING_SAID,
  },
  { name: 'a JSON null', status: 408, body: 'null', code: 'upstream_timeout', message: 'null' },
  { name: 'a redirect', status: 302, body: '', code: 'provider_unavailable', message: NOTHING_SAID },
]

t.test('error replies', async t => {
  for (const { name, status, body, code, message, providerCode } of CASES) {
    const error = anthropicMessages.failure(status, body)
    t.equal(error.code, code, `${name}: code`)
    t.equal(error.message, message, `${name}: message`)
    t.equal(error.metadata?.['provider_status'], status, `${name}: the provider's status`)
    if (providerCode !== undefined)
      t.equal(error.metadata?.['provider_code'], providerCode, `${name}: its code`)
    t.not(error.status, 500, `${name}: never our own failure`)
  }
})

t.test('a long message is cut', async t => {
  const error = anthropicMessages.failure(400, envelope('invalid_request_error', 'x'.repeat(100_000)))
  t.equal(error.message.length, 2_001)
})
