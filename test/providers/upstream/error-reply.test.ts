import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { providerFailure } from '../../../src/formats/failure.ts'
import { type Refusal, upstreamFailure } from '../../../src/providers/upstream/error-reply.ts'
import { TestClock } from '../../support/test-clock.ts'

const KEY = 'sk-proj-Ab3dEf6hIj9kLmN0pQrStUvWxYz'

/** Reads `{"error":{"message","code"}}`, as most formats do, and takes any other body as the message. */
const format: Refusal['format'] = {
  failure(status, body) {
    try {
      const { error } = JSON.parse(body) as { error: { message: string; code: string } }
      return providerFailure({ status, code: error.code ?? null, message: error.message })
    } catch {
      return providerFailure({ status, code: null, message: body })
    }
  },
}

function refuse(more: Partial<Refusal>): GatewayError {
  return upstreamFailure({
    format,
    status: 500,
    headers: {},
    body: '',
    secrets: [KEY],
    providerName: 'Example AI',
    keyOwner: "the gateway's key",
    clock: new TestClock(),
    ...more,
  })
}

t.test('a refusal names its provider and its status, in scrubbed text', t => {
  const error = refuse({
    status: 401,
    body: JSON.stringify({ error: { message: `Incorrect API key provided: ${KEY}`, code: `bad_${KEY}` } }),
  })
  t.equal(error.code, 'account_refused', "a refused key of ours is not the caller's 401")
  t.equal(error.message, "Example AI refused the gateway's key: Incorrect API key provided: [redacted]")
  t.same(error.metadata, {
    provider_status: 401,
    provider_code: 'bad_[redacted]',
    provider_name: 'Example AI',
  })
  t.notMatch(
    JSON.stringify([error.message, error.metadata, String(error.stack), error.cause]),
    KEY.slice(0, 16),
  )
  t.end()
})

t.test('the time to wait is told where waiting helps, and nowhere else', t => {
  const headers = { 'retry-after': '7' }
  for (const [status, seconds] of [
    [429, 7],
    [503, 7],
    [529, 7],
    [400, undefined],
    [401, undefined],
    [500, undefined],
    [504, undefined],
  ] as const) {
    t.equal(refuse({ status, headers }).retryAfterSeconds, seconds, `status ${status}`)
  }
  t.equal(refuse({ status: 429 }).retryAfterSeconds, undefined, 'none when the provider gave none')
  t.end()
})

t.test('what a format read from the body goes before the headers', t => {
  const told: Refusal['format'] = {
    failure: () => new GatewayError('rate_limit_exceeded', 'x', { retryAfterSeconds: 34 }),
  }
  t.equal(refuse({ format: told, status: 429, headers: { 'retry-after': '7' } }).retryAfterSeconds, 34)
  t.end()
})

t.test('odd statuses and bodies', t => {
  t.equal(refuse({ status: 302 }).code, 'provider_unavailable')
  t.equal(refuse({ status: 999 }).code, 'provider_unavailable')
  t.equal(refuse({ status: 0 }).code, 'provider_unavailable')
  t.equal(refuse({ status: 502, body: '\u0000<html>\r\n\r\nBad gateway' }).message, '<html> Bad gateway')
  t.equal(
    refuse({ status: 400, headers: { 'content-encoding': 'gzip' }, body: '\u001f\u008b\b\u0000' }).message,
    'Provider returned error',
  )
  t.end()
})

t.test('a format that throws costs the detail, not the answer', t => {
  const broken: Refusal['format'] = {
    failure() {
      throw new TypeError('a defect')
    },
  }
  const error = refuse({ format: broken, status: 429 })
  t.equal(error.code, 'rate_limit_exceeded')
  t.equal(error.message, 'Provider returned error')
  t.end()
})

t.test('metadata of any shape is scrubbed, keys of the prototype included', t => {
  const odd: Refusal['format'] = {
    failure: () =>
      new GatewayError('unprocessable', 'x', {
        metadata: {
          list: [KEY, { deep: KEY, n: 1, none: null }],
          deepest: { a: { b: { c: { d: KEY } } } },
          ...JSON.parse(`{"__proto__":"${KEY}"}`),
        },
      }),
  }
  const { metadata } = refuse({ format: odd })
  t.notMatch(JSON.stringify(metadata), 'Ab3dEf')
  t.same(metadata?.['list'], ['[redacted]', { deep: '[redacted]', n: 1, none: null }])
  t.equal(Object.getPrototypeOf(metadata), Object.prototype)
  t.end()
})
