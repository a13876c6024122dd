import t from 'tap'
import type { Clock } from '../../../src/base/clock.ts'
import { LagMeter, Load, Threshold } from '../../../src/server/admission/load.ts'

const LIMITS = { maxInFlight: 10, maxLagMs: 100, maxBufferedBytes: 1000 }

/** A clock whose timers fire when the test says so, however late that is. */
function slowClock() {
  let nowMs = 0
  let pending: { dueMs: number; callback: () => void } | null = null
  const clock: Clock = {
    nowMs: () => nowMs,
    monotonicMs: () => nowMs,
    after(delayMs, callback) {
      const entry = { dueMs: nowMs + delayMs, callback }
      pending = entry
      return {
        cancel: () => {
          if (pending === entry) pending = null
        },
      }
    },
  }
  return {
    clock,
    armed: () => pending !== null,
    /** Fires the timer so much after its time. */
    fire(lateMs: number): void {
      const entry = pending
      if (entry === null) throw new Error('no timer is armed')
      pending = null
      nowMs = entry.dueMs + lateMs
      entry.callback()
    },
  }
}

t.test('a threshold closes above its limit and opens well below it', async t => {
  const threshold = new Threshold(100, 0.5)
  t.same(
    [0, 100, 101, 90, 51, 50, 100, 101].map(value => threshold.exceededAt(value)),
    [false, false, true, true, true, false, false, true],
  )
})

t.test('the lag is the middle one of five samples', async t => {
  const meter = new LagMeter()
  t.equal(meter.lagMs, 0)
  const seen = [90, 80, 70, 1, 2, 3, 4].map(late => {
    meter.add(late)
    return meter.lagMs
  })
  t.same(seen, [0, 0, 70, 70, 70, 3, 3])
})

t.test('a long pause counts twice, so one is no lag and two are', async t => {
  const meter = new LagMeter()
  const seen = [5000, 0, 0, 0, 0, 0, 400, 300, 0, 0, 0].map(late => {
    meter.add(late)
    return meter.lagMs
  })
  t.same(seen, [0, 0, 0, 0, 0, 0, 0, 300, 300, 300, 0])
})

t.test(
  'an event loop that stays late is overload, and one that catches up within seconds is none',
  async t => {
    const { clock, fire, armed } = slowClock()
    const load = new Load(LIMITS, clock)
    load.start()
    fire(3000)
    t.notOk(load.isLate, 'one pause')
    // Each sample lasts 200 ms: a burst of four seconds.
    for (let count = 0; count < 20; count++) fire(150)
    t.equal(load.lagMs, 150)
    t.notOk(load.isLate, 'a burst')
    for (let count = 0; count < 5; count++) fire(0)
    for (let count = 0; count < 51; count++) fire(150)
    t.notOk(load.isLate, 'another burst begins anew')
    for (let count = 0; count < 4; count++) fire(150)
    t.ok(load.isLate)
    for (let count = 0; count < 3; count++) fire(60)
    t.ok(load.isLate, 'better, but not well')
    for (let count = 0; count < 3; count++) fire(40)
    t.notOk(load.isLate)
    load.stop()
    t.notOk(armed())
  },
)

t.test('requests in flight are counted exactly', async t => {
  const load = new Load(LIMITS, slowClock().clock)
  t.same(
    [9, 10, 9].map(inFlight => load.overloadReason(inFlight)),
    [null, 'in_flight', null],
  )
})

t.test('bytes that are held are overload until a fifth of them is gone', async t => {
  const load = new Load(LIMITS, slowClock().clock)
  load.count(1000)
  t.equal(load.overloadReason(0), null)
  load.count(1)
  t.equal(load.overloadReason(0), 'buffered')
  load.count(-200)
  t.equal(load.overloadReason(0), 'buffered')
  load.count(-1)
  t.equal(load.overloadReason(0), null)
  t.equal(load.bufferedBytes, 800)
})
