/** The guard of requests: what it reads, where it evaluates, what happens when it cannot. */
import t from 'tap'
import { systemClock } from '../../src/clock.ts'
import { GatewayError } from '../../src/errors.ts'
import type { Exchange } from '../../src/exchange.ts'
import { createGuard, type Guard, prepareGuardrail } from '../../src/gateway/guard.ts'
import type { GuardTasks } from '../../src/gateway/guard-evaluate.ts'
import { textsOf, withTexts } from '../../src/gateway/guard-texts.ts'
import { createMetrics } from '../../src/metrics.ts'
import { parseResponsesRequest } from '../../src/protocol/request.ts'
import {
  type AppliedGuardrail,
  defaultGuardrail,
  type GuardrailRecord,
} from '../../src/storage/guardrails.ts'
import { TaskError } from '../../src/tasks/failure.ts'
import { createTaskPool } from '../../src/tasks/pool.ts'
import { scriptedExchange } from '../support/scripted-attempt.ts'

const WHEN = '2026-01-01T00:00:00.000Z'
const EMAIL = { slug: 'email', action: 'redact', scanScope: 'all_messages' } as const
/** More than is looked at on a serve thread. */
const LONG = 'words and more words '.repeat(20_000)

function applied(id: string, rules: Partial<GuardrailRecord>): AppliedGuardrail {
  const guardrail = defaultGuardrail({ organizationId: 'o', id, createdAt: WHEN })
  return { scope: 'workspace', guardrail: { ...guardrail, ...rules } }
}

function guardOf(guardrails: readonly AppliedGuardrail[], tasks: GuardTasks) {
  const metrics = createMetrics()
  const prepared = prepareGuardrail(guardrails)
  const guard = createGuard({ guardrails: { of: () => prepared }, tasks, metrics })
  const decisions = async () =>
    (await metrics.guardrailDecisions.get()).values.map(
      ({ labels }) => `${labels.guardrail} ${labels.action}`,
    )
  return { guard, decisions }
}

const failing = (outcome: ConstructorParameters<typeof TaskError>[0]): GuardTasks => ({
  run: () => Promise.reject(new TaskError(outcome)),
})
const NOBODY: GuardTasks = {
  run: () => {
    throw new Error('the pool was asked')
  },
}

async function refusal(guard: Guard, exchange: Exchange): Promise<GatewayError> {
  try {
    await guard.request(exchange)
  } catch (error) {
    if (error instanceof GatewayError) return error
    throw error
  }
  throw new Error('was not refused')
}

t.test('a caller whom nothing guards is let through at once', async t => {
  const { guard } = guardOf([applied('w', {})], NOBODY)
  t.equal(guard.request(scriptedExchange()), null)
})

t.test('a short request is looked at here and now, a long one in the pool, with the same result', async t => {
  const metrics = createMetrics()
  const pool = createTaskPool({ threads: 1, clock: systemClock, metrics })
  t.teardown(() => pool.close())
  const rules = [applied('w', { contentFilterBuiltins: [EMAIL] })]
  const short = scriptedExchange({ input: 'Mail a@example.com now' })
  t.notOk(guardOf(rules, NOBODY).guard.request(short) instanceof Promise)
  t.equal(short.prompt.input, 'Mail [EMAIL] now')
  t.equal(short.request.input, 'Mail a@example.com now', 'the request stays as it was asked')
  const long = scriptedExchange({ input: `${LONG}Mail a@example.com now` })
  const looked = guardOf(rules, pool).guard.request(long)
  t.ok(looked instanceof Promise)
  await looked
  t.equal(long.prompt.input, `${LONG}Mail [EMAIL] now`)
  t.match(long.pipeline, [{ data: { action: 'redacted', patterns: short.pipeline[0]?.data?.['patterns'] } }])
})

for (const outcome of ['overloaded', 'timeout', 'crashed', 'failed'] as const) {
  t.test(`where the pool is ${outcome}, each guardrail says what becomes of the request`, async t => {
    const rules = (failMode: 'open' | 'closed') => ({ contentFilterBuiltins: [EMAIL], failMode })
    const open = guardOf([applied('a', rules('open'))], failing(outcome))
    const passed = scriptedExchange({ input: LONG })
    await open.guard.request(passed)
    t.match(passed.pipeline, [{ guardrail_scope: 'workspace', data: { detected: false } }])
    t.same(await open.decisions(), ['all passed_unchecked'])
    const both = guardOf([applied('a', rules('open')), applied('b', rules('closed'))], failing(outcome))
    const error = await refusal(both.guard, scriptedExchange({ input: LONG }))
    t.match(error, { code: 'guardrail_unavailable', status: 503, retryAfterSeconds: 1, retry: 'never' })
    t.match(error.message, 'Workspace b Default')
    t.same(await both.decisions(), ['all refused_unchecked'])
  })
}

t.test('a client that leaves while the pool is at work is told nothing of guardrails', async t => {
  const leaving = new AbortController()
  const tasks: GuardTasks = {
    run: (_, __, { signal }) =>
      new Promise((_, reject) => signal?.addEventListener('abort', () => reject(new TaskError('cancelled')))),
  }
  const { guard, decisions } = guardOf([applied('w', { contentFilterBuiltins: [EMAIL] })], tasks)
  const exchange = { ...scriptedExchange({ input: LONG }), signal: leaving.signal }
  const refused = refusal(guard, exchange)
  leaving.abort(new GatewayError('client_closed', 'gone'))
  t.equal((await refused).code, 'client_closed')
  t.same(await decisions(), [])
})

t.test('rules that cannot be compiled count as rules that cannot be evaluated', async t => {
  const { guard } = guardOf(
    [applied('w', { contentFilters: [{ pattern: '(', action: 'flag', label: null }] })],
    NOBODY,
  )
  t.equal((await refusal(guard, scriptedExchange({ input: 'x' }))).code, 'guardrail_unavailable')
})

t.test('of several guardrails the strictest action counts, and each match is told as its own', async t => {
  const word = (pattern: string, action: 'flag' | 'redact' | 'block') => ({
    contentFilters: [{ pattern, action, label: `${pattern} label` }],
  })
  const { guard } = guardOf(
    [applied('a', word('alpha', 'flag')), applied('b', word('beta', 'redact'))],
    NOBODY,
  )
  const exchange = scriptedExchange({ input: 'alpha beta gamma' })
  await guard.request(exchange)
  t.equal(exchange.prompt.input, 'alpha beta label gamma')
  t.match(exchange.pipeline, [
    { data: { action: 'flagged', patterns: ['alpha label'] } },
    { data: { action: 'redacted', patterns: ['beta label'] } },
  ])
  t.not(exchange.pipeline[0]?.guardrail_id, exchange.pipeline[1]?.guardrail_id)
  const stricter = guardOf(
    [applied('a', word('alpha', 'flag')), applied('b', word('alpha', 'block'))],
    NOBODY,
  )
  const error = await refusal(stricter.guard, scriptedExchange({ input: 'alpha' }))
  t.equal(error.message, 'Request blocked by content filter: alpha label')
  t.same(error.metadata, { patterns: ['alpha label'] })
})

t.test('every text of a request is found, and only texts are', async t => {
  const request = parseResponsesRequest({
    model: 'm/x',
    instructions: 'i0',
    input: [
      {
        role: 'user',
        content: [
          { type: 'input_text', text: 'u1' },
          { type: 'input_image', image_url: 'https://no/1' },
        ],
      },
      {
        role: 'assistant',
        content: [
          { type: 'output_text', text: 'a2', annotations: [] },
          { type: 'refusal', refusal: 'a3' },
        ],
      },
      {
        type: 'reasoning',
        id: 'no',
        summary: [{ type: 'summary_text', text: 'r4' }],
        encrypted_content: 'no',
      },
      { type: 'custom_tool_call', call_id: 'no', name: 'no', input: 'c5' },
      { type: 'custom_tool_call_output', call_id: 'no', output: [{ type: 'input_text', text: 'o6' }] },
      {
        type: 'apply_patch_call',
        call_id: 'no',
        status: 'completed',
        operation: { type: 'create_file', path: 'p7', diff: 'd8' },
      },
    ],
  })
  const texts = textsOf(request)
  t.same(
    texts.map(({ text, who }) => `${text} ${who}`),
    [
      'i0 other',
      'u1 user',
      'a2 other',
      'a3 other',
      'r4 other',
      'c5 other',
      'o6 other',
      'p7 other',
      'd8 other',
    ],
  )
  t.equal(
    withTexts(
      request,
      texts.map(({ text }) => text),
    ),
    request,
    'what does not change is not copied',
  )
  const changed = withTexts(
    request,
    texts.map(({ text }) => `<${text}>`),
  )
  t.same(
    textsOf(changed).map(({ text }) => text),
    texts.map(({ text }) => `<${text}>`),
  )
  t.match(JSON.stringify(changed), 'https://no/1')
  t.same(textsOf(request), texts, 'the request itself stays')
})
