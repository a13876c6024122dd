/** Filling the totals of an older database: in batches, with progress that an operator sees. */
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import t from 'tap'
import { createLog } from '../../../src/base/log/log.ts'
import { fillTotals } from '../../../src/process/services/usage-totals.ts'
import { openStore } from '../../../src/storage/open.ts'
import { someUsage } from '../../storage/usage.ts'
import { TestClock } from '../../support/test-clock.ts'

t.test('an older ledger is counted in bounded batches, and the log tells how far it is', async t => {
  const path = join(t.testdir({}), 'gateway.db')
  const store = await openStore(`sqlite:${path}`)
  t.teardown(() => store.close())
  await store.ledger.add(Array.from({ length: 4_500 }, () => someUsage({ cost: 2 })))
  const database = new DatabaseSync(path)
  database.exec(
    `update usage set in_totals = 0; delete from usage_totals; insert into usage_fill values ('')`,
  )
  database.close()
  const clock = new TestClock()
  const lines: Record<string, unknown>[] = []
  const log = createLog('info', { write: line => void lines.push(JSON.parse(line)) })
  const limits: number[] = []
  let turns = 0
  const count = () => {
    turns++
    immediate = setImmediate(count)
  }
  let immediate = setImmediate(count)
  const ledger = {
    ...store.ledger,
    async fillTotals(limit: number) {
      limits.push(limit)
      // Each batch takes some seconds, of another machine.
      clock.advance(3_000)
      return await store.ledger.fillTotals(limit)
    },
  }
  await fillTotals({ ledger }, clock, log)
  clearImmediate(immediate)
  t.same(limits, [2_000, 2_000, 2_000, 2_000], 'the last finds nothing left')
  t.ok(turns >= 3, 'others had their turn between the batches')
  t.match(lines, [
    { msg: /^adding older usage records to the totals/, records: 2_000, upTo: '2026-01-01T00:00:00.000Z' },
    { msg: /^adding older usage records to the totals/, records: 4_500 },
    { msg: 'added older usage records to the totals', records: 4_500 },
  ])
  t.match(await store.ledger.usageSince({ organizationId: 'org_1', since: '' }), {
    requests: 4_500,
    cost: 9_000n,
  })
  lines.length = 0
  await fillTotals(store, clock, log)
  t.same(lines, [], 'later starts find nothing to do')
})
