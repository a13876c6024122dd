/** What a serve thread keeps at hand of what it has served. Real spool and Store; nothing ships in between. */
import t, { type Test } from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { createLog } from '../../../src/base/log/log.ts'
import { createLedger } from '../../../src/pipeline/accounting/account.ts'
import { openStore } from '../../../src/storage/open.ts'
import { openSpool } from '../../../src/storage/spool/spool.ts'
import { someUsage } from '../../storage/usage.ts'

async function setUp(t: Test) {
  const log = createLog('silent', { write: () => undefined })
  const spool = openSpool(t.testdir({}), { clock: systemClock, log, onLost: () => undefined })
  const store = await openStore('sqlite::memory:')
  t.teardown(async () => {
    spool.close()
    await store.close()
  })
  return { ledger: createLedger(spool, store.ledger), store }
}

t.test('what was just served is found at once, and only by its organization', async t => {
  const { ledger } = await setUp(t)
  const record = someUsage()
  ledger.append(record)
  t.same(await ledger.find(record.id, record.organizationId), record)
  t.equal(await ledger.find(record.id, 'org_other'), null)
  t.equal(await ledger.find('gen-nobody', record.organizationId), null)
})

t.test(
  'at hand are the last five hundred at least, some thousand at most; others are in the Store',
  async t => {
    const { ledger, store } = await setUp(t)
    const records = Array.from({ length: 6_000 }, () => someUsage())
    const [first = someUsage()] = records
    for (const [at, record] of records.entries()) {
      ledger.append(record)
      for (const back of [0, 499]) {
        const recent = records[at - back]
        if (recent !== undefined && at % 31 === 0)
          t.same(await ledger.find(recent.id, recent.organizationId), recent)
      }
    }
    // Each that is not at hand is asked of the Store, so every tenth stands for its neighbours.
    const tenth = records.filter((_, at) => at % 10 === 0)
    const found = await Promise.all(tenth.map(record => ledger.find(record.id, record.organizationId)))
    const kept = found.filter(record => record !== null).length * 10
    t.ok(kept >= 500 && kept <= 4_000, `about ${kept} are kept`)
    t.equal(found[0], null)
    await store.ledger.add([first])
    t.match(await ledger.find(first.id, first.organizationId), { id: first.id })
  },
)
