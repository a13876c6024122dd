/** The contract of reading and removing batches. */
import type { Test } from 'tap'
import { BATCH_STATUSES, type BatchStatus } from '../../../src/protocol/management/batches.ts'
import { accept, acceptDone, acceptRunning, allResults, at, claim, NOW_MS, someResult } from '../batches.ts'
import type { Opened } from '../contract.ts'

const PLACE = { organizationId: 'org_1', workspaceId: 'ws_1' }

export async function batchReadingContract(t: Test, opened: Opened): Promise<void> {
  await t.test('batches are listed newest first, those of one time by their ids', async t => {
    const { batches } = await opened(t)
    const ids: string[] = []
    for (const [second, id] of [
      [1, 'batch_b'],
      [3, 'batch_a'],
      [2, 'batch_d'],
      [2, 'batch_c'],
      [2, 'batch_e'],
    ] as const)
      ids.push((await accept(batches, { id, createdAt: at(second), lines: 0 })).id)
    const order = ['batch_a', 'batch_e', 'batch_d', 'batch_c', 'batch_b']
    t.equal(ids.length, order.length)
    for (const limit of [1, 2, 3, 4, 5, 6]) {
      const seen: string[] = []
      for (let hasMore = true; hasMore; ) {
        const after = seen.at(-1)
        const page = await batches.list({ ...PLACE, ...(after === undefined ? {} : { after }) }, limit)
        t.ok(page !== null && page.items.length <= limit && (page.items.length === limit || !page.hasMore))
        seen.push(...(page?.items ?? []).map(({ id }) => id))
        hasMore = page?.hasMore ?? false
      }
      t.same(seen, order, `in pages of ${limit}`)
    }
    t.same(await batches.list({ ...PLACE, after: 'batch_b' }, 5), { items: [], hasMore: false })
    t.equal(await batches.list({ ...PLACE, after: 'batch_x' }, 5), null)
    const before = async (id: string, limit: number) => {
      const page = await batches.list({ ...PLACE, before: id }, limit)
      return page === null ? null : [page.items.map(item => item.id), page.hasMore]
    }
    t.same(await before('batch_c', 2), [['batch_e', 'batch_d'], true], 'the ones next to it')
    t.same(await before('batch_c', 3), [['batch_a', 'batch_e', 'batch_d'], false])
    t.same(await before('batch_a', 3), [[], false])
    t.equal(await before('batch_x', 3), null)
    await accept(batches, { id: 'batch_m', createdAt: at(4), lines: 0, endpoint: '/v1/messages' })
    const ofMessages = await batches.list({ ...PLACE, endpoint: '/v1/messages' }, 5)
    t.same(
      ofMessages?.items.map(({ id }) => id),
      ['batch_m'],
    )
  })

  await t.test('lines without a result are told page by page, and the file of a batch is kept', async t => {
    const { batches } = await opened(t)
    const inputFile = { id: 'gw_file_1', metadata: { project: 'tea' } }
    const { id } = await acceptRunning(batches, { lines: 4, inputFile })
    t.same((await batches.find('org_1', 'ws_1', id))?.inputFile, inputFile)
    const [first] = await claim(batches, id, 'runner', 1)
    if (first !== undefined) await batches.work.finish('runner', [someResult(first)])
    t.same(
      (await batches.unansweredLines(id, -1, 2))?.items.map(({ number }) => number),
      [1],
    )
    t.same(
      (await batches.unansweredLines(id, 1, 9))?.items.map(({ number }) => number),
      [2, 3],
    )
    t.equal(await batches.unansweredLines(id, 3, 9), null)
    t.equal(await batches.unansweredLines('batch_x', -1, 9), null)
  })

  await t.test('without a workspace the batches of all are listed, of one organization', async t => {
    const { batches } = await opened(t)
    for (const [second, id, place] of [
      [1, 'batch_a', PLACE],
      [2, 'batch_b', { ...PLACE, workspaceId: 'ws_2' }],
      [3, 'batch_c', { ...PLACE, workspaceId: null }],
      [4, 'batch_d', { ...PLACE, organizationId: 'org_2' }],
    ] as const)
      await accept(batches, { ...place, id, createdAt: at(second), lines: 0 })
    const { organizationId } = PLACE
    const idsOf = async (filter: object) =>
      (await batches.list({ organizationId, ...filter }, 5))?.items.map(({ id }) => id)
    t.same(await idsOf({}), ['batch_c', 'batch_b', 'batch_a'])
    t.same(await idsOf({ workspaceId: null }), ['batch_c'])
  })

  await t.test(
    'a list is filtered by state and by time, also behind a batch that does not match',
    async t => {
      const { batches } = await opened(t)
      const made = new Map<BatchStatus, string>()
      for (const [second, status] of BATCH_STATUSES.entries()) {
        const { id } = await accept(batches, { createdAt: at(second), lines: 0 })
        if (status !== 'validating') await batches.work.move(id, ['validating'], status, at(100))
        made.set(status, id)
      }
      const list = async (filter: object) =>
        (await batches.list({ ...PLACE, ...filter }, 100))?.items.map(({ status }) => status)
      const newestFirst = [...BATCH_STATUSES].reverse()
      t.same(await list({}), newestFirst)
      for (const status of BATCH_STATUSES) t.same(await list({ statuses: [status] }), [status])
      t.same(await list({ statuses: ['failed', 'validating'] }), ['failed', 'validating'])
      t.same(await list({ statuses: [] }), [])
      t.same(await list({ createdAfter: at(5) }), newestFirst.slice(0, 2))
      t.same(await list({ createdBefore: at(2) }), newestFirst.slice(-2))
      t.same(await list({ createdAfter: at(0), createdBefore: at(2) }), ['in_progress'])
      t.same(
        await list({ statuses: ['validating', 'in_progress', 'failed'], after: made.get('completed') }),
        ['in_progress', 'validating'],
      )
      t.same(await batches.countByStatus(), new Map(BATCH_STATUSES.map(status => [status, 1])))
      t.same(
        (await batches.work.open()).map(({ status }) => status),
        ['validating', 'in_progress', 'finalizing', 'cancelling'],
        'open ones oldest first',
      )
    },
  )

  await t.test('batches are unknown to other organizations and workspaces', async t => {
    const { batches } = await opened(t)
    const mine = await acceptDone(batches, { workspaceId: 'ws_1' })
    const none = await acceptDone(batches, { workspaceId: null })
    for (const [organizationId, workspaceId, id] of [
      ['org_2', 'ws_1', mine.id],
      ['org_1', 'ws_2', mine.id],
      ['org_1', null, mine.id],
      ['org_1', 'ws_1', none.id],
      ['org_2', null, none.id],
    ] as const) {
      t.equal(await batches.find(organizationId, workspaceId, id), null)
      t.equal(await batches.remove(organizationId, workspaceId, id), 'unknown')
      t.equal(await batches.list({ organizationId, workspaceId, after: id }, 10), null)
      const page = await batches.list({ organizationId, workspaceId }, 10)
      t.notOk(page?.items.some(batch => batch.id === id))
    }
    t.same(await batches.list(PLACE, 10), { items: [mine], hasMore: false })
    t.same(await batches.list({ ...PLACE, workspaceId: null }, 10), { items: [none], hasMore: false })
  })

  await t.test('results are read in the order of the lines, however they came', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptRunning(batches, { lines: 40 })
    const lines = await claim(batches, id, 'one', 40)
    const shuffled = [...lines].sort((a, b) => ((a.number * 7) % 40) - ((b.number * 7) % 40))
    const half = shuffled.slice(0, 20)
    await batches.work.finish(
      'one',
      half.map(line => someResult(line)),
    )
    t.equal((await allResults(batches, id)).length, 20, 'those that are there')
    await batches.work.finish(
      'one',
      shuffled.slice(20).map(line => someResult(line)),
    )
    const all = lines.map(line => ({
      number: line.number,
      customId: line.customId,
      outcome: 'completed',
      result: someResult(line).result,
    }))
    for (const limit of [1, 7, 40, 100]) t.same(await allResults(batches, id, limit), all)
    t.same(await batches.results(id, 39, { limit: 1 }), [])
    t.same(await batches.results(id, -1, { limit: 1 }), all.slice(0, 1))
  })

  await t.test('a page of results ends before it has too many bytes, but not empty', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptRunning(batches, { lines: 6 })
    const lines = await claim(batches, id, 'one', 6)
    const results = lines.map(line => someResult(line, { result: 'é'.repeat(50) }))
    await batches.work.finish('one', results)
    const pageOf = async (after: number, maxBytes: number) =>
      (await batches.results(id, after, { limit: 4, maxBytes }))?.map(({ number }) => number)
    t.same(await pageOf(-1, 300), [0, 1, 2])
    t.same(await pageOf(2, 299), [3, 4])
    t.same(await pageOf(4, 0), [5])
    t.same(await pageOf(-1, 10_000), [0, 1, 2, 3])
    t.same(await pageOf(5, 0), [])
  })

  await t.test('only a terminal batch can be removed, and then nobody sees it', async t => {
    const { batches } = await opened(t)
    for (const status of BATCH_STATUSES) {
      const { id } = await accept(batches, { lines: 0 })
      if (status !== 'validating') await batches.work.move(id, ['validating'], status, at(1))
      const isTerminal = ['completed', 'failed', 'expired', 'cancelled'].includes(status)
      t.equal(await batches.remove('org_1', 'ws_1', id), isTerminal ? 'removed' : 'running', status)
      t.equal((await batches.find('org_1', 'ws_1', id)) === null, isTerminal)
      if (!isTerminal) continue
      t.equal(await batches.remove('org_1', 'ws_1', id), 'unknown')
      t.equal(await batches.results(id, -1, { limit: 1 }), null)
      t.equal(await batches.list({ ...PLACE, after: id }, 10), null)
      t.equal(await batches.work.move(id, BATCH_STATUSES, 'validating', at(2)), null)
      t.equal(await batches.work.claimBatch(id, 'one', NOW_MS, NOW_MS + 1), null)
      t.same(await batches.work.counts(id), { unchecked: 0, waiting: 0, claimed: 0, finished: 0 })
    }
    t.equal((await batches.list(PLACE, 100))?.items.length, 4)
    t.equal((await batches.work.open()).length, 4)
  })

  await t.test('a batch that is removed while its results are read does not look shorter', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptDone(batches, { lines: 10 })
    t.equal((await batches.results(id, -1, { limit: 4 }))?.length, 4)
    await batches.remove('org_1', 'ws_1', id)
    t.equal(await batches.results(id, 3, { limit: 4 }), null)
    await batches.work.prune(at(0), NOW_MS, 3)
    t.equal(await batches.results(id, 3, { limit: 4 }), null)
    while ((await batches.work.prune(at(0), NOW_MS, 3)) > 0) t.pass('a part of it is removed')
    t.equal(await batches.results(id, 3, { limit: 4 }), null)
  })
}
