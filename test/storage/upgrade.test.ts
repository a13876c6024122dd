/**
 * The upgrade of databases of 54b545f9, the version before the migrations became one. `fixtures/schema-0031` has what
 * its Store has written, as SQL for each engine, and read again.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import type pg from 'pg'
import t, { type Test } from 'tap'
import { openStore } from '../../src/storage/open.ts'
import type { Store } from '../../src/storage/store.ts'
import { postgresSchema, withoutPostgres } from '../support/postgres.ts'

const skip = await withoutPostgres()
const FOLDER = join(import.meta.dirname, '../fixtures/schema-0031')
const RECORDS: unknown = JSON.parse(readFileSync(join(FOLDER, 'records.json'), 'utf8'))

/** What later versions did to the schema before the migrations became one. */
const LATER = [
  `drop index usage_by_model;
   create index usage_by_model on usage (organization_id, model, created_at, id) where model is not null;
   drop index usage_by_cost; create index usage_by_cost on usage (organization_id, cost, id) where cost > 0;
   insert into kysely_migration values ('0032-usage-refused', '2026-02-01T00:00:00.000Z');`,
  `alter table batches add column waiting text;
   insert into kysely_migration values ('0033-batch-waits', '2026-02-02T00:00:00.000Z');`,
]
const TOO_OLD = {
  name: 'StoreError',
  message:
    'storage: the database is too old for this version of Sluice. Make a backup, start the version of commit 54b545f9 once on the database, then start this one',
}

/** A database of 54b545f9, or of so many migrations later. */
function oldSqlite(t: Test, later = 0): { readonly url: string; readonly path: string } {
  const path = join(t.testdir({}), 'gateway.db')
  change(path, [readFileSync(join(FOLDER, 'sqlite.sql'), 'utf8'), ...LATER.slice(0, later)].join('\n'))
  return { url: `sqlite:${path}`, path }
}

function change(path: string, statements: string): void {
  const database = new DatabaseSync(path)
  database.exec(statements)
  database.close()
}

/** Tables, columns, keys and indexes, whatever the statements that made them. */
function sqliteSchema(path: string): unknown {
  const database = new DatabaseSync(path, { readOnly: true })
  const all = (statement: string) => database.prepare(statement).all()
  const tables = all(`select name from sqlite_master where type = 'table' order by name`).map(({ name }) => ({
    name,
    columns: all(`pragma table_xinfo(${name})`),
    foreignKeys: all(`pragma foreign_key_list(${name})`),
    // Their order is that in which they were made.
    indexes: all(`select name, "unique", origin, partial from pragma_index_list('${name}') order by name`),
  }))
  const sources = all(
    `select name, sql from sqlite_master where sql is not null and (type = 'index' or sql like '%autoincrement%'
     or sql like 'create virtual%') order by name`,
  ).map(({ name, sql }) => [name, String(sql).toLowerCase().replaceAll('"', '').split(/\s+/).filter(Boolean)])
  const migrations = all('select name from kysely_migration')
  database.close()
  return { tables, sources, migrations }
}

async function postgresSchemaOf(client: pg.Client): Promise<unknown> {
  const statements = [
    `select table_name, column_name, ordinal_position, data_type, is_nullable, column_default
       from information_schema.columns where table_schema = current_schema() order by 1, 3`,
    `select replace(indexdef, current_schema() || '.', '') as text from pg_indexes
       where schemaname = current_schema() order by 1`,
    `select conrelid::regclass::text as place, conname, pg_get_constraintdef(oid) as text from pg_constraint
       where connamespace = to_regnamespace(current_schema()) order by 1, 2`,
    'select name from kysely_migration',
  ]
  const found: unknown[] = []
  for (const statement of statements) found.push((await client.query(statement)).rows)
  return found
}

/** What the fixture was given, read by the verbs of the Store. `records.json` is what the old version read so, with the
 * `waiting` that batches gained later. */
async function readings(store: Store): Promise<unknown> {
  const org = 'org_1'
  const page = { offset: 0, limit: 100 }
  const place = { organizationId: org, workspaceId: 'ws_1' }
  const [newest] = (await store.batches.list({ organizationId: org }, 1))?.items ?? []
  const id = newest?.id ?? ''
  const all = {
    keys: await store.keys.list(org),
    rotated: await store.keys.find('c'.repeat(64)),
    secrets: await store.keys.secrets(org, 'a'.repeat(64), '2026-01-01'),
    removed: await store.keys.wasRemoved('d'.repeat(64)),
    defaults: await store.workspaces.page('org_default', page),
    workspaces: await store.workspaces.page(org, page),
    endUsers: await store.endUsers.page({ organizationId: org, includeInactive: true }, page),
    credentials: await store.credentials.ofWorkspace(org, 'ws_1'),
    credits: [await store.credits.find(org, 'bought'), await store.credits.total(org)],
    guardrails: await store.guardrails.page({ organizationId: org }, page),
    assigned: await store.guardrails.assignments({ organizationId: org, kind: 'api-key' }, page),
    applying: await store.guardrails.guardrailsFor(org, 'ws_1', 'a'.repeat(64), 'member'),
    usage: await store.ledger.latest({ organizationId: org }, 100),
    dearest: await store.ledger.search({ organizationId: org, minCost: 5 }, 100),
    ofModel: await store.ledger.search({ organizationId: org, model: 'acme/fast-1' }, 100),
    totals: await store.ledger.usageSince({ organizationId: org, since: '', memberId: 'member' }),
    fill: await store.ledger.fillTotals(1),
    audit: await store.audit.page(org, page),
    alert: await store.alerts.latest(['budget'], 'key k'),
    captures: await store.captures.list(),
    parts: await store.captures.parts('capture'),
    explanations: await store.explanations.find('gen-1', org, 10),
    models: [await store.catalogue.list(), await store.catalogue.find('import')],
    batches: (await store.batches.list({ organizationId: org }, 100))?.items,
    results: await store.batches.results(id, -1, { limit: 10 }),
    unanswered: await store.batches.unansweredLines(id, -1, 10),
    jobs: await store.batches.jobs.ofBatch(id),
    files: await store.files.list(place, 10),
    found: await store.files.search({ ...place, words: ['second'], fileIds: null }, 10),
    memory: await store.memory.list({ ...place, endUser: '' }, 10),
  }
  return JSON.parse(JSON.stringify(all, (_, value) => (typeof value === 'bigint' ? String(value) : value)))
}

for (const later of [0, 1, 2]) {
  const name = `a database of ${31 + later} migrations comes to the schema of a new one, and keeps its records`
  t.test(`${name}: SQLite`, async t => {
    const { url, path } = oldSqlite(t, later)
    const store = await openStore(url)
    t.same(await readings(store), RECORDS)
    await store.close()
    const fresh = join(t.testdirName, 'new.db')
    await (await openStore(`sqlite:${fresh}`)).close()
    t.same(sqliteSchema(path), sqliteSchema(fresh))
    const again = await openStore(url)
    t.same(await readings(again), RECORDS, 'and opens again')
    await again.close()
  })

  t.test(`${name}: PostgreSQL`, { skip }, async t => {
    const [old, fresh] = [await postgresSchema(t), await postgresSchema(t)]
    await old.client.query(readFileSync(join(FOLDER, 'postgres.sql'), 'utf8'))
    for (const statements of LATER.slice(0, later)) await old.client.query(statements)
    const store = await openStore(old.url)
    t.same(await readings(store), RECORDS)
    await store.close()
    await (await openStore(fresh.url)).close()
    t.same(await postgresSchemaOf(old.client), await postgresSchemaOf(fresh.client))
    const again = await openStore(old.url)
    t.same(await readings(again), RECORDS, 'and opens again')
    await again.close()
  })
}

t.test('an older database is left as it is, and told which version brings it on', async t => {
  const { url, path } = oldSqlite(t)
  change(path, `delete from kysely_migration where name > '0031'`)
  const before = sqliteSchema(path)
  await t.rejects(openStore(url), TOO_OLD)
  t.same(sqliteSchema(path), before)
})

t.test('an older database of PostgreSQL is told the same', { skip }, async t => {
  const { client, url } = await postgresSchema(t)
  await client.query(readFileSync(join(FOLDER, 'postgres.sql'), 'utf8'))
  await client.query(`delete from kysely_migration where name > '0002'`)
  await t.rejects(openStore(url), TOO_OLD)
})

t.test('a database with migrations that no version had is left alone', async t => {
  for (const statement of [
    `delete from kysely_migration where name like '0007%'`,
    `insert into kysely_migration values ('0032-other', '2026-02-01T00:00:00.000Z')`,
  ]) {
    const { url, path } = oldSqlite(t)
    change(path, statement)
    const message = 'storage: the database schema belongs to another version of Sluice'
    await t.rejects(openStore(url), { name: 'StoreError', message }, statement)
  }
})
