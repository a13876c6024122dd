import { randomBytes } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { isoInstant } from '../../../src/base/clock.ts'
import { captureId } from '../../../src/base/ids.ts'
import { createLog } from '../../../src/base/log/log.ts'
import { partPath } from '../../../src/features/captures/folder.ts'
import { CaptureKeeper } from '../../../src/features/captures/keeper.ts'
import type { CaptureTerms } from '../../../src/features/captures/running.ts'
import { FileSeal, openSealedFile } from '../../../src/features/captures/sealed-file.ts'
import type { NewCapture } from '../../../src/storage/captures.ts'
import { openStore } from '../../../src/storage/open.ts'
import type { Store } from '../../../src/storage/store.ts'
import { TestClock } from '../../support/test-clock.ts'

const MINUTE_MS = 60_000
const KEYS = [{ id: 'k1', secret: randomBytes(32) }]
const ROOM = { running: 9, kept: 9 }

interface World {
  readonly keeper: CaptureKeeper
  readonly store: Store
  readonly clock: TestClock
  readonly folder: string
  readonly told: (readonly CaptureTerms[])[]
  readonly lines: string[]
  add(fields?: Partial<NewCapture>): Promise<NewCapture>
  /** Resolves when the keeper no longer waits with it. */
  take(capture: string, record: string | null): Promise<void>
  /** Everything that the files of a capture say. */
  read(record: NewCapture): Promise<{ text: string; isWhole: boolean }>
  looked(): Promise<void>
}

async function start(t: Test, overrides: { captures?: Partial<Store['captures']>; enabled?: boolean } = {}) {
  const clock = new TestClock()
  const store = await openStore('sqlite::memory:')
  const lines: string[] = []
  const log = createLog('trace', { write: line => void lines.push(line) })
  const folder = join(t.testdir({}), 'captures')
  const keeper = new CaptureKeeper({
    store: { captures: { ...store.captures, ...overrides.captures } },
    keys: KEYS,
    folder,
    enabled: overrides.enabled ?? true,
    clock,
    log,
  })
  const told: (readonly CaptureTerms[])[] = []
  keeper.follow(running => told.push(running))
  t.teardown(async () => {
    await keeper.close()
    await store.close()
  })
  const world: World = {
    keeper,
    store,
    clock,
    folder,
    told,
    lines,
    async add(fields = {}) {
      const nowMs = clock.nowMs()
      const record = {
        id: captureId(),
        organizationId: 'org_1',
        keyHash: 'f'.repeat(64),
        workspaceId: null,
        createdBy: 'label',
        maxBytes: 65_536,
        createdAt: isoInstant(nowMs),
        endsAt: isoInstant(nowMs + 5 * MINUTE_MS),
        expiresAt: isoInstant(nowMs + 24 * 60 * MINUTE_MS),
        ...fields,
      }
      t.equal(await store.captures.add(record, ROOM, isoInstant(nowMs)), null)
      keeper.invalidate({ kind: 'captures' })
      await keeper.settled()
      return record
    },
    take: (capture, record) =>
      new Promise(done =>
        keeper.store(
          {
            capture,
            organizationId: 'org_1',
            record: record === null ? null : new Uint8Array(Buffer.from(record)),
          },
          () => done(),
        ),
      ),
    async read({ id, organizationId }) {
      let text = ''
      let isWhole = true
      for (const { name, bytes } of await store.captures.parts(id)) {
        if (bytes === 0) continue
        const part = { captureId: id, organizationId, name }
        for await (const piece of openSealedFile(partPath(folder, id, name), KEYS, part)) {
          if (piece.kind === 'text') text += piece.bytes.toString()
          else isWhole &&= piece.isWhole
        }
      }
      return { text, isWhole }
    },
    async looked() {
      await keeper.settled()
    },
  }
  return world
}

t.test('a capture is told while it runs, written, and ends by itself', async t => {
  const { keeper, add, take, read, clock, told, looked, store, folder } = await start(t)
  keeper.start()
  await looked()
  t.same(told, [[]])
  const record = await add()
  t.match(told.at(-1), [{ id: record.id, keyHash: record.keyHash, workspaceId: null }])
  await take(record.id, '{"a":1}\n')
  await take(record.id, null)
  await take(record.id, '{"b":2}\n')
  t.same(await read(record), { text: '{"a":1}\n{"left_out":1}\n{"b":2}\n', isWhole: false })
  clock.advance(5 * MINUTE_MS)
  await looked()
  t.same(told.at(-1), [], 'no request is taken any more')
  await take(record.id, '{"late":3}\n')
  await take(record.id, null)
  clock.advance(10 * MINUTE_MS)
  await looked()
  await take(record.id, '{"too late":4}\n')
  clock.advance(1_000)
  await looked()
  const { text, isWhole } = await read(record)
  t.equal(text, '{"a":1}\n{"left_out":1}\n{"b":2}\n{"late":3}\n{"left_out":1}\n')
  t.equal(isWhole, true)
  t.match(await store.captures.find('org_1', record.id), { requests: 3, leftOut: 2, endedAt: null })
  const [file = ''] = readdirSync(join(folder, record.id))
  t.equal(statSync(join(folder, record.id, file)).mode & 0o777, 0o600)
  t.equal(statSync(join(folder, record.id)).mode & 0o777, 0o700)
  t.equal(statSync(folder).mode & 0o777, 0o700)
  t.ok(statSync(join(folder, record.id, file)).size <= ((await store.captures.list())[0]?.bytes ?? 0))
})

t.test('it never grows beyond its bound, and ends when the next record does not fit', async t => {
  const { keeper, add, take, told, store, folder, read } = await start(t)
  keeper.start()
  const record = await add()
  const line = `${'x'.repeat(20_000)}\n`
  await Promise.all(Array.from({ length: 9 }, () => take(record.id, line)))
  const found = await store.captures.find('org_1', record.id)
  t.match(found, { endedBy: 'size', requests: 3, leftOut: 6 })
  t.ok((found?.bytes ?? 0) <= 65_536)
  const [file = ''] = readdirSync(join(folder, record.id))
  t.ok(statSync(join(folder, record.id, file)).size <= 65_536)
  t.same(told.at(-1), [])
  t.match(await read(record), { isWhole: true })
  await take(record.id, 'more\n')
  t.match(await store.captures.find('org_1', record.id), { requests: 3 })
})

t.test('files are gone after their time, by the store or by what they say themselves', async t => {
  const { keeper, add, take, clock, folder, looked, store } = await start(t)
  keeper.start()
  const record = await add()
  await take(record.id, 'x\n')
  clock.advance(24 * 60 * MINUTE_MS - 1)
  await looked()
  t.ok(existsSync(join(folder, record.id)))
  clock.advance(MINUTE_MS + 1)
  await looked()
  t.notOk(existsSync(join(folder, record.id)))
  t.same(await store.captures.list(), [])
})

t.test('a restart while the store is away removes what has expired, and nothing else', async t => {
  const away = (): never => {
    throw new Error('away')
  }
  const world = await start(t, { captures: { open: away, existing: away, prune: away } })
  const { keeper, clock, folder, looked, lines } = world
  const [old, fresh] = [captureId(), captureId()]
  for (const [id, hours] of [
    [old, -1],
    [fresh, 1],
  ] as const) {
    const expiresAt = isoInstant(clock.nowMs() + hours * 60 * MINUTE_MS)
    const path = partPath(folder, id, 'p')
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(
      path,
      new FileSeal(KEYS, { captureId: id, organizationId: 'o', name: 'p', expiresAt }).header,
    )
  }
  mkdirSync(join(folder, 'something-else'))
  keeper.start()
  await looked()
  t.notOk(existsSync(join(folder, old)))
  t.ok(existsSync(join(folder, fresh)))
  t.ok(existsSync(join(folder, 'something-else')), 'what is not ours stays')
  t.equal(lines.filter(line => line.includes('cannot look up captures in the store')).length, 1)
})

t.test('files without a row are removed; where captures are off, so are they', async t => {
  const { keeper, folder, looked } = await start(t, { enabled: false })
  const id = captureId()
  mkdirSync(join(folder, id), { recursive: true })
  writeFileSync(join(folder, id, 'p.sealed'), 'x')
  keeper.start()
  await looked()
  t.notOk(existsSync(join(folder, id)))
})

t.test('a capture that was deleted elsewhere ends within a second, and leaves no file', async t => {
  const { keeper, add, take, clock, folder, looked, store, told } = await start(t)
  keeper.start()
  const record = await add()
  await take(record.id, 'x\n')
  t.equal(await store.captures.remove('org_1', record.id), true)
  clock.advance(1_000)
  await looked()
  t.same(told.at(-1), [])
  await take(record.id, 'y\n')
  keeper.invalidate({ kind: 'captures' })
  await looked()
  t.notOk(existsSync(join(folder, record.id)))
})

t.test('deleting races with writing, and leaves no file', async t => {
  const { keeper, add, take, folder, looked, store } = await start(t)
  keeper.start()
  for (let round = 0; round < 20; round++) {
    const record = await add({ organizationId: `org_${round}` })
    const writing = Array.from({ length: 5 }, () => take(record.id, 'x\n'))
    await store.captures.remove(record.organizationId, record.id)
    keeper.invalidate({ kind: 'captures' })
    await Promise.all(writing)
    await looked()
    t.notOk(existsSync(join(folder, record.id)), `round ${round}`)
  }
})

t.test(
  'a disk that takes nothing costs the requests their place in the capture, and nothing else',
  async t => {
    const { keeper, add, take, folder, store, lines } = await start(t)
    keeper.start()
    const record = await add()
    mkdirSync(folder, { recursive: true })
    writeFileSync(join(folder, record.id), 'a file where a folder should be')
    for (let round = 0; round < 3; round++) await take(record.id, 'x\n')
    t.equal(lines.filter(line => line.includes('cannot write a capture')).length, 1)
    t.match(await store.captures.find('org_1', record.id), { leftOut: 3 })
    chmodSync(folder, 0o700)
  },
)

t.test('while the store is away requests are left out, and told once it is back', async t => {
  let isAway = false
  const world: World = await start(t, {
    captures: {
      grow: (id, part) => (isAway ? Promise.reject(new Error('away')) : world.store.captures.grow(id, part)),
    },
  })
  const { keeper, add, take, read, store, lines } = world
  keeper.start()
  const record = await add()
  await take(record.id, 'a\n')
  isAway = true
  await take(record.id, 'b\n')
  await take(record.id, 'c\n')
  isAway = false
  await take(record.id, 'd\n')
  t.equal((await read(record)).text, 'a\n{"left_out":2}\nd\n')
  t.match(await store.captures.find('org_1', record.id), { requests: 2, leftOut: 2 })
  t.equal(lines.filter(line => line.includes('cannot update the size of a capture')).length, 1)
})

t.test('a second process writes a file of its own, and both have one bound', async t => {
  const { keeper, add, take, clock, folder, store, read } = await start(t)
  keeper.start()
  const record = await add()
  const other = new CaptureKeeper({
    store,
    keys: KEYS,
    folder,
    enabled: true,
    clock,
    log: { fault: () => undefined, notice: () => undefined },
  })
  other.start()
  await other.settled()
  await take(record.id, 'one\n')
  const line = new Uint8Array(Buffer.from(`${'y'.repeat(40_000)}\n`))
  await new Promise<void>(done =>
    other.store({ capture: record.id, organizationId: 'org_1', record: line }, () => done()),
  )
  t.equal((await store.captures.parts(record.id)).length, 2)
  await take(record.id, `${'z'.repeat(40_000)}\n`)
  t.match(await store.captures.find('org_1', record.id), { requests: 2, leftOut: 1, endedBy: 'size' })
  await other.close()
  t.equal((await read(record)).text.length, 'one\n'.length + 40_001 + '{"left_out":1}\n'.length)
})
