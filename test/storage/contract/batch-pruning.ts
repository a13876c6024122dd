/** The contract of pruning batches. */
import type { Test } from 'tap'
import { BATCH_STATUSES, TERMINAL_STATUSES } from '../../../src/protocol/management/batches.ts'
import {
  accept,
  acceptDone,
  acceptRunning,
  allResults,
  at,
  claim,
  LEASE_MS,
  NOW_MS,
  someBatch,
  someLines,
  someResult,
} from '../batches.ts'
import type { Opened } from '../contract.ts'

export async function batchPruningContract(t: Test, opened: Opened): Promise<void> {
  await t.test('batches that ended before a time are removed with their lines, in parts', async t => {
    const { batches } = await opened(t)
    const old = await acceptDone(batches, { lines: 5 })
    const kept = await acceptDone(batches, { lines: 2 })
    const running = await acceptRunning(batches, { lines: 2 })
    t.equal(await batches.work.prune(at(3), NOW_MS, 100), 0, 'not before the time')
    // It ended later than the others.
    const late = await acceptRunning(batches, { lines: 1 })
    await batches.work.move(late.id, ['in_progress'], 'expired', at(9))
    await batches.remove('org_1', 'ws_1', kept.id)
    const parts: number[] = []
    for (;;) {
      const part = await batches.work.prune(at(4), NOW_MS, 3)
      if (part === 0) break
      parts.push(part)
    }
    // Lines and batches: five and one, two and one, and the body of the line that never ran.
    t.equal(
      parts.reduce((sum, part) => sum + part, 0),
      10,
    )
    t.ok(parts.every(part => part <= 3))
    for (const { id } of [old, kept]) {
      t.equal(await batches.find('org_1', 'ws_1', id), null)
      t.equal(await batches.results(id, -1, { limit: 10 }), null)
    }
    t.match(await batches.find('org_1', 'ws_1', late.id), { status: 'expired' })
    t.equal((await claim(batches, running.id, 'one', 9)).length, 2)
  })

  await t.test('an old batch is hidden by the first part already', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptDone(batches, { lines: 50, idempotencyKey: 'k' })
    t.equal(await batches.work.prune(at(4), NOW_MS, 1), 1)
    t.equal(await batches.find('org_1', 'ws_1', id), null)
    t.equal(await batches.results(id, -1, { limit: 10 }), null)
    t.same(await batches.open(someBatch({ idempotencyKey: 'k' }).opening, NOW_MS), { outcome: 'opened' })
  })

  await t.test('abandoned batches are removed when their lease is over', async t => {
    const { batches } = await opened(t)
    const { opening, lines, accepted } = someBatch({ idempotencyKey: 'k' })
    await batches.open(opening, NOW_MS)
    await batches.addLines(opening.id, lines)
    t.equal(await batches.work.prune(at(0), NOW_MS + LEASE_MS - 1, 100), 0)
    t.equal(await batches.keepOpen(opening.id, NOW_MS + 2 * LEASE_MS), true)
    t.equal(await batches.work.prune(at(0), NOW_MS + 2 * LEASE_MS - 1, 100), 0)
    t.equal(await batches.work.prune(at(0), NOW_MS + 2 * LEASE_MS, 2), 2)
    t.equal(await batches.keepOpen(opening.id, NOW_MS + 9 * LEASE_MS), false)
    await t.rejects(batches.addLines(opening.id, someLines(1, 3)), { name: 'ConflictError', field: 'id' })
    t.equal(await batches.accept(accepted), null)
    t.equal(await batches.work.prune(at(0), NOW_MS, 100), 2)
    const other = someBatch()
    await batches.open(other.opening, NOW_MS)
    await batches.addLines(other.opening.id, other.lines)
    await batches.abandon(other.opening.id)
    t.equal(await batches.work.prune(at(0), NOW_MS, 100), 4, 'at once')
    t.equal(await batches.work.prune(at(0), NOW_MS, 100), 0)
  })

  await t.test('bodies of lines that never ran go with the end of the batch, its results stay', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptRunning(batches, { lines: 10 })
    const lines = await claim(batches, id, 'one', 4)
    await batches.work.finish(
      'one',
      lines.map(line => someResult(line)),
    )
    await batches.work.move(id, ['in_progress'], 'cancelling', at(2))
    t.equal(await batches.work.prune(at(0), NOW_MS, 100), 0)
    await batches.work.move(id, ['cancelling'], 'cancelled', at(3))
    t.equal(await batches.work.prune(at(0), NOW_MS, 4), 4)
    t.equal(await batches.work.prune(at(0), NOW_MS, 4), 2)
    t.equal(await batches.work.prune(at(0), NOW_MS, 4), 0)
    t.equal((await allResults(batches, id)).length, 4)
    await acceptDone(batches)
    t.equal(await batches.work.prune(at(0), NOW_MS, 4), 0, 'a line with a result has no body')
  })

  await t.test('only terminal batches grow old', async t => {
    const { batches } = await opened(t)
    for (const status of BATCH_STATUSES) {
      const { id } = await accept(batches, { lines: 0 })
      if (status !== 'validating') await batches.work.move(id, ['validating'], status, at(1))
    }
    t.equal(await batches.work.prune(at(1000), NOW_MS + 1e12, 100), TERMINAL_STATUSES.length)
    t.same([...(await batches.countByStatus()).keys()].sort(), [
      'cancelling',
      'finalizing',
      'in_progress',
      'validating',
    ])
  })
}
