/**
 * Export of usage: copies records that are in the Store into a file next to the spool, and sends that file to its
 * destination at intervals. A file is removed once its object exists, so each record arrives at least once, even after
 * a kill. An object is named after its node, first record and content: sending the same file again replaces its object,
 * and a file with fewer or more records is another object. Main thread: whole files are read and hashed elsewhere.
 */
import { webcrypto } from 'node:crypto'
import { appendFileSync, readFileSync, renameSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Clock, Timer } from '../../base/clock.ts'
import { systemCode } from '../../base/errors.ts'
import { randomText } from '../../base/ids.ts'
import type { Log } from '../../base/log/log.ts'
import { makeFolder } from '../../storage/data-folder.ts'
import type { UsageRecord } from '../../storage/usage.ts'
import type { Destination } from './destination.ts'
import { firstId, firstRecordMs, isNameless, isSendable, listFiles, type WaitingFile } from './files.ts'

export interface UsageExportOptions {
  /** A folder of its own on a local disk. */
  readonly folder: string
  readonly destination: Destination
  readonly everyMs: number
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  /** Bytes that may wait on the disk; further records are lost. Default 4 GiB. */
  readonly maxWaitingBytes?: number
  /** Maximum bytes in memory while the disk refuses writes. Default 8 MiB. */
  readonly maxHeldBytes?: number
}

/** A file is put before its interval is over when it is this large. */
const FILE_MAX_BYTES = 16 * 1024 * 1024
/** A few days of a busy instance. More would fill the disk that the usage records themselves need. */
const WAITING_MAX_BYTES = 4 * 1024 * 1024 * 1024
const HELD_MAX_BYTES = 8 * 1024 * 1024
const NODE_CHARS = 8
const DIGEST_CHARS = 8

export class UsageExport {
  readonly #options: UsageExportOptions
  readonly #node: string
  readonly #open: string
  /** Files that wait, oldest records first. */
  #files: WaitingFile[] = []
  /** Bytes in the file that is open. */
  #openBytes = 0
  #openSinceMs: number | null = null
  /** Lines that the disk has not accepted yet. */
  #unwritten = ''
  #heldBytes = 0
  #heldSinceMs: number | null = null
  /** Number of records that did not fit. Written only here. */
  lostRecords = 0
  #isLosing = false
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
    this.#find(true)
    this.#schedule()
  }

  /** Seconds since the oldest record that is not at its destination. */
  get lagSeconds(): number {
    const times = [this.#openSinceMs, this.#heldSinceMs, ...this.#files.map(({ sinceMs }) => sinceMs)]
    const oldestMs = times.reduce<number | null>(
      (oldest, timeMs) => (timeMs === null || (oldest !== null && oldest <= timeMs) ? oldest : timeMs),
      null,
    )
    return oldestMs === null ? 0 : Math.max(0, (this.#options.clock.nowMs() - oldestMs) / 1000)
  }

  /** Bytes on the disk and in memory that are not at their destination. */
  get waitingBytes(): number {
    return this.#filedBytes() + this.#heldBytes
  }

  /** Never throws: records that the disk refuses wait in memory, up to a limit. */
  add(records: readonly UsageRecord[]): void {
    const [first] = records
    if (first === undefined) return
    const lines = records.map(usageRow).join('')
    const bytes = Buffer.byteLength(lines)
    const {
      maxHeldBytes = HELD_MAX_BYTES,
      maxWaitingBytes = WAITING_MAX_BYTES,
      log,
      destination,
    } = this.#options
    if (this.#heldBytes + bytes > maxHeldBytes || this.waitingBytes + bytes > maxWaitingBytes) {
      this.lostRecords += records.length
      if (!this.#isLosing)
        log.notice('ledger', 'export buffer full; dropping usage records from this export', {
          to: destination.label,
          waitingBytes: this.waitingBytes,
        })
      this.#isLosing = true
      // Otherwise the disk would only be tried again after the interval.
      if (this.#heldBytes > 0) this.#write()
      return
    }
    this.#unwritten += lines
    this.#heldBytes += bytes
    this.#heldSinceMs ??= Date.parse(first.createdAt)
    this.#write()
    if (this.#openBytes > FILE_MAX_BYTES) void this.run()
  }

  /** Sends all complete files. Never rejects. Concurrent calls share one run. */
  run(): Promise<void> {
    this.#running ??= this.#run().finally(() => {
      this.#running = null
    })
    return this.#running
  }

  /** Records that do not arrive in time are exported at the next start. */
  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    await this.#running
    await this.run()
  }

  #write(): void {
    try {
      appendFileSync(this.#open, this.#unwritten, { mode: 0o600 })
    } catch (error) {
      this.#truncate()
      this.#fail(error)
      return
    }
    this.#openBytes += this.#heldBytes
    this.#openSinceMs ??= this.#heldSinceMs
    this.#unwritten = ''
    this.#heldBytes = 0
    this.#heldSinceMs = null
  }

  /**
   * Removes an incomplete line: a disk that fills up accepts only a part of a write, which would spoil the next line.
   */
  #truncate(): void {
    try {
      if (statSync(this.#open).size > this.#openBytes) truncateSync(this.#open, this.#openBytes)
    } catch {
      // There is nothing to be cut.
    }
  }

  #filedBytes(): number {
    return this.#files.reduce((sum, { bytes }) => sum + bytes, this.#openBytes)
  }

  async #run(): Promise<void> {
    const { destination, log } = this.#options
    if (this.#unwritten !== '') this.#write()
    try {
      this.#end()
      this.#find(false)
      this.#files = await this.#withNames(this.#files)
      for (let next = this.#files[0]; next !== undefined; next = this.#files[0]) {
        await this.#put(next)
        this.#files = this.#files.filter(file => file !== next)
      }
      if (this.#isFailing && this.#unwritten === '')
        log.notice('ledger', 'exporting usage again', { to: destination.label })
      this.#isFailing &&= this.#unwritten !== ''
      this.#isLosing &&= this.#isFailing
    } catch (error) {
      this.#fail(error)
    }
  }

  /** Ends the file that is written: the next record begins another one. */
  #end(): void {
    if (this.#openBytes === 0) return
    const file = {
      name: `full-${randomText(NODE_CHARS)}`,
      bytes: this.#openBytes,
      sinceMs: this.#openSinceMs ?? this.#options.clock.nowMs(),
    }
    try {
      renameSync(this.#open, join(this.#options.folder, file.name))
      this.#files.push(file)
    } catch (error) {
      // Another process of the folder may have removed it.
      if (systemCode(error) !== 'ENOENT') throw error
    }
    this.#openBytes = 0
    this.#openSinceMs = null
  }

  /** Finds files of ended processes, and files that another process has named. */
  #find(isStart: boolean): void {
    const { folder } = this.#options
    const knownNames = new Set(this.#files.map(({ name }) => name))
    for (const file of listFiles(folder)) {
      const { name, bytes } = file
      const path = join(folder, name)
      if (knownNames.has(name) || path === this.#open || !isSendable(file, isStart)) continue
      this.#files.push({ name, bytes, sinceMs: firstRecordMs(path) ?? this.#options.clock.nowMs() })
    }
    this.#files.sort((first, second) => first.sinceMs - second.sinceMs)
  }

  /** Gives each file the permanent name of its object, so that sending it again replaces the same object. */
  async #withNames(files: readonly WaitingFile[]): Promise<WaitingFile[]> {
    const { folder } = this.#options
    const waitingFiles: WaitingFile[] = []
    for (const file of files) {
      if (!isNameless(file.name)) {
        waitingFiles.push(file)
        continue
      }
      const path = join(folder, file.name)
      const body = await readIfThere(path)
      const name = body === null ? null : await this.#nameOf(body)
      if (name === null) await rm(path, { force: true })
      else {
        await rename(path, join(folder, name))
        waitingFiles.push({ ...file, name })
      }
    }
    return waitingFiles
  }

  /**
   * The name of an object: node, first record and content. Without the content, a file with fewer records that is
   * shipped again after a kill would replace an object with more. Null: it contains no record.
   */
  async #nameOf(body: Buffer): Promise<string | null> {
    const first = firstId(body)
    if (first === null) return null
    // In another thread: this one has all others to serve.
    const digest = Buffer.from(await webcrypto.subtle.digest('SHA-256', body)).toString('hex')
    return `${this.#node}-${first}-${digest.slice(0, DIGEST_CHARS)}.jsonl`
  }

  async #put({ name }: WaitingFile): Promise<void> {
    const { folder, destination } = this.#options
    const path = join(folder, name)
    const body = await readIfThere(path)
    if (body === null) return
    await destination.put(name, body)
    await rm(path, { force: true })
  }

  #fail(error: unknown): void {
    const { log, destination } = this.#options
    if (!this.#isFailing)
      log.fault('ledger', 'cannot export usage; records are kept on disk', error, { to: destination.label })
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

/** Null: another process of the folder has put it. */
async function readIfThere(path: string): Promise<Buffer | null> {
  try {
    return await readFile(path)
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return null
    throw error
  }
}

/** This instance's part of the names of exported objects. It stays the same across restarts. */
function nodeOf(folder: string): string {
  const path = join(folder, 'node')
  try {
    writeFileSync(path, randomText(NODE_CHARS), { flag: 'wx', mode: 0o600 })
  } catch {
    // The folder already has a name of its node.
  }
  return readFileSync(path, 'utf8')
}

/** Contains no text of callers except the model: no `trace`, no end user, no names of sessions, agents and apps. */
function usageRow(record: UsageRecord): string {
  const row = {
    id: record.id,
    created_at: record.createdAt,
    organization_id: record.organizationId,
    workspace_id: record.workspaceId,
    key_hash: record.keyHash,
    parent: record.parent ?? null,
    model: record.model,
    provider: record.provider,
    streamed: record.streamed,
    outcome: record.outcome,
    cancelled: record.cancelled,
    error: record.error,
    finish_reason: record.finishReason,
    accounting: record.accounting,
    input_tokens: record.inputTokens,
    cached_tokens: record.cachedTokens,
    cache_write_tokens: record.cacheWriteTokens,
    output_tokens: record.outputTokens,
    reasoning_tokens: record.reasoningTokens,
    web_search_requests: record.webSearchRequests,
    cost_picousd: record.cost,
    is_byok: record.isByok,
    service_tier: record.serviceTier,
    data_region: record.dataRegion,
    latency_ms: record.latencyMs,
    generation_ms: record.generationMs,
    attempts: record.attempts.length,
  }
  return `${JSON.stringify(row)}\n`
}
