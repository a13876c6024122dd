/** Several runners on one database at once: two handles on an SQLite file, two pools on PostgreSQL. */
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { addUsage, NO_USAGE } from '../../src/protocol/management/batches.ts'
import type { LineResult } from '../../src/storage/batches.ts'
import { openStore } from '../../src/storage/open.ts'
import type { BatchStore } from '../../src/storage/service-jobs.ts'
import { postgresSchema, untilBlocked, withoutPostgres } from '../support/postgres.ts'
import { search } from '../support/property.ts'
import {
  acceptRunning,
  allResults,
  at,
  claim,
  LEASE_MS,
  NOW_MS,
  present,
  someBatch,
  someLines,
  someResult,
} from './batches.ts'

const skip = await withoutPostgres()

interface Shared {
  readonly stores: readonly [BatchStore, BatchStore]
  /** Rows of tables of lines whose batch is gone. */
  orphans(): Promise<number>
}

const ORPHANS = ['batch_lines', 'batch_bodies', 'batch_results']
  .map(table => `(select count(*) from ${table} where batch_id not in (select id from batches))`)
  .join(' + ')

async function twoOf(t: Test, url: string): Promise<Shared['stores']> {
  const [one, two] = [await openStore(url), await openStore(url)]
  t.teardown(() => Promise.all([one.close(), two.close()]))
  return [one.batches, two.batches]
}

async function onSqlite(t: Test): Promise<Shared> {
  const path = join(t.testdir({}), 'gateway.db')
  const stores = await twoOf(t, `sqlite:${path}`)
  const database = new DatabaseSync(path, { readOnly: true, timeout: 5_000 })
  t.teardown(() => database.close())
  return {
    stores,
    orphans: async () => Number(database.prepare(`select ${ORPHANS} as n`).get()?.['n']),
  }
}

async function onPostgres(t: Test): Promise<Shared> {
  const { url, client } = await postgresSchema(t)
  const stores = await twoOf(t, url)
  return {
    stores,
    orphans: async () => Number((await client.query<{ n: string }>(`select ${ORPHANS} as n`)).rows[0]?.n),
  }
}

async function parallelContract(t: Test, open: (t: Test) => Promise<Shared>): Promise<void> {
  await t.test('runners on two connections have different lines, and each line one result', async t => {
    const { stores } = await open(t)
    const [one] = stores
    const { id } = await acceptRunning(one, { lines: 400 })
    const seen: LineResult[] = []
    const run = async (store: BatchStore, owner: string): Promise<void> => {
      for (;;) {
        const lines = await claim(store, id, owner, 7)
        if (lines.length === 0) return
        for (const line of lines) t.equal(line.fence, 1)
        seen.push(
          ...(await store.work.finish(
            owner,
            lines.map(line => someResult(line)),
          )),
        )
      }
    }
    await Promise.all(stores.flatMap((store, at) => [0, 1, 2].map(each => run(store, `${at} ${each}`))))
    const last = await claim(one, id, 'last', 400)
    seen.push(
      ...(await one.work.finish(
        'last',
        last.map(line => someResult(line)),
      )),
    )
    t.same(
      seen.map(({ number }) => number).sort((a, b) => a - b),
      someLines(400).map(({ number }) => number),
    )
    t.equal((await allResults(one, id)).length, 400)
    const usage = seen.reduce((sum, result) => addUsage(sum, result.usage), NO_USAGE)
    t.match(await one.find('org_1', 'ws_1', id), { completed: 400, failed: 0, usage })
  })

  await t.test('a batch is either accepted or taken for abandoned', async t => {
    const { stores } = await open(t)
    const [one, two] = stores
    const seen = new Set<string>()
    for (let round = 0; round < 24; round++) {
      const idempotencyKey = `round ${round}`
      const [first, second] = [someBatch({ idempotencyKey }), someBatch({ idempotencyKey })]
      await one.open(first.opening, NOW_MS)
      await one.addLines(first.opening.id, first.lines)
      const laterMs = NOW_MS + LEASE_MS
      const accepting = () => one.accept(first.accepted)
      const opening = () => two.open({ ...second.opening, leaseUntilMs: laterMs + LEASE_MS }, laterMs)
      const pruning = () => two.work.prune(at(0), laterMs, 1)
      const keeping = () => two.keepOpen(first.opening.id, laterMs + LEASE_MS)
      const other = round % 2 === 0 ? pruning : keeping
      const order = [accepting, opening, other]
      // Each comes first now and then, and sometimes alone.
      const from = round % 3
      const started: Promise<unknown>[] = []
      for (const verb of [...order.slice(from), ...order.slice(0, from)]) {
        started.push(verb())
        if (round % 2 === 0) await started[0]
      }
      const outcomes = await Promise.all(started)
      const accepted = outcomes[(3 - from) % 3] as Awaited<ReturnType<typeof accepting>>
      const opened = outcomes[(4 - from) % 3] as Awaited<ReturnType<typeof opening>>
      seen.add(`${opened.outcome}, ${accepted === null ? 'abandoned' : 'accepted'}`)
      if (opened.outcome === 'known') t.same(opened.batch, accepted)
    }
    t.notOk(seen.has('opened, accepted'), 'never two batches for one key')
    t.ok(seen.has('known, accepted') && seen.has('opened, abandoned'), 'both came first')
  })

  await t.test('all verbs at once leave each result counted once, and no line without its batch', async t => {
    const { stores, orphans } = await open(t)
    const [one] = stores
    let all = 0
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(9), { minLength: 60, maxLength: 90, size: 'max' }), async choices => {
        const made = await Promise.all([12, 20, 30].map(lines => acceptRunning(one, { lines })))
        const ids = made.map(({ id }) => id)
        const stored = new Map<string, LineResult[]>(ids.map(id => [id, []]))
        // An owner renews while it stores results: what it has is known to all its calls.
        const heldBy = new Map<string, LineResult[]>()
        let nowMs = NOW_MS
        const run = async (store: BatchStore, owner: string, verbs: readonly number[]): Promise<void> => {
          const held = heldBy.get(owner) ?? []
          heldBy.set(owner, held)
          for (const [at, verb] of verbs.entries()) await turn(store, owner, verb, at)
          async function turn(store: BatchStore, owner: string, verb: number, turn: number): Promise<void> {
            const id = ids[turn % ids.length] ?? ''
            if (verb < 4)
              held.push(...(await claim(store, id, owner, verb + 2, nowMs)).map(line => someResult(line)))
            else if (verb < 6) {
              // Lines of all batches in any order.
              const given = held.slice(0, 9)
              const results = await store.work.finish(owner, [...given].reverse())
              for (const result of results) stored.get(result.batchId)?.push(result)
              for (const line of given) if (held.includes(line)) held.splice(held.indexOf(line), 1)
            } else if (verb === 6) {
              // Those that are being stored by another call may be among them.
              const back = held.slice(0, 12).reverse()
              await store.work.giveBack(
                owner,
                back.map(line => ({ ...line, tries: 1, notBeforeMs: nowMs })),
              )
            } else if (verb === 7) {
              await store.work.renew(owner, [...held].reverse(), nowMs + LEASE_MS)
            } else if (verb === 8) {
              nowMs += LEASE_MS
              await store.work.prune(at(0), nowMs, 5)
            } else {
              const opening = someBatch({ lines: 5 })
              await store.open({ ...opening.opening, leaseUntilMs: NOW_MS }, NOW_MS)
              // Another one may prune it amid its acceptance.
              await store.addLines(opening.opening.id, opening.lines).catch((error: Error) => {
                if (error.name !== 'ConflictError') throw error
              })
            }
          }
        }
        const parts = [0, 1, 2, 3].map(each => choices.filter((_, at) => at % 4 === each))
        await Promise.all(
          parts.map((verbs, each) => run(stores[each % 2 === 0 ? 0 : 1], `owner ${each >> 1}`, verbs)),
        )
        nowMs += 10 * LEASE_MS
        for (const { id, total } of made) {
          const results = stored.get(id) ?? []
          // Lines that nobody has finished are all still there.
          const last = await claim(one, id, 'last', total, nowMs)
          results.push(
            ...(await one.work.finish(
              'last',
              last.map(line => someResult(line)),
            )),
          )
          if (results.length !== total) throw new Error(`${results.length} results of ${total} lines`)
          const record = present(await one.find('org_1', 'ws_1', id))
          all += results.length
          const numbers = results.map(({ number }) => number)
          if (new Set(numbers).size !== numbers.length) throw new Error('two results for one line')
          const read = await allResults(one, id)
          if (read.length !== results.length || record.completed !== results.length)
            throw new Error(`${results.length} results, ${read.length} read, ${record.completed} counted`)
          const usage = results.reduce((sum, result) => addUsage(sum, result.usage), NO_USAGE)
          if (record.usage.cost !== usage.cost) throw new Error('the sum differs')
          await one.work.move(id, ['in_progress'], 'cancelled', at(1))
          await one.remove('org_1', 'ws_1', id)
        }
        await Promise.all(
          stores.map(async store => {
            while ((await store.work.prune(at(0), NOW_MS + 100 * LEASE_MS, 50)) > 0);
          }),
        )
        if ((await orphans()) !== 0) throw new Error('lines without a batch')
      }),
      search(8),
    )
    t.ok(all > 50, `${all} results`)
  })
}

t.test('runners share one SQLite file', async t => {
  await parallelContract(t, onSqlite)
})

t.test('runners share one PostgreSQL', { skip }, async t => {
  await parallelContract(t, onPostgres)

  await t.test('lines that another transaction has are skipped without waiting', async t => {
    const { url, client } = await postgresSchema(t)
    const [store] = await twoOf(t, url)
    const { id } = await acceptRunning(store, { lines: 5 })
    await client.query('begin')
    await client.query('select 1 from batch_lines where batch_id = $1 and number in (0, 2) for update', [id])
    const numbers = (await claim(store, id, 'one', 2)).map(({ number }) => number)
    t.same(numbers, [1, 3])
    await client.query('rollback')
    const others = (await claim(store, id, 'two', 9)).map(({ number }) => number)
    t.same(others, [0, 2, 4])
  })

  await t.test('a batch leaves its state when no claim is under way any more', async t => {
    const schema = await postgresSchema(t)
    const [one, two] = await twoOf(t, schema.url)
    const { id } = await acceptRunning(one, { lines: 5 })
    await two.work.counts(id)
    const unlock = await schema.lock('batch_lines')
    const claiming = claim(one, id, 'one', 2)
    await untilBlocked(schema, 1)
    const moving = two.work.move(id, ['in_progress'], 'cancelling', at(1))
    await untilBlocked(schema, 2)
    await unlock()
    t.equal((await claiming).length, 2)
    t.match(await moving, { status: 'cancelling' })
    t.match(await two.work.counts(id), { claimed: 2 })
    t.same(await claim(two, id, 'two', 2), [])
  })
})
