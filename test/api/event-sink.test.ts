/** What piles up for a reader that is slow: whole turns, however large, and few of them. */
import t, { type Test } from 'tap'
import { EventSink } from '../../src/api/event-sink.ts'
import type { ApiRequest } from '../../src/api/operation.ts'
import { GatewayError } from '../../src/base/errors.ts'
import { Answer } from '../../src/pipeline/answer/answer.ts'
import { echoRequest } from '../../src/pipeline/answer/response-object.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import { INFERENCE, startFrontEnd } from '../server/front-end.ts'
import { parseResponsesRequest, responsesDialect } from '../support/dialects.ts'
import { RawClient, request, turns } from '../support/raw-http.ts'
import { TestClock } from '../support/test-clock.ts'

const MIB = 1024 * 1024
/** More than any kernel takes for a reader that does not read. */
const LARGE = 64 * MIB
const STALL_MS = 10_000
const STREAM_END = '\r\n0\r\n\r\n'

const event = (sequence_number: number, characters: number): StreamEvent => ({
  type: 'response.output_text.delta',
  sequence_number,
  item_id: 'msg_1',
  output_index: 0,
  content_index: 0,
  delta: 'x'.repeat(characters),
  logprobs: [],
})

/** A handler that writes what it is told to a client that does not read yet. */
async function start(t: Test, script: (sink: EventSink, handled: ApiRequest) => void | Promise<void>) {
  const clock = new TestClock()
  const front = await startFrontEnd(
    t,
    [
      {
        method: 'GET',
        path: '/stream',
        bodyLimitBytes: 0,
        key: 'inference',
        handler: async (handled, reply) => {
          const { metrics } = front
          const sink = new EventSink(reply, 'responses', responsesDialect.frames({ input: '' }), {
            heartbeatMs: 15_000,
            stallMs: STALL_MS,
            clock,
            metrics,
          })
          try {
            await script(sink, handled)
          } finally {
            sink.close()
          }
        },
      },
    ],
    { clock },
  )
  const client = new RawClient(front.port)
  t.teardown(() => client.destroy())
  client.socket.pause()
  await client.send(request('GET', '/v1/stream', { Authorization: INFERENCE }))
  return { ...front, clock, client }
}

/** Keeps the stream until the client or the deadline ends it. */
const untilAborted = ({ context: { signal } }: ApiRequest): Promise<void> =>
  new Promise(resolve => signal.addEventListener('abort', () => resolve()))

t.test('the turn in which a reader turns slow may bring any number of large events', async t => {
  const front = await start(t, sink => {
    for (let number = 0; number < 4; number++) sink.write(event(number, 8 * MIB))
    sink.end()
  })
  await front.logged(1)
  t.equal(front.lines[0]?.outcome, 'completed')
  front.client.socket.resume()
  await front.client.untilEnd(STREAM_END)
  t.ok(front.client.bytes > 32 * MIB)
  t.match(front.client.text.slice(-200), 'data: [DONE]')
})

t.test('so may the turn that ends a stream whose reader is slow', async t => {
  const front = await start(t, async sink => {
    sink.write(event(0, LARGE))
    await turns(3)
    for (let number = 1; number < 4; number++) sink.write(event(number, 3 * MIB))
    sink.end()
  })
  await front.logged(1)
  t.equal(front.lines[0]?.outcome, 'completed')
  front.client.socket.resume()
  await front.client.untilEnd(STREAM_END)
  t.ok(front.client.bytes > LARGE + 9 * MIB)
})

const repeat = (sequence_number: number, characters = 3 * MIB): StreamEvent => ({
  type: 'response.output_text.done',
  sequence_number,
  item_id: 'msg_1',
  output_index: 0,
  content_index: 0,
  text: 'y'.repeat(characters),
  logprobs: [],
})

const numbersIn = (text: string) =>
  [...text.matchAll(/"sequence_number":(\d+)/g)].map(([, number]) => Number(number))

t.test('events that repeat the reply wait until a slow reader has taken those before them', async t => {
  const front = await start(t, async sink => {
    sink.write(event(0, LARGE))
    await turns(3)
    for (let number = 1; number < 6; number++) t.equal(sink.write(repeat(number)), false)
    sink.end()
  })
  await front.logged(1)
  t.equal(front.lines[0]?.outcome, 'completed')
  const held = front.server.load.bufferedBytes
  t.ok(held >= LARGE + 3 * MIB && held < LARGE + 4 * MIB, `${held} bytes are held`)
  front.client.socket.resume()
  await front.client.untilEnd(STREAM_END)
  t.same(numbersIn(front.client.text), [0, 1, 2, 3, 4, 5])
  t.ok(front.client.bytes > LARGE + 15 * MIB)
  t.match(front.client.text.slice(-200), 'data: [DONE]')
  t.equal(front.server.load.bufferedBytes, 0)
})

t.test(
  'at the end of a long stream their frames are made in turns of their own, and others go on between',
  async t => {
    let others = 0
    const reading = Promise.withResolvers<void>()
    const front = await start(t, async sink => {
      await reading.promise
      sink.write(event(0, 300_000))
      for (let number = 1; number < 6; number++) sink.write(repeat(number))
      sink.end()
      const next = (): void => {
        others++
        if (others < 100) setImmediate(next)
      }
      setImmediate(next)
    })
    front.client.socket.resume()
    reading.resolve()
    await front.client.untilEnd(STREAM_END)
    t.same(numbersIn(front.client.text), [0, 1, 2, 3, 4, 5])
    t.ok(others >= 5, `${others} turns`)
  },
)

t.test('they keep their place when the stream goes on or fails', async t => {
  for (const isFailing of [false, true]) {
    const front = await start(t, async (sink, { context: { id } }) => {
      sink.write(event(0, LARGE))
      await turns(3)
      sink.write(repeat(1))
      sink.write(event(2, 10))
      sink.write(repeat(3))
      if (!isFailing) sink.end()
      else {
        const details = { id, metadata: null, usage: null, request: null }
        sink.fail(new GatewayError('provider_unavailable', 'too late'), details)
      }
    })
    await front.logged(1)
    front.client.socket.resume()
    await front.client.untilEnd(STREAM_END)
    t.same(numbersIn(front.client.text).slice(0, 4), [0, 1, 2, 3])
    t.match(front.client.text.slice(-600), isFailing ? 'too late' : 'data: [DONE]')
  }
})

t.test('they leave when the reader catches up before the end', async t => {
  const resumed = Promise.withResolvers<void>()
  const front = await start(t, async sink => {
    sink.onDrain(resumed.resolve)
    sink.write(event(0, LARGE))
    await turns(2)
    sink.write(repeat(1))
    front.client.socket.resume()
    await resumed.promise
    sink.write(event(2, 10))
    sink.end()
  })
  await front.client.untilEnd(STREAM_END)
  t.same(numbersIn(front.client.text), [0, 1, 2])
})

t.test('a reader that leaves instead takes them along', async t => {
  const front = await start(t, async sink => {
    sink.write(event(0, LARGE))
    await turns(3)
    sink.write(repeat(1))
    sink.end()
  })
  await front.logged(1)
  front.client.destroy()
  while (front.server.load.bufferedBytes > 0) await turns(1)
  t.equal(front.server.openStreams, 0)
})

t.test('who goes on turn after turn for a slow reader is stopped when 4 MiB have piled up', async t => {
  let written = 0
  const front = await start(t, async (sink, { context: { signal } }) => {
    sink.write(event(0, LARGE))
    while (!signal.aborted && written < 100) {
      await turns(2)
      sink.write(event(++written, MIB / 2))
    }
  })
  await front.logged(1)
  t.equal(front.lines[0]?.outcome, 'aborted')
  t.ok(written >= 8 && written <= 10, `after ${written} events of half a MiB`)
  t.equal(front.server.load.bufferedBytes, 0)
})

t.test('large events that were held back reach a reader that is slow at first', async t => {
  const front = await start(t, async (sink, { context: { signal } }) => {
    const asked = parseResponsesRequest({ model: 'acme/fast-1', input: 'hi' })
    const answer = new Answer(sink, echoRequest(asked, { id: 'gen-1-x', createdAt: 1, model: '' }))
    answer.openTurn(true)
    answer.begin('acme/fast-1', null, [])
    answer.receive({ kind: 'open', item: 0, start: { type: 'message', id: null, phase: null } })
    for (let count = 0; count < 3; count++) {
      answer.receive({ kind: 'text', item: 0, part: 0, text: 'x'.repeat(6 * MIB), logprobs: null })
    }
    const passed = answer.pass(signal)
    await turns(5)
    front.client.socket.resume()
    await passed
    sink.end()
  })
  await front.client.untilEnd(STREAM_END)
  t.ok(front.client.bytes > 18 * MIB)
  await front.logged(1)
  t.equal(front.lines[0]?.outcome, 'completed')
})

t.test('what piles up is forgotten when the reader has taken all', async t => {
  const resumed = Promise.withResolvers<void>()
  const front = await start(t, async sink => {
    sink.onDrain(resumed.resolve)
    sink.write(event(0, LARGE))
    await turns(2)
    sink.write(event(1, 5 * MIB))
    front.client.socket.resume()
    await resumed.promise
    for (let number = 2; number < 4; number++) {
      sink.write(event(number, 8 * MIB))
      await turns(2)
    }
    sink.end()
  })
  await front.client.untilEnd(STREAM_END)
  t.ok(front.client.bytes > LARGE + 21 * MIB)
  await front.logged(1)
  t.equal(front.lines[0]?.outcome, 'completed')
})

t.test('a reader that takes nothing of a large event is dropped by its deadline', async t => {
  const written = Promise.withResolvers<boolean>()
  const front = await start(t, async (sink, handled) => {
    const { signal } = handled.context
    const aborted = untilAborted(handled)
    written.resolve(sink.write(event(0, LARGE)))
    await aborted
    t.equal(signal.aborted, true)
  })
  t.equal(await written.promise, false)
  await turns(5)
  const held = front.server.load.bufferedBytes
  t.ok(held >= LARGE && held < LARGE + MIB / 10, `${held} bytes are held`)
  front.clock.advance(STALL_MS - 1)
  t.equal(front.server.openStreams, 1)
  front.clock.advance(1)
  t.equal(front.server.openStreams, 0)
  await front.logged(1)
  t.match(front.lines[0], { outcome: 'aborted', status: 499 })
  t.equal(front.server.load.bufferedBytes, 0)
  t.equal(front.clock.armed, 0)
})
