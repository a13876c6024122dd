/** Requests that cost their sender nothing leave little in the database: bytes of rows and indexes, in both engines. */
import { DatabaseSync } from 'node:sqlite'
import t, { type Test } from 'tap'
import { failedLine } from '../../src/batches/result-line.ts'
import { NO_USAGE } from '../../src/protocol/management/batches.ts'
import { openStore } from '../../src/storage/open.ts'
import { lineOf } from '../../src/storage/spool/usage-line.ts'
import type { Store } from '../../src/storage/store.ts'
import type { UsageRecord } from '../../src/storage/usage.ts'
import { postgresSchema, withoutPostgres } from '../support/postgres.ts'
import { tempFolder } from '../support/temp-folder.ts'
import { LEASE_MS, NOW_MS, present, someBatch } from './batches.ts'
import { someUsage } from './usage.ts'

const ROWS = 5_000
const PART = 1_000
const skip = await withoutPostgres()

/** As the pipeline writes it for a request that no model was called for. */
const REFUSED: Partial<UsageRecord> = {
  organizationId: 'org_default',
  workspaceId: 'ws_default',
  model: null,
  provider: null,
  providerName: null,
  streamed: false,
  outcome: 'failed',
  accounting: 'none',
  error: 'constraint_filtered',
  finishReason: null,
  nativeFinishReason: null,
  serviceTier: null,
  inputTokens: 0,
  outputTokens: 0,
  cost: 0,
  latencyMs: 1.632,
  generationMs: null,
  attempts: [],
}

/** Bytes of a table and of each of its indexes. */
type Sizes = () => Promise<ReadonlyMap<string, number>>

/** @param mostBytes of a row of a refused request with its key */
async function keptBytes(t: Test, store: Store, mostBytes: number, sizes: Sizes): Promise<void> {
  await t.test('a refused request', async t => {
    const before = await sizes()
    for (let from = 0; from < ROWS; from += PART)
      await store.ledger.addLines(Array.from({ length: PART }, () => lineOf(someUsage(REFUSED))).join('\n'))
    const after = await sizes()
    const bytes = (name: RegExp): number => {
      let sum = 0
      for (const [part, size] of after) if (name.test(part)) sum += size - (before.get(part) ?? 0)
      return sum / ROWS
    }
    const row = bytes(/^usage$|^usage_pkey$|^sqlite_autoindex_usage_1$/)
    const indexes = bytes(/^usage_(by|of|not|unasked)/)
    t.comment(`${row} bytes, and ${indexes} in the indexes of searches`)
    t.ok(row <= mostBytes, `${row} bytes of a row and its key`)
    t.ok(indexes <= 450, `${indexes} bytes of indexes`)
    for (const unused of [/^usage_by_model$/, /^usage_by_cost$/, /^usage_by_end_user$/, /^usage_of_session$/])
      t.equal(bytes(unused), 0, 'no search finds it there')
  })

  await t.test('a request of a batch that fails its check', async t => {
    const body = '{"model":"acme/fast-1","messages":7}'
    const lines = Array.from({ length: ROWS }, (_, number) => ({
      number,
      customId: `request-${number}`,
      body,
    }))
    const { opening, accepted } = someBatch({ lines })
    const before = await sizes()
    await store.batches.open(opening, NOW_MS)
    for (let from = 0; from < ROWS; from += PART)
      await store.batches.addLines(opening.id, lines.slice(from, from + PART))
    await store.batches.accept(accepted)
    const { work } = store.batches
    const claim = present(await work.claimBatch(opening.id, 'checker', NOW_MS, NOW_MS + LEASE_MS))
    const result = failedLine({ code: 'invalid_request', message: 'messages: must be a list' })
    const failed = lines.map(
      ({ number }) => ({ number, outcome: 'failed', result, usage: NO_USAGE }) as const,
    )
    for (let from = 0; from < ROWS; from += PART)
      await work.markChecked(opening.id, claim, from + PART - 1, failed.slice(from, from + PART))
    const after = await sizes()
    let kept = 0
    for (const [part, size] of after)
      if (/batch_(lines|results)/.test(part)) kept += (size - (before.get(part) ?? 0)) / ROWS
    t.comment(`${kept} bytes`)
    t.ok(kept <= 450, `${kept} bytes of all rows and indexes`)
  })
}

t.test('SQLite', async t => {
  const file = `${tempFolder('sluice-kept')}/gateway.db`
  const store = await openStore(`sqlite:${file}`)
  t.teardown(() => store.close())
  await keptBytes(t, store, 300, async () => {
    const db = new DatabaseSync(file, { readOnly: true })
    const rows = db.prepare('select name, sum(pgsize - unused) as bytes from dbstat group by name').all()
    db.close()
    return new Map(rows.map(({ name, bytes }) => [String(name), Number(bytes)]))
  })
})

t.test('PostgreSQL', { skip }, async t => {
  const schema = await postgresSchema(t)
  const store = await openStore(schema.url)
  t.teardown(() => store.close())
  await keptBytes(t, store, 380, async () => {
    // Without the space of rows that were deleted or changed, which the server uses again.
    await schema.client.query('vacuum full batch_lines, batch_results, usage')
    const { rows } = await schema.client.query<{ name: string; bytes: string }>(
      `select relname as name, pg_relation_size(oid) as bytes from pg_class
       where relkind in ('r', 'i') and relnamespace = current_schema()::regnamespace`,
    )
    return new Map(rows.map(({ name, bytes }) => [name, Number(bytes)]))
  })
})
