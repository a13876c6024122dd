/** Turns of the event loop: their length, and what most of one went into. */
import { performance } from 'node:perf_hooks'
import { setImmediate } from 'node:timers/promises'
import t from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { LoopTurns } from '../../../src/process/threads/loop-turns.ts'

function setUp() {
  const now = { ms: 100, idleMs: 40, deferredMs: 7 }
  const seen: (readonly [string, number])[] = []
  const turns = new LoopTurns({
    clock: { monotonicMs: () => now.ms },
    idleMs: () => now.idleMs,
    deferredMs: () => now.deferredMs,
    onTurn: (cause, seconds) => seen.push([cause, Math.round(seconds * 1000)]),
  })
  turns.start()
  t.teardown(() => turns.stop())
  /** Ends a turn: time that has passed, and the parts of it that were spent waiting and on deferred work. */
  const turn = (ms: number, { idleMs = 0, deferredMs = 0 } = {}): void => {
    now.ms += ms
    now.idleMs += idleMs
    now.deferredMs += deferredMs
    turns.turnEnded()
  }
  return { now, turns, seen, turn }
}

t.test('a turn is as long as the time in which the loop did not wait', async t => {
  const { seen, turn } = setUp()
  turn(30, { idleMs: 25 })
  t.same(seen, [], 'it is reported one turn later')
  turn(50, { idleMs: 50 })
  turn(1)
  t.same(seen, [
    ['other', 5],
    ['other', 0],
  ])
})

t.test('the cause is what most of the turn went into', async t => {
  const { turns, now, seen, turn } = setUp()
  turn(10, { deferredMs: 6 })
  turn(10, { deferredMs: 3 })
  // A pause of the turn that has just ended is reported only now.
  turns.paused(now.ms - 8, 7)
  // This one belongs to the next turn.
  turns.paused(now.ms + 1, 9)
  turn(10)
  turn(10)
  turn(10)
  t.same(seen, [
    ['starts_and_ends', 10],
    ['collector', 10],
    ['collector', 10],
    ['other', 10],
  ])
})

t.test('in a real loop each turn is reported', async t => {
  const seconds: number[] = []
  const turns = new LoopTurns({
    clock: systemClock,
    idleMs: () => performance.nodeTiming.idleTime,
    deferredMs: () => 0,
    onTurn: (_, one) => seconds.push(one),
  })
  turns.start()
  for (let left = 5; left > 0; left--) await setImmediate()
  turns.stop()
  t.ok(seconds.length >= 3 && seconds.every(one => one >= 0 && Number.isFinite(one)), String(seconds))
})
