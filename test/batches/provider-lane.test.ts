import t from 'tap'
import { ProviderLane } from '../../src/batches/provider-lane.ts'
import { TestClock } from '../support/test-clock.ts'

function fill(lane: ProviderLane): number[] {
  const entered: number[] = []
  while (lane.room > 0) entered.push(lane.enter())
  return entered
}

/** One round of lines that all go well, each followed by others. */
function round(lane: ProviderLane): void {
  fill(lane)
  for (let left = lane.running; left > 0; left--) {
    lane.leave()
    lane.noteSuccess()
    fill(lane)
  }
}

function empty(lane: ProviderLane): void {
  while (lane.running > 0) lane.leave()
}

t.test('a lane doubles with each good round up to its maximum', async t => {
  const lane = new ProviderLane({ clock: new TestClock(), maxRunning: 100 })
  const limits = [lane.limit]
  for (let rounds = 0; rounds < 4; rounds++) {
    round(lane)
    limits.push(lane.limit)
  }
  t.same(limits, [16, 32, 64, 100, 100])
})

t.test('a lane that is not full does not grow', async t => {
  const lane = new ProviderLane({ clock: new TestClock(), maxRunning: 100 })
  for (let lines = 0; lines < 50; lines++) {
    lane.enter()
    lane.noteSuccess()
    lane.leave()
  }
  t.equal(lane.limit, 16)
})

t.test('an overload halves the places once for all lines that ran then, and ends the doubling', async t => {
  const clock = new TestClock()
  const lane = new ProviderLane({ clock, maxRunning: 100 })
  const entered = fill(lane)
  clock.advance(10)
  for (const enteredMs of entered) lane.noteOverload(enteredMs, null)
  t.equal(lane.limit, 8)
  t.equal(lane.room, 0, 'those that run keep their places')
  for (const _ of entered) lane.leave()
  t.equal(lane.room, 8)
  for (let rounds = 0; rounds < 8; rounds++) round(lane)
  t.ok(lane.limit >= 14 && lane.limit <= 16, 'about one place for each round')
  empty(lane)
})

t.test('a lane never closes for good', async t => {
  const clock = new TestClock()
  const lane = new ProviderLane({ clock, maxRunning: 100 })
  for (let overloads = 0; overloads < 20; overloads++) {
    clock.advance(1)
    lane.noteOverload(clock.monotonicMs(), null)
  }
  t.equal(lane.limit, 1)
  t.equal(lane.room, 1)
})

t.test('nothing starts while the provider asks to wait', async t => {
  const clock = new TestClock()
  const lane = new ProviderLane({ clock, maxRunning: 100 })
  lane.noteOverload(lane.enter(), 3_000)
  lane.leave()
  lane.noteOverload(0, 1_000)
  t.equal(lane.pausedMs, 3_000, 'the longest counts')
  t.equal(lane.room, 0)
  clock.advance(2_999)
  t.equal(lane.room, 0)
  clock.advance(1)
  t.equal(lane.room, 8)
})

t.test('a provider that cannot be reached is asked ever more rarely, until something succeeds', async t => {
  const clock = new TestClock()
  const lane = new ProviderLane({ clock, maxRunning: 100 })
  const pauses: number[] = []
  for (let tries = 0; tries < 8; tries++) {
    const enteredMs = lane.enter()
    pauses.push(lane.noteUnreachable(enteredMs))
    // Another line of the same round.
    lane.noteUnreachable(enteredMs - 1)
    lane.leave()
    clock.advance(lane.pausedMs)
  }
  t.same(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000])
  lane.enter()
  lane.noteSuccess()
  lane.leave()
  t.equal(lane.noteUnreachable(lane.enter()), 1_000)
})

t.test('a lane tells for how long nobody used it', async t => {
  const clock = new TestClock()
  const lane = new ProviderLane({ clock, maxRunning: 2 })
  t.equal(lane.limit, 2, 'never more than the maximum')
  clock.advance(5)
  t.equal(lane.idleMs, 5)
  lane.enter()
  clock.advance(5)
  t.equal(lane.idleMs, 0)
  t.equal(lane.running, 1)
  lane.leave()
  clock.advance(7)
  t.equal(lane.idleMs, 7)
})
