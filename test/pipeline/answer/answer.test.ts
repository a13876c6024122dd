/** The commit point, numbers and turns of an answer; items and their events are in assemble.test.ts. */
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { Answer } from '../../../src/pipeline/answer/answer.ts'
import { Draft } from '../../../src/pipeline/answer/draft.ts'
import { type Ending, echoRequest } from '../../../src/pipeline/answer/response-object.ts'
import type { Sink } from '../../../src/pipeline/answer/sink.ts'
import type { StreamEvent } from '../../../src/protocol/events.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { grammarViolations } from '../../support/event-grammar.ts'

const ENDING: Ending = { completedAt: 2, usage: null, serviceTier: null, metadata: null }
const LATE = new GatewayError('deadline_exceeded', 'late')
const never = new AbortController().signal
const loop = () => new Promise(resolve => setImmediate(resolve))

/** A sink that takes `flows` events before it says that it is slow, each time. */
class Reader implements Sink {
  readonly relays = 'responses'
  readonly live: boolean
  readonly events: StreamEvent[] = []
  readonly said: string[] = []
  resume: (() => void) | null = null
  readonly #flows: number

  constructor(flows = Number.POSITIVE_INFINITY, live = true) {
    this.#flows = flows
    this.live = live
  }

  write(event: StreamEvent): boolean {
    this.events.push(structuredClone(event))
    return this.events.length % this.#flows !== 0
  }

  relay(): boolean {
    throw new Error('bytes went straight through')
  }

  cork(): void {
    this.said.push('hold')
  }

  flush(): boolean {
    this.said.push('flush')
    return true
  }

  onDrain(resume: () => void): void {
    this.resume = resume
  }

  end(): void {
    this.said.push('end')
  }
}

function answerTo(reader: Reader): Answer {
  const request = parseResponsesRequest({ model: 'acme/fast-1', input: 'hi' })
  return new Answer(reader, echoRequest(request, { id: 'gen-1-x', createdAt: 1, model: '' }))
}

/** A turn that says these texts in one message: two opening events, one of the item, two a text, two of its end. */
function say(answer: Answer, ...texts: readonly string[]): void {
  if (!answer.hasBegun) answer.begin('acme/fast-1', null, [])
  answer.receive({ kind: 'open', item: 0, start: { type: 'message', id: null, phase: null } })
  for (const text of texts) answer.receive({ kind: 'text', item: 0, part: 0, text, logprobs: null })
}

const types = (reader: Reader) => reader.events.map(event => event.type.replace('response.', ''))
const texts = (reader: Reader) => reader.events.flatMap(event => ('delta' in event ? [event.delta] : []))
const numbers = (reader: Reader) => reader.events.map(event => event.sequence_number)
const counted = (reader: Reader) => reader.events.map((_, at) => at)

t.test('nothing is seen before it was passed, and nothing counts as seen', async t => {
  const reader = new Reader()
  const answer = answerTo(reader)
  answer.openTurn(true)
  t.equal(answer.relays, null, 'bytes of a provider are not passed on')
  answer.hold()
  say(answer, 'a', 'b')
  t.equal(answer.flush(), true)
  t.same([reader.events, reader.said], [[], []])
  t.match(answer, { live: true, hasBegun: true, committed: false, turnSeen: false, nextEventNumber: 0 })
  await answer.pass(never)
  t.match(answer, { committed: true, turnSeen: true, relays: 'responses' })
  t.same(texts(reader), ['a', 'b'])
  t.equal(reader.said.at(-1), 'flush')
  answer.receive({ kind: 'text', item: 0, part: 0, text: 'c', logprobs: null })
  t.same(texts(reader), ['a', 'b', 'c'])
  answer.finish('stop', ENDING)
  t.equal(reader.said.at(-1), 'end')
  t.same(grammarViolations(reader.events), [])
})

t.test('a turn that is not held is seen at once', async t => {
  const reader = new Reader()
  const answer = answerTo(reader)
  answer.openTurn(false)
  t.match(answer, { committed: false, turnSeen: false, relays: 'responses' })
  say(answer, 'a')
  t.same(texts(reader), ['a'])
  t.match(answer, { committed: true, turnSeen: true })
  await answer.pass(never)
  t.same(reader.said, [], 'there is nothing to let go')
  await t.rejects(answer.pass(AbortSignal.abort(LATE)), LATE)
})

t.test('what goes to a reader of the whole is never seen before the end', async t => {
  for (const held of [true, false]) {
    const reader = new Reader(Number.POSITIVE_INFINITY, false)
    const answer = answerTo(reader)
    answer.openTurn(held)
    say(answer, 'a')
    t.match(answer, { live: false, committed: false, turnSeen: false })
    answer.dropTurn()
    answer.openTurn(held)
    say(answer, 'b')
    answer.finish('stop', ENDING)
    t.match(reader.events.at(-1), { response: { output: [{ content: [{ text: 'b' }] }] } })
  }
})

t.test('a slow reader is waited for, between events and at the end', async t => {
  const reader = new Reader(3)
  const answer = answerTo(reader)
  answer.openTurn(true)
  let resumed = 0
  answer.follow({ pause: () => undefined, resume: () => resumed++ })
  say(answer, 'a', 'b')
  let passed = false
  const passing = answer.pass(never).then(() => {
    passed = true
  })
  await loop()
  t.same(types(reader), ['created', 'in_progress', 'output_item.added'])
  reader.resume?.()
  await loop()
  t.same(types(reader).slice(3), ['content_part.added', 'output_text.delta', 'output_text.delta'])
  t.equal(passed, false)
  reader.resume?.()
  await passing
  t.equal(resumed, 0, 'the attempt is over; what is late of it is not asked for')
  reader.resume?.()
  t.equal(resumed, 1, 'from here on it is the attempt that is told')
})

t.test('an attempt pauses for a slow reader, except while its turn is held', async t => {
  const reader = new Reader(4)
  const answer = answerTo(reader)
  let pauses = 0
  answer.follow({ pause: () => pauses++, resume: () => undefined })
  answer.openTurn(true)
  say(answer, 'a', 'b', 'c')
  t.equal(pauses, 0)
  answer.dropTurn()
  answer.openTurn(false)
  say(answer, 'a')
  t.equal(pauses, 1)
})

t.test('a reader that leaves ends the passing, and what ends the stream has the next number', async t => {
  const reader = new Reader(3)
  const answer = answerTo(reader)
  answer.openTurn(true)
  say(answer, 'a', 'b')
  answer.closeTurn('stop')
  const leaving = new AbortController()
  const passing = answer.pass(leaving.signal)
  leaving.abort(LATE)
  await t.rejects(passing, LATE)
  t.match(answer, { committed: true, turnSeen: true, nextEventNumber: 3 })
  answer.fail(LATE, ENDING)
  t.same(types(reader), ['created', 'in_progress', 'output_item.added', 'failed'])
  t.same(numbers(reader), [0, 1, 2, 3])
  reader.resume?.()
  t.equal(reader.events.length, 4, 'what was not passed goes nowhere')
})

t.test('a reader that has left is passed nothing', async t => {
  const reader = new Reader()
  const answer = answerTo(reader)
  answer.openTurn(true)
  say(answer, 'a')
  await t.rejects(answer.pass(AbortSignal.abort(LATE)), LATE)
  t.same(reader.events, [])
  t.match(answer, { committed: false, turnSeen: false })
})

t.test('numbers are contiguous over drafts that were dropped and over turns', async t => {
  const reader = new Reader()
  const answer = answerTo(reader)
  answer.openTurn(true)
  say(answer, 'dropped')
  answer.dropTurn()
  t.match(answer, { hasBegun: false, nextEventNumber: 0 })
  answer.openTurn(true)
  say(answer, 'first')
  answer.closeTurn('tool_calls')
  await answer.pass(never)
  answer.openTurn(true)
  say(answer, 'dropped too')
  answer.dropTurn()
  t.match(answer, { hasBegun: true, committed: true, turnSeen: false })
  answer.openTurn(true)
  say(answer, 'second')
  await answer.pass(never)
  answer.finish('stop', ENDING)
  t.same(texts(reader), ['first', 'second'])
  t.same(numbers(reader), counted(reader))
  t.same(types(reader).filter(type => type === 'created').length, 1, 'there is one beginning')
  t.same(grammarViolations(reader.events), [])
  const last = reader.events.at(-1)
  t.match(last, {
    type: 'response.completed',
    response: { output: [{ content: [{ text: 'first' }] }, { content: [{ text: 'second' }] }] },
  })
  t.equal(last !== undefined && 'response' in last && last.response.output.length, 2)
})

t.test(
  'the attempt that takes the place of a dropped one begins the response with its own model',
  async t => {
    const reader = new Reader()
    const answer = answerTo(reader)
    answer.openTurn(true)
    answer.begin('acme/slow-1', null, [{ echo_upstream_body: { a: 1 } }])
    answer.dropTurn()
    t.equal(answer.hasBegun, false)
    answer.begin('acme/fast-1', null, [{ echo_upstream_body: { b: 1 } }])
    await answer.pass(never)
    t.match(reader.events, [
      { type: 'response.debug', debug: { echo_upstream_body: { b: 1 } } },
      { type: 'response.created', response: { model: 'acme/fast-1' } },
      { type: 'response.in_progress' },
    ])
    t.same(numbers(reader), [0, 1, 2])
  },
)

t.test('a turn that was seen cannot be dropped, and the next one is not seen yet', async t => {
  const reader = new Reader()
  const answer = answerTo(reader)
  answer.openTurn(false)
  t.doesNotThrow(() => answer.dropTurn(), 'nobody has seen it')
  say(answer, 'a')
  t.equal(answer.turnSeen, true)
  t.throws(() => answer.dropTurn())
  answer.closeTurn('tool_calls')
  answer.openTurn(true)
  t.match(answer, { turnSeen: false, committed: true })
  answer.dropTurn()
  answer.openTurn(true)
  say(answer, 'b')
  await answer.pass(never)
  t.throws(() => answer.dropTurn())
  answer.finish('stop', ENDING)
  t.same(grammarViolations(reader.events), [])
})

t.test('items of our own stand between two turns', async t => {
  const reader = new Reader()
  const answer = answerTo(reader)
  answer.openTurn(true)
  say(answer, 'first')
  answer.closeTurn('tool_calls')
  await answer.pass(never)
  const one = answer.addItem({ type: 'gateway:datetime', status: 'in_progress' })
  const two = answer.addItem({ type: 'gateway:datetime', status: 'in_progress' })
  t.same([one.outputIndex, two.outputIndex], [1, 2])
  t.match(reader.events.slice(-2), [
    { type: 'response.output_item.added', output_index: 1, item: { id: one.id, status: 'in_progress' } },
    { type: 'response.output_item.added', output_index: 2, item: { id: two.id, status: 'in_progress' } },
  ])
  t.match(answer.endItem(two, { status: 'completed', timezone: 'UTC' }, 'completed'), {
    id: two.id,
    timezone: 'UTC',
  })
  t.match(answer.endItem(one, null, 'completed'), { id: one.id, status: 'completed' })
  answer.openTurn(true)
  say(answer, 'dropped')
  answer.dropTurn()
  answer.openTurn(true)
  say(answer, 'second')
  t.equal(answer.closeTurn('stop').length, 1, 'the items of the turn alone')
  await answer.pass(never)
  answer.finish('stop', ENDING)
  t.same(grammarViolations(reader.events), [])
  t.match(reader.events.at(-1), {
    response: {
      output: [
        { content: [{ text: 'first' }] },
        { id: one.id },
        { id: two.id, timezone: 'UTC' },
        { content: [{ text: 'second' }] },
      ],
    },
  })
})

t.test('an item of our own that is open when the answer fails is incomplete', async t => {
  const reader = new Reader()
  const answer = answerTo(reader)
  answer.openTurn(false)
  say(answer, 'a')
  answer.closeTurn('tool_calls')
  const ended = answer.addItem({ type: 'gateway:datetime', status: 'in_progress' })
  const open = answer.addItem({ type: 'gateway:datetime', status: 'in_progress' })
  answer.endItem(ended, { status: 'completed' }, 'completed')
  answer.fail(LATE, ENDING)
  t.same(types(reader).slice(-2), ['output_item.done', 'failed'])
  t.match(reader.events.at(-2), { item: { id: open.id, status: 'incomplete' } })
  t.match(reader.events.at(-1), {
    response: { output: [{}, { status: 'completed' }, { id: open.id, status: 'incomplete' }] },
  })
  t.same(grammarViolations(reader.events), [])
})

t.test('only events that leave are shown to the listener, until the turn ends', async t => {
  const answer = answerTo(new Reader())
  answer.openTurn(false)
  const heard: string[] = []
  answer.listen(({ type }) => heard.push(type))
  answer.overhear(2, () => answer.begin('acme/fast-1', null, []))
  t.same(heard, [], 'they reached the reader as bytes')
  t.match(answer, { nextEventNumber: 2, committed: true, turnSeen: true })
  say(answer, 'a')
  t.same(heard, ['response.output_item.added', 'response.content_part.added', 'response.output_text.delta'])
  answer.openTurn(false)
  say(answer, 'b')
  t.equal(heard.length, 3)
})

t.test('what is held has a bound, and empty events count too', async t => {
  const delta = (text: string): StreamEvent => ({
    type: 'response.output_text.delta',
    sequence_number: 0,
    item_id: 'msg_1',
    output_index: 0,
    content_index: 0,
    delta: text,
    logprobs: [],
  })
  const draft = new Draft(undefined, 100_000)
  const fill = (event: () => StreamEvent): number => {
    let added = 0
    try {
      for (; added < 10_000; added++) draft.add(event())
    } catch (thrown) {
      t.match(thrown, { code: 'provider_unavailable' })
    }
    return added
  }
  const few = fill(() => delta('x'.repeat(10_000)))
  t.ok(few < 10, `${few} long ones`)
  t.same(draft.drain(), [], 'of what is too much nothing is kept')
  const empty = new Draft(undefined, 100_000)
  t.throws(() => {
    for (let at = 0; at < 1_000; at++) empty.add(delta(''))
  })
  const item = {
    type: 'image_generation_call',
    id: 'ig_1',
    status: 'completed',
    result: 'x'.repeat(200_000),
  } as const
  t.throws(() =>
    new Draft(undefined, 100_000).add({
      type: 'response.output_item.done',
      sequence_number: 0,
      output_index: 0,
      item,
    }),
  )
  const again = new Draft(undefined, 1_000)
  for (let turn = 0; turn < 10; turn++) {
    again.add(delta('x'.repeat(700)))
    t.equal(again.drain().length, 1, 'what was taken no longer counts')
  }
})

t.test('a draft of an answer has a bound too', async t => {
  const answer = answerTo(new Reader())
  answer.openTurn(true)
  say(answer)
  const text = 'x'.repeat(1024 * 1024)
  t.throws(
    () => {
      for (let mebibytes = 0; mebibytes < 65; mebibytes++)
        answer.receive({ kind: 'text', item: 0, part: 0, text, logprobs: null })
    },
    { code: 'provider_unavailable' },
  )
})

t.test('a caller who leaves between two waits for the reader leaves nothing waiting', async t => {
  const reader = new Reader(2)
  const answer = answerTo(reader)
  let resumed = 0
  answer.follow({ pause: () => undefined, resume: () => resumed++ })
  answer.openTurn(true)
  say(answer, 'a', 'b')
  const leaving = new AbortController()
  const passing = t.rejects(answer.pass(leaving.signal), LATE)
  await loop()
  reader.resume?.()
  leaving.abort(LATE)
  await passing
  reader.resume?.()
  t.equal(resumed, 1, 'the source goes on')
})
