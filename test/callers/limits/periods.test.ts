import t from 'tap'
import { periodStart } from '../../../src/callers/limits/periods.ts'

t.test('days begin at midnight UTC, weeks on Monday, months on the first', async t => {
  for (const [now, daily, weekly, monthly] of [
    ['2026-07-16T12:00:00.000Z', '2026-07-16', '2026-07-13', '2026-07-01'],
    // Monday at its first moment, Sunday at its last.
    ['2026-07-13T00:00:00.000Z', '2026-07-13', '2026-07-13', '2026-07-01'],
    ['2026-07-12T23:59:59.999Z', '2026-07-12', '2026-07-06', '2026-07-01'],
    // Weeks run over the ends of months and years.
    ['2026-08-01T00:00:00.000Z', '2026-08-01', '2026-07-27', '2026-08-01'],
    ['2027-01-01T00:00:00.000Z', '2027-01-01', '2026-12-28', '2027-01-01'],
    ['2028-02-29T10:00:00.000Z', '2028-02-29', '2028-02-28', '2028-02-01'],
  ] as const) {
    const ms = Date.parse(now)
    t.equal(periodStart('daily', ms), `${daily}T00:00:00.000Z`)
    t.equal(periodStart('weekly', ms), `${weekly}T00:00:00.000Z`)
    t.equal(periodStart('monthly', ms), `${monthly}T00:00:00.000Z`)
    t.ok(periodStart(null, ms) < '0000', 'no period: from before all times')
  }
})
