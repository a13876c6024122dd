/** Records of requests for which nobody was asked: bounded for each key, and none is uncounted. */
import t from 'tap'
import { UnaskedRecords } from '../../../src/gateway/accounting/unasked.ts'
import type { UsageRecord } from '../../../src/storage/usage.ts'
import { lineOf, parseLine, wholeRecord } from '../../../src/storage/usage-line.ts'
import { someUsage } from '../../storage/usage.ts'

const REFUSED: Partial<UsageRecord> = {
  outcome: 'failed',
  error: 'model_not_found',
  accounting: 'none',
  model: null,
  provider: null,
  providerName: null,
  cost: 0,
  attempts: [],
}
const at = (minute: number) => `2026-05-01T00:${String(minute).padStart(2, '0')}:59.000Z`

t.test('one key has sixty such records a minute, and the next one counts the others', async t => {
  const unasked = new UnaskedRecords()
  const take = (fields: Partial<UsageRecord>) => unasked.take(someUsage({ ...REFUSED, ...fields }))
  const of = (keyHash: string, count: number, minute: number) =>
    Array.from({ length: count }, () => take({ keyHash, createdAt: at(minute) }))
  const first = of('a', 1_000, 1)
  t.equal(first.filter(record => record !== null).length, 60)
  t.ok(first.slice(0, 60).every(record => record !== null && record.leftOutBefore === undefined))
  t.equal(of('b', 60, 1).filter(record => record !== null).length, 60, 'others have theirs')
  const [next, after] = of('a', 2, 2)
  t.equal(next?.leftOutBefore, 940)
  t.equal(after?.leftOutBefore, undefined)
  if (next == null) return
  const line = parseLine(lineOf(next))
  t.equal(line === null ? null : wholeRecord(line).leftOutBefore, 940)
})

t.test('a record of a request that asked somebody, or cost something, is always kept', async t => {
  const unasked = new UnaskedRecords()
  for (let count = 0; count < 61; count++) unasked.take(someUsage({ ...REFUSED, createdAt: at(1) }))
  t.equal(unasked.take(someUsage({ ...REFUSED, createdAt: at(1) })), null)
  const attempts = someUsage().attempts
  t.not(attempts.length, 0)
  for (const fields of [{ attempts }, { cost: 1 }, { parent: 'gen-1' }, { outcome: 'completed' }] as const) {
    const record = someUsage({ ...REFUSED, createdAt: at(1), ...fields })
    t.equal(unasked.take(record), record)
  }
})
