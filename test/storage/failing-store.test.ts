/** Faults of a store that tests ask for, and what they may do to a batch: each verb may be asked again. */
import t, { type Test } from 'tap'
import { openStore } from '../../src/storage/open.ts'
import type { BatchStore } from '../../src/storage/service-jobs.ts'
import type { StoreVerbs } from '../../src/storage/store.ts'
import { isAway, isDiskFault } from '../../src/storage/store-error.ts'
import { atCall, awayError, failingStore, fullDiskError } from '../support/failing-store.ts'
import { allResults, at, LEASE_MS, NOW_MS, present, someBatch, someResult, someUsageOf } from './batches.ts'
import { someEntry } from './contract/audit.ts'
import { someKey } from './records.ts'

t.test('the call that is named fails, before it takes effect or after it', async t => {
  const inner = await openStore('sqlite::memory:')
  t.teardown(() => inner.close())
  for (const tookEffect of [false, true]) {
    const key = someKey()
    const { store, calls } = failingStore(inner, atCall(2, fullDiskError(), tookEffect))
    t.equal(await store.keys.find(key.hash), null)
    const error = await store.keys.add(key).catch((thrown: unknown) => thrown)
    t.ok(isDiskFault(error))
    t.equal((await store.keys.find(key.hash)) !== null, tookEffect)
    t.same(calls, ['keys.find', 'keys.add', 'keys.find'])
  }
  t.ok(isAway(awayError()))
})

t.test('a verb that fails within an audited change takes the change back', async t => {
  const inner = await openStore('sqlite::memory:')
  t.teardown(() => inner.close())
  const change = async ({ keys }: StoreVerbs) => {
    await keys.add(someKey({ hash: 'a'.repeat(64) }))
    await keys.add(someKey({ hash: 'b'.repeat(64) }))
  }
  const { store, calls } = failingStore(inner, atCall(3, awayError(), true))
  await t.rejects(
    store.audited(change, () => someEntry()),
    { name: 'StoreError' },
  )
  t.same(calls, ['audited', 'keys.add', 'keys.add'])
  t.equal(await inner.keys.count(), 0)
  await store.audited(change, () => someEntry())
  t.equal(await inner.keys.count(), 2)
})

/** Asks until there is an answer, as a caller does that is not to lose a batch. */
async function again<T>(verb: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await verb()
    } catch (error) {
      if (!isAway(error)) throw error
    }
  }
}

/** A batch from its body to its end. Time passes, so that lost leases end. */
async function live(t: Test, batches: BatchStore, id: string): Promise<void> {
  const { work } = batches
  const { opening, lines, accepted } = someBatch({ id, lines: 5 })
  let nowMs = NOW_MS
  for (;;) {
    const body = { ...opening, id: `${id}_${nowMs}`, leaseUntilMs: nowMs + LEASE_MS }
    await again(() => batches.open(body, nowMs))
    try {
      await batches.addLines(body.id, lines)
    } catch {
      await again(() => batches.abandon(body.id))
      nowMs += LEASE_MS
      continue
    }
    await again(() => batches.accept({ ...accepted, id: body.id }))
    id = body.id
    break
  }
  const claim = present(await again(() => work.claimBatch(id, 'one', nowMs, nowMs + LEASE_MS)))
  const failure = { number: 4, outcome: 'failed', result: '{}', usage: someUsageOf(1) } as const
  for (;;) {
    const unchecked = await again(() => work.uncheckedLines(id, { limit: 2 }))
    const last = unchecked.at(-1)
    if (last === undefined) break
    await again(() => work.markChecked(id, claim, last.number, last.number === 4 ? [failure] : []))
  }
  await again(() => work.releaseBatch(id, claim))
  await again(() => work.move(id, ['validating'], 'in_progress', at(1)))
  for (;;) {
    const terms = { limit: 2, nowMs, leaseUntilMs: nowMs + LEASE_MS }
    const claimed = await again(() => work.claimLines(id, 'one', terms))
    nowMs += LEASE_MS
    if (claimed.length === 0) {
      const { waiting, claimed: held } = await again(() => work.counts(id))
      if (waiting + held === 0) break
      continue
    }
    const [first, ...others] = await again(() => work.renew('one', claimed, nowMs + LEASE_MS))
    await again(() => work.finish('one', first === undefined ? [] : [someResult(first)]))
    await again(() =>
      work.giveBack(
        'one',
        others.map(line => ({ ...line, tries: 1, notBeforeMs: nowMs })),
      ),
    )
  }
  await again(() => work.move(id, ['in_progress'], 'finalizing', at(2)))
  await again(() => work.move(id, ['finalizing'], 'completed', at(3)))
  const record = present(await again(() => batches.find('org_1', 'ws_1', id)))
  t.match(record, { status: 'completed', completed: 4, failed: 1, usage: { inputTokens: 1 + 2 + 3 + 4 + 1 } })
  t.equal((await again(() => allResults(batches, id))).length, 5)
  await again(() => batches.remove('org_1', 'ws_1', id))
  while ((await again(() => work.prune(at(0), nowMs, 4))) > 0);
  t.equal(await again(() => batches.find('org_1', 'ws_1', id)), null)
}

t.test('a batch has its results once, whichever call of its life fails, and in whatever way', async t => {
  const inner = await openStore('sqlite::memory:')
  t.teardown(() => inner.close())
  let last = Infinity
  for (let number = 1; number <= last; number++) {
    for (const tookEffect of [false, true]) {
      const { store, calls } = failingStore(inner, atCall(number, awayError(), tookEffect))
      await live(t, store.batches, `batch_${number}_${tookEffect ? 'done' : 'not'}`)
      last = calls.length
    }
  }
  t.ok(last > 25, `${last} calls failed`)
})
