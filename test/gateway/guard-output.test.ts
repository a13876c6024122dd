/** The guard of a reply by itself: order, parity of streams and whole answers, fail modes, bounds. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import type { GatewayError } from '../../src/errors.ts'
import type { Content } from '../../src/gateway/assemble.ts'
import { prepareGuardrail } from '../../src/gateway/guard.ts'
import type { GuardTasks } from '../../src/gateway/guard-evaluate.ts'
import { OutputGuard } from '../../src/gateway/guard-output.ts'
import type { OutputGuardRules } from '../../src/gateway/guard-rules.ts'
import { createMetrics } from '../../src/metrics.ts'
import type { FilterAction } from '../../src/protocol/guardrails.ts'
import type { Logprob } from '../../src/protocol/items.ts'
import { defaultGuardrail, type GuardrailRecord } from '../../src/storage/guardrails.ts'
import { createEvaluator } from '../../src/tasks/evaluate-texts.ts'
import { TaskError } from '../../src/tasks/failure.ts'
import { CUSTOM_PATTERNS, filler, SECRETS_IN_TEXT } from '../support/guardrail-texts.ts'
import { scriptedExchange } from '../support/scripted-attempt.ts'

type Output = NonNullable<GuardrailRecord['output']>

const evaluate = createEvaluator()
/** A pool that answers in later turns of the event loop. */
const POOL: GuardTasks = {
  run: (async (_: string, input: Parameters<typeof evaluate>[0]) => {
    for (let turns = input.texts[0]?.text.length ?? 0; turns % 3 > 0; turns--)
      await new Promise(resolve => setImmediate(resolve))
    return evaluate(input)
  }) as GuardTasks['run'],
}
const failing = (outcome: ConstructorParameters<typeof TaskError>[0]): GuardTasks => ({
  run: () => Promise.reject(new TaskError(outcome)),
})
const NEVER: GuardTasks = { run: () => new Promise<never>(() => undefined) }

/** So many characters of patterns that they are left to the pool. */
const LONG = Array.from({ length: 9 }, (_, n) => ({
  pattern: `${'y'.repeat(500)}${n}`,
  action: 'flag' as const,
  label: null,
}))

function outputOf(action: FilterAction, more: Partial<Output> = {}): Output {
  return {
    contentFilterBuiltins: [{ slug: 'email', action, scanScope: 'all_messages' }],
    contentFilters: CUSTOM_PATTERNS.map(pattern => ({ pattern, action, label: null })),
    windowBytes: 256,
    overlapBytes: 64,
    ...more,
  }
}

interface Options {
  readonly output: Output
  readonly tasks?: GuardTasks
  readonly failMode?: 'open' | 'closed'
  /** Whether what is delivered commits the attempt. */
  readonly live?: boolean
}

const prepared = new Map<string, OutputGuardRules>()

/** Compiled once for each test that needs them. */
function rulesOf(output: Output, failMode: 'open' | 'closed'): OutputGuardRules {
  const name = JSON.stringify([output, failMode])
  const known = prepared.get(name)
  if (known !== undefined) return known
  const guardrail = {
    ...defaultGuardrail({ organizationId: 'o', id: 'w', createdAt: '2026-01-01T00:00:00.000Z' }),
    output,
    failMode,
  }
  const rules = prepareGuardrail([{ scope: 'workspace', guardrail }])?.output
  if (rules == null) throw new Error('there are no rules')
  prepared.set(name, rules)
  return rules
}

function start({ output, tasks = POOL, failMode = 'closed', live = true }: Options) {
  const rules = rulesOf(output, failMode)
  const exchange = scriptedExchange()
  const metrics = createMetrics()
  const delivered: Content[] = []
  const state = { error: null as GatewayError | null, finished: false, pauses: 0, resumes: 0 }
  const over = Promise.withResolvers<void>()
  const guard = new OutputGuard({ rules, tasks, metrics }, exchange, {
    get committed() {
      return live && delivered.length > 0
    },
    deliver: delta => void delivered.push(delta),
    fail(error) {
      state.error = error
      over.resolve()
    },
    turn: work => work(),
    pause: () => void state.pauses++,
    resume: () => void state.resumes++,
  })
  return {
    guard,
    exchange,
    metrics,
    delivered,
    state,
    end(): Promise<void> {
      guard.end(() => {
        state.finished = true
        over.resolve()
      })
      return over.promise
    },
  }
}

const text = (said: string, item = 0, part = 0): Content => ({
  kind: 'text',
  item,
  part,
  text: said,
  logprobs: null,
})
const open = (item: number): Content => ({
  kind: 'open',
  item,
  start: { type: 'message', id: null, phase: null },
})
const said = (delivered: readonly Content[]): string =>
  delivered.map(delta => ('text' in delta ? delta.text : '')).join('')
const kinds = (delivered: readonly Content[]): string =>
  delivered.map(delta => ('text' in delta ? delta.text : `<${delta.kind} ${delta.item}>`)).join('')

async function read(options: Options, pieces: readonly string[]) {
  const run = start(options)
  run.guard.take(open(0))
  for (const piece of pieces) run.guard.take(text(piece))
  await run.end()
  const { error } = run.state
  return {
    said: error === null ? said(run.delivered) : null,
    patterns: error?.metadata?.['patterns'] ?? null,
    pipeline: run.exchange.pipeline,
    delivered: said(run.delivered),
  }
}

const sentence = fc.oneof(filler, fc.constantFrom(...SECRETS_IN_TEXT))
const reply = fc.array(sentence, { maxLength: 60 }).map(list => list.join(' '))
const cuts = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 8 })

function cut(whole: string, sizes: readonly number[]): string[] {
  const list: string[] = []
  for (let at = 0, n = 0; at < whole.length; n++) {
    const size = sizes[n % sizes.length] ?? 1
    list.push(whole.slice(at, at + size))
    at += size
  }
  return list
}

t.test('however a reply is cut, verdict, report and text are those of the whole', async t => {
  const verdicts = new Set<string>()
  await fc.assert(
    fc.asyncProperty(
      reply,
      cuts,
      fc.constantFrom<FilterAction>('redact', 'flag', 'block'),
      fc.boolean(),
      fc.constantFrom({ windowBytes: 256, overlapBytes: 64 }, { windowBytes: 300, overlapBytes: 200 }),
      async (whole, sizes, action, pooled, size) => {
        const plain = outputOf(action, size)
        const output = pooled ? { ...plain, contentFilters: [...plain.contentFilters, ...LONG] } : plain
        const streamed = await read({ output }, cut(whole, sizes))
        const inOne = await read({ output, live: false }, whole === '' ? [] : [whole])
        const outcome = ({ said, patterns, pipeline }: typeof inOne) =>
          JSON.stringify(said === null ? [said, patterns !== null] : [said, pipeline])
        assert.equal(outcome(streamed), outcome(inOne))
        if (action === 'flag') assert.equal(streamed.said, whole)
        // What is cut off had begun as the text does.
        if (streamed.said === null) assert.ok(whole.startsWith(streamed.delivered))
        verdicts.add(`${action} ${pooled} ${streamed.said === null} ${streamed.pipeline.length > 0}`)
      },
    ),
    { numRuns: 1500 },
  )
  t.comment([...verdicts].toSorted().join(', '))
  t.ok(verdicts.size >= 8, 'with and without findings, here and in the pool')
})

t.test('everything keeps its place among held text', async t => {
  const run = start({ output: outputOf('redact') })
  const { guard, delivered } = run
  guard.take(open(0))
  t.same(delivered, [], 'nothing has been said yet, so nothing commits the attempt')
  guard.take(text('Mail anna.'))
  guard.take({
    kind: 'annotation',
    item: 0,
    part: 0,
    annotation: { type: 'url_citation', url: 'https://x', title: '', start_index: 0, end_index: 1 },
  })
  guard.take(text('schmidt@example.com now'))
  guard.take(text('second part', 0, 1))
  guard.take({ kind: 'close', item: 0, fields: null })
  guard.take(open(1))
  guard.take(text('end', 1))
  await run.end()
  t.equal(kinds(delivered), '<open 0>Mail [EMAIL] now<annotation 0>second part<close 0><open 1>end')
})

t.test('items said side by side are each looked at by themselves', async t => {
  const run = start({ output: outputOf('redact') })
  const call = (item: number, args: string): Content => ({ kind: 'arguments', item, text: args })
  for (const item of [0, 1]) run.guard.take(open(item))
  for (const [item, args] of [
    [0, '"anna@ex'],
    [1, '"bert@ex'],
    [0, 'ample.com"'],
    [1, 'ample.com"'],
  ] as const)
    run.guard.take(call(item, args))
  await run.end()
  const of = (item: number) => said(run.delivered.filter(delta => delta.item === item))
  t.same([of(0), of(1)], ['"[EMAIL]"', '"[EMAIL]"'])
})

t.test('log probabilities of what was redacted go nowhere', async t => {
  const token = (of: string): Logprob => ({ token: of, logprob: -1, bytes: [], top_logprobs: [] })
  const run = start({ output: outputOf('redact') })
  run.guard.take(open(0))
  for (const words of [
    ['Mail ', 'anna@'],
    ['example', '.com', ' now'],
    [' or', ' later'],
  ]) {
    run.guard.take({ kind: 'text', item: 0, part: 0, text: words.join(''), logprobs: words.map(token) })
  }
  await run.end()
  t.equal(said(run.delivered), 'Mail [EMAIL] now or later')
  const told = run.delivered.flatMap(delta => (delta.kind === 'text' ? (delta.logprobs ?? []) : []))
  t.same(
    told.map(each => each.token),
    ['Mail ', ' now', ' or', ' later'],
  )
})

t.test('no more than a window is held', async t => {
  const { guard, delivered } = start({ output: outputOf('redact') })
  let sent = 0
  let most = 0
  guard.take(open(0))
  for (let n = 0; n < 500; n++) {
    const piece = `word ${n} `
    sent += piece.length
    guard.freshTurn()
    guard.take(text(piece))
    most = Math.max(most, sent - said(delivered).length)
  }
  t.ok(most < 256 + 10, `${most} characters`)
})

for (const outcome of ['overloaded', 'timeout', 'crashed', 'failed'] as const) {
  const output = outputOf('redact', { contentFilters: LONG })
  t.test(`where the pool is ${outcome}, an open guardrail lets the text go on and says so`, async t => {
    const run = start({ output, tasks: failing(outcome), failMode: 'open' })
    run.guard.take(open(0))
    run.guard.take(text('word '.repeat(100)))
    await run.end()
    t.equal(said(run.delivered), 'word '.repeat(100))
    t.match(run.exchange.pipeline, [{ guardrail_scope: 'workspace', data: { detected: false } }])
    t.match((await run.metrics.guardrailDecisions.get()).values, [
      { labels: { guardrail: 'all', action: 'passed_unchecked' }, value: 1 },
    ])
  })
  t.test(`where the pool is ${outcome}, a closed guardrail refuses`, async t => {
    const run = start({ output, tasks: failing(outcome) })
    run.guard.take(open(0))
    run.guard.take(text('word '.repeat(100)))
    await run.end()
    t.same(run.delivered, [])
    t.equal(run.state.error?.code, 'guardrail_unavailable')
    t.equal(run.state.error?.retryAfterSeconds, 1)
    t.match(run.state.error?.message, 'Workspace w Default')
    t.match((await run.metrics.guardrailDecisions.get()).values, [
      { labels: { guardrail: 'all', action: 'refused_unchecked' }, value: 1 },
    ])
  })
}

t.test('while a verdict is awaited the provider is held up, beyond a bound', async t => {
  const waiting: (() => void)[] = []
  const tasks: GuardTasks = {
    run: (async (_: string, input: Parameters<typeof evaluate>[0]) => {
      await new Promise<void>(resolve => waiting.push(resolve))
      return evaluate(input)
    }) as GuardTasks['run'],
  }
  const run = start({ output: outputOf('redact', { contentFilters: LONG }), tasks })
  run.guard.take(open(0))
  const whole = 'word '.repeat(20_000)
  for (let at = 0; at < whole.length; at += 1000) run.guard.take(text(whole.slice(at, at + 1000)))
  t.ok(run.state.pauses > 0)
  t.equal(run.state.resumes, 0)
  const over = run.end()
  while (!run.state.finished) {
    waiting.shift()?.()
    await new Promise(resolve => setImmediate(resolve))
  }
  await over
  t.equal(run.state.resumes, 1)
  t.equal(said(run.delivered), whole)
})

t.test('an attempt that is over waits for nobody', async t => {
  const run = start({ output: outputOf('redact', { contentFilters: LONG }), tasks: NEVER })
  run.guard.take(open(0))
  run.guard.take(text('word '.repeat(100)))
  run.guard.close()
  run.guard.take(text('more'))
  t.same([run.delivered, run.exchange.pipeline], [[], []])
})

t.test('a long answer leaves turns to others', async t => {
  const run = start({ output: outputOf('redact') })
  const whole = 'word '.repeat(400_000)
  let turns = 0
  const count = (): void => {
    turns++
    if (!run.state.finished) setImmediate(count)
  }
  setImmediate(count)
  run.guard.take(open(0))
  run.guard.take(text(whole))
  t.ok(said(run.delivered).length < whole.length / 10)
  await run.end()
  t.equal(said(run.delivered), whole)
  t.ok(turns >= 20, `${turns} turns`)
})
