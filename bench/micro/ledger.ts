/**
 * Cost of the usage ledger: on a serve loop for each exchange (record, spool, recent records), compared with other ways
 * to make a record survive a kill; and off the loop for each shipped record: `npx node bench/micro/ledger.ts`, followed
 * by the URL of a PostgreSQL server to measure that too. Figures are processor time, except the 99th percentiles, and
 * comparable only within one run.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import pg from 'pg'
import { systemClock } from '../../src/base/clock.ts'
import { createLog } from '../../src/base/log/log.ts'
import { Exchange, endOf } from '../../src/exchange/exchange.ts'
import { createLedger, usageRecord } from '../../src/pipeline/accounting/account.ts'
import { startShipper } from '../../src/process/services/ledger-shipper.ts'
import { openStore } from '../../src/storage/open.ts'
import { openSpool } from '../../src/storage/spool/spool.ts'
import { lineOf } from '../../src/storage/spool/usage-line.ts'
import type { UsageRecord } from '../../src/storage/usage.ts'
import { scriptedExchange, scriptedRecord } from '../../test/support/scripted-attempt.ts'

const CALLS = 20_000
const ROUNDS = 5
const SHIPPED = 20_000

const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-ledger-'))
const log = createLog('silent', { write: () => undefined })

/** Ids as long as those of a gateway that serves. */
const exchange = new Exchange(
  {
    ...scriptedExchange().clientRequest,
    caller: {
      keyHash: 'a3'.repeat(32),
      organizationId: 'org_default',
      workspaceId: '00000000-0000-4000-8000-000000000000',
      memberId: null,
      limit: null,
    },
  },
  1_767_225_600,
)
exchange.attempts.push(scriptedRecord({ upstreamId: `chatcmpl-${'x'.repeat(29)}` }))
const usage = {
  inputTokens: 12,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  outputTokens: 200,
  reasoningTokens: 0,
  webSearchRequests: 0,
}
exchange.bill.charge({
  usage,
  inputCost: 1_200_000,
  outputCost: 80_000_000,
  cost: 81_200_000,
  isExact: true,
  isUnpriced: false,
})
exchange.finish = { reason: 'stop', native: 'stop', serviceTier: null }
exchange.firstTokenMs = 12.3
function record(n: number): UsageRecord {
  return {
    ...usageRecord(endOf(exchange, null, 1234.567)),
    id: `gen-1767225600-${String(n + CALLS).padStart(20, 'x')}`,
  }
}

/** Microseconds per call: processor time of each round, and the 99th percentile of all by the clock. */
function time(name: string, call: (n: number) => void): void {
  for (let n = 0; n < CALLS / 10; n++) call(n - CALLS)
  const each = new Float64Array(CALLS * ROUNDS)
  const means: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const before = process.cpuUsage()
    for (let n = 0; n < CALLS; n++) {
      const callMs = performance.now()
      call(round * CALLS + n)
      each[round * CALLS + n] = (performance.now() - callMs) * 1000
    }
    const { user, system } = process.cpuUsage(before)
    means.push((user + system) / CALLS)
  }
  print(name, means, each)
}

/** As `time`, with a turn of the event loop after each group; the 99th percentile is that of a call in a group. */
async function timeGroups(name: string, group: number, call: (n: number) => void): Promise<void> {
  const each = new Float64Array(CALLS * ROUNDS)
  const means: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const before = process.cpuUsage()
    for (let n = 0; n < CALLS; n += group) {
      const callMs = performance.now()
      for (let at = 0; at < group; at++) call(round * CALLS + n + at)
      await ledger.whenWritten()
      each.fill(((performance.now() - callMs) * 1000) / group, round * CALLS + n, round * CALLS + n + group)
    }
    const { user, system } = process.cpuUsage(before)
    means.push((user + system) / CALLS)
  }
  print(name, means, each)
}

function print(name: string, means: number[], each: Float64Array): void {
  const sorted = means.toSorted((a, b) => a - b)
  const p99 = each.toSorted()[Math.floor(each.length * 0.99)] ?? Number.NaN
  const [low, middle, high] = [sorted[0], sorted[sorted.length >> 1], sorted.at(-1)].map(value =>
    (value ?? Number.NaN).toFixed(2),
  )
  process.stdout.write(`${name.padEnd(48)} ${middle} µs (${low}..${high}), p99 ${p99.toFixed(1)}\n`)
}

const store = await openStore(`sqlite:${join(folder, 'gateway.db')}`)
const spoolOptions = { clock: systemClock, log, onLost: () => undefined }

time('record alone', n => void record(n))
time('record and its line', n => void lineOf(record(n)))
const spool = openSpool(folder, spoolOptions)
const ledger = createLedger(spool, store.ledger)
for (const group of [1, 4, 16]) {
  await timeGroups(`record, spool, recent ones: groups of ${group}`, group, n => ledger.append(record(n)))
}
for (const synchronous of ['OFF', 'NORMAL']) {
  const database = new DatabaseSync(join(folder, `${synchronous}.db`))
  database.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = ${synchronous}`)
  database.exec('CREATE TABLE spool (id TEXT PRIMARY KEY, line TEXT)')
  const insert = database.prepare('INSERT INTO spool VALUES (?, ?)')
  time(`instead: a database, WAL, synchronous=${synchronous}`, n => {
    const ledgerRecord = record(n)
    insert.run(ledgerRecord.id, lineOf(ledgerRecord))
  })
  database.close()
}

spool.close()

/** The main thread's processor time for each record, shipped in batches of that size; the median of some rounds. */
async function timeShipping(name: string, storageUrl: string): Promise<void> {
  const shipper = await startShipper({ storageUrl, clock: systemClock, log })
  const shipped = openSpool(shipper.folder, spoolOptions)
  let n = 0
  for (const batch of [1, 10, 100, 1000]) {
    const rounds = Math.min(200, SHIPPED / batch)
    const each: number[] = []
    for (let round = -3; round < rounds; round++) {
      for (let at = 0; at < batch; at++) shipped.append(record(n++))
      await shipped.whenWritten()
      const before = process.cpuUsage()
      await shipper.ship()
      const { user, system } = process.cpuUsage(before)
      if (round >= 0) each.push((user + system) / batch)
    }
    print(`shipped into ${name}, batches of ${batch}`, each, Float64Array.from(each))
  }
  shipped.close()
  await shipper.close()
}

const home = process.cwd()
process.chdir(folder)
await timeShipping('SQLite', `sqlite:${join(folder, 'ship.db')}`)
const [postgresUrl] = process.argv.slice(2)
if (postgresUrl !== undefined) {
  const schema = `sluice_bench_${process.pid}`
  const client = new pg.Client({ connectionString: postgresUrl })
  await client.connect()
  await client.query(`create schema ${schema}`)
  const url = new URL(postgresUrl)
  url.searchParams.set('options', `-c search_path=${schema}`)
  await timeShipping('PostgreSQL', url.href)
  await client.query(`drop schema ${schema} cascade`)
  await client.end()
}
process.chdir(home)
await store.close()
rmSync(folder, { recursive: true })
