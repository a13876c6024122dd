/** The contract of work on batches as a whole: their states, their claims, and the check of their lines. */
import type { Test } from 'tap'
import { mayMove, sourcesOf } from '../../../src/batches/states.ts'
import {
  addUsage,
  BATCH_STATUSES,
  NO_USAGE,
  TERMINAL_STATUSES,
} from '../../../src/protocol/management/batches.ts'
import { accept, allResults, at, LEASE_MS, NOW_MS, present, someLines, someUsageOf } from '../batches.ts'
import type { Opened } from '../contract.ts'
import { ODD_TEXT } from '../records.ts'

export async function batchWorkContract(t: Test, opened: Opened): Promise<void> {
  await t.test(
    'a batch moves from the states that are named only, and never from a terminal one',
    async t => {
      const { batches } = await opened(t)
      for (const from of BATCH_STATUSES) {
        for (const to of BATCH_STATUSES) {
          const { id } = await accept(batches, { lines: 0 })
          if (from !== 'validating') await batches.work.move(id, ['validating'], from, at(1))
          const moved = await batches.work.move(id, sourcesOf(to), to, at(2))
          t.equal(moved?.status ?? null, mayMove(from, to) ? to : null, `${from} to ${to}`)
          const found = await batches.find('org_1', 'ws_1', id)
          t.equal(found?.status, mayMove(from, to) ? to : from)
          if (moved !== null) t.same(found, moved)
        }
      }
      for (const terminal of TERMINAL_STATUSES) {
        const { id } = await accept(batches)
        await batches.work.move(id, ['validating'], terminal, at(1))
        t.equal(await batches.work.move(id, BATCH_STATUSES, 'in_progress', at(2)), null)
      }
      t.equal(await batches.work.move('batch_unknown', BATCH_STATUSES, 'in_progress', at(1)), null)
      const { id } = await accept(batches)
      t.equal(await batches.work.move(id, [], 'in_progress', at(1)), null)
    },
  )

  await t.test('each state sets its time, and a move may set error and service', async t => {
    const { batches } = await opened(t)
    const { id } = await accept(batches)
    const service = { provider: ODD_TEXT }
    const started = await batches.work.move(id, ['validating'], 'in_progress', at(1), { service })
    t.match(started, { startedAt: at(1), cancellingAt: null, finalizedAt: null, service, error: null })
    const cancelling = await batches.work.move(id, ['in_progress'], 'cancelling', at(2))
    t.match(cancelling, { startedAt: at(1), cancellingAt: at(2), finalizedAt: null, service })
    const change = { error: ODD_TEXT, service: null }
    const cancelled = await batches.work.move(id, ['cancelling'], 'cancelled', at(3), change)
    t.match(cancelled, { startedAt: at(1), cancellingAt: at(2), finalizedAt: at(3), ...change })
    for (const terminal of TERMINAL_STATUSES) {
      const { id } = await accept(batches)
      t.match(await batches.work.move(id, ['validating'], terminal, at(4)), { finalizedAt: at(4) })
    }
    const other = await accept(batches)
    t.match(await batches.work.move(other.id, ['validating'], 'finalizing', at(4)), { finalizedAt: null })
  })

  await t.test('a batch in progress may say why it waits, until it moves on', async t => {
    const { batches } = await opened(t)
    const { work } = batches
    const { id } = await accept(batches)
    const waiting = { reason: 'provider_unavailable', since: at(1) } as const
    const found = async () => present(await batches.find('org_1', 'ws_1', id)).waiting
    await work.setWaiting(id, waiting)
    t.equal(await found(), null, 'not while it is checked')
    await work.move(id, ['validating'], 'in_progress', at(0))
    const other = await accept(batches)
    await work.setWaiting(id, waiting)
    t.same(await found(), waiting)
    t.match(await batches.find('org_1', 'ws_1', other.id), { waiting: null }, 'others are as they were')
    t.same((await work.open()).find(batch => batch.id === id)?.waiting, waiting)
    await work.setWaiting(id, null)
    t.equal(await found(), null)
    await work.setWaiting(id, { ...waiting, reason: 'key_limit' })
    t.match(await work.move(id, ['in_progress'], 'cancelling', at(2)), { waiting: null })
    await work.setWaiting(id, waiting)
    t.equal(await found(), null, 'not once it ends')
    await work.setWaiting('batch_unknown', waiting)
  })

  await t.test('of moves at once one succeeds', async t => {
    const { batches } = await opened(t)
    const { id } = await accept(batches)
    const moved = await Promise.all(
      Array.from({ length: 8 }, (_, second) =>
        batches.work.move(id, ['validating'], 'in_progress', at(second)),
      ),
    )
    t.equal(moved.filter(batch => batch !== null).length, 1)
  })

  await t.test('a batch is claimed by one owner until its lease is over', async t => {
    const { batches } = await opened(t)
    const { work } = batches
    const { id } = await accept(batches)
    const first = present(await work.claimBatch(id, 'one', NOW_MS, NOW_MS + LEASE_MS))
    t.equal(first.owner, 'one')
    t.equal(await work.claimBatch(id, 'two', NOW_MS + LEASE_MS - 1, NOW_MS + 2 * LEASE_MS), null)
    const own = present(await work.claimBatch(id, 'one', NOW_MS, NOW_MS + LEASE_MS))
    t.ok(own.fence > first.fence, 'an owner claims again')
    await work.renew('one', [], NOW_MS + 3 * LEASE_MS)
    await work.renew('two', [], NOW_MS + 9 * LEASE_MS)
    t.equal(await work.claimBatch(id, 'two', NOW_MS + 2 * LEASE_MS, NOW_MS + 4 * LEASE_MS), null)
    const second = present(await work.claimBatch(id, 'two', NOW_MS + 3 * LEASE_MS, NOW_MS + 4 * LEASE_MS))
    t.ok(second.fence > own.fence, 'the fence rises')
    await work.releaseBatch(id, own)
    t.equal(await work.claimBatch(id, 'one', NOW_MS + 3 * LEASE_MS, NOW_MS + 9 * LEASE_MS), null)
    await work.releaseBatch(id, second)
    const third = present(await work.claimBatch(id, 'one', NOW_MS, NOW_MS + LEASE_MS))
    t.ok(third.fence > second.fence, 'free at once')
    await work.move(id, ['validating'], 'failed', at(1))
    t.equal(await work.claimBatch(id, 'one', NOW_MS, NOW_MS + LEASE_MS), null, 'a terminal one needs no work')
  })

  await t.test('of claims of a batch at once one succeeds', async t => {
    const { batches } = await opened(t)
    for (let round = 0; round < 5; round++) {
      const { id } = await accept(batches)
      const claims = await Promise.all(
        ['a', 'b', 'c', 'd'].map(owner => batches.work.claimBatch(id, owner, NOW_MS, NOW_MS + 1)),
      )
      t.equal(claims.filter(claim => claim !== null).length, 1)
    }
  })

  await t.test('lines are checked in order, and those that fail have their result', async t => {
    const { batches } = await opened(t)
    const { work } = batches
    const { id } = await accept(batches, { lines: 7 })
    const claim = present(await work.claimBatch(id, 'one', NOW_MS, NOW_MS + LEASE_MS))
    t.same(await work.counts(id), { unchecked: 7, waiting: 0, claimed: 0, finished: 0 })
    t.same(await work.uncheckedLines(id, { limit: 3 }), someLines(3))
    const failure = (number: number) =>
      ({ number, outcome: 'failed', result: `{"error":${number}}`, usage: NO_USAGE }) as const
    t.equal(await work.markChecked(id, claim, 2, [failure(0), failure(2), failure(3)]), true)
    t.same(await work.counts(id), { unchecked: 4, waiting: 1, claimed: 0, finished: 2 })
    t.same(await work.uncheckedLines(id, { limit: 10 }), someLines(4, 3))
    t.same(await work.uncheckedLines(id, { limit: 10, maxBytes: 26 }), someLines(2, 3))
    t.equal(await work.markChecked(id, claim, 2, [failure(1), failure(2)]), true)
    t.equal(await work.markChecked(id, claim, 1, []), true)
    t.same(
      await work.counts(id),
      { unchecked: 4, waiting: 1, claimed: 0, finished: 2 },
      'a line is checked once',
    )
    const paid = { ...failure(6), usage: someUsageOf(5) }
    t.equal(await work.markChecked(id, claim, 99, [paid, paid]), true)
    t.same(await work.counts(id), { unchecked: 0, waiting: 4, claimed: 0, finished: 3 })
    t.same(await work.uncheckedLines(id, { limit: 10 }), [])
    t.same(
      (await allResults(batches, id)).map(({ number, customId, outcome, result }) => [
        number,
        customId,
        outcome,
        result,
      ]),
      [0, 2, 6].map(number => [number, `line-${number}`, 'failed', `{"error":${number}}`]),
    )
    t.match(await batches.find('org_1', 'ws_1', id), {
      completed: 0,
      failed: 3,
      usage: addUsage(someUsageOf(5), NO_USAGE),
    })
  })

  await t.test('a check under an older claim, or of a batch that went on, changes nothing', async t => {
    const { batches } = await opened(t)
    const { work } = batches
    const { id } = await accept(batches)
    const old = present(await work.claimBatch(id, 'one', NOW_MS, NOW_MS + 1))
    const claim = present(await work.claimBatch(id, 'two', NOW_MS + 1, NOW_MS + 2))
    const failures = [{ number: 0, outcome: 'failed', result: '{}', usage: NO_USAGE }] as const
    for (const wrong of [old, { ...claim, owner: 'one' }, { ...claim, fence: claim.fence + 1 }])
      t.equal(await work.markChecked(id, wrong, 2, failures), false)
    t.same(await work.counts(id), { unchecked: 3, waiting: 0, claimed: 0, finished: 0 })
    await work.move(id, ['validating'], 'cancelling', at(1))
    t.equal(await work.markChecked(id, claim, 2, failures), false)
    t.same(await allResults(batches, id), [])
  })
}
