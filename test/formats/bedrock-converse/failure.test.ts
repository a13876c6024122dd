import t from 'tap'
import { bedrockConverse } from '../../../src/formats/bedrock-converse.ts'

const outcome = (status: number, body: string) => {
  const { code, message, metadata } = bedrockConverse.failure(status, body)
  return { code, message, provider: metadata?.['provider_code'] ?? null }
}

t.test('an error has the code of its status, and the words of its message', async t => {
  const cases: readonly (readonly [status: number, body: string, code: string, message: string])[] = [
    [400, '{"message":"Malformed input request"}', 'invalid_request', 'Malformed input request'],
    [
      400,
      '{"message":"Input is too long for requested model."}',
      'context_length_exceeded',
      'Input is too long for requested model.',
    ],
    [403, '{"Message":"User is not authorized"}', 'provider_unavailable', 'User is not authorized'],
    [
      404,
      '{"message":"Could not resolve the foundation model"}',
      'provider_unavailable',
      'Could not resolve the foundation model',
    ],
    [408, '{"message":"The model timed out"}', 'upstream_timeout', 'The model timed out'],
    [424, '{"message":"The model failed"}', 'provider_unavailable', 'The model failed'],
    [429, '{"message":"Too many requests"}', 'rate_limit_exceeded', 'Too many requests'],
    [500, '', 'provider_unavailable', 'Provider returned error'],
    [503, '<html>busy</html>', 'service_unavailable', 'Provider returned error'],
    [400, 'plain words', 'invalid_request', 'plain words'],
  ]
  for (const [status, body, code, message] of cases) {
    t.match(outcome(status, body), { code, message }, `${status} ${body}`)
  }
})

t.test('the type of an exception is told without its addresses', async t => {
  const type = 'com.amazon.coral.service#ValidationException:http://internal.amazon.com/coral'
  t.equal(outcome(400, JSON.stringify({ __type: type, message: 'no' })).provider, 'ValidationException')
})
