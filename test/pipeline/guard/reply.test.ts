/** The guard of a reply by itself: order, parity of streams and whole answers, fail modes, bounds. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import type { Content } from '../../../src/pipeline/answer/answer.ts'
import type { GuardTasks } from '../../../src/pipeline/guard/evaluate.ts'
import type { FilterAction } from '../../../src/protocol/management/guardrails.ts'
import { filler, SECRETS_IN_TEXT } from '../../support/guardrail-texts.ts'
import {
  evaluate,
  failing,
  kinds,
  LONG,
  MAIL,
  NEVER,
  type Options,
  open,
  outputOf,
  said,
  start,
  text,
  token,
  tokensIn,
} from './output-guard.ts'

async function read(options: Options, pieces: readonly string[]) {
  const run = start(options)
  run.guard.receive(open(0))
  for (const piece of pieces) run.guard.receive(text(piece))
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
    { numRuns: 1500, seed: 42 },
  )
  t.comment([...verdicts].toSorted().join(', '))
  t.ok(verdicts.size >= 8, 'with and without findings, here and in the pool')
})

t.test('everything keeps its place among held text', async t => {
  const run = start({ output: outputOf('redact') })
  const { guard, delivered } = run
  guard.receive(open(0))
  t.same(delivered, [], 'nothing has been said yet, so nothing commits the attempt')
  guard.receive(text('Mail anna.'))
  guard.receive({
    kind: 'annotation',
    item: 0,
    part: 0,
    annotation: { type: 'url_citation', url: 'https://x', title: '', start_index: 0, end_index: 1 },
  })
  guard.receive(text('schmidt@example.com now'))
  guard.receive(text('second part', 0, 1))
  guard.receive({ kind: 'close', item: 0, fields: null })
  guard.receive(open(1))
  guard.receive(text('end', 1))
  await run.end()
  t.equal(kinds(delivered), '<open 0>Mail [EMAIL] now<annotation 0>second part<close 0><open 1>end')
})

t.test('items said side by side are each looked at by themselves', async t => {
  const run = start({ output: outputOf('redact') })
  const call = (item: number, args: string): Content => ({ kind: 'arguments', item, text: args })
  for (const item of [0, 1]) run.guard.receive(open(item))
  for (const [item, args] of [
    [0, '"anna@ex'],
    [1, '"bert@ex'],
    [0, 'ample.com"'],
    [1, 'ample.com"'],
  ] as const)
    run.guard.receive(call(item, args))
  await run.end()
  const of = (item: number) => said(run.delivered.filter(delta => delta.item === item))
  t.same([of(0), of(1)], ['"[EMAIL]"', '"[EMAIL]"'])
})

t.test('log probabilities of what was redacted go nowhere', async t => {
  const run = start({ output: outputOf('redact') })
  run.guard.receive(open(0))
  for (const words of [
    ['Mail ', 'anna@'],
    ['example', '.com', ' now'],
    [' or', ' later'],
  ]) {
    run.guard.receive({ kind: 'text', item: 0, part: 0, text: words.join(''), logprobs: words.map(token) })
  }
  await run.end()
  t.equal(said(run.delivered), 'Mail [EMAIL] now or later')
  const told = run.delivered.flatMap(delta => (delta.kind === 'text' ? (delta.logprobs ?? []) : []))
  t.same(
    told.map(each => each.token),
    ['Mail ', ' now', ' or', ' later'],
  )
})

const scored = (words: readonly string[], said: string, part = 0): Content => ({
  kind: 'text',
  item: 0,
  part,
  text: said,
  logprobs: words.map(token),
})

t.test('log probabilities of a whole text that come at its end go with it, or nowhere', async t => {
  for (const [secret, shown] of [
    ['anna@example.com', []],
    ['nobody', ['Mail ', 'nobody', ' now']],
  ] as const) {
    for (const before of ['', 'word '.repeat(200)]) {
      for (const overlapBytes of [64, 0]) {
        const run = start({ output: outputOf('redact', { overlapBytes }) })
        run.guard.receive(open(0))
        run.guard.receive(text(`${before}Mail ${secret} now`))
        run.guard.receive(
          text('.'.repeat(overlapBytes === 0 ? 256 - ((before.length + 9 + secret.length) % 256) : 0)),
        )
        run.guard.receive(scored(['Mail ', secret, ' now'], ''))
        await run.end()
        t.same(tokensIn(run.delivered), shown, `${secret} after ${before.length}, overlap ${overlapBytes}`)
      }
    }
  }
})

t.test('tokens of the same length as a text are not taken for it', async t => {
  const run = start({ output: outputOf('redact') })
  run.guard.receive(open(0))
  run.guard.receive(text('Mail anna@example.com now'))
  run.guard.receive(scored(['anna@example.com'], ', or else later.'))
  run.guard.receive(scored([' fine'], ' fine'))
  await run.end()
  t.same(tokensIn(run.delivered), [' fine'])
})

t.test(
  'log probabilities of a part that goes on after another one tell nothing of its beginning',
  async t => {
    const run = start({ output: outputOf('redact') })
    run.guard.receive(open(0))
    run.guard.receive(text('Mail anna@example.com'))
    run.guard.receive(text('second part', 0, 1))
    run.guard.receive(scored(['Mail ', 'anna@example.com', '!'], '!'))
    await run.end()
    t.same(tokensIn(run.delivered), [])
  },
)

t.test('no more than a window is held', async t => {
  const { guard, delivered } = start({ output: outputOf('redact') })
  let sent = 0
  let most = 0
  guard.receive(open(0))
  for (let n = 0; n < 500; n++) {
    const piece = `word ${n} `
    sent += piece.length
    guard.cork()
    guard.receive(text(piece))
    most = Math.max(most, sent - said(delivered).length)
  }
  t.ok(most < 256 + 10, `${most} characters`)
})

for (const outcome of ['overloaded', 'timeout', 'crashed', 'failed'] as const) {
  const output = outputOf('redact', { contentFilters: LONG })
  t.test(`where the pool is ${outcome}, an open guardrail lets the text go on and says so`, async t => {
    const run = start({ output, tasks: failing(outcome), failMode: 'open' })
    run.guard.receive(open(0))
    run.guard.receive(text('word '.repeat(100)))
    await run.end()
    t.equal(said(run.delivered), 'word '.repeat(100))
    t.match(run.exchange.pipeline, [{ guardrail_scope: 'workspace', data: { detected: false } }])
    t.match((await run.metrics.guardrailDecisions.get()).values, [
      { labels: { guardrail: 'all', action: 'passed_unchecked' }, value: 1 },
    ])
  })
  t.test(`where the pool is ${outcome}, a closed guardrail refuses`, async t => {
    const run = start({ output, tasks: failing(outcome) })
    run.guard.receive(open(0))
    run.guard.receive(text('word '.repeat(100)))
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

for (const outcome of ['overloaded', 'failed'] as const) {
  const tasks = failing(outcome)
  const item = { type: 'shell_call', action: { commands: [MAIL] } }
  const call: Content = { kind: 'open', item: 1, start: { type: 'hosted', item } }
  t.test(`where the pool is ${outcome}, an open guardrail still does what it found by itself`, async t => {
    const output = outputOf('redact', { contentFilters: LONG })
    const run = start({ output, tasks, failMode: 'open' })
    run.guard.receive(open(0))
    run.guard.receive(text(`${'word '.repeat(100)}${MAIL} end`))
    run.guard.receive(call)
    await run.end()
    t.equal(said(run.delivered), `${'word '.repeat(100)}[EMAIL] end`)
    t.notMatch(JSON.stringify(run.delivered), 'anna')
    t.match(run.exchange.pipeline, [{ data: { action: 'redacted' } }, { data: { detected: false } }])
    const counted = (await run.metrics.guardrailDecisions.get()).values
    t.match(counted, [
      { labels: { guardrail: 'email', action: 'redacted' }, value: 1 },
      { labels: { guardrail: 'all', action: 'passed_unchecked' }, value: 1 },
    ])
    const blocking = start({
      output: outputOf('block', { contentFilters: LONG }),
      tasks,
      failMode: 'open',
      live: false,
    })
    blocking.guard.receive(open(0))
    blocking.guard.receive(text(`${'word '.repeat(100)}${MAIL} end`))
    await blocking.end()
    t.equal(blocking.state.error?.code, 'permission_denied')
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
  run.guard.receive(open(0))
  const whole = 'word '.repeat(20_000)
  for (let at = 0; at < whole.length; at += 1000) run.guard.receive(text(whole.slice(at, at + 1000)))
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
  run.guard.receive(open(0))
  run.guard.receive(text('word '.repeat(100)))
  run.guard.close()
  run.guard.receive(text('more'))
  t.same([run.delivered, run.exchange.pipeline], [[], []])
})

t.test('what is split over texts that clients read as one is found in the later one', async t => {
  const close = (item: number): Content => ({ kind: 'close', item, fields: null })
  const thought: Content = { kind: 'reasoning', item: 1, form: 'text', part: 0, text: 'Hm.' }
  const thinking = { type: 'reasoning', id: null, extra: null } as unknown as Extract<
    Content,
    { kind: 'open' }
  >['start']
  const between: Content[] = [
    close(0),
    { kind: 'open', item: 1, start: thinking },
    thought,
    close(1),
    open(2),
  ]
  for (const [name, deltas] of Object.entries({
    'two parts': [open(0), text('to anna@exa'), text('mple.com please', 0, 1)],
    'two items with a thought between them': [
      open(0),
      text('to anna@exa'),
      ...between,
      text('mple.com please', 2),
    ],
    'many parts': [
      open(0),
      ...[...`to ${MAIL}`].map((piece, part) => text(piece, 0, part)),
      text(' please', 0, 99),
    ],
  })) {
    const run = start({ output: outputOf('redact') })
    for (const delta of deltas) run.guard.receive(delta)
    await run.end()
    t.notMatch(said(run.delivered).replace('Hm.', ''), MAIL, name)
    t.match(said(run.delivered), /\[EMAIL\].* please$/, name)
    t.equal(run.exchange.pipeline.length, 1, name)

    const refused = start({ output: outputOf('block') })
    for (const delta of deltas) refused.guard.receive(delta)
    await refused.end()
    t.match(refused.state.error, { code: 'content_policy_violation' }, name)
  }
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
  run.guard.receive(open(0))
  run.guard.receive(text(whole))
  t.ok(said(run.delivered).length < whole.length / 10)
  await run.end()
  t.equal(said(run.delivered), whole)
  t.ok(turns >= 5, `${turns} turns`)
})
