/** The moment in which a thread has become idle, by a clock and requests of the test. */
import t from 'tap'
import { IdleWatch } from '../../../src/process/threads/idle-watch.ts'
import { TestClock } from '../../support/test-clock.ts'

function watch() {
  const clock = new TestClock()
  const requests = { open: 0, accepted: 0 }
  const seen = { idlePeriods: 0 }
  const idle = new IdleWatch({
    clock,
    openRequests: () => requests.open,
    acceptedRequests: () => requests.accepted,
    onIdle: () => {
      seen.idlePeriods++
    },
  })
  const seconds = (count: number, each: () => void = () => undefined) => {
    for (let second = 0; second < count; second++) {
      each()
      clock.advance(1_000)
    }
  }
  return { clock, idle, requests, seen, seconds }
}

t.test('a thread is idle after eight seconds without a request, once in each idle period', async t => {
  const { idle, requests, seen, seconds } = watch()
  seconds(7)
  t.equal(seen.idlePeriods, 0, 'some seconds have to pass')
  seconds(1)
  t.equal(seen.idlePeriods, 1)
  seconds(60)
  t.equal(seen.idlePeriods, 1, 'the period lasts')
  requests.accepted++
  seconds(8)
  t.equal(seen.idlePeriods, 1, 'the second of the request does not count')
  seconds(1)
  t.equal(seen.idlePeriods, 2)
  idle.close()
})

t.test('a thread with an open request is not idle', async t => {
  const { idle, requests, seen, seconds } = watch()
  requests.open = 1
  requests.accepted = 1
  seconds(60)
  t.equal(seen.idlePeriods, 0)
  requests.open = 0
  seconds(8)
  t.equal(seen.idlePeriods, 1)
  idle.close()
})

t.test('short requests that no sample sees open keep a thread busy', async t => {
  const { idle, requests, seen, seconds } = watch()
  seconds(60, () => {
    requests.accepted++
  })
  t.equal(seen.idlePeriods, 0)
  idle.close()
})

t.test('a closed watch reports nothing', async t => {
  const { idle, seen, seconds } = watch()
  idle.close()
  seconds(60)
  t.equal(seen.idlePeriods, 0)
})
