/** Whose fault an error of a provider is: the same words mean the same in every format, whatever the status. */
import t from 'tap'
import { FAILURES } from '../../src/base/errors.ts'
import { providerFailure, waitIn } from '../../src/formats/failure.ts'
import { FORMATS } from '../../src/formats/table.ts'

/** Errors as providers have sent them: status, code or type, words, and whose fault it is. */
const ERRORS = [
  [
    400,
    'invalid_request_error',
    'Your credit balance is too low to access the Anthropic API.',
    'account_refused',
  ],
  [400, null, 'Incorrect API key provided: xa***zz.', 'account_refused'],
  [400, 'billing_hard_limit_reached', 'Billing hard limit has been reached', 'account_refused'],
  [400, 'Arrearage', 'Access denied, please make sure your account is in good standing.', 'account_refused'],
  [400, null, 'User location is not supported for the API use.', 'account_refused'],
  [
    403,
    'unsupported_country_region_territory',
    'Country, region, or territory not supported',
    'account_refused',
  ],
  [403, null, 'Your account has been suspended', 'account_refused'],
  [429, 'insufficient_quota', 'You exceeded your current quota, please check your plan.', 'account_refused'],
  [401, null, 'No', 'account_refused'],
  [402, null, 'Insufficient Balance', 'account_refused'],
  [
    403,
    null,
    'Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO',
    'content_policy_violation',
  ],
  [403, null, 'Input was flagged by moderation', 'content_policy_violation'],
  [400, null, 'Your request was rejected as a result of our safety system.', 'content_policy_violation'],
  [
    400,
    'content_filter',
    "The response was filtered due to Azure's content management policy",
    'content_policy_violation',
  ],
  [
    400,
    'data_inspection_failed',
    'Input data may contain inappropriate content.',
    'content_policy_violation',
  ],
  [400, null, "This model's maximum context length is 8192 tokens", 'context_length_exceeded'],
  [500, null, 'the request exceeds the available context size', 'context_length_exceeded'],
  [429, 'rate_limit_exceeded', 'Rate limit reached for requests', 'rate_limit_exceeded'],
  [
    429,
    'RESOURCE_EXHAUSTED',
    'You exceeded your current quota, please check your plan and billing details.',
    'rate_limit_exceeded',
  ],
  [403, 'permission_error', 'You may not use this model', 'provider_unavailable'],
  [
    400,
    'invalid_request_error',
    "tools[0].function.name: the name 'billing' is not valid",
    'invalid_request',
  ],
  [400, null, "tools[0].name: 'credit balance is too low' is no valid name", 'invalid_request'],
  [400, null, `messages[0]: ${'x'.repeat(200)} incorrect api key`, 'invalid_request'],
  [400, null, 'messages: the role "moderation" is unknown', 'invalid_request'],
  [404, null, 'The model does not exist', 'provider_unavailable'],
] as const

t.test('words and codes decide before the status', async t => {
  for (const [status, code, message, expected] of ERRORS)
    t.equal(providerFailure({ status, code, message }).code, expected, `${status} ${message}`)
})

t.test('every format reads the same faults', async t => {
  for (const [name, format] of Object.entries(FORMATS)) {
    for (const [status, code, message, expected] of ERRORS) {
      const failure = format.failure(status, JSON.stringify({ error: { message, type: code, code } }))
      // Converse names the kind in a header or an event, and its words are at the top of the body.
      if (name === 'bedrock-converse') continue
      t.equal(failure.code, expected, `${name}: ${status} ${message}`)
    }
  }
})

t.test(
  'a refused account rests its endpoint and asks the next one; content and bounds of the gateway ask nobody',
  async t => {
    t.match(FAILURES.account_refused, { retry: 'endpoint', health: 'failed', status: 502 })
    t.match(FAILURES.credential_refused, { retry: 'endpoint', health: 'failed', status: 400 })
    t.notOk('health' in FAILURES.content_policy_violation)
    t.notOk('health' in FAILURES.reply_too_large)
    t.equal(FAILURES.reply_too_large.retry, 'never')
  },
)

t.test('the time to wait is found in details and in words', async t => {
  const detail = (fields: object): object => ({ message: 'quota', details: [fields] })
  const cases: readonly (readonly [object, number | null])[] = [
    [detail({ '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '20s' }), 20],
    [detail({ retryDelay: { seconds: 7 } }), 7],
    [detail({ metadata: { quotaResetDelay: '39373.8ms' } }), 40],
    [detail({ retryDelay: '999999999s' }), 86_400],
    [{ message: 'Please try again in 6m0s. Visit the page for more.' }, 360],
    [{ message: 'Your quota will reset after 39s.' }, 39],
    [{ message: 'Try again in 20ms' }, 1],
    [{ message: 'try again in a while' }, null],
    [detail({ retryDelay: 'soon' }), null],
    [{ details: 7 }, null],
  ]
  for (const [error, expected] of cases)
    t.equal(waitIn(error as Readonly<Record<string, unknown>>), expected, JSON.stringify(error))
})
