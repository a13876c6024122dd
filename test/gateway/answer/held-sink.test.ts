import t from 'tap'
import { GatewayError } from '../../../src/errors.ts'
import { HeldSink } from '../../../src/gateway/answer/held-sink.ts'
import type { Sink } from '../../../src/gateway/answer/sink.ts'
import type { StreamEvent } from '../../../src/protocol/events.ts'

function delta(text: string): StreamEvent {
  return {
    type: 'response.output_text.delta',
    sequence_number: 0,
    item_id: 'msg_1',
    output_index: 0,
    content_index: 0,
    delta: text,
    logprobs: [],
  }
}

/** A live sink that takes `flows` events before it says that it is slow, each time. */
class Reader implements Sink {
  readonly relays = null
  readonly live = true
  readonly events: StreamEvent[] = []
  readonly said: string[] = []
  resume: (() => void) | null = null
  readonly #flows: number

  constructor(flows = Number.POSITIVE_INFINITY) {
    this.#flows = flows
  }

  write(event: StreamEvent): boolean {
    this.events.push({ ...event })
    return this.events.length % this.#flows !== 0
  }

  relay(): boolean {
    throw new Error('bytes went straight through')
  }

  hold(): void {
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

const never = new AbortController().signal
const texts = (reader: Reader) => reader.events.map(event => 'delta' in event && event.delta)
const turn = () => new Promise(resolve => setImmediate(resolve))

t.test('nothing is seen before it was passed, and nothing counts as seen', async t => {
  const reader = new Reader()
  const held = new HeldSink(reader)
  held.hold()
  t.equal(held.write(delta('a')), true)
  t.equal(held.write(delta('b')), true)
  t.equal(held.flush(), true)
  t.equal(held.live, false)
  t.notOk('relay' in held, 'bytes of a provider are not passed on')
  t.same([reader.events, reader.said], [[], []])
  await held.pass(never)
  t.equal(held.live, true)
  t.same(texts(reader), ['a', 'b'])
  held.write(delta('c'))
  held.end()
  t.same(texts(reader), ['a', 'b', 'c'])
  t.equal(reader.said.at(-1), 'end')
})

t.test('a slow reader is waited for, between events and at the end', async t => {
  const reader = new Reader(2)
  const held = new HeldSink(reader)
  for (const text of ['a', 'b', 'c', 'd']) held.write(delta(text))
  let passed = false
  let resumed = 0
  held.onDrain(() => {
    resumed++
  })
  const passing = held.pass(never).then(() => {
    passed = true
  })
  await turn()
  t.same(texts(reader), ['a', 'b'])
  reader.resume?.()
  await turn()
  t.same(texts(reader), ['a', 'b', 'c', 'd'])
  t.equal(passed, false)
  reader.resume?.()
  await passing
  t.equal(resumed, 0, 'the attempt is over; what is late of it is not asked for')
  reader.resume?.()
  t.equal(resumed, 1, 'from here on it is the attempt that is told')
})

t.test('a reader that leaves ends the passing, and what ends the stream has the next number', async t => {
  const reader = new Reader(2)
  const held = new HeldSink(reader)
  for (const text of ['a', 'b', 'c', 'd']) held.write(delta(text))
  const leaving = new AbortController()
  const passing = held.pass(leaving.signal)
  const late = new GatewayError('deadline_exceeded', 'late')
  leaving.abort(late)
  await t.rejects(passing, late)
  held.write(delta('end'))
  t.same(texts(reader), ['a', 'b', 'end'])
  t.same(
    reader.events.map(event => event.sequence_number),
    [0, 1, 2],
  )
  const gone = new HeldSink(reader)
  await t.rejects(gone.pass(AbortSignal.abort(late)), late)
  t.equal(gone.live, false)
})

t.test('what is held has a bound, and empty events count too', async t => {
  const held = new HeldSink(new Reader(), 100_000)
  const fill = (event: () => StreamEvent): number => {
    let written = 0
    try {
      for (; written < 10_000; written++) held.write(event())
    } catch (thrown) {
      t.match(thrown, { code: 'provider_unavailable' })
    }
    return written
  }
  const few = fill(() => delta('x'.repeat(10_000)))
  t.ok(few < 10, `${few} long ones`)
  const empty = new HeldSink(new Reader(), 100_000)
  t.throws(() => {
    for (let at = 0; at < 1_000; at++) empty.write(delta(''))
  })
  const item = {
    type: 'image_generation_call',
    id: 'ig_1',
    status: 'completed',
    result: 'x'.repeat(200_000),
  } as const
  t.throws(() =>
    new HeldSink(new Reader(), 100_000).write({
      type: 'response.output_item.done',
      sequence_number: 0,
      output_index: 0,
      item,
    }),
  )
})
