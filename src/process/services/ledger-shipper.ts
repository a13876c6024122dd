/**
 * Ships spooled usage records to the Store, and then deletes them from disk. Main thread. After a crash a record may be
 * shipped again, but the Store keeps only one copy, because it ignores known ids.
 */
import type { Clock, Timer } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { openStore } from '../../storage/open.ts'
import { readSpool, remainingBytes, removeSpool, setAside, spoolFiles } from '../../storage/spool/spool.ts'
import {
  claimAbandoned,
  claimSpoolFolder,
  type SpoolFolder,
  spoolRoot,
} from '../../storage/spool/spool-folder.ts'
import { parseLines, wholeRecord } from '../../storage/spool/usage-line.ts'
import type { Store } from '../../storage/store.ts'
import { isUnfit } from '../../storage/store-error.ts'
import type { UsageRecord } from '../../storage/usage.ts'

export interface LedgerShipper {
  /** Spool folder of the threads of this process. */
  readonly folder: string
  /** The error with which the Store refuses records now; null if it accepted the last ones. */
  readonly refusal: unknown
  /** Bytes on disk of this process that are not shipped. */
  waitingBytes(): number
  /**
   * Calls `onRecords` with records as they are shipped, until the returned function is called. Records of other
   * processes are not included.
   */
  watch(onRecords: (records: readonly UsageRecord[]) => void): () => void
  /** Call it when a writer has ended: its files are shipped and removed, the newest too. */
  writerEnded(writer: string): void
  /** Ships all records on disk, including those of dead processes. Returns false if some are left. */
  ship(): Promise<boolean>
  /** Makes the last shipment. Call it after all threads have ended. Refused records stay for the next start. */
  close(): Promise<void>
}

/** A receiver of shipped records. */
export interface ShippedRecords {
  /** False: records need not be parsed for it. */
  readonly isWanted: boolean
  /** Must not throw. */
  receive(records: readonly UsageRecord[]): void
}

interface ShipperOptions {
  readonly storageUrl: string
  readonly clock: Clock
  readonly log: Log
  /** Receives records that the Store has; after a crash perhaps a second time. Absent: not needed. */
  readonly shipped?: ShippedRecords
}

/** Short enough that other threads find a record within a second of the answer, even with a slow disk. */
const SHIP_INTERVAL_MS = 250
/** Interval while the Store refuses records. */
const INTERVAL_AFTER_FAILURE_MS = 5_000
/** Other processes rarely die; looking for their folders costs a lock for each. */
const ABANDONED_INTERVAL_MS = 10_000

/** If the Store refuses a record this often, the cause is not temporary. */
const MAX_ATTEMPTS = 3

const NO_WRITERS: ReadonlySet<string> = new Set()

/** @throws StoreError, or the error of the file system when the spool cannot be made. */
export async function startShipper(options: ShipperOptions): Promise<LedgerShipper> {
  const root = spoolRoot(options.storageUrl)
  const ownFolder = claimSpoolFolder(root)
  let store: Store
  try {
    store = await openStore(options.storageUrl, { wait: false })
  } catch (error) {
    ownFolder.release()
    throw error
  }
  return new SpoolShipper(options, root, ownFolder, store)
}

class SpoolShipper implements LedgerShipper {
  readonly #options: ShipperOptions
  readonly #root: string
  readonly #ownFolder: SpoolFolder
  readonly #store: Store
  /** Keyed by path: shipped bytes of each file of this process's threads. */
  readonly #offsets = new Map<string, number>()
  /** Keyed by path: how often the Store has refused the next records of the file. */
  readonly #attempts = new Map<string, number>()
  /** Ended writers, until their files are removed. */
  readonly #endedWriters = new Set<string>()
  readonly #watchers = new Set<{ see(records: readonly UsageRecord[]): void }>()
  #timer: Timer | null = null
  #running: Promise<void> | null = null
  /** The shipment that has not begun yet. */
  #nextShipment: Promise<boolean> | null = null
  #abandonedCheckMs = Number.NEGATIVE_INFINITY
  /** Written only here. */
  refusal: unknown = null
  #closed = false

  constructor(options: ShipperOptions, root: string, ownFolder: SpoolFolder, store: Store) {
    this.#options = options
    this.#root = root
    this.#ownFolder = ownFolder
    this.#store = store
    this.#schedule(0)
  }

  get folder(): string {
    return this.#ownFolder.path
  }

  waitingBytes(): number {
    let bytes = 0
    for (const { path } of spoolFiles(this.#ownFolder.path))
      bytes += remainingBytes(path, this.#offsets.get(path) ?? 0)
    return bytes
  }

  watch(see: (records: readonly UsageRecord[]) => void): () => void {
    const watcher = { see }
    this.#watchers.add(watcher)
    return () => void this.#watchers.delete(watcher)
  }

  writerEnded(writer: string): void {
    this.#endedWriters.add(writer)
  }

  ship(): Promise<boolean> {
    let isComplete = false
    // A shipment that has begun may be past the newest records.
    this.#nextShipment ??= this.#exclusively(async () => {
      this.#nextShipment = null
      isComplete = await this.#shipAll()
    }).then(() => isComplete)
    return this.#nextShipment
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    await this.#running
    await this.#exclusively(async () => {
      await this.#shipOwn(true)
    })
    this.#ownFolder.release()
    await this.#store.close()
  }

  #schedule(delayMs: number): void {
    if (this.#closed) return
    this.#timer = this.#options.clock.after(delayMs, this.#tick)
  }

  readonly #tick = (): void => {
    const { clock } = this.#options
    void this.#exclusively(async () => {
      const dueMs = this.#abandonedCheckMs + ABANDONED_INTERVAL_MS
      if (clock.monotonicMs() >= dueMs) await this.#shipAll()
      else await this.#shipOwn(false)
    }).then(() => this.#schedule(this.refusal !== null ? INTERVAL_AFTER_FAILURE_MS : SHIP_INTERVAL_MS))
  }

  /** Runs one shipment at a time. Never rejects: records that were not shipped are still on disk. */
  #exclusively(work: () => Promise<void>): Promise<void> {
    const turn = (this.#running ?? Promise.resolve()).then(work).then(
      () => {
        if (this.refusal !== null)
          this.#options.log.notice('ledger', 'sending usage records to the store again')
        this.refusal = null
      },
      (error: unknown) => {
        if (this.refusal === null) {
          this.#options.log.fault(
            'ledger',
            'cannot send usage records to the store; they are kept on disk',
            error,
          )
        }
        this.refusal = error ?? new Error('refused')
      },
    )
    this.#running = turn
    return turn
  }

  /** Returns false if a folder of a dead process could not be shipped. */
  async #shipAll(): Promise<boolean> {
    let isComplete = true
    this.#abandonedCheckMs = this.#options.clock.monotonicMs()
    await this.#shipOwn(false)
    for (const folder of claimAbandoned(this.#root)) {
      try {
        await this.#shipFolder(folder.path, true, NO_WRITERS)
      } catch (error) {
        // Tried again later. Records of our own threads must not wait for it.
        isComplete = false
        this.#options.log.fault(
          'ledger',
          'cannot send usage records left by an earlier process to the store; they are kept on disk',
          error,
        )
      } finally {
        folder.release()
      }
    }
    return isComplete
  }

  async #shipOwn(isAbandoned: boolean): Promise<void> {
    // A writer that ends during the shipment may have written after its file was read.
    const endedWriters = new Set(this.#endedWriters)
    await this.#shipFolder(this.#ownFolder.path, isAbandoned, endedWriters)
    for (const writer of endedWriters) this.#endedWriters.delete(writer)
  }

  /** Adds the records of a piece. Records that the Store never accepts are set aside after several tries. */
  async #add(path: string, lines: string): Promise<void> {
    try {
      const { invalidLines } = await this.#store.ledger.addLines(lines)
      const { shipped } = this.#options
      if (shipped?.isWanted === true) shipped.receive(parseLines(lines).records.map(wholeRecord))
      this.#attempts.delete(path)
      if (invalidLines > 0)
        this.#options.log.notice('ledger', 'skipped half-written usage records', { lines: invalidLines })
      return
    } catch (error) {
      const attempts = (this.#attempts.get(path) ?? 0) + 1
      this.#attempts.set(path, attempts)
      if (attempts < MAX_ATTEMPTS || !isUnfit(error)) throw error
    }
    for (const record of parseLines(lines).records) {
      try {
        await this.#store.ledger.add([record])
        this.#options.shipped?.receive([wholeRecord(record)])
      } catch (error) {
        if (!isUnfit(error)) throw error
        setAside(this.#root, record)
        this.#options.log.fault('ledger', 'the store rejected a usage record; it was set aside', error)
      }
    }
    this.#attempts.delete(path)
  }

  #notifyWatchers(lines: string): void {
    if (this.#watchers.size === 0) return
    const records = parseLines(lines).records.map(wholeRecord)
    if (records.length > 0) for (const { see } of this.#watchers) see(records)
  }

  /**
   * Ships the files of a folder, and removes those to which nobody writes: all of an abandoned folder, otherwise
   * complete files and files of ended writers.
   */
  async #shipFolder(folder: string, isAbandoned: boolean, endedWriters: ReadonlySet<string>): Promise<void> {
    for (const { path, writer, isComplete } of spoolFiles(folder)) {
      let offset = this.#offsets.get(path) ?? 0
      for (let piece = readSpool(path, offset); piece !== null; piece = readSpool(path, offset)) {
        await this.#add(path, piece.lines)
        offset = piece.offset
        this.#offsets.set(path, offset)
        if (folder === this.#ownFolder.path) this.#notifyWatchers(piece.lines)
        if (piece.isLast) break
      }
      if (!isAbandoned && !isComplete && !endedWriters.has(writer)) continue
      const bytes = remainingBytes(path, offset)
      // An unfinished line: its caller never saw the end of that answer.
      if (bytes > 0) this.#options.log.notice('ledger', 'skipped a half-written usage record', { bytes })
      removeSpool(path)
      this.#offsets.delete(path)
    }
  }
}
