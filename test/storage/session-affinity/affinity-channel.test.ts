import t from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { type LinkMessage, ThreadLink } from '../../../src/base/thread-rpc.ts'
import { PinClient } from '../../../src/storage/session-affinity/affinity-channel.ts'
import { RedisPins } from '../../../src/storage/session-affinity/redis-affinity.ts'
import { createPins, type Pins } from '../../../src/storage/session-affinity/session-affinity.ts'
import { ownRedis, WITHOUT_REDIS } from '../../support/redis-server.ts'
import { eventually } from '../../support/stream-probe.ts'
import { TestClock } from '../../support/test-clock.ts'
import { linkedEnds } from '../../support/thread-link.ts'

const MINUTE_MS = 60_000

/** Clients of two threads with one store; messages travel as they do between threads, one turn later. */
function setup(pins: Pins, clock = new TestClock()) {
  const sent: LinkMessage[] = []
  const thread = (): PinClient => {
    const ends = linkedEnds({ api: { pins }, clock, isSlow: true, sent })
    return new PinClient(ends.caller.service('pins'))
  }
  return { clock, sent, one: thread(), two: thread() }
}

t.test('two threads know the same pins, and the first claim holds', async t => {
  const { one, two, sent } = setup(createPins(new TestClock()))
  t.equal(await one.get('k'), null)
  t.same(await Promise.all([one.claim('k', 'a', MINUTE_MS, 'key'), two.claim('k', 'b', MINUTE_MS, 'key')]), [
    'a',
    'a',
  ])
  two.set('k', 'c', MINUTE_MS, 'key')
  t.equal(await one.get('k'), 'c')
  const before = sent.length
  await Promise.all([one.get('k'), one.get('l'), one.get('m')])
  t.equal(sent.length - before, 1, 'questions of one turn travel together')
})

t.test('a main thread that does not answer costs a pin, no request', async t => {
  const clock = new TestClock()
  const client = new PinClient(
    new ThreadLink<{ readonly pins: Pins }>(clock, () => undefined).service('pins'),
  )
  const got = client.get('k')
  const claimed = client.claim('k', 'mine', MINUTE_MS, 'key')
  clock.advance(500)
  t.equal(await got, null)
  t.equal(await claimed, 'mine')
  t.equal(clock.armed, 0)
})

t.test('a pin ends after its time', async t => {
  const clock = new TestClock()
  const pins = createPins(clock)
  pins.set('k', 'a', MINUTE_MS, 'key')
  clock.advance(MINUTE_MS - 1)
  t.equal(pins.claim('k', 'b', MINUTE_MS, 'key'), 'a', 'a claim does not renew it')
  clock.advance(1)
  t.equal(pins.get('k'), null)
  t.equal(pins.claim('k', 'b', MINUTE_MS, 'key'), 'b')
})

t.test(
  'instances share their pins by Redis, and have their own while it is away',
  { skip: WITHOUT_REDIS },
  async t => {
    const redis = await ownRedis(t)
    await redis.start()
    const open = (): RedisPins => {
      const log = { fault: () => undefined, notice: () => undefined }
      const pins = new RedisPins({
        url: redis.url,
        prefix: 'test:',
        clock: systemClock,
        log,
        silenceMs: 5_000,
      })
      t.teardown(() => pins.close())
      return pins
    }
    const [here, there] = [open(), open()]
    // Until it is connected, each has its own.
    t.ok(
      await eventually(async () => {
        here.set('ready', 'yes', MINUTE_MS, 'key')
        return (await there.get('ready')) === 'yes'
      }, 30_000),
    )
    t.equal(await here.claim('k', 'a', MINUTE_MS, 'key'), 'a')
    t.equal(await there.claim('k', 'b', MINUTE_MS, 'key'), 'a')
    there.set('k', 'b', MINUTE_MS, 'key')
    t.equal(await here.claim('k', 'a', MINUTE_MS, 'key'), 'b')
    await redis.kill()
    t.equal(await here.claim('k', 'c', MINUTE_MS, 'key'), 'b', 'what it has seen')
    t.equal(await here.claim('new', 'c', MINUTE_MS, 'key'), 'c')
    t.equal(await here.get('new'), 'c')
  },
)

t.test('long pins have a room of their own, and replace short ones of their key', async t => {
  const clock = new TestClock()
  const pins = createPins(clock)
  const seal = 'x'.repeat(4_000)
  pins.set('short', 'a', 1_000, 'one')
  pins.set('changed', 'b', 1_000, 'one')
  pins.set('changed', seal, 1_000, 'one')
  for (let at = 0; at < 5_000; at++) pins.set(`long ${at}`, seal, 1_000, 'two')
  t.equal(pins.get('short'), 'a')
  t.equal(pins.get('changed'), seal, 'the owner with most loses its own')
  t.equal(pins.get('long 0'), null)
  t.equal(pins.get('long 4999'), seal)
  pins.set('changed', 'c', 1_000, 'one')
  t.equal(pins.get('changed'), 'c')
  clock.advance(1_000)
  t.equal(pins.get('long 4999'), null)
})
