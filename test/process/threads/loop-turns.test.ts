/** Turns of the event loop: their length, and what most of one went into. */
import { setImmediate } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { LoopTurns } from '../../../src/process/threads/loop-turns.ts'

/** A loop whose clock stands still unless a turn moves it. */
function setUp(t: Test) {
  const loop = { ms: 100, now: () => loop.ms, nodeTiming: { idleTime: 40 } }
  const deferred = { spentMs: 7 }
  const seen: (readonly [string, number])[] = []
  const turns = new LoopTurns({
    loop,
    deferred,
    onTurn: (cause, seconds) => seen.push([cause, Math.round(seconds * 1000)]),
  })
  turns.start()
  t.teardown(() => turns.stop())
  /** Lets a turn end: time that has passed, and the parts of it that went into waiting and into deferred work. */
  const turn = async (ms: number, { idleMs = 0, deferredMs = 0 } = {}): Promise<void> => {
    loop.ms += ms
    loop.nodeTiming.idleTime += idleMs
    deferred.spentMs += deferredMs
    await setImmediate()
  }
  const longer = () => seen.splice(0).filter(([cause, ms]) => ms > 0 || cause !== 'other')
  return { loop, turns, longer, turn }
}

t.test('a turn is as long as the time in which the loop did not wait', async t => {
  const { turns, longer, turn } = setUp(t)
  await turn(30, { idleMs: 25 })
  await turn(50, { idleMs: 50 })
  turns.report()
  t.same(longer(), [['other', 5]])
  turns.report()
  t.same(longer(), [], 'no turn is reported twice')
})

t.test('the cause is what most of the turn went into', async t => {
  const { loop, turns, longer, turn } = setUp(t)
  await turn(10, { deferredMs: 6 })
  await turn(10, { deferredMs: 3 })
  turns.countPause(loop.ms - 8, 7)
  turns.report()
  t.same(longer(), [
    ['starts_and_ends', 10],
    ['collector', 10],
  ])
  turns.countPause(loop.ms + 1, 9)
  await turn(10)
  await turn(10)
  turns.report()
  t.same(longer(), [
    ['collector', 10],
    ['other', 10],
  ])
})

t.test('turns are reported although nobody asks for them', async t => {
  const { longer, turn } = setUp(t)
  for (let left = 300; left > 0; left--) await turn(1)
  t.ok(longer().length >= 256)
})
