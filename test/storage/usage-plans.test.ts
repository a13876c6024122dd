/** Searches of the ledger go by the index of the condition that leads: what the planner of SQLite does. */
import { CamelCasePlugin, type CompiledQuery, Kysely } from 'kysely'
import t from 'tap'
import { createLedgerStore } from '../../src/storage/kysely-store/ledger.ts'
import { openSqlite } from '../../src/storage/sqlite.ts'
import type { Tables } from '../../src/storage/tables.ts'
import type { SearchFilter } from '../../src/storage/usage.ts'
import { someUsage } from './usage.ts'

/** More than one statement looks at. */
const RECORDS = 4_500
const FIRST_MS = Date.parse('2026-01-01T00:00:00.000Z')
const timeOf = (at: number): string => new Date(FIRST_MS + at * 1_000).toISOString()

/** By the index that leads. */
const LED_BY: Readonly<Record<string, Omit<SearchFilter, 'organizationId'>>> = {
  usage_by_organization: { workspaceId: 'ws_2' },
  usage_by_model: { model: 'acme/fast-1', workspaceId: 'ws_2' },
  usage_by_key: { keyHash: 'a'.repeat(64), workspaceId: 'ws_2', model: 'acme/fast-1' },
  usage_not_completed: { outcomes: ['aborted', 'failed'], workspaceId: 'ws_2', model: 'acme/fast-1' },
  usage_by_end_user: { endUser: 'ada', workspaceId: 'ws_2', outcomes: ['aborted'] },
  usage_of_session: { sessionId: 'session-1', workspaceId: 'ws_2', endUser: 'ada' },
}

t.test('each statement of a search goes by the index of the condition that leads', async t => {
  const engine = openSqlite(':memory:')
  t.teardown(() => engine.close())
  const seen = new Map<string, CompiledQuery>()
  const db = new Kysely<Tables>({
    dialect: engine.dialect,
    plugins: [new CamelCasePlugin()],
    log: ({ query }) => void seen.set(query.sql, query),
  })
  const ledger = createLedgerStore(db, engine)
  const alike = { outcome: 'failed', endUser: 'ada', sessionId: 'session-1' } as const
  await ledger.add(
    Array.from({ length: RECORDS }, (_, at) =>
      someUsage({ ...alike, createdAt: timeOf(at), id: `gen-${at}` }),
    ),
  )
  const before = { createdAt: timeOf(4_400), id: 'gen-4400' }
  const ranges = [
    {},
    { before },
    { since: timeOf(10) },
    { until: timeOf(4_400) },
    { since: timeOf(10), before },
  ]
  for (const [index, filter] of Object.entries(LED_BY)) {
    seen.clear()
    for (const range of ranges) {
      const { records } = await ledger.search({ organizationId: 'org_1', ...filter, ...range }, 10)
      t.same(records, [])
    }
    const statements = [...seen.values()].filter(({ sql }) => /from "?usage\b/.test(sql))
    t.ok(statements.length >= 2, 'where a part ends, and the part')
    for (const { sql, parameters } of statements) {
      const { rows } = await db.executeQuery<{ detail: string }>({
        ...db.selectFrom('usage').compile(),
        sql: `explain query plan ${sql}`,
        parameters,
      })
      const plan = rows.map(({ detail }) => detail)
      t.equal(plan.length, 1, plan.join('; '))
      t.match(plan[0], new RegExp(`^SEARCH usage USING (?:COVERING )?INDEX ${index} `))
    }
  }
})

t.test('sums by session look at a part of the ledger at a time, however few records match', async t => {
  const engine = openSqlite(':memory:')
  t.teardown(() => engine.close())
  let statements = 0
  const db = new Kysely<Tables>({
    dialect: engine.dialect,
    plugins: [new CamelCasePlugin()],
    log({ query }) {
      if (query.sql.startsWith('select')) statements++
    },
  })
  const ledger = createLedgerStore(db, engine)
  await ledger.add(
    Array.from({ length: RECORDS }, (_, at) =>
      someUsage({ sessionId: `session-${at % 3}`, createdAt: timeOf(at), id: `gen-${at}` }),
    ),
  )
  const range = { organizationId: 'org_1', since: timeOf(0), until: timeOf(RECORDS) }
  const dimensions = ['session'] as const
  for (const rare of [{ keyHash: 'f'.repeat(64) }, { workspaceId: 'ws_2' }, { endUser: 'ada' }]) {
    statements = 0
    t.same(await ledger.byDimensions({ ...range, dimensions, ...rare }), [])
    t.same(await ledger.clientActivity({ ...range, by: 'sessionId', ...rare }), [])
    t.ok(statements >= (4 * RECORDS) / 500, `${statements} statements`)
  }
  t.match(await ledger.byDimensions({ ...range, dimensions }), [
    { requests: RECORDS / 3 },
    { requests: RECORDS / 3 },
    { requests: RECORDS / 3 },
  ])
})
