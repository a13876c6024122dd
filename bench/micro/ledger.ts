/**
 * What the usage ledger costs: on a serve loop for each exchange (record, spool, recent ones), beside other ways to
 * make a record survive a kill, and off the loop for each record shipped: `npx node bench/micro/ledger.ts`.
 * Processor time, apart from the 99th percentiles and the shipping; compare only figures of one run.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { systemClock } from '../../src/clock.ts'
import { usageRecord } from '../../src/gateway/accounting/account.ts'
import { createLedger } from '../../src/gateway/accounting/ledger.ts'
import { createLog } from '../../src/log/log.ts'
import { openStore } from '../../src/storage/open.ts'
import { openSpool } from '../../src/storage/spool.ts'
import { startShipper } from '../../src/threads/ledger-shipper.ts'
import { scriptedExchange, scriptedRecord } from '../../test/support/scripted-attempt.ts'

const CALLS = 20_000
const ROUNDS = 5

const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-ledger-'))
const log = createLog('silent', { write: () => undefined })

const exchange = scriptedExchange({ user: 'customer-7', session_id: 'session-1' })
exchange.attempts.push(scriptedRecord())
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
  exact: true,
  isUnpriced: false,
})
exchange.finish = { reason: 'stop', native: 'stop', serviceTier: null }
exchange.firstTokenMs = 12.3
const record = (n: number) => ({ ...usageRecord(exchange, null, 1234.567), id: `gen-1-${n}` })

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
      await ledger.written()
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
time('record and its JSON', n => void JSON.stringify(record(n)))
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
    const made = record(n)
    insert.run(made.id, JSON.stringify(made))
  })
  database.close()
}

spool.close()

const shipper = await startShipper({
  storageUrl: `sqlite:${join(folder, 'ship.db')}`,
  clock: systemClock,
  log,
})
const shipped = openSpool(shipper.folder, spoolOptions)
for (let n = 0; n < CALLS; n++) {
  shipped.append(record(n))
  if (n % 16 === 15) await shipped.written()
}
const startedMs = performance.now()
await shipper.ship()
const perRecord = ((performance.now() - startedMs) * 1000) / CALLS
process.stdout.write(
  `${'shipped into the database, main thread'.padEnd(48)} ${perRecord.toFixed(1)} µs a record\n`,
)
shipped.close()
await shipper.close()
await store.close()
rmSync(folder, { recursive: true })
