/**
 * Decoding of the Responses format against goldens written by hand: one small reply for each peculiarity that is
 * known of its providers, with what it must become beside it.
 */
import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import type { Delta, Format } from '../../src/formats/format.ts'
import { openaiResponses } from '../../src/formats/openai-responses.ts'
import { decodeBody, decodeStream } from '../support/decode-reply.ts'
import { endpointOf } from '../support/endpoint.ts'
import { goldens } from '../support/goldens.ts'
import { arrivals } from '../support/recordings.ts'
import { collect } from './delta-items.ts'

type Json = Record<string, unknown>

interface Expectation {
  readonly start: unknown
  readonly items: readonly Json[]
  readonly progress: unknown
  readonly usage: unknown
  readonly finish: unknown
  readonly error?: { readonly code: string; readonly status: number; readonly message?: string }
}

const GOLDENS = goldens('openai-responses').map(golden => ({
  ...golden,
  expect: golden.expected as Expectation,
}))

/** The deltas of a golden, or what was thrown instead. */
function outcome(decode: () => Delta[]): Delta[] | GatewayError {
  try {
    return decode()
  } catch (thrown) {
    if (thrown instanceof GatewayError) return thrown
    throw thrown
  }
}

/** Nulls and empty lists say nothing; what is left must agree. */
function said(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(said)
  if (typeof value !== 'object' || value === null) return value
  const kept = Object.entries(value).filter(
    ([, one]) => one !== null && !(Array.isArray(one) && one.length === 0),
  )
  return Object.fromEntries(kept.map(([key, one]) => [key, said(one)]))
}

t.test('every golden becomes what is written beside it', async t => {
  for (const golden of GOLDENS) {
    await t.test(golden.name, async t => {
      const found = outcome(() =>
        golden.streamed
          ? decodeStream(openaiResponses, [golden.bytes])
          : decodeBody(openaiResponses, golden.bytes.toString('utf8')),
      )
      const { error } = golden.expect
      if (error !== undefined) {
        t.ok(found instanceof GatewayError, 'it fails')
        if (!(found instanceof GatewayError)) return
        t.equal(found.code, error.code)
        t.equal(found.status, error.status)
        if (error.message !== undefined) t.equal(found.message, error.message)
        return
      }
      if (found instanceof GatewayError) throw found
      const collected = collect(found)
      t.strictSame(said(collected.items), said(golden.expect.items), 'items')
      t.strictSame(collected.progress, golden.expect.progress, 'progress')
      t.strictSame(collected.usage, golden.expect.usage, 'usage')
      t.strictSame(collected.finish, golden.expect.finish, 'finish')
      t.strictSame(collected.start, golden.expect.start, 'start')
      t.equal(found.filter(delta => delta.kind === 'start').length, 1, 'one start')
      t.equal(found.at(-1)?.kind, 'finish', 'the finish is last')
    })
  }
  t.comment(`goldens: ${GOLDENS.length}`)
  t.ok(GOLDENS.length > 80)
})

t.test('how the bytes arrive and how lines end makes no difference', async t => {
  for (const golden of GOLDENS.filter(one => one.streamed)) {
    await t.test(golden.name, async t => {
      const whole = outcome(() => decodeStream(openaiResponses, [golden.bytes]))
      for (const eol of ['\n', '\r\n', '\r']) {
        const bytes = Buffer.from(golden.bytes.toString('utf8').replace(/\r?\n/g, eol))
        for (const { name, chunks } of arrivals(bytes)) {
          const found = outcome(() => decodeStream(openaiResponses, chunks))
          if (whole instanceof GatewayError)
            t.match(found, { code: whole.code, message: whole.message }, `${JSON.stringify(eol)} ${name}`)
          else t.strictSame(found, whole, `${JSON.stringify(eol)} ${name}`)
        }
      }
    })
  }
})

t.test('a stream cut at any frame before its terminal event fails at the end', async t => {
  let cuts = 0
  for (const golden of GOLDENS.filter(one => one.streamed && one.expect.error === undefined)) {
    const frames = golden.bytes.toString('utf8').split(/(?<=\n\r?\n)/)
    const terminal = frames.findIndex(
      frame => /response\.(completed|incomplete|done)\b/.test(frame) || /"status": "completed"/.test(frame),
    )
    t.ok(terminal >= 0, `${golden.name} has a terminal event`)
    for (let cut = 0; cut <= terminal; cut++) {
      const bytes = Buffer.from(frames.slice(0, cut).join(''))
      for (const tail of ['', 'data: [DONE]\n\n', ': keep-alive\n\n']) {
        t.throws(
          () => decodeStream(openaiResponses, [bytes, Buffer.from(tail)]),
          { code: 'provider_unavailable' },
          `${golden.name} after ${cut} frames ${tail.trim()}`,
        )
        cuts++
      }
    }
  }
  t.comment(`cuts refused: ${cuts}`)
})

t.test('own keys named __proto__ reach no item', async t => {
  const hostile = GOLDENS.find(one => one.name === 'hostile-shapes')
  const deltas = decodeStream(openaiResponses, [hostile?.bytes ?? Buffer.alloc(0)])
  for (const delta of deltas) {
    if (delta.kind === 'close') t.notOk(Object.hasOwn(delta.fields ?? {}, '__proto__'))
  }
  t.equal((Object.prototype as Json)['polluted'], undefined)
})

t.test('reasoning that names no origin is named after the provider of the endpoint', async t => {
  const body = JSON.stringify({
    object: 'response',
    status: 'completed',
    output: [
      { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'sealed' },
      { type: 'reasoning', id: 'rs_2', summary: [], encrypted_content: 'sealed', format: 'google-gemini-v1' },
      { type: 'reasoning', id: 'rs_3', summary: [], encrypted_content: 'sealed', format: 'nobody-v9' },
    ],
  })
  const formats = (slug: string | null): unknown[] => {
    const deltas: Delta[] = []
    const emit = (delta: Delta): number => deltas.push(delta)
    const decoder =
      slug === null
        ? openaiResponses.decoder(emit)
        : openaiResponses.decoder(emit, endpointOf('openai-responses', { slug }))
    decoder.frame('', body)
    decoder.end()
    return collect(deltas).items.map(item => item['format'])
  }
  t.strictSame(formats('xai'), ['xai-responses-v1', 'google-gemini-v1', 'xai-responses-v1'])
  t.strictSame(formats('azure'), [
    'azure-openai-responses-v1',
    'google-gemini-v1',
    'azure-openai-responses-v1',
  ])
  t.strictSame(formats('acme'), [null, 'google-gemini-v1', null])
  t.strictSame(formats(null), [null, 'google-gemini-v1', null])
})

t.test('what an error reply means', async t => {
  const format: Format = openaiResponses
  const cases: readonly (readonly [string, number, string, string, number, string])[] = [
    [
      'the usual envelope',
      400,
      '{"error":{"message":"Bad tool","type":"invalid_request_error","param":"tools","code":null}}',
      'invalid_request',
      400,
      'Bad tool',
    ],
    [
      'a code that says more',
      400,
      '{"error":{"message":"Too long","type":"invalid_request_error","code":"context_length_exceeded"}}',
      'context_length_exceeded',
      400,
      'Too long',
    ],
    [
      'an image that is none',
      400,
      '{"error":{"message":"Bad image","type":"invalid_request_error","code":"image_parse_error"}}',
      'invalid_image',
      400,
      'Bad image',
    ],
    [
      'our key refused',
      401,
      '{"error":{"message":"Incorrect API key","code":"invalid_api_key"}}',
      'account_refused',
      502,
      'Incorrect API key',
    ],
    [
      'our account empty',
      402,
      '{"error":{"message":"No credits","code":402}}',
      'account_refused',
      502,
      'No credits',
    ],
    [
      'a detail alone',
      401,
      '{"detail":"Could not parse your token"}',
      'account_refused',
      502,
      'Could not parse your token',
    ],
    [
      'a list of details',
      422,
      '{"detail":[{"loc":["body"],"msg":"field required","type":"missing"}]}',
      'unprocessable',
      422,
      'field required',
    ],
    [
      'strings for error and code',
      400,
      '{"code":"invalid-argument","error":"Model not found: x"}',
      'invalid_request',
      400,
      'Model not found: x',
    ],
    [
      'a filter one level deeper',
      400,
      '{"error":{"message":"Filtered","code":"bad_request","innererror":{"code":"ResponsibleAIPolicyViolation"}}}',
      'content_policy_violation',
      400,
      'Filtered',
    ],
    [
      'a filter by its code',
      400,
      '{"error":{"message":"Filtered","code":"content_filter","status":400}}',
      'content_policy_violation',
      400,
      'Filtered',
    ],
    [
      'a bare message',
      429,
      '{"message":"Too many tokens, please wait"}',
      'rate_limit_exceeded',
      429,
      'Too many tokens, please wait',
    ],
    [
      'a message with a class',
      400,
      '{"__type":"ValidationException","Message":"Bad input"}',
      'invalid_request',
      400,
      'Bad input',
    ],
    [
      'a gateway of theirs',
      401,
      '{"statusCode":401,"message":"Access denied due to invalid subscription key"}',
      'account_refused',
      502,
      'Access denied due to invalid subscription key',
    ],
    [
      'rate limit',
      429,
      '{"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}',
      'rate_limit_exceeded',
      429,
      'Rate limit reached',
    ],
    [
      'their fault',
      500,
      '{"error":{"message":"The server had an error","type":"server_error","code":null}}',
      'provider_unavailable',
      502,
      'The server had an error',
    ],
    ['away', 503, 'upstream connect error', 'service_unavailable', 503, 'upstream connect error'],
    ['their gateway timed out', 504, '', 'upstream_timeout', 524, 'Provider returned error'],
    ['overloaded', 529, '{"error":{"message":"Overloaded"}}', 'upstream_overloaded', 529, 'Overloaded'],
    [
      'too large',
      413,
      '<html><head><title>413</title></head></html>',
      'payload_too_large',
      413,
      'Provider returned error',
    ],
    [
      'a page',
      502,
      '  <!DOCTYPE html><html>secret</html>',
      'provider_unavailable',
      502,
      'Provider returned error',
    ],
    ['an odd status', 418, '"teapot"', 'invalid_request', 400, 'teapot'],
    ['a redirect', 302, '', 'provider_unavailable', 502, 'Provider returned error'],
    ['null', 400, 'null', 'invalid_request', 400, 'Provider returned error'],
    ['a number', 500, '7', 'provider_unavailable', 502, 'Provider returned error'],
    ['broken JSON', 400, '{"error":', 'invalid_request', 400, '{"error":'],
    ['control characters', 400, '{"error":{"message":"a\\u0000\\r\\nb"}}', 'invalid_request', 400, 'a b'],
  ]
  for (const [name, status, body, code, ours, message] of cases) {
    const error = format.failure(status, body)
    t.match(error, { code, status: ours, message }, name)
    t.equal(
      error.metadata?.['provider_status'],
      status >= 400 ? status : undefined,
      `${name}: the provider's status`,
    )
  }
  t.ok(format.failure(400, JSON.stringify({ error: { message: 'x'.repeat(5000) } })).message.length <= 501)
  t.equal(format.failure(500, `${'['.repeat(200_000)}`).status, 502, 'deep nesting')
})

t.test('framing follows the request', async t => {
  t.equal(openaiResponses.framing(true), 'sse')
  t.equal(openaiResponses.framing(false), 'json')
})

const REPLY = {
  id: 'resp_1',
  object: 'response',
  status: 'completed',
  model: 'm-1',
  output: [
    { id: 'msg_1', role: 'assistant', content: [{ type: 'output_text', text: 'some', annotations: [] }] },
  ],
}

t.test('an item without a type is a message by its role', t => {
  const deltas = decodeBody(openaiResponses, JSON.stringify(REPLY))
  t.match(collect(deltas).items, [{ type: 'message', content: [{ text: 'some' }] }])
  t.end()
})

t.test('every name for a reply that met its limit means length', t => {
  for (const reason of ['max_output_tokens', 'max_tokens']) {
    const cut = { ...REPLY, status: 'incomplete', incomplete_details: { reason } }
    const deltas = decodeBody(openaiResponses, JSON.stringify(cut))
    t.match(
      deltas.find(delta => delta.kind === 'finish'),
      { reason: 'length', native: reason },
    )
  }
  t.end()
})
