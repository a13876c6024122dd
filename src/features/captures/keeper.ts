/**
 * Keeps captures: tracks which captures are running, informs all threads, writes recorded requests into encrypted
 * files, and removes expired files. No request waits for it: records that a slow disk or database does not accept in
 * time are dropped and counted. Main thread.
 */
import { hostname } from 'node:os'
import { type Clock, isoInstant, type Timer } from '../../base/clock.ts'
import { randomText } from '../../base/ids.ts'
import type { Log } from '../../base/log/log.ts'
import type { CaptureRecord } from '../../protocol/management/captures.ts'
import type { VaultKey } from '../../providers/credentials/vault-keys.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'
import type { Store } from '../../storage/store.ts'
import { captureIdsIn, expiryOf, MAX_REQUEST_MS, nodeNameOf, removeFiles } from './folder.ts'
import { PartFile } from './part-file.ts'
import type { CapturedRequest, CaptureTerms } from './running.ts'

interface CaptureKeeperOptions {
  readonly store: Pick<Store, 'captures'>
  readonly keys: readonly VaultKey[]
  /** The captures folder of folder.ts. */
  readonly folder: string
  /** False if no capture may run; files of earlier ones are still removed when they expire. */
  readonly enabled: boolean
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
}

/** Called with the running captures each time they change. */
type Follower = (running: readonly CaptureTerms[]) => void

/** A record that waits for the disk. */
interface WaitingWrite {
  readonly capture: string
  /** Null if there was no room for the record. */
  readonly record: Uint8Array | null
  /** Called with the size of the record when it no longer waits. */
  readonly onDone: (bytes: number) => void
}

/** Interval at which the Store is read while a capture runs. */
const RUNNING_CHECK_INTERVAL_MS = 1_000
/** The same while none runs, because files expire, and a message about a new capture may be lost. */
const IDLE_CHECK_INTERVAL_MS = 60_000
/** Maximum bytes per write. Records that arrive during a write share one transaction. */
const MAX_WRITE_BYTES = 1024 * 1024
const CAPTURES_PER_SWEEP = 100
const PART_NAME_CHARS = 8

export class CaptureKeeper {
  readonly #options: CaptureKeeperOptions
  readonly #followers = new Set<Follower>()
  readonly #partName = randomText(PART_NAME_CHARS)
  /** The files of this process, by capture. */
  readonly #files = new Map<string, PartFile>()
  /** Captures that may still grow, as last read from the Store. */
  #openCaptures: readonly CaptureRecord[] = []
  #running: readonly CaptureTerms[] = []
  /** Captures that became full here, because a read of the Store may be older than that. */
  #fullCaptures: ReadonlySet<string> = new Set()
  #waitingWrites: WaitingWrite[] = []
  #writing: Promise<void> | null = null
  #checking: Promise<void> | null = null
  #checksAgain = false
  #timer: Timer | null = null
  /** Monotonic time of the next removal of expired files and rows. */
  #nextSweepMs = Number.NEGATIVE_INFINITY
  #isFailing = false
  #isClosed = false

  constructor(options: CaptureKeeperOptions) {
    this.#options = options
  }

  /** Reads the captures now, and then at intervals. */
  start(): void {
    this.#check()
  }

  /** Reports the running captures now and on each change, until the returned function is called. */
  follow(follower: Follower): () => void {
    this.#followers.add(follower)
    follower(this.#running)
    return () => this.#followers.delete(follower)
  }

  invalidate({ kind }: Invalidation): void {
    if (kind !== 'captures' && kind !== 'all') return
    this.#nextSweepMs = Number.NEGATIVE_INFINITY
    this.#check()
  }

  /**
   * Adds a record; `onDone` is called with its size when it no longer waits, written or not. Does nothing after
   * `close`.
   */
  store({ capture, record }: CapturedRequest, onDone: (bytes: number) => void): void {
    if (this.#isClosed) return
    this.#waitingWrites.push({ capture, record, onDone })
    this.#writing ??= this.#write()
  }

  /** Resolves when the current read has finished. For tests. */
  async settled(): Promise<void> {
    while (this.#checking !== null) await this.#checking
  }

  /** Writes waiting records, and ends the files. */
  async close(): Promise<void> {
    this.#timer?.cancel()
    await this.#checking
    await this.#writing
    this.#isClosed = true
    this.#timer?.cancel()
    for (const file of this.#files.values()) await file.end()
    this.#files.clear()
  }

  #check(): void {
    if (this.#isClosed) return
    if (this.#checking !== null) {
      this.#checksAgain = true
      return
    }
    this.#timer?.cancel()
    this.#checking = this.#readCaptures().finally(() => {
      this.#checking = null
      if (this.#isClosed) return
      const { enabled, folder } = this.#options
      if (!enabled && captureIdsIn(folder).length === 0) return
      if (this.#checksAgain) {
        this.#checksAgain = false
        this.#check()
      } else this.#timer = this.#options.clock.after(this.#msToNextCheck(), () => this.#check())
    })
  }

  #msToNextCheck(): number {
    const nowMs = this.#options.clock.nowMs()
    const ends = this.#openCaptures.map(({ endsAt }) => Date.parse(endsAt) - nowMs).filter(ms => ms > 0)
    return Math.min(
      this.#openCaptures.length > 0 ? RUNNING_CHECK_INTERVAL_MS : IDLE_CHECK_INTERVAL_MS,
      ...ends,
    )
  }

  /** Never rejects. */
  async #readCaptures(): Promise<void> {
    const { store, clock, log, enabled } = this.#options
    try {
      if (enabled) {
        const since = isoInstant(clock.nowMs() - MAX_REQUEST_MS)
        const open = await store.captures.open(since)
        this.#fullCaptures = new Set(open.map(({ id }) => id).filter(id => this.#fullCaptures.has(id)))
        this.#openCaptures = open.filter(
          ({ id, expiresAt }) => !this.#fullCaptures.has(id) && Date.parse(expiresAt) > clock.nowMs(),
        )
        this.#announceRunning()
        for (const [id, file] of this.#files) {
          if (this.#openCaptures.some(capture => capture.id === id)) continue
          await file.end()
          this.#files.delete(id)
          // The capture may have been deleted while its file was created.
          this.#nextSweepMs = Number.NEGATIVE_INFINITY
        }
      }
      if (clock.monotonicMs() >= this.#nextSweepMs) await this.#sweep()
      this.#isFailing = false
    } catch (error) {
      if (!this.#isFailing) log.fault('captures', 'cannot look up captures in the store', error)
      this.#isFailing = true
      // The expiry in the files is enough to remove them in time.
      await this.#removeExpired().catch(() => undefined)
    }
  }

  #announceRunning(): void {
    const nowMs = this.#options.clock.nowMs()
    const runningCaptures = this.#openCaptures
      .map(({ id, organizationId, keyHash, workspaceId, endsAt }) => ({
        id,
        organizationId,
        keyHash,
        workspaceId,
        endsAtMs: Date.parse(endsAt),
      }))
      .filter(({ endsAtMs }) => nowMs < endsAtMs)
    if (JSON.stringify(runningCaptures) === JSON.stringify(this.#running)) return
    this.#running = runningCaptures
    for (const follower of this.#followers) follower(runningCaptures)
  }

  /** Removes expired rows, and the files of captures without a row. */
  async #sweep(): Promise<void> {
    const { store, folder, clock } = this.#options
    this.#nextSweepMs = clock.monotonicMs() + IDLE_CHECK_INTERVAL_MS
    await this.#removeExpired()
    while (
      (await store.captures.prune(isoInstant(clock.nowMs()), CAPTURES_PER_SWEEP)).length ===
      CAPTURES_PER_SWEEP
    );
    const localIds = captureIdsIn(folder)
    for (let start = 0; start < localIds.length; start += CAPTURES_PER_SWEEP) {
      const group = localIds.slice(start, start + CAPTURES_PER_SWEEP)
      const knownIds = await store.captures.existing(group)
      for (const id of group) if (!knownIds.has(id)) await this.#remove(id)
    }
  }

  async #removeExpired(): Promise<void> {
    const { folder, clock } = this.#options
    const nowInstant = isoInstant(clock.nowMs())
    for (const id of captureIdsIn(folder)) {
      const expiry = await expiryOf(folder, id).catch(() => null)
      if (expiry !== null && expiry <= nowInstant) await this.#remove(id)
    }
  }

  async #remove(id: string): Promise<void> {
    const file = this.#files.get(id)
    this.#files.delete(id)
    await file?.end()
    removeFiles(this.#options.folder, id)
  }

  /** Writes until no record waits. Never rejects. */
  async #write(): Promise<void> {
    while (this.#waitingWrites.length > 0) {
      const [first] = this.#waitingWrites
      if (first === undefined) break
      const batch = this.#takeWrites(first.capture)
      try {
        await this.#writeTo(first.capture, batch)
      } catch (error) {
        if (!this.#isFailing) this.#options.log.fault('captures', 'cannot write a capture', error)
        this.#isFailing = true
      }
      for (const { onDone, record } of batch) onDone(record?.length ?? 0)
    }
    this.#writing = null
  }

  /** Removes the next records of a capture from the queue. */
  #takeWrites(capture: string): readonly WaitingWrite[] {
    const batch: WaitingWrite[] = []
    const later: WaitingWrite[] = []
    let bytes = 0
    for (const write of this.#waitingWrites) {
      const size = write.record?.length ?? 0
      if (write.capture === capture && (batch.length === 0 || bytes + size <= MAX_WRITE_BYTES)) {
        batch.push(write)
        bytes += size
      } else later.push(write)
    }
    this.#waitingWrites = later
    return batch
  }

  async #writeTo(id: string, batch: readonly WaitingWrite[]): Promise<void> {
    const nowMs = this.#options.clock.nowMs()
    const record = this.#openCaptures.find(capture => capture.id === id)
    // The capture was deleted, or has ended.
    if (record === undefined || nowMs >= Date.parse(record.endsAt) + MAX_REQUEST_MS) return
    const file = this.#fileOf(record)
    if (await file.add(batch.map(write => write.record))) return
    this.#fullCaptures = new Set([...this.#fullCaptures, id])
    this.#openCaptures = this.#openCaptures.filter(capture => capture.id !== id)
    this.#announceRunning()
    this.#files.delete(id)
    const { store, clock } = this.#options
    await store.captures.end(id, 'size', isoInstant(clock.nowMs()))
  }

  #fileOf(record: CaptureRecord): PartFile {
    const { id } = record
    const existing = this.#files.get(id)
    if (existing !== undefined) return existing
    const { store, keys, folder, log } = this.#options
    const node = nodeNameOf(folder)
    const file = new PartFile(
      { store, keys, folder, log },
      { record, name: `${node}-${this.#partName}`, node, host: hostname().slice(0, 255) },
    )
    this.#files.set(id, file)
    return file
  }
}
