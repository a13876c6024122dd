/**
 * Kills a process that accepts and finishes batches, again and again, and compares the database with what the process
 * had been promised: nothing is lost, nothing is duplicated, and the counts match the results.
 */
import { spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as delay } from 'node:timers/promises'
import type { Test } from 'tap'
import { addUsage, NO_USAGE } from '../../src/protocol/management/batches.ts'
import { openStore } from '../../src/storage/open.ts'
import type { BatchStore } from '../../src/storage/service-jobs.ts'
import { postgresSchema } from '../support/postgres.ts'
import { PRODUCT_FLAGS } from '../support/product.ts'
import { allResults, at, LEASE_MS, NOW_MS, present, someResult, someUsageOf } from './batches.ts'
import type { Promised } from './store-kill-child.ts'

const CHILD = join(import.meta.dirname, 'store-kill-child.ts')
/** The kill comes after so many promises at least, so that each round has something to lose. */
const PROMISES_MIN = 12
/** And at most so long after them. */
const LIFE_MAX_MS = 120

interface KillSubject {
  readonly url: string
  /** Resolves when the database has nothing left to do for a killed process. */
  settled(): Promise<void>
}

interface KillSums {
  accepted: number
  results: number
  /** Rounds after which a line or an acceptance was left in the middle. */
  interrupted: number
}

export async function killOnSqlite(t: Test, rounds: number): Promise<void> {
  const path = join(t.testdir({}), 'gateway.db')
  await killStore(t, { url: `sqlite:${path}`, settled: async () => undefined }, rounds)
  const database = new DatabaseSync(path)
  t.match(database.prepare('pragma integrity_check').get(), { integrity_check: 'ok' })
  database.close()
}

export async function killOnPostgres(t: Test, rounds: number): Promise<void> {
  const { url, client, application } = await postgresSchema(t)
  const settled = async (): Promise<void> => {
    // A server may commit what it had been told to, after the process is gone.
    for (;;) {
      const { rows } = await client.query('select 1 from pg_stat_activity where application_name = $1', [
        application,
      ])
      if (rows.length === 0) return
    }
  }
  await killStore(t, { url, settled }, rounds)
}

/** Kills so many lives of the process. The seed, which `STORE_KILL_SEED` sets, decides when. */
async function killStore(t: Test, subject: KillSubject, rounds: number): Promise<void> {
  const seed = Number(process.env['STORE_KILL_SEED'] ?? randomInt(2 ** 32))
  t.comment(`seed ${seed}`)
  const sums = await killRounds(t, subject, rounds, seed)
  t.comment(JSON.stringify(sums))
  t.ok(sums.accepted >= rounds && sums.results >= rounds, 'there was something to lose')
}

async function killRounds(t: Test, subject: KillSubject, rounds: number, seed: number): Promise<KillSums> {
  const random = randomNumbers(seed)
  const promised: Promised[] = []
  const sums: KillSums = { accepted: 0, results: 0, interrupted: 0 }
  for (let round = 0; round < rounds; round++) {
    // Leases of the killed process are over for the next one.
    const nowMs = NOW_MS + round * 2 * LEASE_MS
    promised.push(...(await lifeOf(t, subject.url, round, nowMs, random() * LIFE_MAX_MS)))
    await subject.settled()
    const store = await openStore(subject.url)
    try {
      if (await isInterrupted(store.batches)) sums.interrupted++
      await check(t, store.batches, promised)
    } finally {
      await store.close()
    }
  }
  const store = await openStore(subject.url)
  t.teardown(() => store.close())
  await drain(store.batches, NOW_MS + rounds * 2 * LEASE_MS)
  await check(t, store.batches, promised)
  for (const promise of promised) {
    if (promise.is === 'accepted') sums.accepted++
    if (promise.is === 'stored') sums.results += promise.results.length
  }
  return sums
}

/** Starts the process, kills it, and returns what it was promised. */
async function lifeOf(
  t: Test,
  url: string,
  life: number,
  nowMs: number,
  killAfterMs: number,
): Promise<Promised[]> {
  const child = spawn(process.execPath, [...PRODUCT_FLAGS, CHILD, url, String(life), String(nowMs)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.teardown(() => child.kill('SIGKILL'))
  const exited = once(child, 'exit')
  let text = ''
  const busy = Promise.withResolvers<void>()
  child.stdout.setEncoding('utf8').on('data', (piece: string) => {
    text += piece
    if (text.split('\n').length > PROMISES_MIN) busy.resolve()
  })
  const ended = once(child.stdout, 'end')
  await Promise.race([busy.promise, exited])
  await delay(killAfterMs)
  child.kill('SIGKILL')
  const [, signal] = (await exited) as [number | null, string | null]
  if (signal !== 'SIGKILL') throw new Error('the process ended by itself')
  await ended
  // A line that is cut was not told.
  return text
    .split('\n')
    .slice(0, -1)
    .map(line => JSON.parse(line) as Promised)
}

async function isInterrupted({ work }: BatchStore): Promise<boolean> {
  for (const { id } of await work.open()) if ((await work.counts(id)).claimed > 0) return true
  return false
}

async function check(t: Test, store: BatchStore, promised: readonly Promised[]): Promise<void> {
  const byBatch = Map.groupBy(promised, ({ id }) => id)
  const { items } = present(await store.list({ organizationId: 'org_1', workspaceId: 'ws_1' }, 10_000))
  const visible = new Map(items.map(batch => [batch.id, batch]))
  const rank = ['validating', 'in_progress', 'finalizing', 'completed']
  for (const [id, promises] of byBatch) {
    const batch = visible.get(id)
    if (batch === undefined) {
      t.fail(`batch ${id} is lost`)
      continue
    }
    const results = new Map((await allResults(store, id, 1_000)).map(result => [result.number, result]))
    for (const promise of promises) {
      if (promise.is === 'accepted' && promise.total !== batch.total) t.fail(`lines of ${id} are lost`)
      if (promise.is === 'moved' && rank.indexOf(batch.status) < rank.indexOf(promise.to))
        t.fail(`${id} went back from ${promise.to} to ${batch.status}`)
      if (promise.is !== 'stored') continue
      for (const [number, fence, outcome] of promise.results) {
        const { result } = someResult({ batchId: id, number, fence })
        const stored = results.get(number)
        if (stored?.result !== result || stored.outcome !== outcome)
          t.fail(`result ${number} of ${id} is lost`)
      }
    }
  }
  for (const { id, total, completed, failed, usage } of items) {
    const results = await allResults(store, id, 1_000)
    const found = { completed: 0, failed: 0 }
    for (const { outcome } of results) found[outcome]++
    if (new Set(results.map(({ number }) => number)).size !== results.length)
      t.fail(`a double result in ${id}`)
    if (found.completed !== completed || found.failed !== failed) t.fail(`counts of ${id} are wrong`)
    const sum = results.reduce((all, { number }) => addUsage(all, someUsageOf(number + 1)), NO_USAGE)
    if (sum.cost !== usage.cost || sum.inputTokens !== usage.inputTokens) t.fail(`sums of ${id} are wrong`)
    const counts = await store.work.counts(id)
    if (counts.finished !== results.length || counts.waiting < 0) t.fail(`lines of ${id} are counted wrongly`)
    if (counts.unchecked + counts.waiting + counts.claimed + counts.finished !== total)
      t.fail(`lines of ${id} are lost`)
  }
}

/** Finishes what is left: every line of every batch has its body until it has its result. */
async function drain(store: BatchStore, nowMs: number): Promise<void> {
  const { work } = store
  for (const { id, status, total } of await work.open()) {
    if (status === 'validating') {
      const claim = present(await work.claimBatch(id, 'last', nowMs, nowMs + LEASE_MS))
      const unchecked = await work.uncheckedLines(id, { limit: total })
      const failures = unchecked.slice(-1).map(({ number }) => ({
        ...someResult({ batchId: id, number, fence: 0 }),
        outcome: 'failed' as const,
      }))
      await work.markChecked(id, claim, total - 1, failures)
      await work.move(id, ['validating'], 'in_progress', at(1))
    }
    const lines = await work.claimLines(id, 'last', { limit: total, nowMs, leaseUntilMs: nowMs + LEASE_MS })
    await work.finish(
      'last',
      lines.map(line => someResult(line)),
    )
    const { finished: done } = await work.counts(id)
    if (done !== total) throw new Error(`${total - done} lines of ${id} never get a result`)
  }
}

/** Numbers from 0 to 1 that follow from the seed. */
function randomNumbers(seed: number): () => number {
  let state = seed
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32
    return state / 2 ** 32
  }
}
