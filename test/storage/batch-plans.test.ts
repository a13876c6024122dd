/**
 * The verbs of batches read few rows however many lines there are: what the planners of both engines do with every
 * statement, for a batch of which PostgreSQL has no statistics yet.
 */
import { CamelCasePlugin, type CompiledQuery, Kysely } from 'kysely'
import t, { type Test } from 'tap'
import type { Engine } from '../../src/storage/engine.ts'
import { createBatchStore } from '../../src/storage/kysely-store/batches/batches.ts'
import { openPostgres } from '../../src/storage/postgres.ts'
import type { BatchStore } from '../../src/storage/service-jobs.ts'
import { openSqlite } from '../../src/storage/sqlite.ts'
import type { Tables } from '../../src/storage/tables.ts'
import { postgresSchema, withoutPostgres } from '../support/postgres.ts'
import { accept, acceptRunning, at, claim, NOW_MS, present, someBatch, someResult } from './batches.ts'

const skip = await withoutPostgres()
const LARGE = ['batch_lines', 'batch_bodies', 'batch_results'] as const

/** Every statement that the verbs use, each once. */
class Statements {
  readonly #seen = new Map<string, CompiledQuery>()
  readonly batches: BatchStore
  isRecording = false

  constructor(engine: Engine) {
    const db = new Kysely<Tables>({
      dialect: engine.dialect,
      plugins: [new CamelCasePlugin()],
      log: ({ query }) => {
        if (this.isRecording) this.#seen.set(query.sql, query)
      },
    })
    this.batches = createBatchStore(db, engine)
  }

  /** Those on tables that have a row for each line. */
  all(): readonly CompiledQuery[] {
    return [...this.#seen.values()].filter(
      ({ sql }) => LARGE.some(table => sql.includes(`"${table}"`)) && !sql.startsWith('insert'),
    )
  }
}

/** Runs every verb on a new batch of many lines, some of which have no gap between them and some have. */
async function useAll(statements: Statements): Promise<void> {
  const { batches } = statements
  const { work } = batches
  const { id } = await acceptRunning(batches, { lines: 2_000 })
  const fresh = await accept(batches, { lines: 50 })
  const abandoned = someBatch()
  await batches.open(abandoned.opening, NOW_MS)
  statements.isRecording = true
  await batches.addLines(abandoned.opening.id, abandoned.lines)
  await batches.abandon(abandoned.opening.id)
  const check = present(await work.claimBatch(fresh.id, 'one', NOW_MS, NOW_MS + 1))
  await work.uncheckedLines(fresh.id, { limit: 5 })
  await work.markChecked(fresh.id, check, 4, [{ ...someResult({ batchId: '', number: 2, fence: 0 }) }])
  const lines = await claim(batches, id, 'one', 100)
  const gaps = lines.filter(({ number }) => number % 3 > 0)
  await work.renew('one', lines, NOW_MS + 2)
  await work.renew('one', gaps, NOW_MS + 2)
  await work.giveBack(
    'one',
    gaps.slice(0, 10).map(line => ({ ...line, notBeforeMs: 1 })),
  )
  await work.giveBack(
    'one',
    lines.slice(30, 40).map(line => ({ ...line, notBeforeMs: 1 })),
  )
  await work.finish(
    'one',
    gaps.slice(20).map(line => someResult(line)),
  )
  await work.finish(
    'one',
    lines.slice(15, 18).map(line => someResult(line)),
  )
  await work.counts(id)
  await work.nextLineAt(id)
  await batches.results(id, 3, { limit: 10 })
  await claim(batches, id, 'one', 100)
  await work.move(id, ['in_progress'], 'cancelled', at(1))
  await work.prune(at(0), NOW_MS, 100)
  await batches.remove('org_1', 'ws_1', id)
  await work.prune(at(0), NOW_MS, 100)
  statements.isRecording = false
}

function checkStatements(t: Test, statements: readonly CompiledQuery[]): void {
  const verbs = new Set(statements.map(({ sql }) => sql.slice(0, 6)))
  t.same([...verbs].sort(), ['delete', 'select', 'update'])
  t.ok(statements.length > 20, `${statements.length} statements`)
}

t.test('SQLite finds lines by an index and by their number or time, and sorts none', async t => {
  const engine = openSqlite(':memory:')
  t.teardown(() => engine.close())
  const statements = new Statements(engine)
  await useAll(statements)
  checkStatements(t, statements.all())
  const db = new Kysely<unknown>({ dialect: engine.dialect })
  for (const query of statements.all()) {
    const { rows } = await db.executeQuery<{ detail: string }>({
      ...query,
      sql: `explain query plan ${query.sql}`,
    })
    for (const { detail } of rows) {
      if (LARGE.some(table => detail.includes(` ${table} `)))
        t.match(
          detail,
          /^SEARCH \w+ USING (?:COVERING )?INDEX \w+ \(batch_id=\? AND (?:number|ready_ms)[<=>]/,
          query.sql,
        )
      t.notMatch(detail, /TEMP B-TREE/, query.sql)
    }
  }
})

/** A node of a plan of PostgreSQL. */
interface PlanNode {
  readonly 'Node Type': string
  readonly 'Relation Name'?: string
  readonly 'Index Cond'?: string
  readonly Plans?: readonly PlanNode[]
}

function nodesOf(node: PlanNode): readonly PlanNode[] {
  return [node, ...(node.Plans ?? []).flatMap(nodesOf)]
}

t.test(
  'PostgreSQL finds lines of a batch that it has no statistics of by number or time',
  { skip },
  async t => {
    const { url, client } = await postgresSchema(t)
    const engine = openPostgres(url)
    t.teardown(() => engine.close())
    const statements = new Statements(engine)
    const { id } = await acceptRunning(statements.batches, { lines: 3_000 })
    const lines = await claim(statements.batches, id, 'one', 1_000)
    await statements.batches.work.finish(
      'one',
      lines.map(line => someResult(line)),
    )
    // From now on it takes every other batch for empty.
    for (const table of LARGE) {
      await client.query(`alter table ${table} set (autovacuum_enabled = off)`)
      await client.query(`analyze ${table}`)
    }
    await useAll(statements)
    checkStatements(t, statements.all())
    for (const { sql, parameters } of statements.all()) {
      const { rows } = await client.query({ text: `explain (format json) ${sql}`, values: [...parameters] })
      const [{ Plan: plan }] = (rows[0] as { 'QUERY PLAN': [{ Plan: PlanNode }] })['QUERY PLAN']
      const scans = nodesOf(plan).filter(
        node => node['Node Type'].includes('Scan') && LARGE.some(table => table === node['Relation Name']),
      )
      t.not(scans.length, 0, sql)
      for (const scan of scans) {
        t.match(scan['Node Type'], /^Index (?:Only )?Scan$/, sql)
        t.match(scan['Index Cond'], /batch_id = .* AND \((?:number|ready_ms) [<=>]/, sql)
      }
      t.notOk(
        nodesOf(plan).some(node => node['Node Type'] === 'Sort'),
        sql,
      )
    }
  },
)
