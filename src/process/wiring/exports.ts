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

const EVERY_MS = 60_000

/** @throws the error of the file system */
export function startExports(config: Config, clock: Clock, log: Pick<Log, 'fault' | 'notice'>): Exports {
  const running = config.export.map(row => {
    // Another address starts again, in a folder of its own.
    const name = createHash('sha256').update(row.url).digest('hex').slice(0, 12)
    return new UsageExport({
      folder: join(dataFolder(config.storage.url), 'export', name),
      destination: createDestination(row, clock),
      everyMs: row.everyMs ?? EVERY_MS,
      ...(row.maxWaitingBytes === undefined ? {} : { maxWaitingBytes: row.maxWaitingBytes }),
      clock,
      log,
    })
  })
  return {
    isWanted: running.length > 0,
    get lagSeconds() {
      return Math.max(0, ...running.map(each => each.lagSeconds))
    },
    get waitingBytes() {
      return sumOf(running, each => each.waitingBytes)
    },
    get lostRecords() {
      return sumOf(running, each => each.lostRecords)
    },
    receive(records) {
      for (const each of running) each.add(records)
    },
    async close() {
      await Promise.all(running.map(each => each.close()))
    },
  }
}

function sumOf<Each>(all: readonly Each[], value: (each: Each) => number): number {
  return all.reduce((sum, each) => sum + value(each), 0)
}
