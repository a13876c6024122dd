/**
 * Export of usage: copies the records that the Store has taken into a file beside the spool, and puts that file to its
 * destination at intervals. A file is removed when its object is there, so each record arrives at least once, also
 * after a kill. An object is named by node, first record and content: a repetition replaces it. Main thread.
 */
import { createHash } from 'node:crypto'
import {
  appendFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import type { Clock, Timer } from '../clock.ts'
import { randomText } from '../ids.ts'
import type { Log } from '../log/log.ts'
import { makeFolder } from '../storage/data-folder.ts'
import type { UsageRecord } from '../storage/usage.ts'
import type { Destination } from './destination.ts'
import { usageRow } from './usage-row.ts'

export interface UsageExportOptions {
  /** A folder of its own on a local disk. */
  readonly folder: string
  readonly destination: Destination
  readonly everyMs: number
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
}

/** A file is put before its interval is over when it is this large. */
const FILE_MAX_BYTES = 64 * 1024 * 1024
/** The file of another process that shares the folder is left alone until it has rested for so long. */
const RESTED_MS = 60_000
const NODE_CHARS = 8

export class UsageExport {
  readonly #options: UsageExportOptions
  readonly #node: string
  readonly #open: string
  #openBytes = 0
  /** Unix milliseconds of the oldest record that is not at its destination; null: all are there. */
  #oldestMs: number | null = null
  #lines = ''
  #isFailing = false
  #timer: Timer | null = null
  #running: Promise<void> | null = null
  #closed = false

  /** @throws the error of the file system */
  constructor(options: UsageExportOptions) {
    this.#options = options
    makeFolder(options.folder)
    this.#node = nodeOf(options.folder)
    this.#open = join(options.folder, `open-${randomText(NODE_CHARS)}`)
    if (this.#left(true).length > 0) this.#oldestMs = options.clock.nowMs()
    this.#schedule()
  }

  /** Seconds since the oldest record that is not at its destination. */
  get lagSeconds(): number {
    return this.#oldestMs === null ? 0 : Math.max(0, (this.#options.clock.nowMs() - this.#oldestMs) / 1000)
  }

  /** Never throws: what the disk does not take waits in memory. */
  take(records: readonly UsageRecord[]): void {
    const [first] = records
    if (first === undefined) return
    this.#oldestMs ??= Date.parse(first.createdAt)
    this.#lines += records.map(usageRow).join('')
    this.#write()
    if (this.#openBytes > FILE_MAX_BYTES) void this.run()
  }

  /** Puts all that is there. Never rejects. Those who ask at once share one run. */
  run(): Promise<void> {
    this.#running ??= this.#run().finally(() => {
      this.#running = null
    })
    return this.#running
  }

  /** What does not arrive now is put at the next start. */
  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    await this.#running
    await this.run()
  }

  #write(): void {
    try {
      appendFileSync(this.#open, this.#lines, { mode: 0o600 })
      this.#openBytes += this.#lines.length
      this.#lines = ''
    } catch (error) {
      this.#fail(error)
    }
  }

  async #run(): Promise<void> {
    const { folder, destination, log, clock } = this.#options
    if (this.#lines !== '') this.#write()
    const startedMs = clock.nowMs()
    try {
      if (this.#openBytes > 0) {
        // Another process of the folder may have named it.
        if (existsSync(this.#open)) this.#name(this.#open)
        this.#openBytes = 0
      }
      for (const name of this.#left(false)) {
        await destination.put(name, readFileSync(join(folder, name)))
        rmSync(join(folder, name), { force: true })
      }
      if (this.#isFailing) log.notice('ledger', 'usage is exported again', { to: destination.place })
      this.#isFailing = false
      this.#oldestMs = this.#openBytes > 0 || this.#lines !== '' ? startedMs : null
    } catch (error) {
      this.#fail(error)
    }
  }

  /** Names of files to be put, oldest records first; those that an ended process left open get their names. */
  #left(isStart: boolean): readonly string[] {
    const { folder } = this.#options
    for (const name of readdirSync(folder)) {
      const path = join(folder, name)
      if (!name.startsWith('open-') || path === this.#open) continue
      if (!isStart && Date.now() - statSync(path).mtimeMs < RESTED_MS) continue
      if (isStart && Date.now() - statSync(path).mtimeMs < RESTED_MS / 60) continue
      this.#name(path)
    }
    return readdirSync(folder)
      .filter(name => name.endsWith('.jsonl'))
      .toSorted()
  }

  /**
   * Names a file by node, first record and content. Without the content a file of fewer records, shipped again after a
   * kill, would replace an object of more.
   */
  #name(path: string): void {
    const body = readFileSync(path)
    const first = /"id":"([\w-]+)"/.exec(body.subarray(0, 4_096).toString('utf8'))?.[1]
    if (first === undefined) {
      rmSync(path, { force: true })
      return
    }
    const digest = createHash('sha256').update(body).digest('hex').slice(0, 8)
    renameSync(path, join(this.#options.folder, `${this.#node}-${first}-${digest}.jsonl`))
  }

  #fail(error: unknown): void {
    const { log, destination } = this.#options
    if (!this.#isFailing)
      log.fault('ledger', 'cannot export usage; records are kept on disk', error, { to: destination.place })
    this.#isFailing = true
  }

  #schedule(): void {
    const { clock, everyMs } = this.#options
    this.#timer = clock.after(everyMs, () => {
      void this.run().then(() => {
        if (!this.#closed) this.#schedule()
      })
    })
  }
}

/** The name of this node in objects; it stays after a restart. */
function nodeOf(folder: string): string {
  const path = join(folder, 'node')
  try {
    writeFileSync(path, randomText(NODE_CHARS), { flag: 'wx', mode: 0o600 })
  } catch {
    // It has one.
  }
  return readFileSync(path, 'utf8')
}
