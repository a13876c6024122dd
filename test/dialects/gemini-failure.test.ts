/** Failures as Google's clients read them: the word of the status, when to come again, and limits of a day. */
import t from 'tap'
import { FAILURES, type FailureCode, GatewayError } from '../../src/base/errors.ts'
import { googleGemini } from '../../src/formats/google-gemini.ts'
import { gemini } from '../support/dialects.ts'

const told = (error: GatewayError) =>
  gemini.failure(error, { id: 'gen-1', metadata: null, usage: null, request: null }) as {
    error: { code: number; status: string; message: string; details: Record<string, unknown>[] }
  }
const detail = (error: GatewayError, type: string) =>
  told(error).error.details.find(each => each['@type'] === `type.googleapis.com/google.rpc.${type}`)

t.test('every failure has the word for its status', async t => {
  const words: Readonly<Record<number, string>> = {
    400: 'INVALID_ARGUMENT',
    401: 'UNAUTHENTICATED',
    402: 'PERMISSION_DENIED',
    403: 'PERMISSION_DENIED',
    404: 'NOT_FOUND',
    408: 'DEADLINE_EXCEEDED',
    413: 'INVALID_ARGUMENT',
    422: 'INVALID_ARGUMENT',
    429: 'RESOURCE_EXHAUSTED',
    500: 'INTERNAL',
    502: 'UNAVAILABLE',
    503: 'UNAVAILABLE',
    524: 'DEADLINE_EXCEEDED',
    529: 'UNAVAILABLE',
  }
  const seen = new Set<number>()
  for (const code of Object.keys(FAILURES) as FailureCode[]) {
    const { error } = told(new GatewayError(code, 'model: is missing'))
    t.equal(error.code, FAILURES[code].status)
    t.match(error.status, /^[A-Z_]+$/)
    const word = words[error.code]
    if (word !== undefined) t.equal(error.status, word, code)
    seen.add(error.code)
  }
  for (const status of Object.keys(words)) t.ok(seen.has(Number(status)), status)
})

t.test('a wait is told in seconds, and a field by its path', async t => {
  const limited = new GatewayError('rate_limit_exceeded', 'Too many', { retryAfterSeconds: 11.2 })
  t.match(detail(limited, 'RetryInfo'), { retryDelay: '12s' })
  t.equal(detail(limited, 'QuotaFailure'), undefined)
  const refused = new GatewayError('invalid_request', 'contents: is required')
  t.match(detail(refused, 'BadRequest'), { fieldViolations: [{ field: 'contents' }] })
  t.match(told(new GatewayError('internal', 'secret')).error.message, 'Internal Server Error')
})

t.test('a limit of a day says so, ours and that of a provider', async t => {
  const spent = new GatewayError('payment_required', 'Spent', { metadata: { limit_window: 'day' } })
  t.match(detail(spent, 'QuotaFailure'), { violations: [{ quotaId: /PerDay/ }] })
  const body = (quotaId: string) =>
    JSON.stringify({
      error: {
        code: 429,
        status: 'RESOURCE_EXHAUSTED',
        message: 'Quota exceeded',
        details: [{ '@type': 'type.googleapis.com/google.rpc.QuotaFailure', violations: [{ quotaId }] }],
      },
    })
  const ofDay = googleGemini.failure(429, body('GenerateRequestsPerDayPerProjectPerModel'))
  t.match(detail(ofDay, 'QuotaFailure'), { violations: [{ quotaId: /PerDay/ }] })
  const ofMinute = googleGemini.failure(429, body('GenerateRequestsPerMinutePerProjectPerModel'))
  t.equal(detail(ofMinute, 'QuotaFailure'), undefined)
})

t.test('a prompt that a provider blocked is an answer, and nothing else is', async t => {
  const details = { id: 'gen-1', metadata: null, usage: null, request: null }
  const blocked = new GatewayError('content_policy_violation', 'The provider blocked the prompt', {
    metadata: { provider_code: 'PROHIBITED_CONTENT' },
  })
  t.match(gemini.answerInstead?.(blocked, details), { promptFeedback: { blockReason: 'PROHIBITED_CONTENT' } })
  t.equal(gemini.answerInstead?.(new GatewayError('invalid_request', 'x'), details), null)
})
