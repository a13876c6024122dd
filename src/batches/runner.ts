/**
 * The batch runner: moves each open batch through its states and runs its lines. Any number of runners may share the
 * batches; claims with leases and fences divide the work, and a batch changes its state only by compare-and-set. Batch
 * thread.
 */
import type { Clock, Timer } from '../base/clock.ts'
import { randomText } from '../base/ids.ts'
import type { Log } from '../base/log/log.ts'
import type { Metrics } from '../base/metrics/metrics.ts'
import type { BatchStatus } from '../protocol/management/batches.ts'
import type { BatchRecord, BatchWork, Claim, HeldLine, LineOutcome } from '../storage/batches.ts'
import { type CheckBodies, checkBatch } from './body-check.ts'
import { CheckTurns } from './fair-shares.ts'
import { LEASE_MS, Leases } from './leases.ts'
import { LineRun, type LineRunDeps } from './line-run.ts'
import { OpenBatch } from './open-batch.ts'
import { type LiveLoad, Pressure } from './pressure.ts'
import { ResultBuffer } from './result-buffer.ts'
import { Scheduler } from './scheduler.ts'
import { ServiceRunner, type ServiceRunnerDeps } from './services/service-runner.ts'

interface RunnerDeps extends LineRunDeps {
  readonly services: Pick<ServiceRunnerDeps, 'jobs' | 'access' | 'quota' | 'catalog'>
  readonly work: BatchWork
  readonly check: CheckBodies
  /** The lane that the lines of a batch use until the first one has run. */
  readonly firstLane: (batch: BatchRecord) => string
  /** Maximum of lines that run at once. */
  readonly concurrency: number
  /** False while memory is short. */
  readonly hasRoom: () => boolean
  /** Counts memory; a negative number frees it. */
  readonly countMemory: (bytes: number) => void
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  readonly metrics: Pick<Metrics, 'batchLines' | 'serviceJobs'>
  /** Name of the runner, unique for each that ever ran. Default: a random name. */
  readonly owner?: string
}

/** How often the batches are read without a notification: other instances may have accepted some. */
const IDLE_INTERVAL_MS = 2_000
const BUSY_INTERVAL_MS = 500
const RETRY_MS = 1_000
/** An owner that has not reported the end of its lines after this time is dead. */
const DEAD_RUNNER_MS = LEASE_MS + BUSY_INTERVAL_MS
/** How long aborted lines may take to end. */
const ABORTED_LINES_MS = 1_500
/** How long a stop waits for jobs that are being submitted, so that they need not be searched for later. */
const SUBMISSION_TIMEOUT_MS = 5_000
/** How long a stop waits for the Store to accept the last results. */
const FLUSH_TIMEOUT_MS = 2_000
/** Maximum changes of waits that one pass writes. The others are written by the next passes. */
const MAX_WAIT_WRITES = 64
const NO_VALID_BODY =
  'The bodies of all requests are invalid: results say what is wrong, or errors if the batch has an input_file_id'

type Step = (batch: OpenBatch) => Promise<void> | null

export class BatchRunner {
  readonly #deps: RunnerDeps
  readonly #owner: string
  readonly #batches = new Map<string, OpenBatch>()
  readonly #pressure: Pressure
  readonly #leases: Leases
  readonly #results: ResultBuffer
  readonly #scheduler: Scheduler
  readonly #services: ServiceRunner
  #passing: Promise<void> | null = null
  #isPassRequested = false
  #timer: Timer | null = null
  readonly #checks = new CheckTurns()
  #claims = 0
  #isFailing = false
  #isWaitFailing = false
  #closing: Promise<void> | null = null
  #graceEndsMs = Number.POSITIVE_INFINITY
  #endWait: (() => void) | null = null

  /** The step of a runner for a batch in each state, unless another runner does it. */
  readonly #steps: Readonly<Record<BatchStatus, Step>> = {
    validating: batch => this.#validate(batch),
    in_progress: batch => this.#progress(batch),
    finalizing: batch => this.#finalize(batch),
    cancelling: batch => this.#end(batch, 'cancelled'),
    completed: () => null,
    failed: () => null,
    expired: () => null,
    cancelled: () => null,
  }

  constructor(deps: RunnerDeps) {
    const { work, clock, log, countMemory } = deps
    this.#deps = deps
    this.#owner = deps.owner ?? randomText(16)
    this.#pressure = new Pressure(deps.concurrency, clock)
    this.#results = new ResultBuffer({
      work,
      owner: this.#owner,
      clock,
      log,
      countMemory,
      onStored: results => {
        for (const { batchId, outcome } of results) this.#onStored(batchId, outcome)
      },
      onReturned: lines => {
        this.#scheduler.noteReturned(lines)
        if (lines.some(({ batchId }) => this.#batches.get(batchId)?.endingSinceMs !== null)) this.wake()
      },
    })
    this.#leases = new Leases({
      work,
      owner: this.#owner,
      clock,
      log,
      lines: () => this.#lines(),
      hasBatch: () => this.#claims > 0,
      onRenewed: (lines, untilMs) => this.#scheduler.noteRenewed(lines, untilMs),
      onLost: lines => {
        this.#scheduler.dropLost(lines)
        this.#services.dropLost(lines)
      },
    })
    this.#services = new ServiceRunner({
      ...deps,
      ...deps.services,
      owner: this.#owner,
      nowMs: () => this.#leases.nowMs(),
      run: (batch, line, collected) => new LineRun(deps, batch, line, { collected }),
      giveBack: lines => {
        for (const line of lines) this.#results.giveBack({ ...line, notBeforeMs: this.#leases.nowMs() })
      },
      onStored: results => {
        for (const { batchId, outcome } of results) this.#onStored(batchId, outcome)
      },
      onOver: () => this.wake(),
    })
    this.#scheduler = new Scheduler(
      {
        ...deps,
        owner: this.#owner,
        leases: this.#leases,
        results: this.#results,
        pressure: this.#pressure,
        run: (batch, line) => new LineRun(deps, batch, line, this.#services.partOf(batch, line)),
        isHeldBack: ({ record }) => this.#services.isHeldBack(record),
        onIdle: batch => {
          if (batch.endingSinceMs !== null) this.wake()
        },
      },
      this.#batches,
    )
  }

  /** Number of running lines. */
  get running(): number {
    return this.#scheduler.running
  }

  /** Number of open batches that it knows. */
  get openBatches(): number {
    return this.#batches.size
  }

  /** Starts a pass now, because a batch was accepted or cancelled. */
  wake(): void {
    if (this.#closing !== null) return
    if (this.#passing !== null) {
      this.#isPassRequested = true
      return
    }
    this.#timer?.cancel()
    this.#timer = null
    this.#passing = this.#pass().finally(() => {
      this.#passing = null
      if (this.#isPassRequested) {
        this.#isPassRequested = false
        this.wake()
      } else this.#schedule()
    })
  }

  /** Notes the load of a serve thread. */
  setPressure(thread: string, load: LiveLoad): void {
    this.#pressure.note(thread, load)
  }

  /**
   * Claims nothing more, lets lines end within the grace time, and returns the others to the queue. A second call with
   * less time shortens it.
   */
  drain(graceMs: number): Promise<void> {
    this.#graceEndsMs = Math.min(this.#graceEndsMs, this.#deps.clock.monotonicMs() + graceMs)
    this.#endWait?.()
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    this.#timer?.cancel()
    const quiet = this.#scheduler.close()
    while (!(await this.#within(quiet, this.#graceEndsMs - this.#deps.clock.monotonicMs()))) {
      if (this.#deps.clock.monotonicMs() >= this.#graceEndsMs) break
    }
    this.#scheduler.stopAll()
    await this.#within(quiet, ABORTED_LINES_MS)
    await this.#within(this.#services.settle(), SUBMISSION_TIMEOUT_MS)
    await this.#within(this.#services.close(), FLUSH_TIMEOUT_MS)
    await this.#passing
    await this.#within(Promise.all([...this.#batches.values()].map(({ step }) => step)), FLUSH_TIMEOUT_MS)
    await this.#within(this.#results.flush(), FLUSH_TIMEOUT_MS)
    this.#results.close()
    await this.#within(this.#leases.close(), FLUSH_TIMEOUT_MS)
  }

  /** True if the work ends within the time, and before a shorter drain. */
  #within(work: Promise<unknown>, limitMs: number): Promise<boolean> {
    return new Promise(resolve => {
      const end = (inTime: boolean) => () => {
        timer.cancel()
        this.#endWait = null
        resolve(inTime)
      }
      const timer = this.#deps.clock.after(Math.max(0, limitMs), end(false))
      this.#endWait = end(false)
      void work.then(end(true), end(true))
    })
  }

  #schedule(): void {
    if (this.#closing !== null) return
    const ms = this.#isFailing ? RETRY_MS : this.#batches.size === 0 ? IDLE_INTERVAL_MS : BUSY_INTERVAL_MS
    this.#timer = this.#deps.clock.after(ms, () => {
      this.#timer = null
      this.wake()
    })
  }

  /** Reads the open batches, and begins what is due for each. Never rejects. */
  async #pass(): Promise<void> {
    const { work, log } = this.#deps
    let records: readonly BatchRecord[]
    try {
      records = await work.open()
    } catch (error) {
      if (!this.#isFailing) log.fault('batches', 'cannot read batches from the store', error)
      this.#isFailing = true
      return
    }
    if (this.#isFailing) log.notice('batches', 'reading batches from the store again')
    this.#isFailing = false
    this.#open(records)
    this.#scheduler.noteStoreAvailable()
    this.#scheduler.sweep()
    for (const batch of this.#checks.inTurn(this.#batches.values())) this.#begin(batch)
    this.#visitServices()
    this.#scheduler.pump()
    await this.#storeWaits()
  }

  /** Stores which batches wait, and which no longer do. Never rejects. */
  async #storeWaits(): Promise<void> {
    this.#scheduler.noteWaits()
    let writes = 0
    try {
      for (const batch of this.#batches.values()) {
        if (writes === MAX_WAIT_WRITES) return
        if (!(await batch.storeWait(this.#deps))) continue
        writes++
        this.#isWaitFailing = false
      }
    } catch (error) {
      if (!this.#isWaitFailing) this.#deps.log.fault('batches', 'cannot store why a batch waits', error)
      this.#isWaitFailing = true
    }
  }

  #visitServices(): void {
    const nowMs = this.#deps.clock.nowMs()
    const open = new Map([...this.#batches].map(([id, { record }]) => [id, record]))
    this.#services.visit(
      open,
      ({ status, expiresAt }) => status !== 'in_progress' || nowMs >= Date.parse(expiresAt),
    )
  }

  #open(records: readonly BatchRecord[]): void {
    const open = new Set<string>()
    for (const record of records) {
      open.add(record.id)
      const knownBatch = this.#batches.get(record.id)
      if (knownBatch === undefined)
        this.#batches.set(record.id, new OpenBatch(record, this.#deps.firstLane(record)))
      else knownBatch.renew(record)
    }
    for (const [id, batch] of this.#batches) {
      if (open.has(id)) continue
      // Another runner has ended the batch, so its results would be dropped.
      this.#scheduler.stop(batch, 'lost')
      if (batch.running.size === 0 && batch.step === null) this.#batches.delete(id)
    }
  }

  /** Starts the step for the batch's state, unless one is running. */
  #begin(batch: OpenBatch): void {
    if (batch.step !== null || this.#closing !== null) return
    const step = this.#steps[batch.record.status](batch)
    if (step === null) return
    batch.step = step
      .catch(error => {
        if (!this.#isFailing) this.#deps.log.fault('batches', 'cannot continue a batch', error)
        this.#isFailing = true
      })
      .finally(() => {
        batch.step = null
      })
  }

  #validate(batch: OpenBatch): Promise<void> | null {
    const { keyHash } = batch.record
    if (!this.#checks.enter(keyHash)) return null
    return this.#withClaim(batch, claim => this.#check(batch, claim)).finally(() =>
      this.#checks.leave(keyHash),
    )
  }

  async #check(batch: OpenBatch, claim: Claim): Promise<void> {
    const { clock, check, work } = this.#deps
    if (batch.isExpired(clock.nowMs())) {
      await this.#move(batch, 'expired')
      return
    }
    const markAndCount: typeof work.markChecked = async (id, claimed, through, failures) => {
      const isStored = await work.markChecked(id, claimed, through, failures)
      if (isStored) for (const { outcome } of failures) this.#onStored(id, outcome)
      return isStored
    }
    const mayContinue = () =>
      this.#closing === null && batch.record.status === 'validating' && !batch.isExpired(clock.nowMs())
    const verbs = { uncheckedLines: work.uncheckedLines, markChecked: markAndCount }
    if (!(await checkBatch({ work: verbs, check }, batch.record, claim, mayContinue))) return
    const { finished } = await work.counts(batch.record.id)
    if (finished < batch.record.total) {
      const provider = this.#services.providerOf(batch.record)
      await this.#move(batch, 'in_progress', provider === null ? {} : { service: { provider } })
    } else await this.#move(batch, 'failed', { error: NO_VALID_BODY })
  }

  #progress(batch: OpenBatch): Promise<void> | null {
    if (batch.isDone) return this.#complete(batch)
    return batch.isExpired(this.#deps.clock.nowMs()) ? this.#end(batch, 'expired') : null
  }

  async #complete(batch: OpenBatch): Promise<void> {
    await this.#move(batch, 'finalizing')
    if (batch.record.status === 'finalizing') await this.#finalize(batch)
  }

  async #finalize(batch: OpenBatch): Promise<void> {
    await this.#move(batch, 'completed')
  }

  /** Ends the lines of the batch here, waits until other runners have ended theirs, and then ends the batch. */
  async #end(batch: OpenBatch, to: 'cancelled' | 'expired'): Promise<void> {
    const { clock, work } = this.#deps
    batch.endingSinceMs ??= clock.monotonicMs()
    this.#scheduler.stop(batch, to)
    // Results of finished lines are stored first.
    if (batch.held > 0 || this.#results.has(batch.record.id)) return
    if (batch.record.service !== null && !(await this.#services.isOver(batch.record))) return
    const sinceMs = batch.endingSinceMs
    await this.#withClaim(batch, async () => {
      const { claimed } = await work.counts(batch.record.id)
      if (claimed === 0 || clock.monotonicMs() - sinceMs >= DEAD_RUNNER_MS) await this.#move(batch, to)
    })
  }

  /** Does work that only one runner may do; nothing if another one does it. */
  async #withClaim(batch: OpenBatch, work: (claim: Claim) => Promise<void>): Promise<void> {
    const verbs = this.#deps.work
    const { id } = batch.record
    this.#claims++
    try {
      const { leaseUntilMs } = this.#leases.begin()
      const claim = await verbs.claimBatch(id, this.#owner, this.#leases.nowMs(), leaseUntilMs)
      if (claim === null) return
      try {
        await work(claim)
      } finally {
        // Otherwise the lease ends on its own.
        await verbs.releaseBatch(id, claim).catch(() => undefined)
      }
    } finally {
      this.#claims--
    }
  }

  /** Moves the batch from the state that this runner knows, and starts a pass. */
  async #move(
    batch: OpenBatch,
    to: BatchStatus,
    change: Partial<Pick<BatchRecord, 'error' | 'service'>> = {},
  ): Promise<void> {
    await batch.move(to, change, this.#deps)
    // A batch that did not move is in a state that this runner has not read yet.
    this.wake()
  }

  #onStored(batchId: string, outcome: LineOutcome): void {
    this.#deps.metrics.batchLines.inc({ outcome })
    const batch = this.#batches.get(batchId)
    batch?.stored(1)
    if (batch?.isDone === true || batch?.endingSinceMs != null) this.wake()
  }

  #lines(): readonly HeldLine[] {
    return [...this.#scheduler.lines, ...this.#services.lines, ...this.#results.lines]
  }
}
