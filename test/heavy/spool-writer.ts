/** A process that records and ships usage forever, and prints an id as soon as its record is safe. */
import { randomInt } from 'node:crypto'
import { systemClock } from '../../src/base/clock.ts'
import { createLog } from '../../src/base/log/log.ts'
import { startShipper } from '../../src/process/services/ledger-shipper.ts'
import { openSpool } from '../../src/storage/spool/spool.ts'
import { someUsage } from '../storage/usage.ts'

const [storageUrl = ''] = process.argv.slice(2)
const log = createLog('silent', { write: () => undefined })
const shipper = await startShipper({ storageUrl, clock: systemClock, log })
const spool = openSpool(shipper.folder, {
  clock: systemClock,
  log,
  onLost: () => process.exit(1),
  fileMaxBytes: 50_000,
})
for (let turn = 0; ; turn++) {
  const records = Array.from({ length: randomInt(1, 20) }, () => someUsage({ cost: 3 }))
  for (const record of records) spool.append(record)
  await spool.whenWritten()
  await new Promise<void>(resolve => {
    // A busy reader leaves the pipe full.
    process.stdout.write(records.map(({ id }) => `${id}\n`).join(''), () => resolve())
  })
  if (turn % 20 === 19) void shipper.ship()
  // As much as the shipper can take.
  if (turn % 200 === 199) await shipper.ship()
}
