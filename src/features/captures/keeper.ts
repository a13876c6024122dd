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
import { captureIdsIn, expiryOf, LATE_MS, nodeOf, removeFiles } from './folder.ts'
import { PartFile } from './part-file.ts'
import type { CapturedRequest, CaptureTerms } from './running.ts'

interface CaptureKeeperOptions {
  readonly store: Pick<Store, 'captures'>
  readonly keys: readonly VaultKey[]
  /** See folder.ts. */
  readonly folder: string
  /** False: no capture runs, and files of earlier ones are removed when they expire. */
  readonly enabled: boolean
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
}

/** Called with the running captures each time they change. */
type Follower = (running: readonly CaptureTerms[]) => void

/** A record that waits for the disk. */
interface WaitingWrite {
  readonly capture: string
  /** Null: it did not fit. */
  readonly record: Uint8Array | null
  /** Called with its size when it no longer waits. */
  readonly done: (bytes: number) => void
}

/** How often captures are read while one runs, and after a lost message. */
const LOOK_MS = 1_000
/** How often captures are read while none runs: files expire, and a message about a new capture may be lost. */
const REST_MS = 60_000
/** Maximum bytes per write. Records that arrive during a write share one transaction. */
const WRITE_BYTES = 1024 * 1024
const PRUNED_AT_ONCE = 100
const NAME_CHARS = 8

export class CaptureKeeper {
  readonly #options: CaptureKeeperOptions
  readonly #followers = new Set<Follower>()
  readonly #name = randomText(NAME_CHARS)
  /** The files of this process, by capture. */
  readonly #files = new Map<string, PartFile>()
  /** Captures that may still grow, as last read from the Store. */
  #open: readonly CaptureRecord[] = []
  #running: readonly CaptureTerms[] = []
  /** Captures that are full here, although the Store may have been read before it knew. */
  #over: ReadonlySet<string> = new Set()
  #waiting: WaitingWrite[] = []
  #writing: Promise<void> | null = null
  #looking: Promise<void> | null = null
  #checksAgain = false
  #timer: Timer | null = null
  /** Monotonic time of the next removal of expired files and rows. */
  #sweepMs = Number.NEGATIVE_INFINITY
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
    this.#sweepMs = Number.NEGATIVE_INFINITY
    this.#check()
  }

  /** Adds a record; `done` is called with its size when it no longer waits, written or not. */
  store({ capture, record }: CapturedRequest, done: (bytes: number) => void): void {
    if (this.#isClosed) return
    this.#waiting.push({ capture, record, done })
    this.#writing ??= this.#write()
  }

  /** Resolves when the current read has finished. For tests. */
  async settled(): Promise<void> {
    while (this.#looking !== null) await this.#looking
  }

  /** Writes waiting records, and ends the files. */
  async close(): Promise<void> {
    this.#timer?.cancel()
    await this.#looking
    await this.#writing
    this.#isClosed = true
    this.#timer?.cancel()
    for (const file of this.#files.values()) await file.end()
    this.#files.clear()
  }

  #check(): void {
    if (this.#isClosed) return
    if (this.#looking !== null) {
      this.#checksAgain = true
      return
    }
    this.#timer?.cancel()
    this.#looking = this.#lookAll().finally(() => {
      this.#looking = null
      if (this.#isClosed) return
      const { enabled, folder } = this.#options
      if (!enabled && captureIdsIn(folder).length === 0) return
      if (this.#checksAgain) {
        this.#checksAgain = false
        this.#check()
      } else this.#timer = this.#options.clock.after(this.#pauseMs(), () => this.#check())
    })
  }

  #pauseMs(): number {
    const nowMs = this.#options.clock.nowMs()
    const ends = this.#open.map(({ endsAt }) => Date.parse(endsAt) - nowMs).filter(ms => ms > 0)
    return Math.min(this.#open.length > 0 ? LOOK_MS : REST_MS, ...ends)
  }

  /** Never rejects. */
  async #lookAll(): Promise<void> {
    const { store, clock, log, enabled } = this.#options
    try {
      if (enabled) {
        const since = isoInstant(clock.nowMs() - LATE_MS)
        const open = await store.captures.open(since)
        this.#over = new Set(open.map(({ id }) => id).filter(id => this.#over.has(id)))
        this.#open = open.filter(
          ({ id, expiresAt }) => !this.#over.has(id) && Date.parse(expiresAt) > clock.nowMs(),
        )
        this.#logLosses()
        for (const [id, file] of this.#files) {
          if (this.#open.some(each => each.id === id)) continue
          await file.end()
          this.#files.delete(id)
          // The capture may have been deleted while its file was created.
          this.#sweepMs = Number.NEGATIVE_INFINITY
        }
      }
      if (clock.monotonicMs() >= this.#sweepMs) await this.#sweep()
      this.#isFailing = false
    } catch (error) {
      if (!this.#isFailing) log.fault('captures', 'cannot look up captures in the store', error)
      this.#isFailing = true
      // The expiry in the files is enough to remove them in time.
      await this.#removeExpired().catch(() => undefined)
    }
  }

  #logLosses(): void {
    const nowMs = this.#options.clock.nowMs()
    const running = this.#open
      .map(({ id, organizationId, keyHash, workspaceId, endsAt }) => ({
        id,
        organizationId,
        keyHash,
        workspaceId,
        endsAtMs: Date.parse(endsAt),
      }))
      .filter(({ endsAtMs }) => nowMs < endsAtMs)
    if (JSON.stringify(running) === JSON.stringify(this.#running)) return
    this.#running = running
    for (const follower of this.#followers) follower(running)
  }

  /** Removes expired rows, and the files of captures without a row. */
  async #sweep(): Promise<void> {
    const { store, folder, clock } = this.#options
    this.#sweepMs = clock.monotonicMs() + REST_MS
    await this.#removeExpired()
    while ((await store.captures.prune(isoInstant(clock.nowMs()), PRUNED_AT_ONCE)).length === PRUNED_AT_ONCE);
    const here = captureIdsIn(folder)
    for (let at = 0; at < here.length; at += PRUNED_AT_ONCE) {
      const group = here.slice(at, at + PRUNED_AT_ONCE)
      const known = await store.captures.existing(group)
      for (const id of group) if (!known.has(id)) await this.#remove(id)
    }
  }

  async #removeExpired(): Promise<void> {
    const { folder, clock } = this.#options
    const now = isoInstant(clock.nowMs())
    for (const id of captureIdsIn(folder)) {
      const expiry = await expiryOf(folder, id).catch(() => null)
      if (expiry !== null && expiry <= now) await this.#remove(id)
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
    while (this.#waiting.length > 0) {
      const [first] = this.#waiting
      if (first === undefined) break
      const batch = this.#nextOf(first.capture)
      try {
        await this.#writeTo(first.capture, batch)
      } catch (error) {
        if (!this.#isFailing) this.#options.log.fault('captures', 'cannot write a capture', error)
        this.#isFailing = true
      }
      for (const { done, record } of batch) done(record?.length ?? 0)
    }
    this.#writing = null
  }

  /** Removes the next records of a capture from the queue. */
  #nextOf(capture: string): readonly WaitingWrite[] {
    const batch: WaitingWrite[] = []
    const others: WaitingWrite[] = []
    let bytes = 0
    for (const each of this.#waiting) {
      const size = each.record?.length ?? 0
      if (each.capture === capture && (batch.length === 0 || bytes + size <= WRITE_BYTES)) {
        batch.push(each)
        bytes += size
      } else others.push(each)
    }
    this.#waiting = others
    return batch
  }

  async #writeTo(id: string, batch: readonly WaitingWrite[]): Promise<void> {
    const nowMs = this.#options.clock.nowMs()
    const record = this.#open.find(each => each.id === id)
    // The capture was deleted, or has ended.
    if (record === undefined || nowMs >= Date.parse(record.endsAt) + LATE_MS) return
    const file = this.#fileOf(record)
    if (await file.add(batch.map(each => each.record))) return
    this.#over = new Set([...this.#over, id])
    this.#open = this.#open.filter(each => each.id !== id)
    this.#logLosses()
    this.#files.delete(id)
    const { store, clock } = this.#options
    await store.captures.end(id, 'size', isoInstant(clock.nowMs()))
  }

  #fileOf(record: CaptureRecord): PartFile {
    const { id } = record
    const known = this.#files.get(id)
    if (known !== undefined) return known
    const { store, keys, folder, log } = this.#options
    const node = nodeOf(folder)
    const file = new PartFile(
      { store, keys, folder, log },
      { record, name: `${node}-${this.#name}`, node, host: hostname().slice(0, 255) },
    )
    this.#files.set(id, file)
    return file
  }
}
