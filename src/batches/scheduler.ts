/**
 * Claims and runs lines of open batches, as many as the provider, live traffic and memory allow, rotating between keys
 * and batches. Batch thread.
 */
import type { Clock, Timer } from '../base/clock.ts'
import type { Log } from '../base/log/log.ts'
import type { BatchWaitReason } from '../protocol/management/batches.ts'
import type { BatchRecord, BatchWork, ClaimedLine, HeldLine, ReturnedLine } from '../storage/batches.ts'
import { Lanes, laneNameOf } from './concurrency.ts'
import { type Sharer, shareOut } from './fair-shares.ts'
import type { Leases } from './leases.ts'
import type { LineRun, RunEnd, StopReason } from './line-run.ts'
import type { OpenBatch, ReadyLine, RunningLine } from './open-batch.ts'
import type { Pressure } from './pressure.ts'
import type { ResultBuffer } from './result-buffer.ts'
import { isNoEndpointAvailable, waitReasonOf, wasSent } from './retry.ts'

interface SchedulerOptions {
  readonly work: Pick<BatchWork, 'claimLines' | 'nextLineAt'>
  readonly owner: string
  readonly clock: Clock
  readonly log: Pick<Log, 'fault'>
  readonly leases: Leases
  readonly results: ResultBuffer
  readonly pressure: Pressure
  /** Starts a line. */
  readonly run: (batch: BatchRecord, line: ClaimedLine) => LineRun
  /** True while a batch service accepts no more lines of the batch. */
  readonly isHeldBack: (batch: OpenBatch) => boolean
  /** Maximum of lines that run at once. */
  readonly concurrency: number
  /** False while memory is short. */
  readonly hasRoom: () => boolean
  /** Counts memory; a negative number frees it. */
  readonly countMemory: (bytes: number) => void
  /** Called when a line has ended and no other line of the batch runs. */
  readonly onIdle: (batch: OpenBatch) => void
}

/** The share of lines that are claimed ahead, so that no slot waits for the Store. */
const CLAIMED_AHEAD_SHARE = 0.25
/** Bytes per claim. A larger body is claimed alone. */
const CLAIM_MAX_BYTES = 8 * 1024 * 1024
/** How soon a batch without claimable lines is read again: lines of a dead runner become free. */
const UNCLAIMABLE_MAX_MS = 2_000
/** Minimum milliseconds between two reads. */
const UNCLAIMABLE_MIN_MS = 20
/** Bytes of a character in memory. */
const CHAR_BYTES = 2

export class Scheduler {
  readonly #options: SchedulerOptions
  readonly #lanes: Lanes
  /** Open batches, by id. */
  readonly #batches: ReadonlyMap<string, OpenBatch>
  /** Monotonic times until which keys are over their own limits, by hash. */
  readonly #pausedKeys = new Map<string, number>()
  /** Number of running lines. Written only here. */
  running = 0
  #readyCount = 0
  #pumping: Promise<void> | null = null
  #isPumpRequested = false
  #isScheduled = false
  #timer: Timer | null = null
  #isClosing = false
  #isStoreFailing = false
  /** Called when no line runs any more. */
  #onAllEnded: (() => void) | null = null

  /** @param batches is read again at each use */
  constructor(options: SchedulerOptions, batches: ReadonlyMap<string, OpenBatch>) {
    this.#options = options
    this.#batches = batches
    this.#lanes = new Lanes(options.concurrency, options.clock)
  }

  /** All lines that this runner has claimed, except those whose result is being stored. */
  get lines(): readonly HeldLine[] {
    return [...this.#batches.values()].flatMap(({ ready, running }) => [
      ...ready.map(({ line }) => line),
      ...[...running.values()].map(({ run }) => run.line),
    ])
  }

  /** Claims and starts lines in a later turn of the event loop. */
  pump(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      if (this.#pumping !== null) this.#isPumpRequested = true
      else this.#pumping = this.#pump()
    })
  }

  /** Ends all lines of a batch. Lines that have not started go back to the queue, except after `lost`. */
  stop(batch: OpenBatch, reason: StopReason): void {
    for (const { run } of batch.running.values()) run.stop(reason)
    if (reason === 'lost') this.#drop(batch.ready)
    else this.#returnReady(batch)
  }

  /** The leases of these lines were extended to this time. */
  noteRenewed(lines: readonly HeldLine[], untilMs: number): void {
    const storedLines = new Set(lines.map(({ batchId, number }) => `${batchId}/${number}`))
    for (const batch of this.#batches.values()) {
      for (const ready of batch.ready) {
        if (storedLines.has(`${ready.line.batchId}/${ready.line.number}`)) ready.untilMs = untilMs
      }
    }
    this.pump()
  }

  /** Other runners have these lines now. */
  dropLost(lines: readonly HeldLine[]): void {
    for (const { batchId, number, fence } of lines) {
      const batch = this.#batches.get(batchId)
      const runningLine = batch?.running.get(number)
      if (runningLine?.run.line.fence === fence) runningLine.run.stop('lost')
      const index = batch?.ready.findIndex(({ line }) => line.number === number && line.fence === fence) ?? -1
      if (batch !== undefined && index !== -1) this.#drop(batch.ready, index, 1)
    }
  }

  /** Lines are back in the queue. */
  noteReturned(lines: readonly ReturnedLine[]): void {
    const { clock, leases } = this.#options
    for (const { batchId, notBeforeMs } of lines) {
      const batch = this.#batches.get(batchId)
      if (batch === undefined) continue
      const dueMs = clock.monotonicMs() + Math.max(0, notBeforeMs - leases.nowMs())
      batch.unclaimableUntilMs = Math.min(batch.unclaimableUntilMs, dueMs)
    }
    this.pump()
  }

  /** Stops claiming, and returns lines that have not started. Resolves when no line runs. */
  close(): Promise<void> {
    this.#isClosing = true
    this.#timer?.cancel()
    for (const batch of this.#batches.values()) this.#returnReady(batch)
    return new Promise(resolve => {
      this.#onAllEnded = resolve
      this.#checkAllEnded()
    })
  }

  /** Returns running lines to the queue. */
  stopAll(): void {
    for (const batch of this.#batches.values()) this.stop(batch, 'returned')
  }

  sweep(): void {
    this.#lanes.sweep()
    const nowMs = this.#options.clock.monotonicMs()
    for (const [hash, untilMs] of this.#pausedKeys) if (untilMs <= nowMs) this.#pausedKeys.delete(hash)
  }

  /** Notes why batches wait that run no line: their key or their lane is paused, or the gateway is busy. */
  noteWaits(): void {
    const nowMs = this.#options.clock.monotonicMs()
    for (const batch of this.#batches.values()) {
      // A batch service runs lines that this runner does not have.
      if (batch.running.size > 0 || batch.record.service !== null) continue
      const reason = this.#waitReasonOf(batch)
      if (reason !== null) batch.noteWait(reason, nowMs)
    }
  }

  #waitReasonOf(batch: OpenBatch): BatchWaitReason | null {
    if (this.#isPaused(batch)) return 'key_limit'
    const lane = this.#lanes.of(batch.lane)
    if (lane.pausedMs > 0) return lane.waitReason
    return this.running >= this.#limit || !this.#options.hasRoom() ? 'gateway_busy' : null
  }

  /** Starts and claims lines until none can be claimed. Never rejects. */
  async #pump(): Promise<void> {
    do {
      this.#isPumpRequested = false
      this.#startReady()
      const claimed = await this.#claimSome()
      if (claimed > 0) this.#isPumpRequested = true
    } while (this.#isPumpRequested && !this.#isClosing)
    this.#pumping = null
    this.#setTimer()
    this.#checkAllEnded()
  }

  /** Starts claimed lines, one of each batch in turn. */
  #startReady(): void {
    const { clock } = this.#options
    const waitingBatches = [...this.#batches.values()].filter(({ ready }) => ready.length > 0)
    for (let progress = true; progress && this.running < this.#limit; ) {
      progress = false
      for (const batch of waitingBatches) {
        const [next] = batch.ready
        if (next === undefined || this.running >= this.#limit) continue
        if (this.#isPaused(batch)) {
          this.#returnReady(batch, this.#pausedKeys.get(batch.record.keyHash) ?? 0)
          continue
        }
        if (this.#lanes.of(batch.lane).room === 0 || clock.monotonicMs() >= next.untilMs) continue
        this.#drop(batch.ready, 0, 1)
        this.#start(batch, next)
        progress = true
      }
    }
  }

  #start(batch: OpenBatch, { line }: ReadyLine): void {
    const lane = this.#lanes.of(batch.lane)
    const runningLine: RunningLine = {
      run: this.#options.run(batch.record, line),
      lane: batch.lane,
      enteredMs: lane.enter(),
    }
    batch.running.set(line.number, runningLine)
    this.running++
    void runningLine.run.ended.then(end => this.#noteEnded(batch, runningLine, end))
  }

  #noteEnded(batch: OpenBatch, { run, lane, enteredMs }: RunningLine, end: RunEnd): void {
    const { clock, leases, results } = this.#options
    const { line, stopped } = run
    batch.running.delete(line.number)
    this.running--
    this.#lanes.of(lane).leave()
    const waitMs = this.#lanes.learn(end.attempts, enteredMs)
    const last = end.attempts.at(-1)
    if (last !== undefined) batch.lane = laneNameOf(last)
    this.#noteRun(batch, end)
    const { batchId, number, fence } = line
    if (end.kind === 'deferred') this.#noteDeferred(batch, lane)
    else if (end.kind === 'result') {
      const { outcome, result, usage } = end
      results.add({ batchId, number, fence, outcome, result, usage })
    } else if (end.kind === 'again') {
      const delayMs = Math.max(waitMs, end.delayMs)
      // No endpoint may be called now, so the whole batch waits, instead of each line after its own try.
      if (end.error !== null && isNoEndpointAvailable(end.error)) this.#lanes.of(lane).pause(delayMs)
      else if (end.error?.code === 'rate_limit_exceeded' && !end.attempts.some(wasSent)) {
        this.#pausedKeys.set(batch.record.keyHash, clock.monotonicMs() + delayMs)
      }
      results.giveBack({ batchId, number, fence, tries: end.tries, notBeforeMs: leases.nowMs() + delayMs })
    } else if (stopped !== 'lost') {
      results.giveBack({ batchId, number, fence, tries: line.tries, notBeforeMs: leases.nowMs() })
    }
    if (batch.running.size === 0) this.#options.onIdle(batch)
    this.pump()
    this.#checkAllEnded()
  }

  #noteRun(batch: OpenBatch, { kind, error, attempts }: RunEnd): void {
    const reason = error === null ? null : waitReasonOf(error, attempts)
    if (kind === 'stopped') return
    if (reason !== null) {
      batch.noteWait(reason, this.#options.clock.monotonicMs())
      if (reason !== 'key_limit') this.#lanes.of(batch.lane).waitReason = reason
    } else if (kind !== 'again') batch.noteRun()
  }

  /** Moves the batch to a lane without overload, because its lines do not call the provider. */
  #noteDeferred(batch: OpenBatch, lane: string): void {
    batch.lane = `${batch.record.service?.provider} (batch service)`
    if (lane === batch.lane) this.#lanes.of(lane).noteSuccess()
  }

  /** Returns the number of claimed lines. */
  async #claimSome(): Promise<number> {
    const { clock, results, hasRoom } = this.#options
    if (this.#isClosing || this.#isStoreFailing || results.isStuck || !hasRoom()) return 0
    const maxLines = this.#limit + this.#aheadLimit
    const free = maxLines - this.running - this.#readyCount
    // Claims several lines at a time, because each claim is a transaction.
    if (free < Math.max(1, this.#aheadLimit / 2) && this.#readyCount > 0) return 0
    const nowMs = clock.monotonicMs()
    const sharers: Sharer[] = []
    for (const batch of this.#batches.values()) {
      const { record, lane, held: heldSlots } = batch
      if (record.status !== 'in_progress' || this.#options.isHeldBack(batch)) continue
      if (batch.endingSinceMs !== null || batch.isExpired(clock.nowMs())) continue
      if (batch.unclaimableUntilMs > nowMs || this.#isPaused(batch)) continue
      const unclaimed = record.total - batch.finishedLines - heldSlots
      if (unclaimed > 0)
        sharers.push({ id: record.id, keyHash: record.keyHash, lane, heldSlots, maxSlots: unclaimed })
    }
    const shares = shareOut(sharers, free, lane => this.#roomOf(lane))
    const counts = await Promise.all([...shares].map(([id, count]) => this.#claim(id, count)))
    return counts.reduce((sum, count) => sum + count, 0)
  }

  async #claim(id: string, limit: number): Promise<number> {
    const { work, owner, leases, log, countMemory } = this.#options
    const batch = this.#batches.get(id)
    if (batch === undefined) return 0
    try {
      const { leaseUntilMs, untilMs } = leases.begin()
      const terms = { limit, maxBytes: CLAIM_MAX_BYTES, nowMs: leases.nowMs(), leaseUntilMs }
      const lines = await work.claimLines(id, owner, terms)
      for (const line of lines) {
        countMemory(CHAR_BYTES * line.body.length)
        batch.ready.push({ line, untilMs })
      }
      this.#readyCount += lines.length
      // The batch ended in the meantime.
      if (this.#isClosing || batch.endingSinceMs !== null || !this.#batches.has(id)) this.#returnReady(batch)
      else if (lines.length < limit) await this.#noteUnclaimable(batch, lines.length)
      return lines.length
    } catch (error) {
      if (!this.#isStoreFailing) log.fault('batches', 'cannot claim batch requests from the store', error)
      this.#isStoreFailing = true
      return 0
    }
  }

  /** Sets when to claim again, after fewer lines came than requested: they are large, or no more can be claimed now. */
  async #noteUnclaimable(batch: OpenBatch, claimed: number): Promise<void> {
    const { work, clock, leases } = this.#options
    const nextMs = await work.nextLineAt(batch.record.id)
    const waitMs =
      nextMs === null ? UNCLAIMABLE_MAX_MS : Math.min(UNCLAIMABLE_MAX_MS, nextMs - leases.nowMs())
    if (claimed > 0 && waitMs <= 0) return
    batch.unclaimableUntilMs = clock.monotonicMs() + Math.max(UNCLAIMABLE_MIN_MS, waitMs)
  }

  /** The Store can be reached again. */
  noteStoreAvailable(): void {
    this.#isStoreFailing = false
  }

  #returnReady({ ready }: OpenBatch, untilMs = 0): void {
    const { clock, leases, results } = this.#options
    const notBeforeMs = leases.nowMs() + Math.max(0, untilMs - clock.monotonicMs())
    for (const { line } of this.#drop(ready)) {
      const { batchId, number, fence, tries } = line
      results.giveBack({ batchId, number, fence, tries, notBeforeMs })
    }
  }

  #drop(ready: ReadyLine[], from = 0, count = ready.length): readonly ReadyLine[] {
    const dropped = ready.splice(from, count)
    this.#readyCount -= dropped.length
    for (const { line } of dropped) this.#options.countMemory(-CHAR_BYTES * line.body.length)
    return dropped
  }

  get #limit(): number {
    return Math.min(this.#options.concurrency, this.#options.pressure.limit)
  }

  get #aheadLimit(): number {
    return Math.ceil(this.#limit * CLAIMED_AHEAD_SHARE)
  }

  /** Number of lines that may be claimed for a lane; 0 if it is paused or full. */
  #roomOf(name: string): number {
    const lane = this.#lanes.of(name)
    if (lane.pausedMs > 0) return 0
    let ready = 0
    for (const batch of this.#batches.values()) if (batch.lane === name) ready += batch.ready.length
    return Math.max(0, lane.limit + Math.ceil(lane.limit * CLAIMED_AHEAD_SHARE) - lane.running - ready)
  }

  #isPaused({ record }: OpenBatch): boolean {
    return (this.#pausedKeys.get(record.keyHash) ?? 0) > this.#options.clock.monotonicMs()
  }

  /** Sets the timer to the next time at which something becomes possible. */
  #setTimer(): void {
    this.#timer?.cancel()
    this.#timer = null
    if (this.#isClosing) return
    const { clock } = this.#options
    const nowMs = clock.monotonicMs()
    let dueMs = Number.POSITIVE_INFINITY
    for (const batch of this.#batches.values()) {
      const pausedMs = nowMs + this.#lanes.of(batch.lane).pausedMs
      const batchDueMs = Math.max(
        batch.unclaimableUntilMs,
        this.#pausedKeys.get(batch.record.keyHash) ?? 0,
        pausedMs,
      )
      if (batchDueMs > nowMs) dueMs = Math.min(dueMs, batchDueMs)
    }
    if (dueMs < Number.POSITIVE_INFINITY) this.#timer = clock.after(dueMs - nowMs, () => this.pump())
  }

  #checkAllEnded(): void {
    if (this.#isClosing && this.running === 0 && this.#pumping === null) this.#onAllEnded?.()
  }
}
