/** The store of files where its parts fail: nothing half is visible, and nothing is left over for good. */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { serviceUnavailable } from '../../../src/base/errors.ts'
import { bytesSource, type FileContents } from '../../../src/features/files/contents.ts'
import { Files } from '../../../src/features/files/files.ts'
import { createFolderContents } from '../../../src/features/files/folder.ts'
import type { FileText } from '../../../src/storage/files.ts'
import { openStore } from '../../../src/storage/open.ts'
import { TestClock } from '../../support/test-clock.ts'

const PLACE = { organizationId: 'org_1', workspaceId: 'ws_1' }
const TOMORROW = '2100-01-01T00:00:00.000Z'

async function setUp(
  t: Test,
  more: { contents?: Partial<FileContents>; text?: () => Promise<FileText> } = {},
) {
  const folder = join(t.testdir({}), 'files')
  const store = await openStore('sqlite::memory:')
  t.teardown(() => store.close())
  const contents = { ...createFolderContents(folder), ...more.contents }
  const files = new Files({
    store,
    contents,
    limits: { maxFileBytes: 100, maxFiles: 3, maxBytes: 200 },
    readText: more.text ?? (async () => 'indexed'),
    clock: new TestClock(),
  })
  const create = (text = 'x') =>
    files.create(
      PLACE,
      {
        filename: 'a',
        purpose: 'user_data',
        mediaType: null,
        source: bytesSource(Buffer.from(text)),
        text: { content: Buffer.from(text) },
      },
      'key',
    )
  return { folder, store, files, contents, create }
}

const away = async (): Promise<never> => {
  throw serviceUnavailable()
}

t.test('bytes that cannot be kept leave no file, and their room is free again', async t => {
  const { store, files, create } = await setUp(t, { contents: { put: away } })
  for (let at = 0; at < 5; at++) await t.rejects(create(), { code: 'service_unavailable' })
  t.same(await files.list(PLACE, 9), { items: [], hasMore: false })
  t.same(await store.files.leftovers(TOMORROW, 9), [])
})

t.test('bytes that cannot be removed are removed later', async t => {
  let isAway = true
  const { folder, store, files, contents, create } = await setUp(t, {
    contents: {
      async remove(id) {
        if (isAway) await away()
        await createFolderContents(folder).remove(id)
      },
    },
  })
  t.ok(contents)
  const { id } = await create()
  t.equal(await files.remove(PLACE, id, 'key'), true)
  t.equal(await files.find(PLACE, id), null, 'gone for callers')
  t.same(readdirSync(folder), [id])
  await t.rejects(files.sweep(TOMORROW, 9))
  isAway = false
  t.equal(await files.sweep(TOMORROW, 9), 1)
  t.equal(await files.sweep(TOMORROW, 9), 0)
  t.same(readdirSync(folder), [])
  t.same(await store.files.leftovers(TOMORROW, 9), [])
})

t.test('a file whose workspace is removed while it arrives is removed too', async t => {
  const { folder, store, create } = await setUp(t, {
    text: async () => {
      await store.workspaces.remove('org_1', 'ws_1', TOMORROW)
      return 'none'
    },
  })
  await store.workspaces.add({
    id: 'ws_1',
    organizationId: 'org_1',
    name: 'w',
    slug: 'w',
    description: null,
    disabledTools: [],
    rateLimit: null,
    loops: null,
    cache: null,
    createdAt: TOMORROW,
    updatedAt: TOMORROW,
  })
  await t.rejects(create(), { code: 'conflict' })
  t.same(readdirSync(folder), [])
  t.same(await store.files.leftovers(TOMORROW, 9), [])
})

t.test('bounds hold, and whole files are read within one', async t => {
  const { files, create } = await setUp(t)
  await t.rejects(create('x'.repeat(101)), { code: 'payload_too_large' })
  const file = await create('x'.repeat(100))
  await create('x'.repeat(100))
  await t.rejects(create('x'), { code: 'conflict', message: /200 bytes/ })
  t.equal(String(await files.readWhole(file, 100, 'key')), 'x'.repeat(100))
  await t.rejects(files.readWhole(file, 99, 'key'), { code: 'payload_too_large' })
})

for (const [what, chunks] of [
  ['endless bytes', () => Array.from({ length: 1_000 }, () => Buffer.alloc(60))],
  ['fewer bytes', () => [Buffer.alloc(99)]],
] as const) {
  t.test(`a storage that gives ${what} in place of a file fails, and none beyond its size leave`, async t => {
    let given = 0
    const { files, create } = await setUp(t, {
      contents: {
        async *read() {
          for (const chunk of chunks()) {
            given += chunk.length
            yield chunk
          }
        },
      },
    })
    const file = await create('x'.repeat(100))
    await t.rejects(files.readWhole(file, 100, 'key'), { code: 'service_unavailable' })
    t.ok(given <= 120)
  })
}

t.test('texts of removed files leave the database one after the other, and in parts', async t => {
  const { store, files, create } = await setUp(t)
  const removing: string[] = []
  const ends: (() => void)[] = []
  const { forget } = store.files
  t.intercept(store.files, 'forget', {
    value: async (id: string) => {
      removing.push(id)
      await new Promise<void>(resolve => ends.push(resolve))
      await forget(id)
    },
  })
  const ids = [(await create()).id, (await create()).id, (await create()).id]
  const removals = ids.map(id => files.remove(PLACE, id, 'key'))
  for (let left = ids.length; left > 0; left--) {
    while (ends.length === 0) await new Promise(resolve => setImmediate(resolve))
    for (let turns = 0; turns < 5; turns++) await new Promise(resolve => setImmediate(resolve))
    t.equal(ends.length, 1, 'one of a key at a time')
    ends.shift()?.()
  }
  t.same(await Promise.all(removals), [true, true, true])
  t.same(removing.toSorted(), ids.toSorted())
  t.same(await store.files.leftovers(TOMORROW, 9), [])
})

t.test('the text of a large file leaves the database with turns of the event loop in between', async t => {
  const { store, create } = await setUp(t)
  const { id } = await create()
  const passages = Array.from({ length: 950 }, (_, number) => ({
    number,
    text: `text ${number}`,
    words: 'text',
  }))
  await store.files.addPassages(id, passages)
  await store.files.remove(PLACE, id)
  let turns = 0
  let isOver = false
  const count = (): void => {
    turns++
    if (!isOver) setImmediate(count)
  }
  setImmediate(count)
  await store.files.forget(id)
  isOver = true
  t.ok(turns >= 9, `${turns} turns`)
  t.same(await store.files.leftovers(TOMORROW, 9), [])
  const { organizationId, workspaceId } = PLACE
  t.same(await store.files.search({ organizationId, workspaceId, words: ['text'], fileIds: null }, 9), [])
})
