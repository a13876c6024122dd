/** The contract of the room that batches take in their workspace. */
import type { Test } from 'tap'
import type { BatchStore } from '../../../src/storage/service-jobs.ts'
import { at, claim, LEASE_MS, NOW_MS, someBatch, someLine, someResult } from '../batches.ts'
import type { Opened } from '../contract.ts'

const ROOM = { batches: 3, requests: 10, bytes: 1_000 }

/** Opens a batch and asks for its room; it is abandoned when there is none. */
async function reserve(
  store: BatchStore,
  {
    requests = 1,
    bytes = 1,
    ...fields
  }: { requests?: number; bytes?: number; workspaceId?: string; organizationId?: string },
  room = ROOM,
) {
  const { opening, accepted } = someBatch(fields)
  await store.open(opening, NOW_MS)
  const { id, organizationId, workspaceId } = accepted
  const wanted = { id, organizationId, workspaceId: workspaceId ?? '', requests, bytes }
  const outcome = await store.reserve(wanted, room)
  if (outcome !== 'reserved') await store.abandon(id)
  return { outcome, wanted }
}

export async function batchRoomContract(t: Test, opened: Opened): Promise<void> {
  await t.test('a workspace has room for so many batches, requests and bytes', async t => {
    const { batches } = await opened(t)
    t.match(await reserve(batches, { requests: 11 }), { outcome: 'requests' })
    t.match(await reserve(batches, { bytes: 1_001 }), { outcome: 'bytes' })
    t.match(await reserve(batches, { requests: 6, bytes: 600 }), { outcome: 'reserved' })
    t.match(await reserve(batches, { requests: 5 }), { outcome: 'requests' })
    t.match(await reserve(batches, { bytes: 401 }), { outcome: 'bytes' })
    t.match(await reserve(batches, { requests: 4, bytes: 400 }), { outcome: 'reserved' })
    const last = await reserve(batches, { requests: 0, bytes: 0 })
    t.match(last, { outcome: 'reserved' })
    t.equal(await batches.reserve(last.wanted, ROOM), 'reserved', 'whoever did not hear it may ask again')
    t.match(await reserve(batches, { requests: 0, bytes: 0 }), { outcome: 'batches' })
    t.match(await reserve(batches, { workspaceId: 'ws_2', requests: 10, bytes: 1_000 }), {
      outcome: 'reserved',
    })
    t.match(await reserve(batches, { organizationId: 'org_2', requests: 10 }), { outcome: 'reserved' })
  })

  await t.test('of batches that reserve at once as many find room as there is', async t => {
    const { batches } = await opened(t)
    const asked = await Promise.all(Array.from({ length: 6 }, () => reserve(batches, { requests: 4 })))
    t.equal(asked.filter(({ outcome }) => outcome === 'reserved').length, 2)
  })

  await t.test('an abandoned batch reserves nothing', async t => {
    const { batches } = await opened(t)
    const { wanted } = await reserve(batches, { requests: 10 })
    await batches.abandon(wanted.id)
    t.equal(await batches.reserve(wanted, ROOM), 'lost')
    t.match(await reserve(batches, { requests: 10 }), { outcome: 'reserved' })
  })

  await t.test('a removed batch makes room at once, but its rows count until they are removed', async t => {
    const { batches } = await opened(t)
    for (const times of [1, 2]) {
      const { outcome, wanted } = await reserve(batches, { requests: 10 })
      t.equal(outcome, 'reserved', `time ${times}`)
      await batches.abandon(wanted.id)
    }
    t.match(await reserve(batches, { requests: 10 }), { outcome: 'removing' })
    while ((await batches.work.prune(at(0), NOW_MS, 100)) > 0);
    t.match(await reserve(batches, { requests: 10 }), { outcome: 'reserved' })
  })

  await t.test('bytes are those of requests without a result, and of results', async t => {
    const { batches } = await opened(t)
    const { work } = batches
    const body = JSON.stringify({ input: 'x'.repeat(88) })
    const lines = [0, 1].map(number => someLine(number, { body }))
    const { opening, accepted } = someBatch({ lines })
    await batches.open(opening, NOW_MS)
    const { id, organizationId } = accepted
    await batches.reserve({ id, organizationId, workspaceId: 'ws_1', requests: 2, bytes: 200 }, ROOM)
    await batches.addLines(id, lines)
    await batches.accept(accepted)
    const check = await work.claimBatch(id, 'checker', NOW_MS, NOW_MS + LEASE_MS)
    if (check === null) throw new Error('nobody else has it')
    await work.markChecked(id, check, 1, [])
    await work.move(id, ['validating'], 'in_progress', at(1))
    const [line] = await claim(batches, id, 'runner', 1)
    if (line === undefined) throw new Error('two lines wait')
    const has = async (bytes: number) => {
      t.match(
        await reserve(batches, { bytes: ROOM.bytes - bytes + 1 }),
        { outcome: 'bytes' },
        `${bytes} are kept`,
      )
      const { outcome, wanted } = await reserve(batches, { bytes: ROOM.bytes - bytes })
      t.equal(outcome, 'reserved')
      await batches.abandon(wanted.id)
      while ((await work.prune(at(0), NOW_MS, 100)) > 0);
    }
    await has(200)
    await work.finish('runner', [{ ...someResult(line), result: 'r'.repeat(30) }])
    await has(130)
    await work.move(id, ['in_progress'], 'cancelling', at(2))
    await work.move(id, ['cancelling'], 'cancelled', at(3))
    // The body of the request that never ran.
    t.equal(await work.prune(at(0), NOW_MS, 100), 1)
    await has(30)
  })
}
