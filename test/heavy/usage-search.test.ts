/**
 * Searches of a ledger of a million records, in both engines: by every field, alone and together, rare and common, the
 * first page and pages far behind it. Each finds what it should, and no statement reads more than its part. Times are
 * told; only what is far too slow fails.
 */
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { CamelCasePlugin, Kysely, sql } from 'kysely'
import pg from 'pg'
import t, { type Test } from 'tap'
import { findGeneration, listGenerations } from '../../src/api/generation.ts'
import type { Handler } from '../../src/api/operation.ts'
import { documentOf } from '../../src/apps/console/documents.ts'
import { generateKey, keyRecord } from '../../src/callers/api-key.ts'
import type { Engine } from '../../src/storage/engine.ts'
import { createInsertRecords, insertJson } from '../../src/storage/kysely-store/usage-rows.ts'
import { openStore } from '../../src/storage/open.ts'
import { openPostgres } from '../../src/storage/postgres.ts'
import { lineOf } from '../../src/storage/spool/usage-line.ts'
import { openSqlite } from '../../src/storage/sqlite.ts'
import type { Store } from '../../src/storage/store.ts'
import type { Tables } from '../../src/storage/tables.ts'
import type { UsageRecord } from '../../src/storage/usage.ts'
import { postgresSchema, withoutPostgres } from '../support/postgres.ts'
import { percentile } from '../support/stream-probe.ts'
import { TestClock } from '../support/test-clock.ts'
import { COMMON, newestFirst, ORGANIZATION, RARE, variedUsage } from './varied-usage.ts'

const RECORDS = Number(process.env['RECORDS'] ?? 1_000_000)
const DAYS = 400
const DAY_MS = 86_400_000
const END_MS = Date.parse('2026-07-16T12:00:00.000Z')
const USAGE = { records: RECORDS, days: DAYS, endMs: END_MS, users: 5_000, sessions: 50_000, rarity: 50_000 }
/** Records of one transaction, and between two lines that tell how far it is. */
const BULK = 2_000
const TOLD_EVERY = 100_000
/** Each page is asked for so often. */
const ROUNDS = 3
const PAGE = 50
/** Pages begin behind so many hits, as a part of all. */
const DEPTHS = [0, 0.5, 0.98] as const
/** Medians are bound to one second. What is slower than this is not a busy machine. */
const MEDIAN_MS = 1_000
const FAR_TOO_SLOW_MS = 5_000
/** Records that one statement looks at: a part, twice where its border is looked for. */
const LOOKED_AT_MAX = 2 * 2_000 + PAGE

interface Question {
  readonly query: Readonly<Record<string, string>>
  readonly fits: (record: UsageRecord) => boolean
}

const at = (daysAgo: number): string => new Date(END_MS - daysAgo * DAY_MS).toISOString()
const USER = 'user-4321'
const SESSION = 'session-4321'
const usd = (units: number) => (record: UsageRecord) => record.cost >= units

/** What is asked for, alone. */
const FIELDS = {
  all: { query: {}, fits: () => true },
  commonKey: { query: { api_key_hash: COMMON.keyHash }, fits: each => each.keyHash === COMMON.keyHash },
  rareKey: { query: { api_key_hash: RARE.keyHash }, fits: each => each.keyHash === RARE.keyHash },
  commonModel: { query: { model: COMMON.model }, fits: each => each.model === COMMON.model },
  rareModel: { query: { model: RARE.model }, fits: each => each.model === RARE.model },
  commonProvider: { query: { provider: COMMON.provider }, fits: each => each.provider === COMMON.provider },
  rareProvider: { query: { provider: RARE.provider }, fits: each => each.provider === RARE.provider },
  commonWorkspace: {
    query: { workspace_id: COMMON.workspaceId },
    fits: each => each.workspaceId === COMMON.workspaceId,
  },
  rareWorkspace: {
    query: { workspace_id: RARE.workspaceId },
    fits: each => each.workspaceId === RARE.workspaceId,
  },
  noWorkspace: { query: { workspace_id: 'ws_of_nobody' }, fits: () => false },
  commonUser: { query: { user_id: COMMON.endUser }, fits: each => each.endUser === COMMON.endUser },
  rareUser: { query: { user_id: USER }, fits: each => each.endUser === USER },
  session: { query: { session_id: SESSION }, fits: each => each.sessionId === SESSION },
  completed: { query: { outcome: 'completed' }, fits: each => each.outcome === 'completed' },
  notCompleted: {
    query: { outcome: 'failed,aborted,incomplete' },
    fits: each => each.outcome !== 'completed',
  },
  aborted: { query: { outcome: 'aborted' }, fits: each => each.outcome === 'aborted' },
  dearest: { query: { min_cost: '1000' }, fits: usd(1e15) },
  dear: { query: { min_cost: '5' }, fits: usd(5e12) },
  paid: { query: { min_cost: '0.005' }, fits: usd(5e9) },
  day: {
    query: { created_after: at(200), created_before: at(199) },
    fits: each => each.createdAt >= at(200) && each.createdAt < at(199),
  },
  firstHalf: { query: { created_before: at(200) }, fits: each => each.createdAt < at(200) },
} as const satisfies Record<string, Question>

type Field = keyof typeof FIELDS

/** Every pair of some, and what people ask for beyond that. */
function questions(): readonly (readonly Field[])[] {
  const common: readonly Field[] = [
    'commonKey',
    'commonModel',
    'commonProvider',
    'commonWorkspace',
    'commonUser',
    'notCompleted',
    'paid',
    'firstHalf',
  ]
  const rare: readonly Field[] = [
    'rareKey',
    'rareModel',
    'rareProvider',
    'rareWorkspace',
    'rareUser',
    'session',
    'aborted',
    'dear',
    'day',
  ]
  const fields = [...common, ...rare]
  return [
    ...(Object.keys(FIELDS) as Field[]).map(field => [field]),
    ...fields.flatMap((one, at) =>
      fields.slice(at + 1).flatMap(two => (canBeTogether(one, two) ? [[one, two]] : [])),
    ),
    ['commonKey', 'commonModel', 'commonProvider', 'notCompleted'],
    ['commonKey', 'commonModel', 'commonUser', 'paid', 'firstHalf'],
    ['commonModel', 'commonProvider', 'commonWorkspace', 'completed'],
    ['rareProvider', 'rareWorkspace', 'completed', 'firstHalf'],
    ['commonModel', 'rareProvider', 'rareWorkspace'],
  ]
}

function canBeTogether(one: Field, two: Field): boolean {
  const names = Object.keys(FIELDS[one].query)
  return !Object.keys(FIELDS[two].query).some(name => names.includes(name))
}

interface Asked {
  readonly name: string
  readonly query: Readonly<Record<string, string>>
  readonly fits: (record: UsageRecord) => boolean
}

function asked(fields: readonly Field[]): Asked {
  const all: readonly Question[] = fields.map(field => FIELDS[field])
  return {
    name: fields.join(' + '),
    query: Object.assign({}, ...all.map(({ query }) => query)) as Asked['query'],
    fits: record => all.every(({ fits }) => fits(record)),
  }
}

/** A statement that was run, and what it was given. */
interface Statement {
  readonly sql: string
  readonly values: readonly unknown[]
}

/** Tells what is wrong with the way in which a statement was carried out; null: nothing. */
type Judge = (statement: Statement) => Promise<string | null>

/** Asked before anything else holds up this thread. */
const skip = await withoutPostgres()

t.setTimeout(7_200_000)

t.test('SQLite', { timeout: 3_600_000 }, async t => {
  const file = join(t.testdir({}), 'gateway.db')
  await fill(t, openSqlite(file))
  const store = await openStore(`sqlite:${file}`)
  t.teardown(() => store.close())
  const reader = new DatabaseSync(file, { readOnly: true })
  t.teardown(() => reader.close())
  const heard: Statement[] = []
  const { prepare } = DatabaseSync.prototype
  // The engine keeps statements, so each is heard of once: a plan does not depend on values.
  DatabaseSync.prototype.prepare = function (this: DatabaseSync, sql: string, ...more: []) {
    heard.push({ sql, values: [] })
    return prepare.call(this, sql, ...more)
  } as typeof prepare
  t.teardown(() => {
    DatabaseSync.prototype.prepare = prepare
  })
  await searches(t, store, heard, async ({ sql }) => {
    const steps = prepare.call(reader, `explain query plan ${sql}`).all() as { detail: string }[]
    const details = steps.map(({ detail }) => detail)
    // A step that scans has nothing to go by; one that sorts has read all that it sorts.
    const isBad =
      details.some(
        detail => detail.startsWith('SCAN') || (detail.includes('TEMP B-TREE') && !sql.includes('"id" in (')),
      ) ||
      (sql.includes("outcome <> 'completed'") &&
        !details.some(detail => detail.includes('usage_not_completed')))
    return isBad ? details.join('; ') : null
  })
})

t.test('PostgreSQL', { timeout: 3_600_000, skip }, async t => {
  const schema = await postgresSchema(t)
  const store = await openStore(schema.url)
  t.teardown(() => store.close())
  // Made anew at the end, they cost a tenth.
  const { rows: indexes } = await schema.client.query<{ name: string; made: string }>(
    `select indexname as name, indexdef as made from pg_indexes
     where schemaname = current_schema and tablename = 'usage' and indexname <> 'usage_pkey'`,
  )
  t.ok(indexes.length > 5, `${indexes.length} indexes`)
  for (const { name } of indexes) await schema.client.query(`drop index ${name}`)
  await fill(t, openPostgres(schema.url))
  for (const { made } of indexes) await schema.client.query(made)
  // A server does that by itself after so many changes.
  await schema.client.query('vacuum analyze')
  const heard: Statement[] = []
  const { query } = pg.Client.prototype
  pg.Client.prototype.query = function (this: pg.Client, ...given: unknown[]) {
    const [sql, values] = given
    if (this !== schema.client && typeof sql === 'string')
      heard.push({ sql, values: (values ?? []) as unknown[] })
    return Reflect.apply(query, this, given)
  } as typeof query
  t.teardown(() => {
    pg.Client.prototype.query = query
  })
  await searches(t, store, heard, async ({ sql, values }) => {
    const { rows } = await schema.client.query<{ 'QUERY PLAN': [{ Plan: Step }] }>(
      `explain (analyze, timing off, format json) ${sql}`,
      [...values],
    )
    const plan = rows[0]?.['QUERY PLAN'][0].Plan
    if (plan === undefined) return 'no plan'
    const { read, isWhole } = readBy(plan)
    return isWhole || read > LOOKED_AT_MAX ? `${read} records: ${JSON.stringify(plan)}` : null
  })
})

interface Step {
  readonly 'Node Type': string
  readonly 'Relation Name'?: string
  readonly 'Actual Rows': number
  readonly 'Actual Loops': number
  readonly 'Rows Removed by Filter'?: number
  readonly 'Rows Removed by Index Recheck'?: number
  readonly Plans?: readonly Step[]
}

/** How many records, and entries of an index that is read whole first, a plan has read. */
function readBy(step: Step): { readonly read: number; readonly isWhole: boolean } {
  const isRead = step['Relation Name'] === 'usage' || step['Node Type'] === 'Bitmap Index Scan'
  const rows =
    step['Actual Rows'] + (step['Rows Removed by Filter'] ?? 0) + (step['Rows Removed by Index Recheck'] ?? 0)
  const below = (step.Plans ?? []).map(readBy)
  return {
    read: below.reduce((sum, { read }) => sum + read, isRead ? rows * step['Actual Loops'] : 0),
    isWhole: step['Node Type'].includes('Seq Scan') || below.some(({ isWhole }) => isWhole),
  }
}

/** Puts the records in without their totals, which no search reads, and without a wait for the disk. */
async function fill(t: Test, engine: Engine): Promise<void> {
  const sinceMs = performance.now()
  const seconds = () => ((performance.now() - sinceMs) / 1_000).toFixed(1)
  const db = new Kysely<Tables>({ dialect: engine.dialect, plugins: [new CamelCasePlugin()] })
  const { runEach } = engine
  if (runEach !== null) {
    await sql`pragma synchronous = off`.execute(db)
    await sql`pragma cache_size = -200000`.execute(db)
  }
  const insertRecords = runEach === null ? null : createInsertRecords(db, runEach, async () => undefined)
  for (let from = 0; from < RECORDS; from += BULK) {
    const count = Math.min(BULK, RECORDS - from)
    const records = Array.from({ length: count }, (_, at) => variedUsage(from + at, USAGE))
    await db
      .transaction()
      .execute(async transaction =>
        insertRecords === null
          ? await insertJson(transaction, `[${records.map(lineOf).join(',')}]`)
          : await insertRecords(records),
      )
    if ((from + count) % TOLD_EVERY === 0) t.comment(`${from + count} records after ${seconds()} s`)
  }
  await engine.close()
  t.comment(`${RECORDS} records in ${seconds()} s`)
}

interface Hits {
  readonly asked: Asked
  /** Ids of those that fit, newest first. */
  readonly ids: string[]
}

/** Goes through the records once for all questions. */
function hitsOf(all: readonly Asked[]): readonly Hits[] {
  const hits = all.map(asked => ({ asked, ids: [] as string[] }))
  for (const record of newestFirst(USAGE)) {
    if (record.organizationId !== ORGANIZATION) continue
    for (const { asked, ids } of hits) if (asked.fits(record)) ids.push(record.id)
  }
  return hits
}

async function searches(t: Test, store: Store, heard: Statement[], judge: Judge): Promise<void> {
  const clock = new TestClock(END_MS)
  const key = keyRecord(generateKey('management'), 'management', { name: 'searches', clock })
  const ask = async (handler: Handler, query: Readonly<Record<string, string>>): Promise<Found> =>
    (await documentOf(handler, key, new URLSearchParams(query), clock)) as Found
  const list = listGenerations({ store, byokFeePercent: 0 })
  const find = findGeneration({ ledger: store.ledger, explanations: store.explanations, byokFeePercent: 0 })
  const told: Told[] = []
  const bad = new Map<string, string>()
  const measure = async (name: string, once: () => Promise<unknown>): Promise<void> => {
    const times: number[] = []
    for (let round = 0; round < ROUNDS; round++) {
      heard.length = round === 0 ? 0 : heard.length
      const sinceMs = performance.now()
      await once()
      times.push(performance.now() - sinceMs)
      if (round > 0) continue
      for (const statement of ends(heard.filter(({ sql }) => /from "?usage\b/.test(sql)))) {
        const why = await judge(statement)
        if (why !== null) bad.set(`${name}: ${statement.sql}`, why)
      }
    }
    told.push({ name, medianMs: percentile(times, 0.5), worstMs: Math.max(...times) })
  }

  const hits = hitsOf(questions().map(asked))
  t.comment(`${hits.length} questions`)
  for (const at of [0, Math.floor(RECORDS / 2), RECORDS - 1]) {
    const { id, organizationId } = variedUsage(at, USAGE)
    if (organizationId !== ORGANIZATION) continue
    await measure(`id ${at}`, async () => t.match(await ask(find, { id }), { data: { id } }))
  }
  for (const { asked, ids } of hits) {
    for (const depth of DEPTHS) {
      const from = Math.floor(ids.length * depth)
      if (depth > 0 && from === 0) continue
      const after = depth === 0 ? undefined : ids[from - 1]
      const query = {
        ...asked.query,
        limit: String(PAGE),
        ...(after === undefined ? {} : { after }),
      }
      const expected = ids.slice(from, from + PAGE)
      await measure(`${asked.name} behind ${from} of ${ids.length}`, async () => {
        const { data, last_id: last } = await ask(list, query)
        const found = data.map(({ id }) => id)
        // It looks at a part of the ledger, and is asked again for the rest.
        const isPart = last !== null && found.length < expected.length
        if (JSON.stringify(found) !== JSON.stringify(isPart ? expected.slice(0, found.length) : expected))
          t.same(found, expected, `${asked.name} behind ${from}`)
      })
    }
  }
  t.same([...bad], [], 'no statement reads more than its part')
  tell(t, told)
}

interface Found {
  readonly data: readonly { readonly id: string }[]
  readonly last_id: string | null
}

interface Told {
  readonly name: string
  readonly medianMs: number
  readonly worstMs: number
}

/** The first ones and the last ones: those between are alike. */
function ends(statements: readonly Statement[]): readonly Statement[] {
  return statements.length <= 8 ? statements : [...statements.slice(0, 4), ...statements.slice(-4)]
}

function tell(t: Test, told: readonly Told[]): void {
  const byMedian = told.toSorted((one, other) => other.medianMs - one.medianMs)
  const byWorst = told.toSorted((one, other) => other.worstMs - one.worstMs)
  const line = ({ name, medianMs, worstMs }: Told) =>
    `${medianMs.toFixed(1)} ms, at worst ${worstMs.toFixed(1)} ms: ${name}`
  const medians = told.map(({ medianMs }) => medianMs)
  const slow = told.filter(({ medianMs }) => medianMs > MEDIAN_MS)
  t.comment(`${told.length} pages; the median of medians is ${percentile(medians, 0.5).toFixed(1)} ms`)
  t.comment(`${slow.length} medians above ${MEDIAN_MS} ms. The slowest medians:`)
  for (const each of byMedian.slice(0, 12)) t.comment(line(each))
  t.comment('The slowest single answers:')
  for (const each of byWorst.slice(0, 6)) t.comment(line(each))
  for (const { name, medianMs } of told)
    if (medianMs > FAR_TOO_SLOW_MS) t.fail(`${name}: ${medianMs.toFixed(0)} ms`)
}
