import t from 'tap'
import { parseDay, parseInstant } from '../../../src/protocol/management/management.ts'

t.test('a time with seconds and a zone is read, whatever its offset', async t => {
  for (const [text, iso] of [
    ['2026-07-16T12:00:00Z', '2026-07-16T12:00:00.000Z'],
    ['2026-07-16T12:00:00.5Z', '2026-07-16T12:00:00.500Z'],
    ['2026-07-16T12:00:00.123456789Z', '2026-07-16T12:00:00.123Z'],
    ['2026-07-16T12:00:00+02:00', '2026-07-16T10:00:00.000Z'],
    ['2026-12-31T23:30:00-01:00', '2027-01-01T00:30:00.000Z'],
    ['2028-02-29T00:00:00Z', '2028-02-29T00:00:00.000Z'],
  ] as const) {
    t.equal(parseInstant(text), Date.parse(iso), text)
  }
})

t.test('anything else is none', async t => {
  for (const text of [
    '',
    'now',
    '2026-07-16',
    '2026-07-16T12:00Z',
    '2026-07-16T12:00:00',
    '2026-07-16T12:00:00z',
    '2026-07-16 12:00:00Z',
    '2026-07-16T12:00:00.Z',
    '2026-07-16T12:00:00+0200',
    '2026-07-16T12:00:00+25:00',
    '2026-07-16T24:00:00Z',
    '2026-07-16T12:60:00Z',
    '2026-07-16T12:00:60Z',
    '2026-02-29T00:00:00Z',
    '2026-02-30T00:00:00Z',
    '2026-13-01T00:00:00Z',
    '2026-00-01T00:00:00Z',
    '+002026-07-16T12:00:00Z',
    ' 2026-07-16T12:00:00Z',
    '2026-07-16T12:00:00Z\n',
  ]) {
    t.equal(parseInstant(text), null, JSON.stringify(text))
  }
})

t.test('a day is one of the calendar', async t => {
  t.equal(parseDay('2026-07-16'), Date.UTC(2026, 6, 16))
  t.equal(parseDay('2028-02-29'), Date.UTC(2028, 1, 29))
  for (const text of [
    '',
    '2026-02-29',
    '2026-06-31',
    '2026-7-1',
    '2026-07-16T00:00:00Z',
    '20260716',
    '2026-07-16\n',
  ])
    t.equal(parseDay(text), null, JSON.stringify(text))
})
