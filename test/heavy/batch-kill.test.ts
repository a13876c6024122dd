/** The guarantee of batches: whatever moment the process is killed at, each line ends in exactly one result. */

import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes, randomInt } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { lineGenerationId } from '../../src/batches/ids.ts'
import { wholeResult } from '../../src/batches/result-line.ts'
import { MAX_TRIES } from '../../src/batches/retry.ts'
import { isTerminal } from '../../src/batches/states.ts'
import { BATCH_STATUSES, type BatchStatus } from '../../src/protocol/management/batches.ts'
import { openStore } from '../../src/storage/open.ts'
import { DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID, type Store } from '../../src/storage/store.ts'
import { allResults } from '../storage/batches.ts'
import { BatchClient, startLineProvider } from '../support/batch-client.ts'
import type { ResultDocument } from '../support/batch-world.ts'
import { postgresSchema, withoutPostgres } from '../support/postgres.ts'
import { MAIN, PRODUCT_ENVIRONMENT, PRODUCT_FLAGS } from '../support/product.ts'

// Kills the running product again and again while batches are accepted, checked, run and finished, and
// compares what is left with what clients were told: nothing is lost, every line has one result, states only
// move forward, and only requests in flight at a kill are sent to the provider twice.

/** Lines that one node runs at once. */
const CONCURRENCY = 8
/** Sizes of batches, in turn: one that runs for a while, one that is over at once, one in between. */
const SIZES = [60, 1, 12]
/** The kill comes this long after the first batch of the round was accepted, at random. */
const LIFE_MAX_MS = 1_500
/** The same on a machine that is busy, where a batch thread takes seconds to start. */
const SLOW_LIFE_MAX_MS = 10_000
/** A reply takes as long, at random. */
const REPLY_MAX_MS = 120
/** A moment after which what happens in the product has happened in the database. */
const POLL_MS = 25

interface BatchKillTotals {
  readonly rounds: number
  /** Batches that clients were told of, and others that were there although the reply never came. */
  acknowledged: number
  unheard: number
  lost: number
  /** Batches whose results are not one for each line, or whose counts or sums differ from them. */
  broken: string[]
  backward: string[]
  lines: number
  /** Requests to the provider beyond those that a life without kills has. */
  repeated: number
  /** Lines that somebody had claimed at a kill. */
  inFlight: number
  /** Answered lines without exactly one usage record. */
  unrecorded: number
  slowestStartMs: number
}

interface BatchKillOptions {
  readonly rounds: number
  readonly nodes: 1 | 2
  /** Null: a database in a folder of the test. */
  readonly databaseUrl: string | null
}

interface Node {
  readonly child: ChildProcess
  readonly client: BatchClient
}

async function killBatches(
  t: Test,
  { rounds, nodes: count, databaseUrl }: BatchKillOptions,
): Promise<BatchKillTotals> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-batch-kill-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const storageUrl = databaseUrl ?? `sqlite:${join(folder, 'gateway.db')}`
  const { provider, settings } = await startLineProvider(t, async (text, nth) => {
    await delay(randomInt(REPLY_MAX_MS))
    return text.startsWith('flaky') && nth === 1 ? { status: 500 } : {}
  })
  const apiKey = `sk-gw-v1-${randomBytes(32).toString('hex')}`
  const vaultKeys = `k1:${randomBytes(32).toString('base64')}`
  const totals: BatchKillTotals = {
    rounds,
    acknowledged: 0,
    unheard: 0,
    lost: 0,
    broken: [],
    backward: [],
    lines: 0,
    repeated: 0,
    inFlight: 0,
    unrecorded: 0,
    slowestStartMs: 0,
  }
  const start = async (at: number): Promise<Node> => {
    // Each node has its own folder for its spool, and keeps it.
    const home = join(folder, `node-${at}`)
    mkdirSync(home, { recursive: true })
    writeFileSync(
      join(home, 'gateway.yaml'),
      JSON.stringify({ ...settings, batches: { concurrency: CONCURRENCY } }),
    )
    const beganMs = performance.now()
    const child = spawn(process.execPath, [...PRODUCT_FLAGS, MAIN, '--config', 'gateway.yaml'], {
      cwd: home,
      env: {
        ...PRODUCT_ENVIRONMENT,
        GATEWAY_PORT: '0',
        GATEWAY_ADMIN_PORT: '0',
        GATEWAY_SERVE_THREADS: '1',
        GATEWAY_WARM_UP_MS: '0',
        GATEWAY_API_KEY: apiKey,
        GATEWAY_VAULT_KEYS: vaultKeys,
        DATABASE_URL: storageUrl,
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    t.teardown(() => child.kill('SIGKILL'))
    const { url, adminUrl } = await listening(child)
    while (!(await fetch(`${adminUrl}/readyz`)).ok) await delay(5)
    totals.slowestStartMs = Math.max(totals.slowestStartMs, performance.now() - beganMs)
    return { child, client: new BatchClient(url, apiKey) }
  }
  const nodes = await Promise.all(Array.from({ length: count }, (_, at) => start(at)))
  const store = await openStore(storageUrl)
  t.teardown(() => store.close())
  const watch = new StatusWatch(store, totals)
  const acknowledged = new Set<string>()
  for (let round = 0; round < rounds; round++) {
    const posting = new Posting(nodes, round, acknowledged)
    await posting.first
    const slowMs = Math.min(SLOW_LIFE_MAX_MS, Math.ceil(totals.slowestStartMs))
    await delay(randomInt(Math.max(LIFE_MAX_MS, slowMs)))
    const at = randomInt(count)
    const killed = nodes[at]
    if (killed === undefined) throw new Error('no such node')
    killed.child.kill('SIGKILL')
    await once(killed.child, 'exit')
    totals.inFlight += await claimedLines(store)
    nodes[at] = await start(at)
    await posting.end()
  }
  await watch.untilAllEnded()
  totals.acknowledged = acknowledged.size
  await check(store, provider.asked, acknowledged, totals)
  for (const { child } of nodes) {
    child.kill('SIGTERM')
    await once(child, 'exit')
  }
  await watch.close()
  await checkLedger(store, totals)
  return totals
}

/** Reads the log for its `listening` line, and goes on reading. */
async function listening(child: ChildProcess): Promise<{ url: string; adminUrl: string }> {
  let output = ''
  if (child.stdout === null) throw new Error('no output')
  for await (const text of child.stdout.setEncoding('utf8').iterator({ destroyOnReturn: false })) {
    output += text
    const line = output.split('\n').find(candidate => candidate.includes('"msg":"listening"'))
    if (line === undefined) continue
    child.stdout.resume()
    return JSON.parse(line) as { url: string; adminUrl: string }
  }
  throw new Error(`did not start: ${output}`)
}

/** A client that sends batch after batch to all nodes until the end of its round. */
class Posting {
  readonly first: Promise<void>
  readonly #over: Promise<void>
  #ends = false

  constructor(nodes: readonly Node[], round: number, acknowledged: Set<string>) {
    const first = Promise.withResolvers<void>()
    this.first = first.promise
    this.#over = this.#post(nodes, round, id => {
      acknowledged.add(id)
      first.resolve()
    })
  }

  async end(): Promise<void> {
    this.#ends = true
    await this.#over
  }

  async #post(nodes: readonly Node[], round: number, onAccepted: (id: string) => void): Promise<void> {
    for (let turn = 0; !this.#ends; turn++) {
      const size = SIZES[turn % SIZES.length] ?? 1
      const name = `${round}.${turn}`
      const texts = Array.from(
        { length: size },
        (_, at) => `${at % 10 === 9 ? 'flaky' : 'line'} ${name}.${at}`,
      )
      try {
        const batch = await nodes[turn % nodes.length]?.client.create(texts)
        if (batch !== undefined) onAccepted(batch.id)
      } catch {
        // The node was killed, or is not back yet.
      }
      await delay(randomInt(150, 400))
    }
  }
}

/** Looks at the states of all batches again and again: they only go forward. */
class StatusWatch {
  readonly #store: Store
  readonly #totals: BatchKillTotals
  readonly #seen = new Map<string, BatchStatus>()
  readonly #running: Promise<void>
  #closed = false
  #looks = 0

  constructor(store: Store, totals: BatchKillTotals) {
    this.#store = store
    this.#totals = totals
    this.#running = this.#watch()
  }

  async untilAllEnded(): Promise<void> {
    const from = this.#looks
    for (;;) {
      const open = await this.#store.batches.work.open()
      if (open.length === 0 && this.#looks > from + 1) return
      await delay(POLL_MS)
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.#running
  }

  async #watch(): Promise<void> {
    while (!this.#closed) {
      for (const { id, status } of await allBatches(this.#store)) {
        const before = this.#seen.get(id)
        const [from, to] = [before, status].map(each => (each === undefined ? -1 : ORDER.indexOf(each)))
        if ((to ?? 0) < (from ?? 0) || (before !== undefined && isTerminal(before) && before !== status)) {
          this.#totals.backward.push(`${id}: ${before} ${status}`)
        }
        this.#seen.set(id, status)
      }
      this.#looks++
      await delay(POLL_MS)
    }
  }
}

const ORDER: readonly BatchStatus[] = BATCH_STATUSES

async function allBatches(store: Store) {
  const batches = []
  let after: string | undefined
  for (;;) {
    const filter = { organizationId: DEFAULT_ORGANIZATION_ID, workspaceId: DEFAULT_WORKSPACE_ID }
    const page = await store.batches.list(after === undefined ? filter : { ...filter, after }, 100)
    if (page === null) return batches
    batches.push(...page.items)
    after = page.items.at(-1)?.id
    if (!page.hasMore) return batches
  }
}

async function claimedLines(store: Store): Promise<number> {
  let claimed = 0
  for (const { id } of await store.batches.work.open())
    claimed += (await store.batches.work.counts(id)).claimed
  return claimed
}

async function check(
  store: Store,
  asked: ReadonlyMap<string, number>,
  acknowledged: ReadonlySet<string>,
  totals: BatchKillTotals,
): Promise<void> {
  const batches = await allBatches(store)
  const known = new Set(batches.map(({ id }) => id))
  for (const id of acknowledged) if (!known.has(id)) totals.lost++
  totals.unheard = batches.filter(({ id }) => !acknowledged.has(id)).length
  for (const batch of batches) {
    const results = await allResults(store.batches, batch.id)
    totals.lines += batch.total
    const ids = new Set(results.map(({ customId }) => customId))
    const completed = results.filter(({ outcome }) => outcome === 'completed').length
    const isWhole =
      batch.status === 'completed' &&
      results.length === batch.total &&
      ids.size === batch.total &&
      batch.completed === completed &&
      batch.completed + batch.failed === batch.total
    if (!isWhole) totals.broken.push(`${batch.id}: ${batch.status}, ${results.length} of ${batch.total}`)
  }
  for (const [text, calls] of asked) totals.repeated += calls - (text.startsWith('flaky') ? 2 : 1)
}

/** Every answered line has one record, and the sum of a batch is that of its records. */
async function checkLedger(store: Store, totals: BatchKillTotals): Promise<void> {
  for (const batch of await allBatches(store)) {
    let cost = 0n
    for (const { number, result } of await allResults(store.batches, batch.id)) {
      const { response } = JSON.parse(wholeResult(batch.id, { number, result })) as ResultDocument
      const records = []
      for (let tries = 0; tries <= MAX_TRIES; tries++) {
        const record = await store.ledger.find(lineGenerationId(batch, number, tries), batch.organizationId)
        if (record !== null) records.push(record)
      }
      const charged = records.filter(record => record.cost > 0)
      if (response !== null && charged.length !== 1) totals.unrecorded++
      for (const record of charged) cost += BigInt(record.cost)
    }
    if (String(cost) !== batch.usage.cost)
      totals.broken.push(`${batch.id}: ${batch.usage.cost} is not ${cost}`)
  }
}

const roundsOr = (rounds: number): number => Number(process.env['ROUNDS'] ?? rounds)
const SKIP = await withoutPostgres()

t.setTimeout(7_200_000)

async function holds(t: Test, rounds: number, nodes: 1 | 2, databaseUrl: string | null): Promise<void> {
  const totals = await killBatches(t, { rounds, nodes, databaseUrl })
  t.comment(JSON.stringify(totals))
  t.match(totals, { lost: 0, broken: [], backward: [], unrecorded: 0 })
  t.ok(totals.acknowledged >= rounds, 'there was something to lose')
  t.ok(totals.inFlight > 0, 'kills came while lines ran')
  t.ok(totals.repeated <= totals.inFlight, 'no more was asked twice than what was in flight')
}

t.test('kills on SQLite', async t => {
  await holds(t, roundsOr(200), 1, null)
})

t.test('kills on PostgreSQL', { skip: SKIP }, async t => {
  await holds(t, roundsOr(50), 1, (await postgresSchema(t)).url)
})

t.test('kills of one of two nodes on PostgreSQL', { skip: SKIP }, async t => {
  await holds(t, roundsOr(50), 2, (await postgresSchema(t)).url)
})
