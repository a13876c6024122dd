/** Group commit and shipping alone: whenever their process is killed, each told record is stored and summed once. */
import { spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { systemClock } from '../../src/base/clock.ts'
import { createLog } from '../../src/base/log/log.ts'
import { startShipper } from '../../src/process/services/ledger-shipper.ts'
import { openStore } from '../../src/storage/open.ts'
import { postgresSchema, withoutPostgres } from '../support/postgres.ts'

const ROUNDS = Number(process.env['SPOOL_KILL_ROUNDS'] ?? 200)
const LIFE_MAX_MS = 400
const WRITER = join(import.meta.dirname, 'spool-writer.ts')

t.setTimeout(ROUNDS * 60_000)

/** Ids that one process told before it was killed. */
async function toldUntilDeath(t: Test, storageUrl: string, cwd: string): Promise<readonly string[]> {
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', WRITER, storageUrl], {
    cwd,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.teardown(() => child.kill('SIGKILL'))
  let told = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    told += text
  })
  const closed = once(child, 'close')
  await once(child.stdout, 'data')
  await delay(randomInt(LIFE_MAX_MS))
  child.kill('SIGKILL')
  await closed
  return told.split('\n').slice(0, -1)
}

async function holds(t: Test, storageUrl: string, folder: string): Promise<void> {
  const told: string[] = []
  let unshipped = 0
  const store = await openStore(storageUrl)
  t.teardown(() => store.close())
  for (let round = 0; round < ROUNDS; round++) {
    const ids = await toldUntilDeath(t, storageUrl, folder)
    told.push(...ids)
    if ((await store.ledger.find(ids.at(-1) ?? '', 'org_1')) === null) unshipped++
  }
  const log = createLog('silent', { write: () => undefined })
  const home = process.cwd()
  process.chdir(folder)
  const shipper = await startShipper({ storageUrl, clock: systemClock, log })
  process.chdir(home)
  t.equal(await shipper.ship(), true)
  await shipper.close()
  let lost = 0
  for (const id of told) if ((await store.ledger.find(id, 'org_1')) === null) lost++
  let records = 0
  for (;;) {
    // Records go from here on; their sums stay.
    const removed = await store.ledger.prune('9999', 1_000)
    records += removed
    if (removed < 1_000) break
  }
  const { requests, cost } = await store.ledger.usageSince({ organizationId: 'org_1', since: '' })
  t.comment(JSON.stringify({ rounds: ROUNDS, told: told.length, unshipped, records, lost }))
  t.ok(unshipped > 0, 'the kills came before the shipment')
  t.ok(records >= told.length, 'there was something to lose')
  t.match({ lost, requests, cost }, { lost: 0, requests: records, cost: 3n * BigInt(records) })
}

t.test(`${ROUNDS} kills on SQLite`, async t => {
  const folder = t.testdir({})
  await holds(t, `sqlite:${join(folder, 'gateway.db')}`, folder)
  rmSync(folder, { recursive: true, force: true })
})

t.test(`${ROUNDS} kills on PostgreSQL`, { skip: await withoutPostgres() }, async t => {
  await holds(t, (await postgresSchema(t)).url, t.testdir({}))
})
