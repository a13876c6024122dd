/** The guard of requests: what it reads, where it evaluates, what happens when it cannot. */
import t, { type Test } from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { createMetrics, type Metrics } from '../../../src/base/metrics/metrics.ts'
import type { Exchange } from '../../../src/exchange/exchange.ts'
import { textsOf, withTexts } from '../../../src/features/guardrails/texts/request-texts.ts'
import { createTaskPool } from '../../../src/features/tasks/pool/pool.ts'
import { TaskError } from '../../../src/features/tasks/task.ts'
import { CompiledRules } from '../../../src/pipeline/guard/compiled-rules.ts'
import type { GuardTasks } from '../../../src/pipeline/guard/evaluate.ts'
import { createGuard, type Guard, prepareGuardrail } from '../../../src/pipeline/guard/guard.ts'
import { FILTERS_MAX_ITEMS } from '../../../src/protocol/limits.ts'
import type { GuardrailRecord } from '../../../src/protocol/management/guardrails.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'
import { type AppliedGuardrail, defaultGuardrail } from '../../../src/storage/guardrails.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { scriptedExchange } from '../../support/scripted-attempt.ts'
import { TestClock } from '../../support/test-clock.ts'

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

/** Its deadlines are those of a clock that stands still: a worker may take what time it needs. */
function newPool(t: Test, metrics: Metrics): GuardTasks {
  const pool = createTaskPool({ threads: 1, clock: new TestClock(), metrics })
  t.teardown(() => pool.close())
  return pool
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
  const pool = newPool(t, metrics)
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

t.test('where the pool fails, an open guardrail still does what can be found at once', async t => {
  const contentFilters = Array.from({ length: 9 }, (_, n) => ({
    pattern: `${'y'.repeat(500)}${n}`,
    action: 'flag' as const,
    label: null,
  }))
  const rules = (action: 'redact' | 'block') => ({
    contentFilterBuiltins: [{ ...EMAIL, action }],
    contentFilters,
    failMode: 'open' as const,
  })
  for (const mails of [1, 70]) {
    const { guard, decisions } = guardOf([applied('w', rules('redact'))], failing('overloaded'))
    const exchange = scriptedExchange({ input: 'a@example.com '.repeat(mails) })
    await guard.request(exchange)
    t.equal(exchange.prompt.input, '[EMAIL] '.repeat(mails))
    t.match(exchange.pipeline, [{ data: { detected: false } }, { data: { action: 'redacted' } }])
    t.same((await decisions()).toSorted(), ['all passed_unchecked', 'email redacted'])
  }
  const { guard } = guardOf([applied('w', rules('block'))], failing('overloaded'))
  t.equal((await refusal(guard, scriptedExchange({ input: 'a@example.com' }))).code, 'permission_denied')
})

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
  t.equal(exchange.prompt.input, 'alpha [REDACTED] gamma')
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

t.test('the worst allowed policy on 200 KB leaves this thread at once', async t => {
  const patterns = [
    (at: number) => `a(?:.*z${at})?`,
    (at: number) => `${at}`.padEnd(2_000, 'x'),
    (at: number) => `${'()'.repeat(999)}${at}`,
    (at: number) => `[^b]{200}c${at}`,
  ]
  let scanned = 0
  const scanner = Object.getOwnPropertyDescriptor(CompiledRules.prototype, 'scanner') ?? {}
  t.teardown(() => Object.defineProperty(CompiledRules.prototype, 'scanner', scanner))
  Object.defineProperty(CompiledRules.prototype, 'scanner', {
    ...scanner,
    get(this: CompiledRules) {
      if (this.set.custom.length > 0) scanned++
      return scanner.get?.call(this)
    },
  })
  for (const form of patterns) {
    const contentFilters = Array.from({ length: FILTERS_MAX_ITEMS }, (_, at) => ({
      pattern: form(at),
      action: 'redact' as const,
      label: null,
    }))
    const output = { contentFilterBuiltins: [], contentFilters, windowBytes: 1_024, overlapBytes: 256 }
    const guardrails = ['a', 'b', 'c'].map(id => applied(id, { contentFilters, output }))
    let asked = 0
    const tasks: GuardTasks = {
      run: () => {
        asked++
        return Promise.reject(new TaskError('overloaded'))
      },
    }
    const exchange = scriptedExchange({ input: 'a'.repeat(200 * 1_024) })
    const prepared = prepareGuardrail(guardrails)
    const guard = createGuard({ guardrails: { of: () => prepared }, tasks, metrics: createMetrics() })
    const looking = guard.request(exchange)
    t.ok(looking instanceof Promise, form(0).slice(0, 20))
    await t.rejects(Promise.resolve(looking), { code: 'guardrail_unavailable' })
    t.equal(asked, 1)
    t.equal(prepared?.output?.isInline, false)
  }
  t.equal(scanned, 0, 'no pattern was compiled or run here')
})

t.test('what comes into the prompt later is looked at alone, here or in the pool', async t => {
  const metrics = createMetrics()
  const pool = newPool(t, metrics)
  const { guard, decisions } = guardOf([applied('w', { contentFilterBuiltins: [EMAIL] })], pool)
  const exchange = scriptedExchange({
    instructions: 'of a@example.com',
    input: [{ role: 'user', content: [{ type: 'input_file', file_id: 'f' }] }],
  })
  const guarding = await guard.request(exchange)
  const guarded = guarding?.input ?? null
  if (guarded === null) throw new Error('nothing guards input')
  for (const [read, shown] of [
    ['b@example.com', '[EMAIL]'],
    [`${LONG}c@example.com`, `${LONG}[EMAIL]`],
  ] as const) {
    const before = exchange.prompt
    const input: ResponsesRequest['input'] = [
      { role: 'user', content: [{ type: 'input_text', text: read }] },
      { role: 'user', content: '[EMAIL]' },
    ]
    exchange.prompt = { ...before, input }
    const checking = guarded.prompt(exchange, before)
    t.equal(checking instanceof Promise, read.length > 1_000)
    await checking
    t.same(
      new Set(textsOf(exchange.prompt).map(({ text }) => text)),
      new Set(['of [EMAIL]', shown, '[EMAIL]']),
    )
  }
  const { prompt } = exchange
  t.equal(guarded.prompt(exchange, prompt), undefined)
  t.equal(exchange.prompt, prompt, 'nothing has come')
  t.equal(exchange.pipeline.length, 3)
  t.equal((await decisions()).length, 1)
  t.equal(
    (await guardOf([applied('w', { ignoredModels: ['a/b'] })], NOBODY).guard.request(exchange))?.input,
    null,
  )
})

t.test('a guardrail that fails closed refuses what came later as well', async t => {
  const rules = { contentFilterBuiltins: [EMAIL], failMode: 'closed' } as const
  const { guard } = guardOf([applied('w', rules)], failing('overloaded'))
  const exchange = scriptedExchange()
  const input = (await guard.request(exchange))?.input
  const before = exchange.prompt
  exchange.prompt = { ...before, input: LONG }
  await t.rejects(Promise.resolve(input?.prompt(exchange, before)), { code: 'guardrail_unavailable' })
  await t.rejects(Promise.resolve(input?.text(exchange, LONG)), { code: 'guardrail_unavailable' })
})

t.test('one text outside the prompt is checked by itself, and the prompt stays', async t => {
  const metrics = createMetrics()
  const pool = newPool(t, metrics)
  const users = { slug: 'phone', action: 'redact', scanScope: 'user_only' } as const
  const block = [{ pattern: 'forbidden', action: 'block' as const, label: null }]
  const rules = { contentFilterBuiltins: [EMAIL, users], contentFilters: block }
  const { guard, decisions } = guardOf([applied('w', rules)], pool)
  const exchange = scriptedExchange({ input: 'hi' })
  const { prompt } = exchange
  const input = (await guard.request(exchange))?.input ?? null
  if (input === null) throw new Error('nothing guards input')
  t.equal(input.text(exchange, ''), '')
  t.equal(input.text(exchange, 'nothing to find'), 'nothing to find')
  t.same(exchange.pipeline, [])
  t.equal(input.text(exchange, 'Mail a@example.com'), 'Mail [EMAIL]')
  const long = input.text(exchange, `${LONG}a@example.com`)
  t.ok(long instanceof Promise)
  t.equal(await long, `${LONG}[EMAIL]`)
  const call = 'call me at +1 212 555 0123'
  t.equal(input.text(exchange, call), call, 'unless told, nobody says that the user wrote it')
  t.equal(input.text(exchange, call, 'user'), 'call me at [PHONE]')
  t.throws(() => input.text(exchange, 'forbidden'), { code: 'permission_denied' })
  t.equal(exchange.prompt, prompt)
  t.same(
    exchange.pipeline.map(({ data }) => data?.['action']),
    ['redacted', 'redacted', 'redacted', 'blocked'],
  )
  t.same((await decisions()).toSorted(), ['custom blocked', 'email redacted', 'phone redacted'])
})

t.test('restrictions are told without a request', async t => {
  const rules = [applied('w', { ignoredModels: ['a/b'], contentFilterBuiltins: [EMAIL] })]
  const { caller } = scriptedExchange()
  t.ok(await guardOf(rules, NOBODY).guard.restrictions(caller))
  t.equal(await guardOf([applied('w', {})], NOBODY).guard.restrictions(caller), null)
  const prepared = prepareGuardrail(rules)
  const later = { of: () => Promise.resolve(prepared) }
  const guard = createGuard({ guardrails: later, tasks: NOBODY, metrics: createMetrics() })
  t.equal(await guard.restrictions(caller), prepared?.restrictions)
})

t.test('rules that cannot be compiled are told by the field that a body has them in', async t => {
  const contentFilters = [{ pattern: '(', action: 'flag', label: null }] as const
  const output = { contentFilterBuiltins: [], contentFilters, windowBytes: 256, overlapBytes: 0 }
  const prepared = prepareGuardrail([applied('w', { contentFilters, output })])
  t.throws(() => prepared?.input?.allRules.scanner, { message: /^content_filters\[0\]\.pattern: / })
  t.throws(() => prepared?.output?.rules.allRules.scanner, {
    message: /^output\.content_filters\[0\]\.pattern: /,
  })
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
