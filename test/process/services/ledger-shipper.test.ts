/** Shipping on real files and a real database: nothing twice, nothing lost, nothing left behind. */
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { createLog } from '../../../src/base/log/log.ts'
import { startShipper } from '../../../src/process/services/ledger-shipper.ts'
import { openStore } from '../../../src/storage/open.ts'
import { openSpool, spoolFiles } from '../../../src/storage/spool/spool.ts'
import { type UsageLine, wholeRecord } from '../../../src/storage/spool/usage-line.ts'
import type { Store } from '../../../src/storage/store.ts'
import { keep, someUsage } from '../../storage/usage.ts'
import { TestClock } from '../../support/test-clock.ts'

async function setUp(t: Test) {
  const path = join(t.testdir({}), 'gateway.db')
  const storageUrl = `sqlite:${path}`
  const store = await openStore(storageUrl)
  t.teardown(() => store.close())
  const clock = new TestClock()
  const lines: Record<string, unknown>[] = []
  const log = createLog('info', { write: line => void lines.push(JSON.parse(line)) })
  const shipped: string[] = []
  const start = () =>
    startShipper({
      storageUrl,
      clock,
      log,
      shipped: { isWanted: true, receive: records => void shipped.push(...records.map(({ id }) => id)) },
    })
  const spool = (folder: string, fileMaxBytes?: number, writer?: string) =>
    openSpool(folder, {
      clock,
      log,
      onLost: () => t.fail('lost'),
      ...(fileMaxBytes === undefined ? {} : { fileMaxBytes }),
      ...(writer === undefined ? {} : { writer }),
    })
  return {
    path,
    root: join(dirname(path), 'spool'),
    storageUrl,
    store,
    clock,
    log,
    lines,
    start,
    spool,
    shipped,
  }
}

const requests = async (store: Store) =>
  (await store.ledger.usageSince({ organizationId: 'org_1', since: '' })).requests

t.test('records of several threads arrive, once each, while more are written', async t => {
  const { store, start, spool, root, shipped } = await setUp(t)
  const shipper = await start()
  const spools = [spool(shipper.folder, 5_000), spool(shipper.folder)]
  const records = Array.from({ length: 60 }, () => someUsage())
  for (const [at, record] of records.entries()) {
    await keep(spools[at % 2], record)
    if (at % 7 === 0) await shipper.ship()
  }
  await shipper.ship()
  t.equal(await requests(store), 60)
  t.same(shipped.toSorted(), records.map(({ id }) => id).toSorted(), 'each is told once')
  for (const record of records) t.same(await store.ledger.find(record.id, 'org_1'), record)
  t.equal(spoolFiles(shipper.folder).length, 2, 'shipped files that are complete are deleted')
  for (const each of spools) each.close()
  await shipper.close()
  t.same(readdirSync(root), [], 'nothing is left behind')
})

t.test('who watches sees what own threads have recorded, until it watches no more', async t => {
  const { start, spool, root } = await setUp(t)
  const left = join(root, '4242-dead')
  mkdirSync(left, { recursive: true })
  writeFileSync(join(left, 'aaa.000000.jsonl'), `${JSON.stringify(someUsage())}\n`)
  const shipper = await start()
  const writer = spool(shipper.folder)
  await keep(writer, someUsage())
  await shipper.ship()
  const seen: string[] = []
  const leave = shipper.watch(records => void seen.push(...records.map(({ id }) => id)))
  const records = [someUsage(), someUsage()]
  await keep(writer, ...records)
  await shipper.ship()
  t.same(
    seen,
    records.map(({ id }) => id),
  )
  leave()
  await keep(writer, someUsage())
  await shipper.ship()
  t.equal(seen.length, 2)
  writer.close()
  await shipper.close()
})

t.test('it ships by itself, four times a second', async t => {
  const { store, start, spool, clock } = await setUp(t)
  const shipper = await start()
  const writer = spool(shipper.folder)
  clock.advance(0)
  // Joins the shipment that is under way, and does one itself.
  await shipper.ship()
  await keep(writer, someUsage())
  clock.advance(250)
  while ((await requests(store)) === 0) await new Promise(resolve => setImmediate(resolve))
  t.equal(await requests(store), 1)
  writer.close()
  await shipper.close()
})

t.test('a shipment has what was on disk when it was asked for, not when an earlier one began', async t => {
  const { store, start, spool } = await setUp(t)
  const shipper = await start()
  const [first, second] = [spool(shipper.folder, undefined, 'aaa'), spool(shipper.folder, undefined, 'bbb')]
  await keep(first, someUsage())
  await keep(second, someUsage())
  const [path = ''] = spoolFiles(shipper.folder).map(({ path }) => path)
  const asked: Promise<boolean>[] = []
  const leave = shipper.watch(() => {
    // The file of the first one has been read by the time of the second one's.
    if (asked.push(shipper.ship()) === 2) appendFileSync(path, `${JSON.stringify(someUsage())}\n`)
  })
  await shipper.ship()
  leave()
  t.equal(await requests(store), 2)
  t.same(await Promise.all(asked), [true, true])
  t.equal(asked[0], asked[1], 'one serves all who ask before it begins')
  t.equal(await requests(store), 3)
  for (const each of [first, second]) each.close()
  await shipper.close()
})

t.test('what a dead process left is shipped at the start, half-written lines left out', async t => {
  const { store, start, root, lines } = await setUp(t)
  const left = join(root, '4242-dead')
  mkdirSync(left, { recursive: true })
  const records = Array.from({ length: 500 }, () => someUsage())
  const text = records.map(record => `${JSON.stringify(record)}\n`).join('')
  writeFileSync(join(left, 'aaa.000000.jsonl'), `${text}{"id":"gen-torn`)
  writeFileSync(join(left, 'aaa.000001.jsonl'), `${JSON.stringify(records[0])}\n`)
  writeFileSync(join(left, 'bbb.000000.jsonl'), '')
  const shipper = await start()
  await shipper.ship()
  t.equal(await requests(store), 500)
  t.notOk(existsSync(left))
  t.match(lines, [{ msg: 'skipped a half-written usage record', bytes: 15 }])
  await shipper.close()
})

t.test('a folder that cannot be shipped holds up nothing, and stays', async t => {
  const { store, start, spool, root, lines } = await setUp(t)
  mkdirSync(join(root, '4242-dead', 'aaa.000000.jsonl'), { recursive: true })
  const shipper = await start()
  const writer = spool(shipper.folder)
  await keep(writer, someUsage())
  await shipper.ship()
  t.equal(await requests(store), 1)
  t.match(lines[0], { msg: /^cannot send usage records left by an earlier process/, errorCode: 'EISDIR' })
  writer.close()
  await shipper.close()
  t.ok(existsSync(join(root, '4242-dead')))
})

t.test('two gateways on one storage leave the live files of each other alone', async t => {
  const { store, start, spool } = await setUp(t)
  const [one, two] = [await start(), await start()]
  const writer = spool(one.folder)
  await keep(writer, someUsage())
  await two.ship()
  t.equal(await requests(store), 0, 'not shipped by the other')
  t.equal(spoolFiles(one.folder).length, 1)
  await keep(writer, someUsage())
  writer.close()
  await two.close()
  await one.close()
  t.equal(await requests(store), 2)
})

t.test('while the storage refuses, all is kept on disk and told once; then it arrives', async t => {
  const { store, start, spool, storageUrl, lines, path } = await setUp(t)
  const shipper = await start()
  const writer = spool(shipper.folder, 2_000)
  const { DatabaseSync } = await import('node:sqlite')
  const database = new DatabaseSync(path)
  database.exec('ALTER TABLE usage RENAME TO elsewhere')
  for (let count = 0; count < 10; count++) await keep(writer, someUsage())
  await shipper.ship()
  await shipper.ship()
  t.same(
    lines.map(line => line['msg']),
    ['cannot send usage records to the store; they are kept on disk'],
  )
  database.exec('ALTER TABLE elsewhere RENAME TO usage')
  database.close()
  await shipper.ship()
  t.equal(await requests(store), 10)
  t.match(lines.at(-1), { msg: 'sending usage records to the store again' })
  writer.close()
  await shipper.close()
  t.match(storageUrl, /^sqlite:/)
})

t.test('a line that is no record holds up nothing', async t => {
  const { store, start, spool } = await setUp(t)
  const shipper = await start()
  const writer = spool(shipper.folder)
  await keep(writer, someUsage())
  const [file] = spoolFiles(shipper.folder)
  appendFileSync(file?.path ?? '', `${JSON.stringify({ ...someUsage(), cost: 0.5 })}\nnot json\n`)
  await keep(writer, someUsage())
  await shipper.ship()
  t.equal(await requests(store), 2)
  writer.close()
  await shipper.close()
})

t.test('what a writer left that is gone is shipped and removed, and the others go on', async t => {
  const { store, start, spool, lines } = await setUp(t)
  const shipper = await start()
  const [dead, empty, living] = ['dead', 'empty', 'living'].map(name => spool(shipper.folder, 5_000, name))
  for (let count = 0; count < 7; count++) await keep(dead, someUsage())
  await keep(living, someUsage())
  await shipper.ship()
  const names = () => readdirSync(shipper.folder).map(name => name.split('.')[0])
  t.same(new Set(names()), new Set(['dead', 'empty', 'living']), 'they may still write')
  await keep(dead, someUsage())
  const newest = spoolFiles(shipper.folder).findLast(({ path }) => path.includes('dead.'))
  appendFileSync(newest?.path ?? '', '{"id":"gen-torn')
  shipper.writerEnded('dead')
  shipper.writerEnded('empty')
  shipper.writerEnded('unheard')
  await shipper.ship()
  t.equal(await requests(store), 9)
  t.same(names(), ['living'])
  t.match(lines, [{ msg: 'skipped a half-written usage record', bytes: 15 }], 'told at once, and once')
  await keep(living, someUsage())
  await shipper.ship()
  t.equal(await requests(store), 10)
  for (const each of [dead, empty, living]) each?.close()
  await shipper.close()
  t.equal(lines.length, 1)
})

t.test('what a gone writer left stays until the storage takes it', async t => {
  const { store, start, spool, path } = await setUp(t)
  const shipper = await start()
  const writer = spool(shipper.folder, undefined, 'dead')
  const { DatabaseSync } = await import('node:sqlite')
  const database = new DatabaseSync(path)
  database.exec('ALTER TABLE usage RENAME TO elsewhere')
  await keep(writer, someUsage())
  writer.close()
  shipper.writerEnded('dead')
  await shipper.ship()
  t.equal(spoolFiles(shipper.folder).length, 1)
  database.exec('ALTER TABLE elsewhere RENAME TO usage')
  database.close()
  await shipper.ship()
  t.equal(await requests(store), 1)
  t.same(spoolFiles(shipper.folder), [])
  await shipper.close()
})

t.test('a line of an older version lacks newer fields, and is stored with their defaults', async t => {
  const { store, start, root } = await setUp(t)
  const left = join(root, '4242-dead')
  mkdirSync(left, { recursive: true })
  const { id, createdAt, organizationId, keyHash, outcome, accounting, inputTokens, outputTokens, cost } =
    someUsage()
  const old = { id, createdAt, organizationId, keyHash, outcome, accounting, inputTokens, outputTokens, cost }
  writeFileSync(join(left, 'aaa.000000.jsonl'), `${JSON.stringify(old)}\n${JSON.stringify(someUsage())}\n`)
  const shipper = await start()
  t.equal(await shipper.ship(), true)
  t.equal(await requests(store), 2)
  t.match(await store.ledger.find(id, 'org_1'), {
    ...old,
    model: null,
    endUser: null,
    isByok: false,
    reasoningTokens: 0,
    attempts: [],
  })
  t.notOk(existsSync(left))
  await shipper.close()
})

t.test(
  'a record that the storage never takes is set aside after some tries, and holds up nothing',
  async t => {
    const { store, start, spool, root, path, lines } = await setUp(t)
    const { DatabaseSync } = await import('node:sqlite')
    const database = new DatabaseSync(path)
    database.exec(`create trigger poison before insert on usage when new.end_user = 'poison'
    begin select raise(abort, 'no'); end`)
    database.close()
    const shipper = await start()
    const writer = spool(shipper.folder)
    const poison = someUsage({ endUser: 'poison', cost: 100 })
    await keep(writer, someUsage({ cost: 1 }), poison, someUsage({ cost: 1 }))
    const aside = join(root, 'set-aside.jsonl')
    for (let tries = 1; tries < 3; tries++) {
      t.equal(await shipper.ship(), false)
      t.equal(await requests(store), 0)
      t.notOk(existsSync(aside), 'it may be a fault of the moment')
    }
    t.equal(await shipper.ship(), true)
    t.match(await store.ledger.usageSince({ organizationId: 'org_1', since: '' }), { requests: 2, cost: 2n })
    t.same(wholeRecord(JSON.parse(readFileSync(aside, 'utf8')) as UsageLine), poison)
    t.equal(statSync(aside).mode & 0o777, 0o600)
    t.match(
      lines.map(line => line['msg']),
      [
        /^cannot send usage records/,
        'the store rejected a usage record; it was set aside',
        /sending usage records to the store again/,
      ],
    )
    t.equal(shipper.waitingBytes(), 0)
    await keep(writer, someUsage({ cost: 1 }))
    t.ok(shipper.waitingBytes() > 0)
    await shipper.ship()
    t.equal(await requests(store), 3)
    t.equal(shipper.waitingBytes(), 0)
    writer.close()
    await shipper.close()
  },
)

t.test('a writer that is gone is forgotten with its files', async t => {
  const { start, spool } = await setUp(t)
  const shipper = await start()
  spool(shipper.folder, undefined, 'one').close()
  shipper.writerEnded('one')
  t.equal(await shipper.ship(), true)
  t.same(spoolFiles(shipper.folder), [])
  const again = spool(shipper.folder, undefined, 'one')
  t.equal(await shipper.ship(), true)
  t.match(spoolFiles(shipper.folder), [{ writer: 'one' }], 'files of that name are those of a living writer')
  again.close()
  await shipper.close()
})
