/** How a batch is followed: how often it is asked for, and what is told when the gateway does not answer. */
import t from 'tap'
import { barDisplay, jsonDisplay, textDisplay } from '../../../../src/apps/commands/batches/display.ts'
import type { BatchWithResults } from '../../../../src/apps/commands/batches/reading.ts'
import { type BatchView, batchView } from '../../../../src/apps/commands/batches/view.ts'
import {
  type BatchDisplay,
  type BatchMoment,
  Pace,
  watchBatch,
} from '../../../../src/apps/commands/batches/watching.ts'
import { CommandError } from '../../../../src/apps/commands/command.ts'
import { GatewayFault } from '../../../../src/apps/commands/gateway-client.ts'
import { ProgressBar } from '../../../../src/apps/commands/terminal/progress-bar.ts'
import { TestClock } from '../../../support/test-clock.ts'

// Batches as a gateway sends them, for tests of code that reads them.

interface DocumentFields {
  readonly id?: string
  readonly status?: string
  readonly model?: string
  readonly createdAt?: number
  readonly finalizedAt?: number | null
  readonly total?: number
  readonly completed?: number
  readonly failed?: number
  readonly cost?: number | null
  readonly error?: string | null
  readonly waiting?: { readonly reason: string; readonly since: number } | null
  readonly results?: readonly unknown[] | null
}

function batchDocument(fields: DocumentFields = {}) {
  const { total = 10, completed = 0, failed = 0, cost = null, error = null } = fields
  return {
    id: fields.id ?? 'batch_1',
    object: 'batch',
    endpoint: '/v1/responses',
    model: fields.model ?? 'acme/model',
    completion_window: '24h',
    status: fields.status ?? 'in_progress',
    created_at: fields.createdAt ?? 1_767_323_045,
    finalized_at: fields.finalizedAt ?? null,
    expires_at: 1_767_409_445,
    provider: null,
    request_counts: { total, completed, failed },
    usage:
      cost === null
        ? null
        : {
            prompt_tokens: 1_200,
            completion_tokens: 34,
            total_tokens: 1_234,
            prompt_tokens_details: { cached_tokens: 1_000 },
            cost,
          },
    error: error === null ? null : { message: error },
    ...(fields.waiting === undefined ? {} : { waiting: fields.waiting }),
    results: fields.results ?? null,
  }
}

function viewOf(fields: DocumentFields): BatchView {
  const view = batchView(batchDocument(fields))
  if (view === null) throw new Error('no batch')
  return view
}

const seenOf = (fields: DocumentFields): BatchWithResults => ({
  batch: viewOf(fields),
  results: { total: 0, errors: new Map() },
})

const away = () => new GatewayFault('no gateway answers', 'ECONNREFUSED')

/** A batch that is watched, one answer of the gateway after the other. */
function watching(display?: BatchDisplay) {
  const clock = new TestClock()
  const controller = new AbortController()
  const moments: BatchMoment[] = []
  const notes: string[] = []
  let asked: PromiseWithResolvers<BatchWithResults> | null = null
  let askedAtMs = Number.NaN
  let ends = 0
  const ended = watchBatch({
    id: 'batch_1',
    clock,
    signal: controller.signal,
    read() {
      askedAtMs = clock.monotonicMs()
      asked = Promise.withResolvers()
      return asked.promise
    },
    display: display ?? {
      show: moment => moments.push(moment),
      note: text => notes.push(text),
      end: () => ends++,
    },
  })
  // The test looks at it later.
  ended.catch(() => undefined)
  const settled = async () => {
    for (let turn = 0; turn < 5; turn++) await Promise.resolve()
  }
  return {
    clock,
    controller,
    moments,
    notes,
    ended,
    get ends() {
      return ends
    },
    /** Answers the question, and returns the milliseconds until the next one; null: there is none. */
    async answer(answer: DocumentFields | Error): Promise<number | null> {
      const fromMs = clock.monotonicMs()
      const question = asked
      asked = null
      if (answer instanceof Error) question?.reject(answer)
      else question?.resolve(seenOf(answer))
      await settled()
      while (clock.armed > 0 && asked === null) {
        clock.advance(100)
        await settled()
        if (clock.monotonicMs() - fromMs > 1_000_000) throw new Error('no further question')
      }
      return asked === null ? null : askedAtMs - fromMs
    },
  }
}

t.test('a batch at which nothing happens is asked for less and less, until it changes', async t => {
  const watched = watching()
  const pauses: (number | null)[] = []
  for (let n = 0; n < 9; n++) pauses.push(await watched.answer({ status: 'validating' }))
  t.same(
    pauses.map(ms => Math.ceil((ms ?? 0) / 100) / 10),
    [1, 1.5, 2.3, 3.4, 5.1, 7.6, 10, 10, 10],
  )
  t.equal(await watched.answer({ status: 'in_progress' }), 1_000)
  t.equal(await watched.answer({ status: 'completed', completed: 10 }), null)
  t.equal((await watched.ended).batch.status, 'completed')
  t.equal(watched.ends, 1)
})

t.test('a long batch is asked for seldom, and often towards its end', async t => {
  const watched = watching()
  const total = 10_000
  const pauses: number[] = []
  let done = 0
  for (;;) {
    const pauseMs = (await watched.answer({ total, completed: done })) ?? 0
    pauses.push(pauseMs)
    if (done === total) break
    // Ten requests a second.
    done = Math.min(total, done + Math.round(pauseMs / 100))
  }
  t.equal(Math.max(...pauses), 10_000)
  t.equal(pauses.at(-1), 1_000)
  t.ok(pauses.length > 100 && pauses.length < 300, `${pauses.length} questions in 1000 s`)
  const rates = watched.moments.map(({ rate }) => rate).filter(rate => rate !== null)
  t.ok(
    rates.every(rate => Math.abs(rate - 10) < 0.5),
    'the rate is smooth',
  )
  const { endsAtMs } = watched.moments.at(50) ?? {}
  t.ok(Math.abs((endsAtMs ?? 0) - 1_001_000) < 10_000, 'the end is foreseen')
})

t.test('a gateway that goes away is told once, and waited for longer and longer', async t => {
  const watched = watching()
  await watched.answer({ completed: 3 })
  const pauses: (number | null)[] = []
  for (let n = 0; n < 7; n++) pauses.push(await watched.answer(away()))
  t.same(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000])
  t.same(watched.notes, [
    'the gateway is not answering (ECONNREFUSED); it keeps the batch, and watching continues when it is back',
  ])
  t.match(watched.moments.at(-1), { trouble: 'no answer', batch: { completed: 3 } })
  await watched.answer({ completed: 4 })
  t.equal(watched.notes.at(-1), 'the gateway is answering again')
  t.match(watched.moments.at(-1), { trouble: null, batch: { completed: 4 } })
  t.equal(await watched.answer(away()), 1_000, 'the next time begins anew')
  t.equal(watched.notes.length, 3)
})

t.test('the gateway says how long to wait', async t => {
  const watched = watching()
  await watched.answer({ completed: 3 })
  t.equal(await watched.answer(new GatewayFault('limited', '429, Too many', 429, 12_000)), 12_000)
  t.equal(await watched.answer(new GatewayFault('limited', '429, Too many', 429, 5_000)), 5_000)
  t.equal(await watched.answer(new GatewayFault('starts', '503, Starting', 503, 2_000)), 2_000)
  t.same(watched.notes, [
    'the gateway limits the requests of this key (429, Too many); continuing more slowly',
    'the gateway is not answering (503, Starting); it keeps the batch, and watching continues when it is back',
  ])
})

t.test('a refusal that will not pass ends it, and so does any at the beginning', async t => {
  for (const [before, fault, says] of [
    [[], away(), /no gateway answers/],
    [[{}], new GatewayFault('the key is refused', '401', 401), /the key is refused/],
    [[{}], new GatewayFault('unknown', '404', 404), /^batch_1 was deleted while it was being watched$/],
    [[{}], new CommandError('no space'), /no space/],
    [[{}, away()], new TypeError('a fault of ours'), /a fault of ours/],
  ] as const) {
    const watched = watching()
    for (const answer of before) await watched.answer(answer)
    t.equal(await watched.answer(fault), null)
    await t.rejects(watched.ended, { message: says })
    t.equal(watched.ends, 1)
  }
})

t.test('it ends at once when it is told to, amid a pause and amid a question', async t => {
  const reason = new Error('stop')
  const question = watching()
  question.controller.abort(reason)
  t.equal(await question.answer(away()), null)
  await t.rejects(question.ended, reason)

  const clock = new TestClock()
  const controller = new AbortController()
  const ended = watchBatch({
    id: 'batch_1',
    clock,
    signal: controller.signal,
    read: async () => seenOf({}),
    display: { show: () => undefined, note: () => undefined, end: () => undefined },
  })
  while (clock.armed === 0) await Promise.resolve()
  controller.abort(reason)
  await t.rejects(ended, reason)
  t.equal(clock.armed, 0, 'no timer is left')
})

t.test('the pace is that of the last while, and stands still when nothing goes on', async t => {
  const pace = new Pace()
  t.equal(pace.perSecond, null)
  pace.note(100, 0)
  t.equal(pace.remainingMs(200), null, 'what was done before says nothing')
  pace.note(100, 1_000)
  t.equal(pace.remainingMs(200), null, 'nothing has happened yet')
  pace.note(110, 2_000)
  t.equal(pace.perSecond, 10)
  t.equal(pace.remainingMs(200), 9_000)
  pace.note(110, 2_000)
  t.equal(pace.perSecond, 10, 'no time has passed')
  for (let n = 3; n < 63; n++) pace.note(110, n * 1_000)
  t.ok((pace.perSecond ?? 0) < 0.2)
  for (let n = 63; n < 400; n++) pace.note(110, n * 1_000)
  t.equal(pace.remainingMs(200), null, 'it stands still')
  t.equal(pace.remainingMs(110), 0)
  pace.note(50, 400_000)
  t.ok((pace.perSecond ?? -1) >= 0, 'a count that falls is no negative pace')
})

const FIGURES = { completed: 39, failed: 3, total: 100, createdAt: 1_767_323_000 } as const
const momentOf = (
  clock: TestClock,
  fields: DocumentFields = {},
  more: Partial<BatchMoment> = {},
): BatchMoment => ({
  batch: viewOf({ ...FIGURES, ...fields }),
  rate: 3.52,
  endsAtMs: clock.monotonicMs() + 16_900,
  trouble: null,
  ...more,
})

t.test('lines tell each change, but at most one in five seconds of a state', async t => {
  const clock = new TestClock()
  const lines: string[] = []
  const notes: string[] = []
  const display = textDisplay({ line: text => lines.push(text), note: text => notes.push(text) }, clock)
  const show = (fields?: DocumentFields, more?: Partial<BatchMoment>) =>
    display.show(momentOf(clock, fields, more))
  show()
  t.same(lines.splice(0), [
    '2026-01-02T03:04:05.000Z batch_1 42%, 42/100, 3 failed, 3.5/s, ETA 0:16, 0:45 elapsed, in_progress',
  ])
  clock.advance(4_900)
  show({ completed: 50 })
  t.same(lines, [], 'too soon')
  clock.advance(100)
  show({ completed: 50 })
  t.match(lines.splice(0), [/ 53%, 53\/100, /])
  clock.advance(60_000)
  show({ completed: 50 })
  show({ completed: 60 }, { trouble: 'no answer' })
  t.same(lines, [], 'nothing has changed, or is known')
  show({ completed: 60, status: 'cancelling' }, { rate: null, endsAtMs: null })
  t.match(
    lines.splice(0),
    [/ 63%, 63\/100, 3 failed, 1:50 elapsed, cancelling$/],
    'another state is told at once',
  )
  display.note('a note')
  display.end()
  t.same(notes, ['a note'])
})

t.test('as JSON, each change is the batch without its results, the last one apart', async t => {
  const clock = new TestClock()
  const lines: string[] = []
  const display = jsonDisplay({ line: text => lines.push(text), note: () => undefined }, clock)
  display.show(momentOf(clock))
  display.show(momentOf(clock, { status: 'completed', results: [{}] }))
  display.end()
  const { results: _, ...document } = batchDocument(FIGURES)
  t.same(
    lines.map(line => JSON.parse(line)),
    [document],
  )
})

t.test('on a terminal the figures run on between two answers', async t => {
  const clock = new TestClock()
  let text = ''
  const terminal = { isTTY: true, columns: 100, write: (more: string) => (text += more) }
  const display = barDisplay(new ProgressBar(terminal, { LANG: 'C' }), clock)
  display.show(momentOf(clock))
  clock.advance(2_000)
  const frames = text.split('\r').slice(1)
  t.same(frames, [
    '[############..................]  42%  42/100  3 failed  3.5/s  ETA 0:16  0:45 elapsed  in_progress\x1b[K',
    '[############..................]  42%  42/100  3 failed  3.5/s  ETA 0:15  0:46 elapsed  in_progress\x1b[K',
    '[############..................]  42%  42/100  3 failed  3.5/s  ETA 0:14  0:47 elapsed  in_progress\x1b[K',
  ])
  terminal.columns = 20
  display.show(momentOf(clock, {}, { trouble: 'no answer' }))
  t.equal(text.split('\r').at(-1), '42%  42/100\x1b[K')
  terminal.columns = 33
  display.show(momentOf(clock, {}, { trouble: 'no answer' }))
  t.equal(text.split('\r').at(-1), '42%  42/100  ETA 0:16  no answer\x1b[K')
  display.end()
  t.equal(clock.armed, 0, 'and stop at its end')
  t.ok(text.endsWith('\n'))
})

t.test('a batch that waits says why and for how long, in each line that has news', async t => {
  const clock = new TestClock()
  const lines: string[] = []
  const display = textDisplay({ line: text => void lines.push(text), note: () => undefined }, clock)
  const since = clock.nowMs() / 1000 - 90
  const show = (fields: DocumentFields) =>
    display.show({ batch: viewOf(fields), rate: null, endsAtMs: null, trouble: null })
  show({})
  show({ waiting: null })
  show({ waiting: { reason: 'provider_unavailable', since } })
  show({ waiting: { reason: 'provider_unavailable', since } })
  show({ waiting: null })
  t.equal(lines.length, 3)
  t.match(lines[0], /in_progress$/)
  t.match(lines[1], /waiting for .*: provider unavailable$/)
  t.match(lines[2], /in_progress$/)
})
