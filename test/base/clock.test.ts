import t from 'tap'
import { isoInstant } from '../../src/base/clock.ts'

t.test('an instant reads as the runtime writes it', async t => {
  const day = 86_400_000
  const instants = [0, 1, 9, 10, 99, 100, 999, 1000, 59_999, 3_599_999, day - 1, day]
  // Each of the days of 400 years, after which the calendar repeats, near its beginning and its end.
  for (let at = 0; at < 146_097; at++) instants.push(at * day + 1234, (at + 1) * day - 1)
  instants.push(Date.UTC(2000, 1, 29), Date.UTC(2100, 1, 28) + day, Date.UTC(9999, 11, 31, 23, 59, 59, 999))
  const wrong = instants.filter(ms => isoInstant(ms) !== new Date(ms).toISOString())
  t.same(wrong, [])
  t.equal(isoInstant(1234.9), '1970-01-01T00:00:01.234Z', 'parts of a millisecond are cut off')
})
