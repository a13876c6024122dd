import { spawn, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { chmodSync, existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { Kysely, sql } from 'kysely'
import t, { type Test } from 'tap'
import { sqlitePath } from '../../src/storage/data-folder.ts'
import { isAway, isDiskFault, openStore, StoreError } from '../../src/storage/open.ts'
import { NEWEST_MIGRATION, openSqlite } from '../../src/storage/sqlite.ts'
import {
  type CredentialRecord,
  DEFAULT_ORGANIZATION_ID,
  DEFAULT_WORKSPACE_ID,
} from '../../src/storage/store.ts'
import { storeContract } from './contract.ts'
import { migrationNames, someCredential, someKey, someSeal, someWorkspace } from './records.ts'
import { someUsage } from './usage.ts'

const modeOf = (path: string): number => statSync(path).mode & 0o777

/** A path in a folder of the test's own. */
function pathFor(test: Test, name = 'gateway.db'): string {
  return join(test.testdir({}), name)
}

t.test('the contract holds in memory', async t => {
  await storeContract(t, () => openStore('sqlite::memory:'))
})

t.test('the contract holds on files', async t => {
  const folder = t.testdir({})
  let next = 0
  await storeContract(t, () => openStore(`sqlite:${join(folder, `${next++}.db`)}`))
})

t.test('what was added is there after reopening', async t => {
  const path = pathFor(t)
  const key = someKey()
  const first = await openStore(`sqlite:${path}`)
  await first.keys.add(key)
  await first.close()
  const second = await openStore(`sqlite:${path}`)
  t.teardown(() => second.close())
  t.same(await second.keys.find(key.hash), key)
})

t.test('two handles on one file see each other at once', async t => {
  const path = pathFor(t)
  const [one, two] = await Promise.all([openStore(`sqlite:${path}`), openStore(`sqlite:${path}`)])
  t.teardown(() => Promise.all([one.close(), two.close()]))
  const key = someKey()
  await one.keys.add(key)
  t.same(await two.keys.find(key.hash), key)
})

t.test('folders and files are made for their owner alone', async t => {
  const path = join(t.testdir({}), 'a', 'b', 'gateway.db')
  const store = await openStore(`sqlite:${path}`)
  t.teardown(() => store.close())
  await store.keys.add(someKey())
  t.equal(modeOf(path), 0o600)
  t.equal(modeOf(`${path}-wal`), 0o600)
  t.equal(modeOf(join(path, '..')), 0o700)
})

t.test('the database is durable: write-ahead log, full sync', async t => {
  const path = pathFor(t)
  const store = await openStore(`sqlite:${path}`)
  t.teardown(() => store.close())
  const other = new DatabaseSync(path, { readOnly: true })
  t.teardown(() => other.close())
  t.match(other.prepare('PRAGMA journal_mode').get(), { journal_mode: 'wal' })
  t.ok(existsSync(`${path}-wal`))
  // It is told to the connection that has it only.
  const engine = openSqlite(path)
  t.teardown(() => engine.close())
  const { rows } = await sql`pragma synchronous`.execute(new Kysely<unknown>({ dialect: engine.dialect }))
  t.match(rows, [{ synchronous: 2 }], 'FULL')
})

t.test('only a relaxed transaction does not wait for the disk, also if it fails', async t => {
  const engine = openSqlite(pathFor(t))
  t.teardown(() => engine.close())
  const db = new Kysely<unknown>({ dialect: engine.dialect })
  const synchronous = async (on: Kysely<unknown>) =>
    (await sql<{ synchronous: number }>`pragma synchronous`.execute(on)).rows[0]?.synchronous
  t.equal(await engine.relax(db, synchronous), 1, 'NORMAL')
  t.equal(await synchronous(db), 2, 'FULL')
  await t.rejects(
    engine.relax(db, async () => {
      throw new Error('on purpose')
    }),
    { message: 'on purpose' },
  )
  t.equal(await synchronous(db), 2)
  t.equal(await db.transaction().execute(synchronous), 2)
})

t.test('a writer waits for another one without blocking its thread', async t => {
  const path = pathFor(t)
  const store = await openStore(`sqlite:${path}`)
  t.teardown(() => store.close())
  const other = new DatabaseSync(path)
  t.teardown(() => other.close())
  other.exec('BEGIN IMMEDIATE')
  const key = someKey()
  let added = false
  const adding = store.keys.add(key).then(result => {
    added = result
  })
  // Reads go on, and each turn of the loop proves that the thread is free while the writer waits.
  for (let turn = 0; turn < 20; turn++) {
    const fromOther = new DatabaseSync(path, { readOnly: true })
    t.match(fromOther.prepare('SELECT count(*) AS n FROM api_keys').get(), { n: 0 })
    fromOther.close()
    await new Promise(done => setImmediate(done))
  }
  t.equal(added, false)
  other.exec('ROLLBACK')
  await adding
  t.equal(added, true)
  t.same(await store.keys.find(key.hash), key)
})

t.test('a transaction that could not be ended is ended by the next one, and locks nobody out', async t => {
  const path = pathFor(t)
  const engine = openSqlite(path)
  const db = new Kysely<unknown>({ dialect: engine.dialect })
  t.teardown(() => engine.close())
  await sql`begin immediate`.execute(db)
  await sql`create table left_over (id integer)`.execute(db)
  const other = new DatabaseSync(path)
  t.teardown(() => other.close())
  t.throws(() => other.exec('BEGIN IMMEDIATE'), /locked/)
  await db.transaction().execute(transaction => sql`create table whole (id integer)`.execute(transaction))
  other.exec('BEGIN IMMEDIATE; CREATE TABLE of_other (id integer); COMMIT')
  const tables = other.prepare("SELECT name FROM sqlite_schema WHERE name IN ('left_over', 'whole')").all()
  t.same(
    tables.map(({ name }) => name),
    ['whole'],
  )
})

t.test('processes that start at once on a new file all find the newest schema', async t => {
  const path = pathFor(t)
  const script = join(t.testdirName, 'start.ts')
  writeFileSync(
    script,
    `import { openStore } from ${JSON.stringify(join(import.meta.dirname, '../../src/storage/open.ts'))}
     import { someKey } from ${JSON.stringify(join(import.meta.dirname, 'records.ts'))}
     const store = await openStore(process.argv[2] ?? '')
     await store.keys.add(someKey({ hash: process.argv[3] ?? '' }))
     await store.close()`,
  )
  const codes = await Promise.all(
    ['a', 'b', 'c', 'd'].map(async hash => {
      const child = spawn(process.execPath, ['--no-warnings', script, `sqlite:${path}`, hash], {
        stdio: 'inherit',
      })
      const [code] = (await once(child, 'exit')) as [number | null]
      return code
    }),
  )
  t.same(codes, [0, 0, 0, 0])
  const store = await openStore(`sqlite:${path}`)
  t.teardown(() => store.close())
  t.equal(await store.keys.count(), 4)
  const database = new DatabaseSync(path, { readOnly: true })
  t.teardown(() => database.close())
  t.same(
    database
      .prepare('SELECT name FROM kysely_migration')
      .all()
      .map(row => row['name']),
    migrationNames(),
  )
})

t.test('a start knows the newest migration without loading any', async t => {
  const names = migrationNames()
  t.same(NEWEST_MIGRATION, { name: names.at(-1), number: names.length })
})

t.test('key material that was removed or replaced is nowhere in the files', async t => {
  const path = pathFor(t)
  const store = await openStore(`sqlite:${path}`)
  t.teardown(() => store.close())
  const onDisk = (text: string): boolean =>
    [path, `${path}-wal`].some(file => existsSync(file) && readFileSync(file).includes(text))
  const add = async (fields: Partial<CredentialRecord> = {}) => {
    const record = await store.credentials.add(
      someCredential({ sealed: someSeal({ box: randomBytes(500).toString('base64') }), ...fields }),
    )
    t.ok(onDisk(record.sealed.box))
    return record
  }
  const removed = await add()
  await store.credentials.remove('org_1', removed.id)
  t.notOk(onDisk(removed.sealed.box), 'removed')
  t.notOk(onDisk(removed.sealed.wrapped))
  const rotated = await add()
  await store.credentials.change('org_1', rotated.id, { sealed: someSeal() }, rotated.updatedAt)
  t.notOk(onDisk(rotated.sealed.box), 'rotated')
  const old = someSeal({ wrapped: randomBytes(60).toString('base64') })
  const wrapped = await add({ sealed: old })
  t.ok(await store.credentials.reseal(wrapped.id, old, { ...old, wrapped: 'anew' }))
  t.notOk(onDisk(old.wrapped), 'wrapped anew')
  const workspace = someWorkspace()
  await store.workspaces.add(workspace)
  const inWorkspace = await add({ workspaceId: workspace.id })
  await store.workspaces.remove('org_1', workspace.id, workspace.updatedAt)
  t.notOk(onDisk(inWorkspace.sealed.box), 'of a removed workspace')
  const audited = await add()
  await store.audited(
    ({ credentials }) => credentials.remove('org_1', audited.id),
    () => null,
  )
  t.notOk(onDisk(audited.sealed.box), 'removed by an audited change')
})

t.test('a removal while another transaction runs on the same handle succeeds', async t => {
  const store = await openStore(`sqlite:${pathFor(t)}`)
  t.teardown(() => store.close())
  const added = await Promise.all(Array.from({ length: 10 }, () => store.credentials.add(someCredential())))
  const work = added.flatMap(({ id }) => [
    store.credentials.remove('org_1', id),
    store.credentials.add(someCredential()).then(() => true),
  ])
  t.ok((await Promise.all(work)).every(Boolean))
  t.equal((await store.credentials.ofWorkspace('org_1', 'ws_1')).length, 10)
})

t.test('a deleted default workspace does not come back', async t => {
  const url = `sqlite:${pathFor(t)}`
  const first = await openStore(url)
  t.ok(await first.workspaces.remove(DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID, ''))
  await first.close()
  const second = await openStore(url)
  t.teardown(() => second.close())
  t.equal(await second.workspaces.find(DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID), null)
})

t.test('records from before the totals are counted in batches, once, beside new ones', async t => {
  const path = pathFor(t)
  const records = Array.from({ length: 25 }, (_, at) =>
    someUsage({
      cost: at,
      createdAt: `2025-01-${String(at + 1).padStart(2, '0')}T00:00:00.000Z`,
      memberId: 'm',
    }),
  )
  const newest = await openStore(`sqlite:${path}`)
  await newest.ledger.add(records)
  t.equal(await newest.ledger.fillTotals(10), null, 'a new database has nothing to fill')
  const filter = { organizationId: 'org_1', since: '' }
  const days = { ...filter, until: '2030', byWorkspace: true }
  const [sums, activity] = [await newest.ledger.usageSince(filter), await newest.ledger.activity(days)]
  await newest.close()
  const old = new DatabaseSync(path)
  old.exec(`update usage set in_totals = 0; delete from usage_totals; insert into usage_fill values ('')`)
  old.close()
  const [one, two] = [await openStore(`sqlite:${path}`), await openStore(`sqlite:${path}`)]
  t.teardown(() => Promise.all([one.close(), two.close()]))
  t.match(await one.ledger.usageSince(filter), { requests: 0 })
  const [before, behind] = [someUsage({ id: 'gen-0', cost: 100 }), someUsage({ id: 'gen-z', cost: 1_000 })]
  t.match(await one.ledger.fillTotals(10), { counted: 10 })
  await two.ledger.add([before, behind])
  t.equal(await one.ledger.prune('2030', 1_000), 0, 'nothing is removed that is not counted yet')
  t.match(await two.ledger.fillTotals(10), { counted: 10 }, 'another instance goes on')
  t.match(await one.ledger.fillTotals(10), { counted: 5, upTo: behind.createdAt })
  t.equal(await one.ledger.fillTotals(10), null)
  t.equal(await two.ledger.fillTotals(10), null)
  t.same(await one.ledger.usageSince(filter), {
    requests: sums.requests + 2,
    inputTokens: sums.inputTokens + 20n,
    outputTokens: sums.outputTokens + 40n,
    cost: sums.cost + 1_100n,
    byokCost: 0n,
  })
  t.same((await one.ledger.activity(days)).slice(1), activity)
  t.match(await one.ledger.usageSince({ ...filter, memberId: 'm' }), { requests: 25, cost: 300n })
})

t.test(
  'records of a busy second are written without copies of pages, and let other work run between',
  async t => {
    const store = await openStore(`sqlite:${pathFor(t)}`)
    t.teardown(() => store.close())
    const records = Array.from({ length: 3_000 }, () => someUsage())
    const written = (): number =>
      Number(/^wchar: (\d+)$/m.exec(readFileSync('/proc/thread-self/io', 'utf8'))?.[1])
    let turns = 0
    const count = (): void => {
      turns++
      next = setImmediate(count)
    }
    let next = setImmediate(count)
    const before = written()
    for (let from = 0; from < records.length; from += 1_000) {
      t.equal(await store.ledger.add(records.slice(from, from + 1_000)), 1_000)
    }
    const bytes = (written() - before) / records.length
    clearImmediate(next)
    // About 3 KB: in the log of the database, and in its file. Copies of changed pages would make it 12 KB.
    t.ok(bytes < 6_000, `${bytes} bytes for each record`)
    t.ok(turns >= 9, `${turns} turns of the event loop`)
  },
)

t.test('sums read a row for each day, whatever the number of records', async t => {
  const path = pathFor(t)
  const store = await openStore(`sqlite:${path}`)
  t.teardown(() => store.close())
  await store.ledger.add(Array.from({ length: 3_000 }, () => someUsage({ memberId: 'm', endUser: 'u' })))
  const database = new DatabaseSync(path)
  t.teardown(() => database.close())
  t.match(database.prepare('select count(*) as n from usage_totals').get(), { n: 6 }, 'one of each kind')
  // Without the records every sum stays the same: none of them is read.
  database.exec('delete from usage')
  const filter = { organizationId: 'org_1', since: '' }
  for (const owner of [
    {},
    { keyHash: 'a'.repeat(64) },
    { memberId: 'm' },
    { memberId: 'm', workspaceId: 'ws_1' },
  ]) {
    t.match(await store.ledger.usageSince({ ...filter, ...owner }), { requests: 3_000 })
  }
  for (const owner of [{}, { keyHash: 'a'.repeat(64) }, { endUser: 'u' }]) {
    const days = { ...filter, until: '2030', byWorkspace: false, ...owner }
    t.match(await store.ledger.activity(days), [{ requests: 3_000 }])
  }
  const plan = database
    .prepare(`explain query plan select sum(requests) from usage_totals
      where organization_id = ? and kind = ? and owner = ? and day >= ?`)
    .all('org_1', 'key', 'a', '')
  t.match(JSON.stringify(plan), 'SEARCH usage_totals USING INDEX', 'and they are found by the index')
})

t.test('a database of a newer version is left alone', async t => {
  const path = pathFor(t)
  await (await openStore(`sqlite:${path}`)).close()
  const database = new DatabaseSync(path)
  t.teardown(() => database.close())
  database.exec(`insert into kysely_migration values ('9999-later', '2099-01-01T00:00:00.000Z')`)
  const message = 'storage: the database schema belongs to another version of Sluice'
  await t.rejects(openStore(`sqlite:${path}`), { name: 'StoreError', message })
})

t.test('what cannot be opened is told in one line', async t => {
  const folder = t.testdir({ 'not-a-database': 'x'.repeat(5000), file: '' })
  const cases: [string, RegExp][] = [
    ['mysql://user:secret@host/db', /^storage: expected a URL of the form sqlite:PATH or postgres:/],
    ['', /^storage: expected a URL/],
    ['sqlite:', /^storage: sqlite: needs a path/],
    [`sqlite:${folder}`, /^storage: .+: cannot be created \(EISDIR\)$/],
    [
      `sqlite:${folder}/file/x.db`,
      /^storage: .+: cannot be created \((ENOTDIR|EEXIST)\): user .+ a part of the path is a file\. Give .+ DATABASE_URL$/,
    ],
    [
      `sqlite:${folder}/not-a-database`,
      /^storage: cannot open .+\/not-a-database \(file is not a database\)\. Repair that file, or set another one in storage\.url or DATABASE_URL$/,
    ],
  ]
  for (const [url, message] of cases)
    await t.rejects(openStore(url), { constructor: StoreError, message }, url)
  t.equal(
    readFileSync(join(folder, 'not-a-database'), 'utf8'),
    'x'.repeat(5000),
    'a foreign file is left as it is',
  )
})

t.test('a folder without permission is told', async t => {
  const folder = t.testdir({ closed: {} })
  const closed = join(folder, 'closed')
  chmodSync(folder, 0o755)
  chmodSync(closed, 0o500)
  const script = `
    const { openStore } = await import(${JSON.stringify(join(import.meta.dirname, '../../src/storage/open.ts'))})
    // Root may write anywhere, so the folder is opened as nobody.
    if (process.getuid() === 0) process.setuid(65534)
    await openStore(process.argv[1]).catch(error => console.log(error.message))`
  const run = spawnSync(
    process.execPath,
    ['--no-warnings', '--input-type=module', '-e', script, `sqlite:${closed}/x.db`],
    { encoding: 'utf8' },
  )
  t.match(
    run.stdout,
    /^storage: .+: cannot be created \(EACCES\): user nobody .+ may not write there\. Give .+ DATABASE_URL\n$/,
    run.stderr,
  )
})

t.test('the path of a URL', async t => {
  t.equal(sqlitePath('sqlite:./data/x.db'), './data/x.db')
  t.equal(sqlitePath('sqlite::memory:'), ':memory:')
  t.equal(sqlitePath('postgres://x'), null)
})

t.test('a full or damaged file is told as a storage that cannot be used', async t => {
  const path = pathFor(t)
  await (await openStore(`sqlite:${path}`)).close()
  const engine = openSqlite(path)
  t.teardown(() => engine.close())
  const db = new Kysely<unknown>({ dialect: engine.dialect })
  await sql`create table filler (text text)`.execute(db)
  const { rows } = await sql<{ page_count: number }>`pragma page_count`.execute(db)
  await sql`pragma max_page_count = ${sql.lit(rows[0]?.page_count ?? 0)}`.execute(db)
  const insert = sql`insert into filler values (${'x'.repeat(100_000)})`
  const full = await insert.execute(db).then(
    () => null,
    (error: unknown) => error,
  )
  t.match(full, {
    name: 'StoreError',
    code: 'SQLITE_FULL',
    message: 'storage: the database cannot be used (database or disk is full)',
  })
  t.ok(isAway(full) && isDiskFault(full))
  await t.rejects(
    db.transaction().execute(transaction => insert.execute(transaction)),
    { code: 'SQLITE_FULL' },
    'in a transaction too',
  )
  await sql`pragma max_page_count = 1000000`.execute(db)
  await insert.execute(db)
  await sql`pragma query_only = true`.execute(db)
  await t.rejects(insert.execute(db), { code: 'SQLITE_READONLY' })
  await sql`pragma query_only = false`.execute(db)
  await t.rejects(sql`select * from nowhere`.execute(db), { code: 'ERR_SQLITE_ERROR' }, 'no fault of ours')
  await engine.close()
  const bytes = readFileSync(path)
  bytes.fill(0xff, 4096 + 100)
  writeFileSync(path, bytes)
  await t.rejects(openStore(`sqlite:${path}`), { name: 'StoreError', message: /malformed/ })
  t.notOk(isAway(new StoreError('', 'SQLITE_CORRUPT')), 'which waiting does not mend')
})
