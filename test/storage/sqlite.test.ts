import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import t, { type Test } from 'tap'
import { openStore, StoreError, sqlitePath } from '../../src/storage/open.ts'
import { someKey, storeContract } from './contract.ts'

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

t.test('processes that start at once on a new file all find the newest schema', async t => {
  const path = pathFor(t)
  const script = join(t.testdirName, 'start.ts')
  writeFileSync(
    script,
    `import { openStore } from ${JSON.stringify(join(import.meta.dirname, '../../src/storage/open.ts'))}
     import { someKey } from ${JSON.stringify(join(import.meta.dirname, 'contract.ts'))}
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
    ['0001-keys', '0002-usage'],
  )
})

t.test('what cannot be opened is told in one line', async t => {
  const folder = t.testdir({ 'not-a-database': 'x'.repeat(5000), file: '' })
  const cases: [string, RegExp][] = [
    ['postgres://user:secret@host/db', /^storage: PostgreSQL is not supported yet, use sqlite:PATH$/],
    ['postgresql://user:secret@host/db', /^storage: PostgreSQL is not supported yet/],
    ['mysql://user:secret@host/db', /^storage: expected a URL of the form sqlite:PATH$/],
    ['', /^storage: expected a URL/],
    ['sqlite:', /^storage: sqlite: needs a path/],
    [`sqlite:${folder}`, /^storage: cannot open .+ \(EISDIR\)$/],
    [`sqlite:${folder}/file/x.db`, /^storage: cannot open .+ \((ENOTDIR|EEXIST)\)$/],
    [`sqlite:${folder}/not-a-database`, /^storage: cannot open .+ \(file is not a database\)$/],
  ]
  for (const [url, message] of cases)
    await t.rejects(openStore(url), { constructor: StoreError, message }, url)
  t.equal(
    readFileSync(join(folder, 'not-a-database'), 'utf8'),
    'x'.repeat(5000),
    'a foreign file is left as it is',
  )
})

t.test(
  'a folder without permission is told',
  { skip: process.getuid?.() === 0 && 'root may write anywhere' },
  async t => {
    const folder = join(t.testdir({}), 'closed')
    mkdirSync(folder)
    chmodSync(folder, 0o500)
    await t.rejects(openStore(`sqlite:${folder}/x.db`), { message: /EACCES/ })
  },
)

t.test('the path of a URL', async t => {
  t.equal(sqlitePath('sqlite:./data/x.db'), './data/x.db')
  t.equal(sqlitePath('sqlite::memory:'), ':memory:')
  t.equal(sqlitePath('postgres://x'), null)
})
