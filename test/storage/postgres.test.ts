import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inspect } from 'node:util'
import { Kysely, sql } from 'kysely'
import pg from 'pg'
import t, { type Test } from 'tap'
import { openStore, StoreError } from '../../src/storage/open.ts'
import { openPostgres } from '../../src/storage/postgres.ts'
import { spoolRoot } from '../../src/storage/spool/spool-folder.ts'
import { DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID, type Store } from '../../src/storage/store.ts'
import {
  POSTGRES_SERVER,
  PostgresLink,
  type PostgresSchema,
  postgresSchema,
  untilBlocked,
  withoutPostgres,
} from '../support/postgres.ts'
import { storeContract } from './contract.ts'
import { ownPostgres, WITHOUT_POSTGRES_SERVER } from './postgres-server.ts'
import { migrationNames, someCredential, someKey, someWorkspace } from './records.ts'
import { someUsage } from './usage.ts'

const skip = await withoutPostgres()

/** Ends all connections of the schema from the server's side. */
async function terminate({ client, application }: PostgresSchema): Promise<number> {
  const { rowCount } = await client.query(
    'select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1',
    [application],
  )
  return rowCount ?? 0
}

/** Tries until it succeeds: what a caller that comes again sees. */
async function again<T>(t: Test, verb: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await verb()
    } catch (error) {
      t.match(error, { name: 'StoreError' })
    }
  }
}

/**
 * A store with a second for each statement. Parameters of the URL win over ours, also for the migrations, which may
 * take longer: they are run before.
 */
async function openHurried(t: Test, url: string, parameter: 'query_timeout' | 'statement_timeout') {
  await (await openStore(url)).close()
  return await again(t, () => openStore(`${url}&${parameter}=1000`))
}

t.test('the contract holds on PostgreSQL', { skip }, async t => {
  const schema = await postgresSchema(t)
  await (await openStore(schema.url)).close()
  await storeContract(t, async () => {
    await schema.reset()
    return await openStore(schema.url)
  })
})

t.test('schemas of others that come and go do not disturb a start', { skip }, async t => {
  const { url } = await postgresSchema(t)
  await (await openStore(url)).close()
  const other = new pg.Client({ connectionString: POSTGRES_SERVER })
  await other.connect()
  t.teardown(() => other.end())
  let isOver = false
  const coming = (async () => {
    const name = `${new URL(url).searchParams.get('application_name')}_other`
    while (!isOver)
      await other.query(`create schema ${name} create table one (id int); drop schema ${name} cascade`)
  })()
  try {
    for (let times = 0; times < 20; times++) await (await openStore(url)).close()
  } finally {
    isOver = true
    await coming
  }
  const store = await openStore(url)
  t.equal(await store.keys.count(), 0, 'the schema is as it was')
  await store.close()
})

t.test('what was added is there after reopening, and for others at once', { skip }, async t => {
  const { url } = await postgresSchema(t)
  const first = await openStore(url)
  const key = someKey()
  await first.keys.add(key)
  await first.workspaces.remove(DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID, key.updatedAt)
  const second = await openStore(url.replace('postgres:', 'postgresql:'))
  t.teardown(() => second.close())
  t.same(await second.keys.find(key.hash), key)
  await first.close()
  t.same(await second.keys.find(key.hash), key)
  const { total } = await second.workspaces.page(DEFAULT_ORGANIZATION_ID, { offset: 0, limit: 1 })
  t.equal(total, 0, 'a deleted default workspace does not come back')
})

t.test('processes that start at once on an empty database all find the newest schema', { skip }, async t => {
  const { url, client } = await postgresSchema(t)
  const script = join(t.testdir({}), 'start.ts')
  writeFileSync(
    script,
    `import { openStore } from ${JSON.stringify(join(import.meta.dirname, '../../src/storage/open.ts'))}
     import { someKey } from ${JSON.stringify(join(import.meta.dirname, 'records.ts'))}
     const [, , url, hash] = process.argv
     const stores = await Promise.all([openStore(url), openStore(url)])
     await stores[0].keys.add(someKey({ hash }))
     await Promise.all(stores.map(store => store.close()))`,
  )
  const codes = await Promise.all(
    ['a', 'b', 'c'].map(async hash => {
      const child = spawn(process.execPath, ['--no-warnings', script, url, hash], { stdio: 'inherit' })
      const [code] = (await once(child, 'exit')) as [number | null]
      return code
    }),
  )
  t.same(codes, [0, 0, 0])
  const { rows } = await client.query(
    `select (select count(*)::int from api_keys) as keys, (select count(*)::int from workspaces) as workspaces,
       (select count(*)::int from kysely_migration) as migrations`,
  )
  t.match(rows, [{ keys: 3, workspaces: 1, migrations: migrationNames().length }])
})

t.test('a migration that fails leaves nothing behind and is tried again', { skip }, async t => {
  const { url, client } = await postgresSchema(t)
  await client.query('create table credits (id int)')
  await t.rejects(openStore(url), {
    name: 'StoreError',
    message: 'storage: PostgreSQL cannot be used (42P07)',
  })
  const store = await openStore(url, { wait: false })
  t.teardown(() => store.close())
  await t.rejects(store.keys.count(), { code: '42P07' })
  const { rows } = await client.query(
    `select table_name from information_schema.tables where table_schema = current_schema()`,
  )
  t.same(rows, [{ table_name: 'credits' }])
  await client.query('drop table credits')
  t.equal(await store.keys.count(), 0)
})

t.test('only a relaxed transaction does not wait for the disk', { skip }, async t => {
  const engine = openPostgres((await postgresSchema(t, true)).url)
  t.teardown(() => engine.close())
  const db = new Kysely<unknown>({ dialect: engine.dialect })
  const commit = async (on: Kysely<unknown>) =>
    (await sql<{ synchronous_commit: string }>`show synchronous_commit`.execute(on)).rows[0]
      ?.synchronous_commit
  t.equal(await engine.relax(db, commit), 'off')
  // All connections of the pool, the one that was used among them.
  const others = await Promise.all(Array.from({ length: 8 }, () => db.transaction().execute(commit)))
  t.same(new Set(others), new Set(['on']))
})

t.test('connections are few, however much is asked at once', { skip }, async t => {
  const schema = await postgresSchema(t)
  const store = await openStore(schema.url)
  t.teardown(() => store.close())
  await store.keys.add(someKey())
  const counts = await Promise.all(Array.from({ length: 200 }, () => again(t, () => store.keys.count())))
  t.same(
    counts,
    counts.map(() => 1),
  )
  const { rows } = await schema.client.query(
    'select count(*)::int as n from pg_stat_activity where application_name = $1',
    [schema.application],
  )
  t.match(rows, [{ n: 4 }])
})

t.test('connections that break while idle or in use harm nobody but their query', { skip }, async t => {
  const schema = await postgresSchema(t)
  const store = await openStore(schema.url)
  t.teardown(() => store.close())
  await Promise.all(Array.from({ length: 8 }, () => store.keys.count()))
  t.equal(await terminate(schema), 4)
  t.equal(await again(t, () => store.keys.count()), 0)

  const unlock = await schema.lock('workspaces')
  // A lone statement, and one within a transaction.
  const workspace = someWorkspace()
  const refused = [
    t.rejects(store.workspaces.add(workspace), { name: 'StoreError', code: '57P01' }),
    t.rejects(store.workspaces.remove('org_1', workspace.id, workspace.updatedAt), { name: 'StoreError' }),
  ]
  await untilBlocked(schema, refused.length)
  while ((await terminate(schema)) > 0) await new Promise(done => setImmediate(done))
  await Promise.all(refused)
  await unlock()
  await again(t, () => store.workspaces.add(workspace))
  t.same(await store.workspaces.find('org_1', workspace.id), workspace)
})

t.test(
  'a statement that the server gives up tells that the database cannot be used now',
  { skip },
  async t => {
    const schema = await postgresSchema(t)
    const store = await openStore(schema.url)
    t.teardown(() => store.close())
    await store.keys.count()
    const unlock = await schema.lock('workspaces')
    const workspace = someWorkspace()
    const refused = [
      t.rejects(store.workspaces.add(workspace), { name: 'StoreError', code: '57014' }),
      t.rejects(store.workspaces.remove('org_1', workspace.id, workspace.updatedAt), {
        name: 'StoreError',
        message: 'storage: PostgreSQL cannot be used (a statement was cancelled)',
      }),
    ]
    await untilBlocked(schema, refused.length)
    await schema.client.query(
      `select pg_cancel_backend(pid) from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock'`,
      [schema.application],
    )
    await Promise.all(refused)
    await unlock()
    await store.workspaces.add(workspace)
    t.same(await store.workspaces.find('org_1', workspace.id), workspace)
  },
)

t.test('faults of the server that pass are told as such, and the connection stays', { skip }, async t => {
  const schema = await postgresSchema(t)
  const store = await openStore(schema.url)
  t.teardown(() => store.close())
  await store.probe()
  const trigger = (code: string) =>
    schema.client.query(`
      create or replace function refuse() returns trigger language plpgsql as $$
        begin raise exception 'simulated' using errcode = '${code}'; end $$;
      create or replace trigger refusing before insert on workspaces for each row execute function refuse()
    `)
  for (const code of ['40001', '40P01', '53100', '53200', '55P03', '58030']) {
    await trigger(code)
    await t.rejects(store.workspaces.add(someWorkspace()), { name: 'StoreError', code })
    t.equal(await store.keys.count(), 0)
  }
  await trigger('22001')
  await t.rejects(store.workspaces.add(someWorkspace()), { name: /^(?!StoreError)/, code: '22001' })
})

t.test(
  'a server that became read-only is away until it takes changes',
  { skip: WITHOUT_POSTGRES_SERVER },
  async t => {
    const server = await ownPostgres(t)
    await server.start()
    const store = await openStore(server.url)
    t.teardown(() => store.close())
    await store.probe()
    const turn = async (state: 'on' | 'off'): Promise<void> => {
      const options = '-c default_transaction_read_only=off'
      const admin = new pg.Client({ connectionString: server.url, options })
      await admin.connect()
      await admin.query(`alter database postgres set default_transaction_read_only = ${state}`)
      await admin.query(
        `select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'sluice'`,
      )
      await admin.end()
    }
    await turn('on')
    const readOnly = async (): Promise<void> => {
      const error = await store.probe().catch((thrown: unknown) => thrown)
      if (error instanceof StoreError && error.code === '25006') return
      throw error ?? new StoreError('not yet')
    }
    await again(t, readOnly)
    await t.rejects(store.probe(), { message: /it is read-only; a replica may have taken its place/ })
    await t.rejects(store.keys.add(someKey()), { name: 'StoreError', code: '25006' })
    t.equal(await store.keys.count(), 0, 'it is still read')
    await turn('off')
    await again(t, () => store.probe())
    t.equal(await store.keys.add(someKey()), true)
  },
)

t.test('a database that goes away and comes back needs no restart', { skip }, async t => {
  const schema = await postgresSchema(t)
  const link = await PostgresLink.up(t)
  const store = await openStore(schema.urlAt(link.port))
  t.teardown(() => store.close())
  const key = someKey()
  await store.keys.add(key)
  for (let round = 0; round < 3; round++) {
    await link.cut()
    const startMs = performance.now()
    const results = await Promise.allSettled(Array.from({ length: 20 }, () => store.keys.find(key.hash)))
    t.ok(performance.now() - startMs < 30_000, 'told soon')
    for (const result of results) t.match(result, { status: 'rejected', reason: { name: 'StoreError' } })
    await link.start()
    t.same(await again(t, () => store.keys.find(key.hash)), key)
  }
})

t.test('a store opens while the database is away, and migrates when it is there', { skip }, async t => {
  const schema = await postgresSchema(t)
  const link = await PostgresLink.down(t)
  const url = schema.urlAt(link.port)
  await t.rejects(openStore(url), { message: 'storage: PostgreSQL cannot be used (ECONNREFUSED)' })
  const unused = await openStore(url, { wait: false })
  await unused.close()
  await t.rejects(unused.keys.count(), { name: 'StoreError' })
  const store = await openStore(url, { wait: false })
  t.teardown(() => store.close())
  await t.rejects(store.keys.count(), { name: 'StoreError', code: 'ECONNREFUSED' })
  await t.rejects(store.credentials.add(someCredential()), { code: 'ECONNREFUSED' }, 'transactions as well')
  await link.start()
  const found = Array.from({ length: 10 }, () =>
    store.workspaces.find(DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID),
  )
  for (const workspace of await Promise.all(found)) t.match(workspace, { slug: 'default' })
})

t.test('a server that accepts and says nothing is given up soon', { skip }, async t => {
  const schema = await postgresSchema(t)
  const link = await PostgresLink.up(t)
  link.silence(true)
  const startMs = performance.now()
  await t.rejects(openStore(schema.urlAt(link.port)), { name: 'StoreError' })
  const tookMs = performance.now() - startMs
  t.ok(tookMs > 1_500 && tookMs < 30_000, `${tookMs} ms`)
})

t.test('a connection that goes silent is given up, and not used again', { skip }, async t => {
  const schema = await postgresSchema(t)
  const link = await PostgresLink.up(t)
  const store = await openHurried(t, schema.urlAt(link.port), 'query_timeout')
  t.teardown(() => store.close())
  const workspace = someWorkspace()
  await again(t, () => store.workspaces.add(workspace))
  link.silence(true)
  const startMs = performance.now()
  await t.rejects(store.keys.count(), { name: 'StoreError' })
  await t.rejects(store.workspaces.remove('org_1', workspace.id, ''), { name: 'StoreError' })
  t.ok(performance.now() - startMs < 30_000)
  link.silence(false)
  t.same(await again(t, () => store.workspaces.find('org_1', workspace.id)), workspace)
})

t.test('the server gives up what takes too long, and the connection goes on', { skip }, async t => {
  const schema = await postgresSchema(t)
  const store = await openHurried(t, schema.url, 'statement_timeout')
  t.teardown(() => store.close())
  const unlock = await schema.lock('workspaces')
  await t.rejects(store.workspaces.add(someWorkspace()), { code: '57014' })
  await unlock()
  const { total } = await again(t, () => store.workspaces.page('org_1', { offset: 0, limit: 1 }))
  t.equal(total, 0)
})

t.test('older records are counted once by instances that fill the totals together', { skip }, async t => {
  const { url, client } = await postgresSchema(t)
  const [one, two] = [await openStore(url), await openStore(url)]
  t.teardown(() => Promise.all([one.close(), two.close()]))
  const filter = { organizationId: 'org_1', since: '' }
  await one.ledger.add(Array.from({ length: 60 }, () => someUsage({ cost: 2 })))
  await client.query('update usage set in_totals = 0')
  await client.query('delete from usage_totals')
  await client.query(`insert into usage_fill values ('')`)
  const fill = async (store: Store) => {
    let counted = 0
    for (;;) {
      const batch = await store.ledger.fillTotals(7)
      if (batch === null) return counted
      counted += batch.counted
      await store.ledger.add([someUsage({ cost: 100 })])
    }
  }
  const counted = await Promise.all([fill(one), fill(two)])
  t.equal(counted[0] + counted[1], 60)
  const { requests, cost } = await one.ledger.usageSince(filter)
  t.equal(cost, 120n + 100n * BigInt(requests - 60), 'new records are counted beside them, once')
  const insertOfBefore = `insert into usage (id, created_at, organization_id, key_hash, outcome, accounting,
    input_tokens, output_tokens, cost, details) values ('gen-old', '', '', '', '', '', 1, 1, 1, '{}')`
  await t.rejects(
    client.query(insertOfBefore),
    { code: '23502' },
    'older versions add nothing past the totals',
  )
})

t.test('errors hold no part of the URL', async t => {
  const urls = [
    'postgres://user:s3cret@127.0.0.1:1/db',
    'postgres://user:x@s3cret.invalid/db',
    'postgres://user:s3cret/x@127.0.0.1/db',
    'postgres://user:1/s3cret@127.0.0.1/db',
    'postgres://user:s3cret@127.0.0.1:99999/db',
    'postgres://user:s3cret%zz@127.0.0.1:1/db',
    'postgres://user:s3cret@127.0.0.1:1/db?sslmode=verify-full&sslrootcert=/s3cret',
    'postgresql://user:s3cret@127.0.0.1:5432/missing-database',
    'mysql://user:s3cret@127.0.0.1/db',
    'postgres:user:s3cret@127.0.0.1/db',
  ]
  for (const url of urls) {
    const error: unknown = await openStore(url).then(
      store => store.close(),
      (thrown: unknown) => thrown,
    )
    t.type(error, StoreError, url)
    t.notMatch(inspect(error, { depth: 10, showHidden: true }), 's3cret', url)
    if (!/^postgres(ql)?:\/\//.test(url)) continue
    const lazy: unknown = await openStore(url, { wait: false })
      .then(async store => {
        const failure = await store.keys.count().then(
          () => null,
          (thrown: unknown) => thrown,
        )
        await store.close()
        return failure
      })
      .catch((thrown: unknown) => thrown)
    t.type(lazy, StoreError, url)
    t.notMatch(inspect(lazy, { depth: 10, showHidden: true }), 's3cret', url)
  }
})

t.test('the spool of a PostgreSQL storage is below the working directory', async t => {
  t.equal(spoolRoot('postgres://user:s3cret@host/db'), join(process.cwd(), 'data', 'spool'))
  t.equal(spoolRoot('sqlite::memory:'), join(process.cwd(), 'data', 'spool'))
  t.equal(spoolRoot('sqlite:/srv/x/gateway.db'), '/srv/x/spool')
})
