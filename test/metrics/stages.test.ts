import t from 'tap'
import {
  type Marks,
  markAttempt,
  openMarks,
  STAGES,
  serverTiming,
  shownTimes,
  stageTimes,
} from '../../src/metrics/stages.ts'

/** An exchange that spent 1, 2, 4, … milliseconds in its stages; of the 16 of routing, two with guardrails. */
function passed(): Marks {
  const marks = openMarks(1000)
  marks.identifyMs = 1001
  marks.authenticatedMs = 1003
  marks.uploadedMs = 1007
  marks.validatedMs = 1015
  marks.guardedMs = 1017
  marks.routedMs = 1031
  marks.admittedMs = 1039
  markAttempt(marks, 1063)
  marks.sentMs = 1127
  marks.headMs = 1255
  marks.firstTokenMs = 1511
  marks.finishedMs = 2023
  marks.judgedMs = 2027
  return marks
}

t.test('the stages of an exchange are told in order and add up to its duration', async t => {
  const times = stageTimes(passed(), 3047)
  t.same(
    [...times],
    [
      ['parse', 1 + 8],
      ['auth', 2],
      ['upload', 4],
      ['guard', 2],
      ['route', 14],
      ['admit', 8],
      ['failover', 24],
      ['encode', 64],
      ['upstream_first_byte', 128],
      ['first_token', 256],
      ['stream', 512],
      ['judge', 4],
      ['flush', 1020],
    ],
  )
  t.same([...times.keys()], STAGES)
})

t.test('wherever an exchange ends, its stages add up to its duration', async t => {
  const order = Object.keys(passed()) as (keyof Marks)[]
  for (let kept = 1; kept <= order.length; kept++) {
    const marks = { ...passed() }
    for (const mark of order.slice(kept)) Object.assign(marks, { [mark]: Number.NaN })
    const sum = [...stageTimes(marks, 3047).values()].reduce((total, ms) => total + ms, 0)
    t.equal(sum, 2047, `left after ${order[kept - 1]}`)
  }
})

t.test('while an exchange runs only the stages it has left are told', async t => {
  const marks = passed()
  marks.finishedMs = Number.NaN
  t.notOk(stageTimes(marks, null).has('stream'))
  t.equal(stageTimes(marks, null).get('first_token'), 256)
  t.same([...stageTimes(openMarks(5), null)], [])
})

t.test('an exchange with one attempt has no failover, and a new attempt forgets the old one', async t => {
  const marks = passed()
  markAttempt(marks, marks.admittedMs)
  t.same([...stageTimes(marks, null).keys()], ['parse', 'auth', 'upload', 'guard', 'route', 'admit'])
  t.notOk(stageTimes(marks, 2000).has('failover'))
  marks.admittedMs = marks.routedMs
  t.notOk(stageTimes(marks, null).has('admit'), 'nor an admission where nobody was asked')
  marks.guardedMs = marks.validatedMs
  t.notOk(stageTimes(marks, null).has('guard'), 'nor a guard where no guardrail holds')
  marks.admittedMs = 1039
  t.equal(stageTimes(marks, 2000).get('encode'), 2000 - 1039)
})

t.test('shown times have three decimals, as an object and as a header', async t => {
  const marks = openMarks(0)
  marks.identifyMs = 0.123456
  marks.authenticatedMs = 0.2
  t.same(shownTimes(marks), { parse: 0.123, auth: 0.077 })
  t.equal(serverTiming(marks), 'parse;dur=0.123, auth;dur=0.077')
})
