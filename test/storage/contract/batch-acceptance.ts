/** The contract of accepting batches. */
import { randomBytes } from 'node:crypto'
import type { Test } from 'tap'
import { NO_USAGE } from '../../../src/protocol/management/batches.ts'
import { accept, acceptDone, LEASE_MS, NOW_MS, someBatch, someLine, someLines } from '../batches.ts'
import type { Opened } from '../contract.ts'
import { ODD_IDS, ODD_TEXT } from '../records.ts'

const PLACE = { organizationId: 'org_1', workspaceId: 'ws_1' }

export async function batchAcceptanceContract(t: Test, opened: Opened): Promise<void> {
  await t.test('a batch is seen from its acceptance on, as it was given', async t => {
    const { batches } = await opened(t)
    for (const fields of [
      {},
      {
        workspaceId: null,
        endpoint: '/v1/embeddings',
        model: ODD_TEXT,
        preferences: { only: ['openai', 'azure'], allowFallbacks: false },
        dataRegion: 'europe',
        withMetadata: true,
        idempotencyKey: ODD_TEXT,
      } as const,
    ]) {
      const { opening, lines, accepted } = someBatch(fields)
      const { bodyHash, ...given } = accepted
      const place = { organizationId: 'org_1', workspaceId: accepted.workspaceId }
      const find = () => batches.find('org_1', accepted.workspaceId, accepted.id)
      t.same(await batches.open(opening, NOW_MS), { outcome: 'opened' })
      await batches.addLines(opening.id, lines)
      t.equal(await find(), null)
      t.same(await batches.list(place, 10), { items: [], hasMore: false })
      t.same(await batches.work.open(), [])
      t.same(await batches.countByStatus(), new Map())
      t.equal(await batches.results(opening.id, -1, { limit: 1 }), null)
      t.equal(await batches.remove('org_1', accepted.workspaceId, accepted.id), 'unknown')
      t.equal(await batches.work.claimBatch(accepted.id, 'one', NOW_MS, NOW_MS + 1), null)
      const record = {
        ...given,
        status: 'validating',
        completed: 0,
        failed: 0,
        usage: NO_USAGE,
        error: null,
        service: null,
        waiting: null,
        startedAt: null,
        cancellingAt: null,
        finalizedAt: null,
      }
      t.same(await batches.accept(accepted), record)
      t.same(await find(), record)
      t.same(await batches.list(place, 10), { items: [record], hasMore: false })
      t.same(await batches.work.open(), [record])
      t.same(await batches.work.uncheckedLines(accepted.id, { limit: 10 }), lines)
      t.same(await batches.accept(accepted), record, 'whoever did not hear it may ask again')
      t.equal(await batches.keepOpen(accepted.id, NOW_MS), false)
      await t.rejects(batches.addLines(accepted.id, someLines(1, 3)), { name: 'ConflictError', field: 'id' })
      await batches.abandon(accepted.id)
      t.same(await find(), record, 'what is accepted cannot be abandoned')
      const failed = await batches.work.move(accepted.id, ['validating'], 'failed', accepted.createdAt)
      t.same(await batches.accept(accepted), failed, 'which changes nothing')
      await batches.remove('org_1', accepted.workspaceId, accepted.id)
      t.equal(await batches.accept(accepted), null)
    }
  })

  await t.test('lines hold any JSON text and any custom_id', async t => {
    const { batches } = await opened(t)
    const bodies = [
      JSON.stringify({ input: `\u0000 \ud800 ${ODD_TEXT}` }),
      '{"input": "\\u0000\\ud800"  }',
      JSON.stringify({ input: 'x'.repeat(3_000_000) }),
      '{}',
    ]
    // Text that no index can compress, of the greatest length.
    const longest = randomBytes(1000).toString('hex')
    const customIds = [ODD_TEXT, longest, '', "' OR 1=1 --"]
    const lines = bodies.map((body, number) => someLine(number, { body, customId: customIds[number] ?? '' }))
    const { id } = await accept(batches, { lines })
    t.same(await batches.work.uncheckedLines(id, { limit: 10 }), lines)
  })

  await t.test('lines come in any number of parts, whose numbers leave no gap', async t => {
    const { batches } = await opened(t)
    const { opening, accepted } = someBatch({ lines: 1000 })
    await batches.open(opening, NOW_MS)
    await batches.addLines(opening.id, [])
    await batches.addLines(opening.id, someLines(600))
    await t.rejects(batches.addLines(opening.id, someLines(1, 601)), { name: 'RangeError' })
    await t.rejects(batches.addLines(opening.id, someLines(1, 599)), { name: 'RangeError' })
    await t.rejects(batches.addLines(opening.id, [someLine(600), someLine(602)]), { name: 'RangeError' })
    await batches.addLines(opening.id, someLines(399, 600))
    await t.rejects(batches.accept(accepted), { name: 'RangeError' })
    await batches.addLines(opening.id, someLines(1, 999))
    t.match(await batches.accept(accepted), { total: 1000 })
    t.same(await batches.work.uncheckedLines(opening.id, { limit: 2000 }), someLines(1000))
  })

  await t.test('a custom_id that is there already is refused with all lines of its part', async t => {
    const { batches } = await opened(t)
    const { opening } = someBatch()
    await batches.open(opening, NOW_MS)
    await batches.addLines(opening.id, someLines(2))
    const conflict = { name: 'ConflictError', field: 'custom_id' }
    await t.rejects(
      batches.addLines(opening.id, [someLine(2), someLine(3, { customId: 'line-1' })]),
      conflict,
    )
    await t.rejects(
      batches.addLines(opening.id, [someLine(2, { customId: 'x' }), someLine(3, { customId: 'x' })]),
      conflict,
    )
    await batches.addLines(opening.id, [someLine(2, { customId: 'LINE-1' })])
    await accept(batches, { lines: someLines(2) })
    t.pass('another batch may have the same')
  })

  await t.test('an idempotency key stands for one batch of a key', async t => {
    const { batches } = await opened(t)
    const first = someBatch({ idempotencyKey: 'k' })
    const second = someBatch({ idempotencyKey: 'k' })
    t.same(await batches.open(first.opening, NOW_MS), { outcome: 'opened' })
    t.same(await batches.open(second.opening, NOW_MS), { outcome: 'taken' })
    for (const fields of [
      { idempotencyKey: 'K' },
      { idempotencyKey: 'k', keyHash: 'b'.repeat(64) },
      { idempotencyKey: 'k', organizationId: 'org_2' },
      { idempotencyKey: null },
    ])
      t.same(await batches.open(someBatch(fields).opening, NOW_MS), { outcome: 'opened' })
    await batches.addLines(first.opening.id, first.lines)
    const batch = await batches.accept(first.accepted)
    const known = { outcome: 'known', batch, bodyHash: first.accepted.bodyHash }
    t.same(await batches.open(second.opening, NOW_MS + 10 * LEASE_MS), known)
    t.equal(await batches.keepOpen(second.opening.id, NOW_MS), false, 'the second was not added')
  })

  await t.test('an abandoned batch gives its idempotency key up', async t => {
    const { batches } = await opened(t)
    const first = someBatch({ idempotencyKey: 'k' })
    const second = someBatch({ idempotencyKey: 'k' })
    await batches.open(first.opening, NOW_MS)
    await batches.addLines(first.opening.id, first.lines)
    t.equal(await batches.keepOpen(first.opening.id, NOW_MS + 2 * LEASE_MS), true)
    t.same(await batches.open(second.opening, NOW_MS + 2 * LEASE_MS - 1), { outcome: 'taken' })
    t.same(await batches.open(second.opening, NOW_MS + 2 * LEASE_MS), { outcome: 'opened' })
    t.equal(await batches.keepOpen(first.opening.id, NOW_MS + 9 * LEASE_MS), false)
    await t.rejects(batches.addLines(first.opening.id, someLines(1, 3)), {
      name: 'ConflictError',
      field: 'id',
    })
    t.equal(await batches.accept(first.accepted), null)
    await batches.abandon(first.opening.id)
    await batches.addLines(second.opening.id, second.lines)
    t.match(await batches.accept(second.accepted), { id: second.accepted.id })

    const third = someBatch({ idempotencyKey: 'other' })
    const fourth = someBatch({ idempotencyKey: 'other' })
    await batches.open(third.opening, NOW_MS)
    await batches.abandon(third.opening.id)
    t.same(await batches.open(fourth.opening, NOW_MS), { outcome: 'opened' })
    t.equal(await batches.accept({ ...third.accepted, total: 0 }), null)
  })

  await t.test('opening a batch may be repeated, and never opens the batch of another key', async t => {
    const { batches } = await opened(t)
    for (const idempotencyKey of ['k', null]) {
      const { opening, accepted, lines } = someBatch({ idempotencyKey })
      await batches.open(someBatch({ idempotencyKey: null }).opening, NOW_MS)
      t.same(await batches.open(opening, NOW_MS), { outcome: 'opened' })
      t.same(await batches.open(opening, NOW_MS), { outcome: 'opened' })
      for (const other of [{ keyHash: 'b'.repeat(64) }, { organizationId: 'org_2' }])
        await t.rejects(batches.open({ ...opening, ...other }, NOW_MS), { name: 'TypeError' })
      await batches.addLines(opening.id, lines)
      const batch = await batches.accept(accepted)
      const known = { outcome: 'known', batch, bodyHash: accepted.bodyHash }
      t.same(await batches.open(opening, NOW_MS), known, 'it was accepted')
    }
  })

  await t.test('a removed batch gives its idempotency key up', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptDone(batches, { idempotencyKey: 'k' })
    t.equal(await batches.remove('org_1', 'ws_1', id), 'removed')
    t.same(await batches.open(someBatch({ idempotencyKey: 'k' }).opening, NOW_MS), { outcome: 'opened' })
  })

  await t.test('of requests with one idempotency key at once one is accepted', async t => {
    const { batches } = await opened(t)
    const abandoned = someBatch({ idempotencyKey: 'k' })
    await batches.open(abandoned.opening, NOW_MS)
    for (const nowMs of [NOW_MS, NOW_MS + LEASE_MS]) {
      const asked = Array.from({ length: 8 }, () => someBatch({ idempotencyKey: 'k' }).opening)
      const outcomes = await Promise.all(
        asked.map(opening => batches.open({ ...opening, leaseUntilMs: nowMs + 2 * LEASE_MS }, nowMs)),
      )
      t.equal(outcomes.filter(({ outcome }) => outcome === 'opened').length, nowMs === NOW_MS ? 0 : 1)
      t.equal(outcomes.filter(({ outcome }) => outcome === 'taken').length, nowMs === NOW_MS ? 8 : 7)
    }
  })

  await t.test('ids that no batch has are unknown to all', async t => {
    const { batches } = await opened(t)
    const { id } = await accept(batches)
    for (const odd of [...ODD_IDS, id.toUpperCase(), `${id} `]) {
      t.equal(await batches.keepOpen(odd, NOW_MS), false)
      t.equal(await batches.accept({ ...someBatch().accepted, id: odd }), null)
      await batches.abandon(odd)
      await t.rejects(batches.addLines(odd, someLines(1)), { name: 'ConflictError', field: 'id' })
      t.equal(await batches.find('org_1', 'ws_1', odd), null)
      t.equal(await batches.list({ ...PLACE, after: odd }, 10), null)
      t.equal(await batches.results(odd, -1, { limit: 10 }), null)
      t.equal(await batches.remove('org_1', 'ws_1', odd), 'unknown')
    }
    t.match(await batches.find('org_1', 'ws_1', id), { status: 'validating' })
  })
}
