/** Usage exports of this process, one for each row of the configuration. Main thread. */
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import type { Clock } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { dataFolder } from '../../storage/data-folder.ts'
import type { UsageRecord } from '../../storage/usage.ts'
import type { Config } from '../config/settings.ts'
import { createDestination } from '../exports/destination.ts'
import { UsageExport } from '../exports/usage-export.ts'

export interface Exports {
  /** False if there are none. */
  readonly isWanted: boolean
  /** Lag of the slowest export. */
  readonly lagSeconds: number
  /** Bytes that are not yet at their destinations. */
  readonly waitingBytes: number
  /** Number of records that did not fit. */
  readonly lostRecords: number
  receive(records: readonly UsageRecord[]): void
  close(): Promise<void>
}

const EXPORT_INTERVAL_MS = 60_000

/** @throws the error of the file system */
export function startExports(config: Config, clock: Clock, log: Pick<Log, 'fault' | 'notice'>): Exports {
  const exports = config.export.map(row => {
    // Another address starts again, in a folder of its own.
    const name = createHash('sha256').update(row.url).digest('hex').slice(0, 12)
    return new UsageExport({
      folder: join(dataFolder(config.storage.url), 'export', name),
      destination: createDestination(row, clock),
      everyMs: row.everyMs ?? EXPORT_INTERVAL_MS,
      ...(row.maxWaitingBytes === undefined ? {} : { maxWaitingBytes: row.maxWaitingBytes }),
      clock,
      log,
    })
  })
  return {
    isWanted: exports.length > 0,
    get lagSeconds() {
      return Math.max(0, ...exports.map(usageExport => usageExport.lagSeconds))
    },
    get waitingBytes() {
      return exports.reduce((sum, usageExport) => sum + usageExport.waitingBytes, 0)
    },
    get lostRecords() {
      return exports.reduce((sum, usageExport) => sum + usageExport.lostRecords, 0)
    },
    receive(records) {
      for (const usageExport of exports) usageExport.add(records)
    },
    async close() {
      await Promise.all(exports.map(usageExport => usageExport.close()))
    },
  }
}
