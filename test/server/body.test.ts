import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { BodyBuffer, BodyStream } from '../../src/server/body.ts'
import { bodyReader } from '../support/body-reader.ts'
import { turns } from '../support/raw-http.ts'
import { TestClock } from '../support/test-clock.ts'

const UPLOAD_MS = 1_000

function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text)
}

/** Counts what is held, and whether the socket may be read. */
function counted() {
  return {
    held: 0,
    room: Number.POSITIVE_INFINITY,
    count(more: number) {
      this.held += more
      return this.held <= this.room
    },
    paused: false,
    resumed: 0,
    pause() {
      this.paused = true
    },
    resume() {
      this.paused = false
      this.resumed++
    },
  }
}

const text = (chunk: Uint8Array): string => Buffer.from(chunk).toString()

t.test('a buffer keeps what it was given, in order, as a copy', async t => {
  const count = counted()
  const buffer = new BodyBuffer(100, count)
  const borrowed = new TextEncoder().encode('{"a":')
  buffer.push(borrowed, false)
  borrowed.fill(0)
  buffer.push(bytes(''), false)
  t.notOk(buffer.isComplete)
  const clock = new TestClock()
  const collected = buffer.collect(clock, UPLOAD_MS)
  buffer.push(bytes('1}'), true)
  t.equal(text(await collected), '{"a":1}')
  t.ok(buffer.isComplete)
  t.equal((await buffer.collect(clock, UPLOAD_MS)).byteLength, 0)
  t.equal(count.held, 100, 'its memory')
  buffer.release()
  buffer.push(bytes('more'), true)
  t.equal(count.held, 0)
})

t.test('a buffer is full at its limit, not below', async t => {
  const count = counted()
  const buffer = new BodyBuffer(4, count)
  buffer.push(bytes('1234'), false)
  buffer.push(bytes('5'), true)
  await t.rejects(buffer.collect(new TestClock(), UPLOAD_MS), { code: 'payload_too_large' })
  t.notOk(buffer.isComplete)
  buffer.release()
  t.equal(count.held, 0)
})

t.test('a body that does not end in time is given up, collected or streamed', async t => {
  const clock = new TestClock()
  const collected = new BodyBuffer(10, counted()).collect(clock, UPLOAD_MS)
  const stream = new BodyStream(counted(), null, 10, counted())
  stream.startDeadline(clock, UPLOAD_MS)
  const read = stream.read(bodyReader())
  clock.advance(UPLOAD_MS)
  await t.rejects(collected, { code: 'deadline_exceeded' })
  await t.rejects(read, { code: 'deadline_exceeded' })
})

t.test('a stream that arrives too slowly is refused, unless its reader is slow', async t => {
  const WINDOW_MS = 10_000
  const piece = new Uint8Array(64 * 1024)
  const clock = new TestClock()
  const stream = new BodyStream(counted(), null, 10_000_000, counted())
  stream.startDeadline(clock, 1_800_000)
  let isTaken = Promise.withResolvers<void>()
  isTaken.resolve()
  const read = stream.read(bodyReader(() => isTaken.promise))
  const slow = t.rejects(read, {
    code: 'deadline_exceeded',
    message: 'The request body arrives too slowly: at least 65536 bytes must arrive within 10 seconds',
  })
  for (let window = 0; window < 3; window++) {
    stream.push(piece, false)
    await turns(2)
    clock.advance(WINDOW_MS)
  }
  isTaken = Promise.withResolvers<void>()
  stream.push(bytes('x'), false)
  await turns(2)
  clock.advance(5 * WINDOW_MS)
  isTaken.resolve()
  await turns(2)
  stream.push(piece, false)
  await turns(2)
  clock.advance(WINDOW_MS)
  stream.push(bytes('x'), false)
  await turns(2)
  clock.advance(WINDOW_MS)
  await slow
  const whole = new BodyStream(counted(), 1, 10, counted())
  whole.startDeadline(clock, 1_800_000)
  whole.push(bytes('x'), true)
  clock.advance(2 * WINDOW_MS)
  await t.resolves(whole.read(bodyReader()))
})

t.test('a stream hands chunks over in order, and holds the client back meanwhile', async t => {
  const count = counted()
  const socket = counted()
  const stream = new BodyStream(socket, 6, 10, count)
  const seen: string[] = []
  const gate = Promise.withResolvers<void>()
  stream.push(bytes('ab'), false)
  t.ok(socket.paused, 'before anybody reads')
  const reader = bodyReader(chunk => {
    seen.push(text(chunk))
    return seen.length === 1 ? gate.promise : undefined
  })
  const read = stream.read(reader)
  await turns(2)
  t.same(seen, ['ab'])
  t.ok(socket.paused, 'while a chunk is being taken')
  t.equal(count.held, 2)
  gate.resolve()
  await turns(2)
  t.notOk(socket.paused, 'when it is taken')
  t.equal(count.held, 0)
  stream.push(bytes('cd'), false)
  t.ok(socket.paused)
  stream.push(bytes('ef'), true)
  t.notOk(socket.paused, 'after the last chunk')
  await read
  t.same(seen, ['ab', 'cd', 'ef'])
  t.equal(count.held, 0)
})

t.test(
  'a client that was held back until its last chunk is not cut while it waits for its answer',
  async t => {
    for (const isEarly of [true, false]) {
      const clock = new TestClock()
      const socket = counted()
      const stream = new BodyStream(socket, 4, 10, counted())
      const arrive = () => {
        stream.push(bytes('ab'), false)
        stream.push(bytes('cd'), true)
      }
      // A short body has arrived with its head.
      if (isEarly) arrive()
      stream.startDeadline(clock, UPLOAD_MS)
      if (!isEarly) arrive()
      await stream.read(bodyReader())
      t.equal(socket.resumed, 1)
      // The library's own timer has ten seconds, and may fire four earlier.
      clock.advance(5_000)
      t.equal(socket.resumed, 2)
      clock.advance(5_000)
      t.equal(socket.resumed, 3)
      stream.release()
      clock.advance(60_000)
      t.equal(socket.resumed, 3, 'after its answer')
    }
    const clock = new TestClock()
    const socket = counted()
    const stream = new BodyStream(socket, 2, 10, counted())
    stream.startDeadline(clock, UPLOAD_MS)
    stream.push(bytes('ab'), true)
    clock.advance(60_000)
    t.equal(socket.resumed, 0, 'a client that was never held back has no timer')
  },
)

t.test('a stream ends with its first fault', async t => {
  const reason = new GatewayError('client_closed', 'gone')
  const faults: readonly (readonly [string, (stream: BodyStream) => void, { code: string }])[] = [
    ['too long', stream => stream.push(bytes('12345'), true), { code: 'payload_too_large' }],
    ['aborted', stream => stream.fail(reason), { code: 'client_closed' }],
  ]
  for (const [name, fault, error] of faults) {
    const count = counted()
    const stream = new BodyStream(counted(), null, 4, count)
    stream.push(bytes('1'), false)
    fault(stream)
    await t.rejects(stream.read(bodyReader()), error, name)
    t.equal(count.held, 0, name)
  }
  const failing = new BodyStream(counted(), null, 4, counted())
  failing.push(bytes('1'), true)
  await t.rejects(
    failing.read(
      bodyReader(() => {
        throw new Error('disk full')
      }),
    ),
    { message: 'disk full' },
  )
})

t.test('a body of no bytes is whole at once', async t => {
  const stream = new BodyStream(counted(), 0, 4, counted())
  t.ok(stream.isComplete)
  await stream.read(bodyReader(() => t.fail('no chunk')))
})

/** A reader that keeps what it is given at its place, and finishes with `take` when `gate` opens. */
function placing(gate: Promise<void>, length: number) {
  const body = Buffer.alloc(length)
  const atOnce: number[] = []
  return {
    body,
    atOnce,
    async write(chunk: Uint8Array, at: number) {
      await gate
      body.set(chunk, at)
    },
    writeNow(chunk: Uint8Array, at: number) {
      atOnce.push(at)
      body.set(chunk, at)
    },
  }
}

const LONG_BYTES = 512 * 1024

t.test('a body that arrives in one turn is taken at once beyond its first chunks', async t => {
  const count = counted()
  const length = 12 * LONG_BYTES
  const stream = new BodyStream(counted(), length, length, count)
  stream.startDeadline(new TestClock(), UPLOAD_MS)
  const gate = Promise.withResolvers<void>()
  const reader = placing(gate.promise, length)
  const read = stream.read(reader)
  for (let at = 0; at < 12; at++) stream.push(Buffer.alloc(LONG_BYTES, at), at === 11)
  t.equal(count.held, 8 * LONG_BYTES, 'as much waits as may')
  t.same(
    reader.atOnce,
    [7, 8, 9, 10].map(at => at * LONG_BYTES),
  )
  gate.resolve()
  await read
  t.ok(reader.body.every((byte, at) => byte === Math.floor(at / LONG_BYTES)))
  t.equal(count.held, 0)
})

t.test('short chunks share memory, and what is counted is the memory', async t => {
  const text = Array.from({ length: 5_000 }, (_, at) => String.fromCharCode(97 + (at % 26))).join('')
  const count = counted()
  const buffer = new BodyBuffer(text.length, count)
  for (const [at, letter] of [...text].entries()) buffer.push(bytes(letter), at === text.length - 1)
  t.ok(count.held >= text.length && count.held <= 2 * text.length, `${count.held} bytes`)
  t.equal(Buffer.from(buffer.takeBytes()).toString(), text)
  buffer.release()
  t.equal(count.held, 0)
  const streamed = counted()
  const stream = new BodyStream(counted(), null, text.length, streamed)
  const seen: string[] = []
  for (const [at, letter] of [...text].entries()) stream.push(bytes(letter), at === text.length - 1)
  t.ok(streamed.held >= text.length && streamed.held <= 2 * text.length, `${streamed.held} bytes`)
  await stream.read(bodyReader(chunk => seen.push(Buffer.from(chunk).toString())))
  t.equal(seen.join(''), text)
  t.ok(seen.length < 16, `${seen.length} chunks`)
  t.equal(streamed.held, 0)
})

t.test('a reader that cannot take a chunk at once ends the body with its reason', async t => {
  const count = counted()
  const socket = counted()
  const length = 12 * LONG_BYTES
  const stream = new BodyStream(socket, length, length, count)
  const gate = Promise.withResolvers<void>()
  const read = stream.read({
    write: () => gate.promise,
    writeNow() {
      throw new Error('disk full')
    },
  })
  for (let at = 0; at < 12; at++) stream.push(new Uint8Array(LONG_BYTES), at === 11)
  gate.resolve()
  await t.rejects(read, { message: 'disk full' })
  t.equal(count.held, 0)
  t.notOk(socket.paused)
})
