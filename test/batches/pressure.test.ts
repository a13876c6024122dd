import t from 'tap'
import { Pressure } from '../../src/batches/pressure.ts'
import { TestClock } from '../support/test-clock.ts'

const CALM = { lagMs: 1, shed: 0 }

function setUp(max = 128) {
  const clock = new TestClock()
  const pressure = new Pressure(max, clock)
  /** A second in which these threads told their load. */
  const second = (...loads: { lagMs: number; shed: number }[]) => {
    clock.advance(1_000)
    for (const [at, load] of loads.entries()) pressure.note(`serve-${at}`, load)
    return pressure.limit
  }
  return { clock, pressure, second }
}

t.test('late event loops halve the places until a sixteenth is left', async t => {
  const { second } = setUp()
  const late = { lagMs: 50, shed: 0 }
  t.same(
    [1, 2, 3, 4, 5, 6].map(() => second(late)),
    [64, 32, 16, 8, 8, 8],
  )
})

t.test('calm seconds give them back within eight', async t => {
  const { second } = setUp()
  for (let late = 0; late < 4; late++) second({ lagMs: 50, shed: 0 })
  t.same(
    [1, 2, 3, 4, 5, 6, 7, 8, 9].map(() => second(CALM)),
    [24, 40, 56, 72, 88, 104, 120, 128, 128],
  )
})

t.test('one thread that suffers is enough', async t => {
  const { second } = setUp()
  second(CALM, CALM)
  t.equal(second(CALM, { lagMs: 50, shed: 0 }), 128, 'the second ends with the word of the first')
  t.equal(second(CALM, CALM), 64)
})

t.test('a refused request counts once, and not after a restart of its thread', async t => {
  const { second } = setUp()
  t.equal(second({ lagMs: 0, shed: 5 }), 128, 'it was there before')
  t.equal(second({ lagMs: 0, shed: 6 }), 64)
  t.equal(second({ lagMs: 0, shed: 6 }), 80)
  t.equal(second({ lagMs: 0, shed: 0 }), 96, 'the thread began anew')
  t.equal(second({ lagMs: 0, shed: 1 }), 48)
})

t.test('what is told within a second is judged together', async t => {
  const { clock, pressure } = setUp()
  for (let times = 0; times < 5; times++) {
    clock.advance(100)
    pressure.note('serve-0', { lagMs: 50, shed: 0 })
  }
  t.equal(pressure.limit, 128)
  clock.advance(500)
  pressure.note('serve-0', CALM)
  t.equal(pressure.limit, 64)
})

t.test('there is always a place', async t => {
  const { second } = setUp(1)
  for (let late = 0; late < 5; late++) t.equal(second({ lagMs: 500, shed: late }), 1)
})
