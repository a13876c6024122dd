/** The store of files where its parts fail: nothing half is visible, and nothing is left over for good. */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { serviceUnavailable } from '../../src/errors.ts'
import { bytesSource, type FileContents } from '../../src/files/contents.ts'
import { Files } from '../../src/files/files.ts'
import { createFolderContents } from '../../src/files/folder.ts'
import type { FileText } from '../../src/storage/files.ts'
import { openStore } from '../../src/storage/open.ts'
import { TestClock } from '../support/test-clock.ts'

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
    room: { maxFileBytes: 100, maxFiles: 3, maxBytes: 200 },
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
