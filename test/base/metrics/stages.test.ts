import t from 'tap'
import {
  roundedTimes,
  STAGES,
  type Stage,
  Stopwatch,
  serverTiming,
} from '../../../src/base/metrics/stages.ts'

const STARTED_MS = 1000
const ENDED_MS = 3051

type Step = (watch: Stopwatch) => void
const enter =
  (stage: Stage, nowMs: number): Step =>
  watch =>
    watch.enter(stage, nowMs)
const attempt =
  (nowMs: number, replaced: boolean): Step =>
  watch =>
    watch.beginAttempt(nowMs, replaced)
const skip: Step = watch => watch.skip()

/** An exchange that spends 1, 2, 4, … milliseconds in its stages; of the 16 of routing, two with guardrails. */
const PASSED: readonly Step[] = [
  enter('auth', 1001),
  enter('upload', 1003),
  enter('queue', 1005),
  enter('parse', 1007),
  enter('guard', 1015),
  enter('route', 1017),
  enter('admit', 1031),
  attempt(1039, false),
  enter('upstream_first_byte', 1043),
  enter('first_token', 1053),
  attempt(1063, true),
  enter('upstream_first_byte', 1127),
  enter('first_token', 1255),
  enter('stream', 1511),
  enter('flush', 2023),
  enter('judge', 2023),
  enter('flush', 2027),
  enter('tools', 2029),
  enter('flush', 2033),
]

function watchAfter(steps: readonly Step[], startedMs = STARTED_MS): Stopwatch {
  const watch = new Stopwatch(startedMs)
  for (const step of steps) step(watch)
  return watch
}

const sumOf = (times: ReadonlyMap<Stage, number>) => [...times.values()].reduce((sum, ms) => sum + ms, 0)

t.test('the stages of an exchange are told in order and add up to its duration', async t => {
  const times = watchAfter(PASSED).times(ENDED_MS)
  t.same(
    [...times],
    [
      ['parse', 1 + 8],
      ['auth', 2],
      ['upload', 2],
      ['queue', 2],
      ['guard', 2],
      ['route', 14],
      ['admit', 8],
      ['failover', 24],
      ['encode', 64],
      ['upstream_first_byte', 128],
      ['first_token', 256],
      ['stream', 512],
      ['judge', 4],
      ['tools', 4],
      ['flush', 2 + 1018],
    ],
  )
  t.same([...times.keys()], STAGES)
})

t.test('wherever an exchange ends, its stages add up to its duration', async t => {
  for (let kept = 0; kept <= PASSED.length; kept++) {
    const watch = watchAfter(PASSED.slice(0, kept))
    t.equal(sumOf(watch.times(ENDED_MS)), ENDED_MS - STARTED_MS, `left after ${kept} steps`)
    t.equal(sumOf(watch.times(ENDED_MS)), ENDED_MS - STARTED_MS, 'and a second reading is the same')
  }
})

t.test('while an exchange runs only the stages it has left are told', async t => {
  const streaming = watchAfter(PASSED.slice(0, 14))
  t.notOk(streaming.times(null).has('stream'))
  t.equal(streaming.times(null).get('first_token'), 256)
  t.equal(streaming.times(2000).get('stream'), 2000 - 1511)
  t.same([...new Stopwatch(5).times(null)], [])
  const flushing = watchAfter(PASSED).times(null)
  t.equal(flushing.get('flush'), 2, 'of a stage that it came back to, what it had left')
})

t.test('a stage without a length is told, except where an exchange may do without it', async t => {
  const at5 = STAGES.filter(stage => stage !== 'parse' && stage !== 'failover').map(stage => enter(stage, 5))
  t.same(
    [...watchAfter(at5, 5).times(5).keys()],
    ['parse', 'auth', 'upload', 'route', 'encode', 'upstream_first_byte', 'first_token', 'stream', 'flush'],
  )
  const optional: readonly Stage[] = ['queue', 'guard', 'admit', 'judge', 'tools']
  for (const stage of optional) {
    const watch = watchAfter([enter(stage, 1), enter('flush', 3)], 0)
    t.equal(watch.times(null).get(stage), 2, `${stage} that took time is told`)
  }
})

t.test('an exchange with one attempt has no failover', async t => {
  const watch = watchAfter(PASSED.slice(0, 8))
  t.same([...watch.times(null).keys()], ['parse', 'auth', 'upload', 'queue', 'guard', 'route', 'admit'])
  t.notOk(watch.times(2000).has('failover'))
  t.equal(watch.times(2000).get('encode'), 2000 - 1039)
})

t.test('a replaced attempt is forgotten, and its time is failover', async t => {
  const watch = watchAfter(PASSED.slice(0, 11))
  t.same(
    [...watch.times(null).keys()],
    ['parse', 'auth', 'upload', 'queue', 'guard', 'route', 'admit', 'failover'],
  )
  t.equal(watch.times(null).get('failover'), 1063 - 1039)
  t.equal(watch.times(2000).get('encode'), 2000 - 1063)
  t.notOk(watch.times(2000).has('upstream_first_byte'), 'the last attempt has not come so far')
  watch.enter('upstream_first_byte', 1070)
  watch.beginAttempt(1080, true)
  t.equal(watch.times(null).get('failover'), 1080 - 1039, 'so is the next one')
  t.notOk(watch.times(null).has('encode'))
})

t.test('a turn after the first one replaces no attempt', async t => {
  const turn = (fromMs: number): readonly Step[] => [
    attempt(fromMs, false),
    enter('upstream_first_byte', fromMs + 1),
    enter('first_token', fromMs + 3),
    enter('stream', fromMs + 7),
    enter('flush', fromMs + 15),
  ]
  const watch = watchAfter([...turn(10), enter('tools', 25), enter('flush', 41), ...turn(41)], 10)
  t.same(
    [...watch.times(56)],
    [
      ['parse', 0],
      ['encode', 2],
      ['upstream_first_byte', 4],
      ['first_token', 8],
      ['stream', 16],
      ['tools', 16],
      ['flush', 0],
    ],
  )
})

t.test('failover in a later turn leaves the figures of the turns before', async t => {
  const watch = watchAfter(
    [
      attempt(0, false),
      enter('upstream_first_byte', 1),
      enter('stream', 3),
      enter('flush', 7),
      attempt(7, false),
      enter('upstream_first_byte', 10),
      attempt(20, true),
      enter('upstream_first_byte', 21),
    ],
    0,
  )
  t.same(
    [...watch.times(30)],
    [
      ['parse', 0],
      ['failover', 13],
      ['encode', 1 + 1],
      ['upstream_first_byte', 2 + 9],
      ['stream', 4],
      ['flush', 0],
    ],
  )
})

t.test('the time of a stage that is skipped belongs to the one before it', async t => {
  const watch = watchAfter(
    [enter('guard', 2), skip, enter('route', 5), enter('admit', 7), skip, attempt(11, false)],
    0,
  )
  t.same(
    [...watch.times(null)],
    [
      ['parse', 5],
      ['route', 6],
    ],
  )
  t.equal(watch.times(12).get('encode'), 1)
})

t.test('it times an exchange once the request was understood', async t => {
  const before = PASSED.findIndex((_, at) => watchAfter(PASSED.slice(0, at)).isExchange)
  t.equal(before, 5, 'from the guard on')
  t.equal(watchAfter([enter('guard', 1), skip], 0).isExchange, true)
})

t.test('shown times have three decimals, as an object and as a header', async t => {
  const watch = watchAfter([enter('auth', 0.123456), enter('upload', 0.2)], 0)
  t.same(roundedTimes(watch), { parse: 0.123, auth: 0.077 })
  t.equal(serverTiming(watch), 'parse;dur=0.123, auth;dur=0.077')
})
