/** The contract of files, their passages, and the memory of tools. */
import { randomBytes } from 'node:crypto'
import type { Test } from 'tap'
import { searchWords } from '../../../src/features/tasks/search-words.ts'
import type { MemoryEntry, NewFile, NewPassage } from '../../../src/storage/files.ts'
import type { Store } from '../../../src/storage/store.ts'
import type { Opened } from '../contract.ts'
import { ODD_IDS, ODD_TEXT, someWorkspace } from '../records.ts'

const PLACE = { organizationId: 'org_1', workspaceId: 'ws_1' }
const OTHERS = [
  { organizationId: 'org_1', workspaceId: 'ws_2' },
  { organizationId: 'org_2', workspaceId: 'ws_1' },
]
const ROOM = { files: 100, bytes: 1_000_000 }
const DAY_ONE = '2026-01-01T00:00:00.000Z'
const LATER = '2026-02-01T00:00:00.000Z'

export function someFile(fields: Partial<NewFile> = {}): NewFile {
  return {
    id: `gw_file_${randomBytes(12).toString('hex')}`,
    ...PLACE,
    filename: 'notes.txt',
    purpose: 'user_data',
    mediaType: null,
    bytes: 10,
    createdAt: DAY_ONE,
    ...fields,
  }
}

async function stored({ files }: Store, fields: Partial<NewFile> = {}): Promise<string> {
  const file = someFile(fields)
  if ((await files.open(file, ROOM)) !== null) throw new Error('no room')
  if ((await files.complete(file.id, 'indexed')) === null) throw new Error('not complete')
  return file.id
}

function passages(...texts: readonly string[]): NewPassage[] {
  return texts.map((text, number) => ({ number, text, words: searchWords(text).join(' ') }))
}

export async function fileContract(t: Test, opened: Opened): Promise<void> {
  await t.test('a file is visible once it is complete, to its own workspace only', async t => {
    const { files } = await opened(t)
    const file = someFile({ filename: ODD_TEXT, mediaType: ODD_TEXT, bytes: 5_000_000_000 })
    t.equal(await files.open(file, { ...ROOM, bytes: 6_000_000_000 }), null)
    t.equal(await files.find(PLACE, file.id), null)
    t.same(await files.list(PLACE, 10), { items: [], hasMore: false })
    t.equal(await files.newest(PLACE, ODD_TEXT), null)
    t.equal(await files.remove(PLACE, file.id), false, 'nor can it be removed')
    const record = { ...file, number: 1, text: 'unreadable' } as const
    t.same(await files.complete(file.id, 'unreadable'), record)
    t.equal(await files.complete(file.id, 'indexed'), null, 'once')
    t.same(await files.find(PLACE, file.id), record)
    t.same(await files.newest(PLACE, ODD_TEXT), record)
    for (const place of OTHERS) {
      t.equal(await files.find(place, file.id), null)
      t.equal(await files.newest(place, ODD_TEXT), null)
      t.same(await files.list(place, 10), { items: [], hasMore: false })
      t.equal(await files.list({ ...place, after: file.id }, 10), null)
      t.equal(await files.remove(place, file.id), false)
    }
    for (const id of ODD_IDS) {
      t.equal(await files.find(PLACE, id), null)
      t.equal(await files.newest(PLACE, id), null)
      t.equal(await files.remove(PLACE, id), false)
    }
    t.same(await files.find(PLACE, file.id), record)
  })

  await t.test('files are listed by age, purpose and a part of their name', async t => {
    const store = await opened(t)
    const ids: string[] = []
    for (const [filename, purpose] of [
      ['100%_a.txt', 'vision'],
      ['b.txt', 'user_data'],
      ['C.TXT', 'user_data'],
      ['d.pdf', 'vision'],
      ['Ärger.pdf', 'vision'],
    ] as const)
      ids.push(await stored(store, { filename, purpose }))
    for (const place of OTHERS) await stored(store, place)
    const [a, b, c, d, e] = ids
    const listed = async (filter: object, limit = 10) => {
      const page = await store.files.list({ ...PLACE, ...filter }, limit)
      return page === null ? null : [page.items.map(({ id }) => id), page.hasMore]
    }
    t.same(await listed({}), [[e, d, c, b, a], false])
    t.same(await listed({}, 3), [[e, d, c], true])
    t.same(await listed({ after: b }), [[a], false])
    t.same(await listed({ oldestFirst: true, after: b }, 1), [[c], true])
    t.same(await listed({ purpose: 'vision' }), [[e, d, a], false])
    t.same(await listed({ nameContains: '.tXt' }), [[c, b, a], false])
    t.same(await listed({ nameContains: '%_' }), [[a], false], 'no character is a wildcard')
    t.same(await listed({ nameContains: '\\' }), [[], false])
    t.same(await listed({ nameContains: 'ÄRG' }), [[e], false], 'letters beyond ASCII match themselves')
    t.equal(await listed({ after: 'nobody' }), null)
  })

  await t.test('the newest file of a name counts, also of the same moment', async t => {
    const store = await opened(t)
    const ids = [await stored(store), await stored(store), await stored(store, { filename: 'NOTES.txt' })]
    t.match(await store.files.newest(PLACE, 'notes.txt'), { id: ids[1], number: 2 })
    t.equal(await store.files.remove(PLACE, ids[1] ?? ''), true)
    t.match(await store.files.newest(PLACE, 'notes.txt'), { id: ids[0] })
  })

  await t.test('a workspace holds as many files and bytes as it may, whoever adds them at once', async t => {
    const { files } = await opened(t)
    const opening = Array.from({ length: 12 }, () => files.open(someFile(), { files: 7, bytes: 1_000 }))
    const outcomes = await Promise.all(opening)
    t.equal(outcomes.filter(outcome => outcome === null).length, 7)
    t.equal(outcomes.filter(outcome => outcome === 'files').length, 5)
    t.equal(await files.open(someFile({ bytes: 31 }), { files: 100, bytes: 100 }), 'bytes')
    t.equal(await files.open(someFile({ bytes: 30 }), { files: 100, bytes: 100 }), null)
    t.equal(await files.open(someFile(OTHERS[0]), { files: 1, bytes: 10 }), null, 'each for itself')
  })

  await t.test('what is removed, or never was complete, is left over until it is forgotten', async t => {
    const store = await opened(t)
    const { files } = store
    const [kept, removed] = [await stored(store), await stored(store, { createdAt: LATER })]
    const stuck = someFile()
    const arriving = someFile({ createdAt: LATER })
    for (const file of [stuck, arriving]) await files.open(file, ROOM)
    t.equal(await files.remove(PLACE, removed), true)
    t.equal(await files.remove(PLACE, removed), false)
    t.equal(await files.find(PLACE, removed), null)
    t.same(new Set(await files.leftovers(LATER, 10)), new Set([stuck.id, removed]))
    t.equal((await files.leftovers(LATER, 1)).length, 1)
    for (const id of [stuck.id, removed, kept]) await files.forget(id)
    t.same(await files.leftovers('2027-01-01T00:00:00.000Z', 10), [arriving.id])
    t.match(await files.find(PLACE, kept), { id: kept }, 'a visible file is never forgotten')
    t.equal(await files.complete(stuck.id, 'none'), null)
  })

  await t.test('the files and the memory of a removed workspace go with it', async t => {
    const store = await opened(t)
    const [gone, other] = [someWorkspace(), someWorkspace()]
    for (const workspace of [gone, other]) await store.workspaces.add(workspace)
    const placeOf = ({ id }: { id: string }) => ({ organizationId: 'org_1', workspaceId: id })
    const [file, kept] = [await stored(store, placeOf(gone)), await stored(store, placeOf(other))]
    const arriving = someFile(placeOf(gone))
    await store.files.open(arriving, ROOM)
    const entry: MemoryEntry = { key: 'k', value: 'v', updatedAt: DAY_ONE }
    const room = { perOwner: 9, perWorkspace: 9 }
    for (const workspace of [gone, other])
      await store.memory.write({ ...placeOf(workspace), endUser: 'u' }, entry, room)
    await store.workspaces.remove('org_1', gone.id, LATER)
    t.equal(await store.files.find(placeOf(gone), file), null)
    t.equal(await store.files.complete(arriving.id, 'none'), null, 'not even what arrives now')
    t.same(new Set(await store.files.leftovers(DAY_ONE, 10)), new Set([file, arriving.id]))
    t.match(await store.files.find(placeOf(other), kept), { id: kept })
    t.same(await store.memory.list({ ...placeOf(gone), endUser: 'u' }, 9), [])
    t.same(await store.memory.list({ ...placeOf(other), endUser: 'u' }, 9), [entry])
  })
}

export async function passageContract(t: Test, opened: Opened): Promise<void> {
  await t.test('passages are found by their words, in their own workspace only', async t => {
    const store = await opened(t)
    const { files } = store
    const id = await stored(store, { filename: 'a.txt' })
    const foreign = await Promise.all(OTHERS.map(place => stored(store, { ...place, filename: 'b.txt' })))
    const texts = ['Übergröße of a café at 12:30', 'nothing of the kind', '東京都の天気', ODD_TEXT]
    await files.addPassages(id, passages(...texts))
    for (const each of foreign) await files.addPassages(each, passages('a café of others'))
    const found = async (question: string, more: object = {}) =>
      (await files.search({ ...PLACE, words: searchWords(question), fileIds: null, ...more }, 10)).map(
        ({ fileId, number }) => [fileId, number],
      )
    t.same(await found('CAFE'), [[id, 0]])
    t.same(await found('ubergroße'), [[id, 0]])
    t.same(await found('の天'), [[id, 2]])
    t.same(await found('12'), [[id, 0]])
    t.same(new Set((await found('kind or café')).map(([, number]) => number)), new Set([0, 1]))
    t.same(await found('caf'), [], 'whole words')
    t.same(await found('!"*():-^'), [])
    t.same(await found('café', { fileIds: [id] }), [[id, 0]])
    t.same(await found('café', { fileIds: foreign }), [])
    t.same(await found('café', { fileIds: [] }), [])
    for (const [at, place] of OTHERS.entries()) t.same(await found('café', place), [[foreign[at], 0]])
    t.same(await files.search({ ...PLACE, words: ['kind'], fileIds: null }, 10), [
      { fileId: id, filename: 'a.txt', number: 1, text: texts[1] },
    ])
    t.same(
      await files.search(
        { ...PLACE, words: ['zz" OR "kind', 'AND', 'NEAR(', "'; drop table files; --"], fileIds: null },
        9,
      ),
      [],
      'no word is an operator',
    )
  })

  await t.test('passages with more of the words come first', async t => {
    const store = await opened(t)
    const id = await stored(store)
    const filler = Array.from(
      { length: 30 },
      (_, at) => `red ${at} and some other things that fill the passage`,
    )
    await store.files.addPassages(id, passages(...filler, 'a red rare bicycle'))
    const found = await store.files.search({ ...PLACE, words: ['red', 'bicycle'], fileIds: null }, 5)
    t.equal(found.length, 5)
    t.equal(found[0]?.number, 30)
  })

  await t.test('a file that is removed, or whose text is not whole, is not found', async t => {
    const store = await opened(t)
    const { files } = store
    const [removed, emptied] = [await stored(store), await stored(store)]
    const arriving = someFile()
    await files.open(arriving, ROOM)
    const unreadable = someFile()
    await files.open(unreadable, ROOM)
    for (const id of [removed, emptied, arriving.id, unreadable.id])
      await files.addPassages(id, passages(...Array.from({ length: 300 }, (_, at) => `same ${at}`)))
    await files.complete(unreadable.id, 'unreadable')
    const query = { ...PLACE, words: ['same'], fileIds: null }
    t.equal((await files.search(query, 1_000)).length, 600)
    await files.removePassages(emptied)
    await files.remove(PLACE, removed)
    t.same(await files.search(query, 1_000), [])
    await files.forget(removed)
    await files.addPassages(removed, passages('same'))
    t.same(await files.search({ ...query, words: ['same'] }, 9), [], 'a forgotten file takes no passages')
    await files.addPassages(emptied, passages('same again'))
    t.equal((await files.search(query, 9)).length, 1)
  })
}

export async function memoryContract(t: Test, opened: Opened): Promise<void> {
  const place = { ...PLACE, endUser: '' }
  const entry = (key: string, value = 'v'): MemoryEntry => ({ key, value, updatedAt: DAY_ONE })
  const room = { perOwner: 3, perWorkspace: 5 }

  await t.test('memory is of a workspace, or of one end user in it', async t => {
    const { memory } = await opened(t)
    const places = [
      place,
      { ...place, endUser: 'u' },
      { ...place, endUser: 'U' },
      ...OTHERS.map(other => ({ ...other, endUser: '' })),
    ]
    for (const [at, each] of places.entries()) await memory.write(each, entry(ODD_TEXT, `of ${at}`), room)
    for (const [at, each] of places.entries()) {
      t.same(await memory.find(each, ODD_TEXT), entry(ODD_TEXT, `of ${at}`))
      t.same(await memory.list(each, 9), [entry(ODD_TEXT, `of ${at}`)])
    }
    t.equal(await memory.remove(place, ODD_TEXT), true)
    t.equal(await memory.remove(place, ODD_TEXT), false)
    t.equal(await memory.find(place, ODD_TEXT), null)
    t.match(await memory.find({ ...place, endUser: 'u' }, ODD_TEXT), { value: 'of 1' })
    for (const id of ODD_IDS) t.equal(await memory.find(place, id), null)
  })

  await t.test('an entry is replaced, and more than there may be are refused', async t => {
    const { memory } = await opened(t)
    const results = await Promise.all(['b', 'a', 'c', 'd'].map(key => memory.write(place, entry(key), room)))
    t.equal(results.filter(Boolean).length, 3)
    t.equal(await memory.write(place, entry('z'), room), false)
    const [first] = await memory.list(place, 1)
    t.equal(await memory.write(place, entry(first?.key ?? '', 'changed'), room), true)
    t.same(await memory.find(place, first?.key ?? ''), entry(first?.key ?? '', 'changed'))
    const keys = (await memory.list(place, 9)).map(({ key }) => key)
    t.same(keys, keys.toSorted())
    for (const key of ['a', 'b'])
      t.equal(await memory.write({ ...place, endUser: 'u' }, entry(key), room), true)
    t.equal(
      await memory.write({ ...place, endUser: 'w' }, entry('a'), room),
      false,
      'in all of the workspace',
    )
    t.equal(await memory.write({ ...OTHERS[0], endUser: '' } as typeof place, entry('a'), room), true)
  })
}
