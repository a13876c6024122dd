/** Indexing and searching files: what becomes a passage, what is bounded, and scores that say nothing of others. */
import { closeSync, openSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createFileIndexing } from '../../../src/features/tasks/index-file.ts'
import { createFileSearch } from '../../../src/features/tasks/search-files.ts'
import type { NewPassage } from '../../../src/storage/files.ts'
import { openStore } from '../../../src/storage/open.ts'
import type { Store } from '../../../src/storage/store.ts'
import { StoreError } from '../../../src/storage/store-error.ts'
import { someFile } from '../../storage/contract/files.ts'
import { writePdf } from '../../support/pdf.ts'

const ROOM = { files: 100, bytes: 1_000_000_000 }

/** Keeps the passages that would be stored. */
function collecting() {
  const passages: NewPassage[] = []
  const groups: number[] = []
  const store = {
    files: {
      addPassages: async (_: string, group: readonly NewPassage[]) => {
        passages.push(...group)
        groups.push(group.length)
      },
    },
    close: async () => undefined,
  } as unknown as Store
  const index = createFileIndexing(async () => store)
  return {
    passages,
    groups,
    index: (content: Uint8Array | string) =>
      index({
        storageUrl: '',
        fileId: 'x',
        source: { content: typeof content === 'string' ? Buffer.from(content) : content },
      }),
  }
}

async function stored(store: Store, fields: Parameters<typeof someFile>[0] = {}): Promise<string> {
  const file = someFile(fields)
  await store.files.open(file, ROOM)
  await store.files.complete(file.id, 'indexed')
  return file.id
}

async function openIn(t: Test): Promise<{ store: Store; url: string }> {
  const url = `sqlite:${join(t.testdir({}), 'gateway.db')}`
  const store = await openStore(url)
  t.teardown(() => store.close())
  return { store, url }
}

t.test('a text is cut at lines, sentences or words, with nothing lost between', async t => {
  for (const [text, cutAt] of [
    [Array.from({ length: 400 }, (_, at) => `line ${at}`).join('\n'), /\n$/],
    ['A sentence of some length. '.repeat(400), /\. $/],
    ['word '.repeat(2_000), / $/],
    ['x'.repeat(10_000), /x$/],
    ['日本語'.repeat(2_000), /./],
  ] as const) {
    const { index, passages, groups } = collecting()
    t.equal(await index(text), 'indexed')
    t.ok(passages.length > 2 && passages.every(each => each.text.length <= 1_600))
    for (const { text: passage } of passages.slice(0, -1)) t.match(passage, cutAt)
    t.same(
      passages.map(({ number }) => number),
      passages.map((_, at) => at),
    )
    t.ok(groups.every(size => size <= 100))
    let end = 0
    for (const { text: passage } of passages) {
      const at = Math.max(0, end - 160)
      if (!text.startsWith(passage, at)) t.fail('a part of the text is in no passage')
      end = at + passage.length
    }
    t.equal(end, text.length)
  }
})

t.test('only texts and PDFs are read, within their bounds', async t => {
  const { index, passages } = collecting()
  for (const none of [
    '',
    ' \n',
    Buffer.from('a\0b'),
    Buffer.from([0xff, 0xfe]),
    Buffer.from('abc\xe9', 'latin1'),
  ])
    t.equal(await index(none), 'none')
  // A character at the border of what is looked at first.
  t.equal(await index(`${'a'.repeat(1_023)}é${'b'.repeat(10)}`), 'indexed')
  t.equal(await index('!!! ---'), 'indexed', 'but without a passage')
  passages.length = 0
  t.equal(await index(writePdf({ pages: ['One page', 'Another page'] })), 'indexed')
  t.match(passages[0]?.text, /One page\s+Another page/)
  await t.rejects(index('%PDF-1.4 broken'), { name: 'TaskFailure' })
  await t.rejects(index('x'.repeat(8 * 1024 * 1024 + 1)), { code: 'too_large' })
})

t.test('a part of an open file is read, and nothing beside it', async t => {
  const { index: _, passages } = collecting()
  const path = join(t.testdir({}), 'body')
  writeFileSync(path, 'before|the middle|after')
  const descriptor = openSync(path, 'r')
  t.teardown(() => closeSync(descriptor))
  const store = {
    files: { addPassages: async (_: string, group: readonly NewPassage[]) => void passages.push(...group) },
    close: async () => undefined,
  } as unknown as Store
  const indexing = createFileIndexing(async () => store)
  t.equal(
    await indexing({ storageUrl: '', fileId: 'x', source: { descriptor, start: 7, bytes: 10 } }),
    'indexed',
  )
  t.same(
    passages.map(({ text, words }) => [text, words]),
    [['the middle', 'the middle']],
  )
})

t.test('a store that is away fails the task, and no words of it are told', async t => {
  const away = async (): Promise<never> => {
    throw new StoreError('storage: secret', 'ECONNREFUSED')
  }
  const source = { content: Buffer.from('text') }
  await t.rejects(createFileIndexing(away)({ storageUrl: '', fileId: 'x', source }), {
    code: 'store',
    message: 'ECONNREFUSED',
  })
  const query = {
    storageUrl: '',
    organizationId: 'o',
    workspaceId: 'w',
    queries: ['a'],
    fileIds: null,
    filter: null,
    limit: 1,
  }
  await t.rejects(createFileSearch(away)(query), { code: 'store', message: 'ECONNREFUSED' })
  t.same(await createFileSearch(away)({ ...query, queries: ['!'] }), [], 'without words nobody is asked')
})

t.test('scores count the words of the question, and nothing of other workspaces', async t => {
  const { store, url } = await openIn(t)
  const index = createFileIndexing(openStore)
  const search = createFileSearch(openStore)
  const place = { organizationId: 'org_1', workspaceId: 'ws_1' }
  const ask = (...queries: readonly string[]) =>
    search({ storageUrl: url, ...place, queries, fileIds: null, filter: null, limit: 10 })
  for (const text of ['alpha beta gamma', 'alpha beta', 'alpha'])
    await index({ storageUrl: url, fileId: await stored(store), source: { content: Buffer.from(text) } })
  const before = await ask('alpha gamma')
  t.same(
    [before[0]?.text, new Set(before.map(({ text }) => text))],
    ['alpha beta gamma', new Set(['alpha beta gamma', 'alpha beta', 'alpha'])],
  )
  t.equal(before[0]?.score, 1)
  t.ok((before[1]?.score ?? 1) < 0.5, 'what all have says little')
  const foreign = await stored(store, { workspaceId: 'ws_2' })
  await index({ storageUrl: url, fileId: foreign, source: { content: Buffer.from('gamma '.repeat(1_000)) } })
  t.same(await ask('alpha gamma'), before)
  t.equal((await ask('alpha', 'gamma')).length, 3, 'several questions are one')
  t.same(await ask('omega'), [])
})
