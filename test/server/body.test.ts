import t from 'tap'
import { GatewayError } from '../../src/errors.ts'
import { BodyBuffer, BodyStream } from '../../src/server/body.ts'
import { bodyReader } from '../support/body-reader.ts'
import { turns } from '../support/raw-http.ts'
import { TestClock } from '../support/test-clock.ts'

const UPLOAD_MS = 1_000

function bytes(text: string): ArrayBuffer {
  return new TextEncoder().encode(text).buffer
}

/** Counts what is held, and whether the socket may be read. */
function counted() {
  return {
    held: 0,
    room: Number.POSITIVE_INFINITY,
    hold(more: number) {
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
  buffer.push(borrowed.buffer, false)
  borrowed.fill(0)
  buffer.push(bytes(''), false)
  t.notOk(buffer.whole)
  const clock = new TestClock()
  const collected = buffer.collect(clock, UPLOAD_MS)
  buffer.push(bytes('1}'), true)
  t.equal(text(await collected), '{"a":1}')
  t.ok(buffer.whole)
  t.equal((await buffer.collect(clock, UPLOAD_MS)).byteLength, 0)
  t.equal(count.held, 7)
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
  t.notOk(buffer.whole)
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
  const piece = new ArrayBuffer(64 * 1024)
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
  t.ok(stream.whole)
  await stream.read(bodyReader(() => t.fail('no chunk')))
})

/** A reader that keeps what it is given at its place, and finishes with `take` when `gate` opens. */
function placing(gate: Promise<void>) {
  const body = Buffer.alloc(40)
  const atOnce: number[] = []
  return {
    body,
    atOnce,
    async take(chunk: Uint8Array, at: number) {
      await gate
      body.set(chunk, at)
    },
    takeAtOnce(chunk: Uint8Array, at: number) {
      atOnce.push(at)
      body.set(chunk, at)
    },
  }
}

t.test('a body that arrives in one turn is taken at once beyond its first chunks', async t => {
  const count = counted()
  const stream = new BodyStream(counted(), 40, 40, count)
  const gate = Promise.withResolvers<void>()
  const reader = placing(gate.promise)
  const read = stream.read(reader)
  for (let at = 0; at < 40; at += 2) stream.push(bytes(String(at).padStart(2, '0')), at === 38)
  t.equal(count.held, 16, 'as much waits as may')
  t.same(reader.atOnce, [16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38])
  gate.resolve()
  await read
  t.equal(
    reader.body.toString(),
    Array.from({ length: 20 }, (_, at) => String(2 * at).padStart(2, '0')).join(''),
  )
  t.equal(count.held, 0)
})

t.test('a reader that cannot take a chunk at once ends the body with its reason', async t => {
  const count = counted()
  const socket = counted()
  const stream = new BodyStream(socket, 40, 40, count)
  const gate = Promise.withResolvers<void>()
  const read = stream.read({
    take: () => gate.promise,
    takeAtOnce() {
      throw new Error('disk full')
    },
  })
  for (let at = 0; at < 40; at += 2) stream.push(bytes('ab'), at === 38)
  gate.resolve()
  await t.rejects(read, { message: 'disk full' })
  t.equal(count.held, 0)
  t.notOk(socket.paused)
})
