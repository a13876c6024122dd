/** The contract of captures and their parts. */
import type { Test } from 'tap'
import type { CapturePart, NewCapture } from '../../../src/storage/captures.ts'
import type { Opened } from '../contract.ts'
import { ODD_IDS } from '../records.ts'

const NOW = '2026-01-01T00:00:00.000Z'
const ROOM = { running: 2, kept: 3 }

function someCapture(fields: Partial<NewCapture> = {}): NewCapture {
  return {
    id: 'cap_1',
    organizationId: 'org_1',
    keyHash: 'f'.repeat(64),
    workspaceId: null,
    createdBy: 'sk-gw-mgmt-abc...def',
    maxBytes: 1_000,
    createdAt: NOW,
    endsAt: '2026-01-01T00:10:00.000Z',
    expiresAt: '2026-01-02T00:00:00.000Z',
    ...fields,
  }
}

function somePart(fields: Partial<CapturePart> = {}): CapturePart {
  return { name: 'n1-p1', node: 'n1', host: 'h1', bytes: 400, requests: 1, leftOut: 0, ...fields }
}

export async function captureContract(t: Test, opened: Opened): Promise<void> {
  await t.test('a capture is found by its organization alone', async t => {
    const { captures } = await opened(t)
    const record = someCapture()
    t.equal(await captures.add(record, ROOM, NOW), null)
    const stored = { ...record, bytes: 0, requests: 0, leftOut: 0, endedAt: null, endedBy: null }
    t.same(await captures.find('org_1', 'cap_1'), stored)
    t.same(await captures.page('org_1', { offset: 0, limit: 9 }), { items: [stored], total: 1 })
    t.same(await captures.list(), [stored])
    t.same(await captures.existing(['cap_1', 'cap_2', ...ODD_IDS]), new Set(['cap_1']))
    t.same(await captures.existing([]), new Set())
    for (const id of [...ODD_IDS, 'org_2']) {
      t.equal(await captures.find(id, 'cap_1'), null)
      t.equal(await captures.remove(id, 'cap_1'), false)
      t.same(await captures.page(id, { offset: 0, limit: 9 }), { items: [], total: 0 })
    }
    for (const id of ODD_IDS) t.equal(await captures.find('org_1', id), null)
  })

  await t.test('an organization has room for some that run, and for some more', async t => {
    const { captures } = await opened(t)
    const add = (id: string, fields: Partial<NewCapture> = {}) =>
      captures.add(someCapture({ id, ...fields }), ROOM, NOW)
    t.equal(await add('a'), null)
    t.equal(await add('b'), null)
    t.equal(await add('c'), 'running')
    t.equal(await add('d', { organizationId: 'org_2' }), null, 'each has its own')
    await captures.end('a', 'size', NOW)
    t.equal(await add('c'), null)
    await captures.end('b', 'size', NOW)
    t.equal(await add('e'), 'kept')
    t.equal(await captures.remove('org_1', 'a'), true)
    t.equal(await captures.remove('org_1', 'a'), false)
    t.equal(await add('e', { endsAt: NOW }), null)
    const both = await Promise.all([add('f', { organizationId: 'o' }), add('g', { organizationId: 'o' })])
    t.same(both, [null, null])
  })

  await t.test('parts take room until there is none, whichever takes it', async t => {
    const { captures } = await opened(t)
    await captures.add(someCapture(), ROOM, NOW)
    t.equal(await captures.grow('cap_1', somePart()), true)
    t.equal(await captures.grow('cap_1', somePart({ leftOut: 2 })), true)
    t.equal(await captures.grow('cap_1', somePart({ name: 'n2-p1', node: 'n2', bytes: 201 })), false)
    t.equal(await captures.grow('cap_1', somePart({ name: 'n2-p1', node: 'n2', bytes: 200 })), true)
    t.equal(await captures.grow('cap_1', somePart({ bytes: 1 })), false)
    t.equal(await captures.grow('cap_1', somePart({ bytes: 0, requests: 0, leftOut: 5 })), true)
    t.match(await captures.find('org_1', 'cap_1'), { bytes: 1_000, requests: 3, leftOut: 7 })
    t.same(await captures.parts('cap_1'), [
      somePart({ bytes: 800, requests: 2, leftOut: 7 }),
      somePart({ name: 'n2-p1', node: 'n2', bytes: 200 }),
    ])
    t.same(await captures.parts('cap_2'), [])
    t.equal(await captures.grow('cap_2', somePart()), false, 'there is no such capture')
    await captures.end('cap_1', 'size', '2026-01-01T00:05:00.000Z')
    await captures.end('cap_1', 'size', '2026-01-01T00:06:00.000Z')
    t.match(await captures.find('org_1', 'cap_1'), { endedAt: '2026-01-01T00:05:00.000Z', endedBy: 'size' })
    t.equal(await captures.grow('cap_1', somePart({ bytes: 0 })), false, 'it was ended')
    t.equal(await captures.remove('org_1', 'cap_1'), true)
    t.same(await captures.parts('cap_1'), [])
  })

  await t.test('writers at once never take more than there is', async t => {
    const { captures } = await opened(t)
    await captures.add(someCapture(), ROOM, NOW)
    const taken = await Promise.all(
      Array.from({ length: 20 }, (_, at) => captures.grow('cap_1', somePart({ name: `p${at}`, bytes: 90 }))),
    )
    t.equal(taken.filter(each => each).length, 11)
    t.match(await captures.find('org_1', 'cap_1'), { bytes: 990 })
  })

  await t.test('those that may still grow are open; those whose time is over are pruned', async t => {
    const { captures } = await opened(t)
    await captures.add(someCapture({ id: 'a' }), ROOM, NOW)
    await captures.add(someCapture({ id: 'b', expiresAt: '2026-01-03T00:00:00.000Z' }), ROOM, NOW)
    await captures.grow('a', somePart())
    t.same(
      (await captures.open(NOW)).map(({ id }) => id),
      ['a', 'b'],
    )
    t.same(await captures.open('2026-01-01T00:10:00.000Z'), [])
    await captures.end('b', 'size', NOW)
    t.same(
      (await captures.open(NOW)).map(({ id }) => id),
      ['a'],
    )
    t.same(await captures.prune('2026-01-01T23:59:59.999Z', 9), [])
    t.same(await captures.prune('2026-01-02T00:00:00.000Z', 9), ['a'])
    t.same(await captures.parts('a'), [])
    t.same(
      (await captures.list()).map(({ id }) => id),
      ['b'],
    )
  })
}
