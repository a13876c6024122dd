/**
 * Works on one provider batch job from submission to its last line, in repeated passes that each hold the claim of the
 * job. State that must survive a crash is in the Store; the rest is recomputed. Batch thread.
 */
import type { Clock } from '../../base/clock.ts'
import { type GatewayError, toGatewayError } from '../../base/errors.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { ServiceJobOutcome } from '../../base/metrics/table.ts'
import { UNLIMITED_RESERVATION } from '../../callers/limits/quota.ts'
import type { Reservation } from '../../protocol/records.ts'
import type { BatchRecord, Claim } from '../../storage/batches.ts'
import type { ServiceJob, ServiceJobStore } from '../../storage/service-jobs.ts'
import { lineNumber } from './job-drafts.ts'
import { JobLines, type JobLinesDeps, type LineEnd, NO_SPENDING } from './job-lines.ts'
import type { JobState } from './service.ts'
import type { ServiceAccess } from './service-access.ts'
import { isLasting, isUnsent } from './service-calls.ts'

export interface JobWorkDeps extends JobLinesDeps {
  readonly jobs: ServiceJobStore
  /** Rejects with GatewayError. */
  readonly access: (batch: BatchRecord, job: ServiceJob, signal: AbortSignal) => Promise<ServiceAccess>
  readonly owner: string
  readonly clock: Clock
  readonly metrics: Pick<Metrics, 'serviceJobs'>
  /** Called when the batch has to wait this long before it creates another job. */
  readonly onBusy: (batchId: string, delayMs: number) => void
  /** Called when the service did not receive a job. Its lines are in the queue again. */
  readonly onLost: (batchId: string) => void
}

/** How long a claim lasts without a visit: longer than the longest pause between two visits plus a slow visit. */
export const JOB_LEASE_MS = 180_000
/** Delay before the first status request. Each later delay is half as long again. */
const FIRST_POLL_MS = 2_000
const MAX_POLL_MS = 30_000
const POLL_GROWTH = 1.5
/** Delay after a failed call. */
const FIRST_RETRY_MS = 2_000
const MAX_RETRY_MS = 60_000
/** The pause of a batch when the service has too much in the account's queue. */
const BUSY_PAUSE_MS = 300_000
/** How long after the end of the batch to wait for a service that does not answer, or does not cancel. */
const GRACE_PERIOD_MS = 900_000
/** How long to wait for a job that may be ours, which shows only when it has ended. */
const UNSURE_WAIT_MS = 3_600_000
/** Lines without an outcome are read in pages of this size. */
const UNFINISHED_PAGE = { limit: 64, maxBytes: 8 * 1024 * 1024 } as const
const STATUS_NOT_FOUND = 404
const STATUS_TOO_MANY_REQUESTS = 429
/** Claims are numbered from 1. A higher number means that there was an earlier claim. */
const FIRST_FENCE = 1

export class JobWork {
  readonly job: ServiceJob
  /** The latest record from the Store. */
  batch: BatchRecord
  /** Monotonic time of the next visit. */
  dueMs: number
  /** True if nothing is left to do, or another runner has the job. */
  isOver = false
  readonly #deps: JobWorkDeps
  #claim: Claim
  #name: string | null
  /** True if the Store has the service's name for the job. */
  #isNamed: boolean
  /** Valid for this visit only, because a key may be removed before the next one. */
  #access: ServiceAccess | null = null
  /** The job's reservation in its caller's limits; null: not reserved yet. */
  #reservation: Reservation | null
  #isCancelled = false
  /** True if the service asked to wait before it accepts more. */
  #mustWait = false
  #polls = 0
  #failures = 0
  readonly #lines: JobLines

  constructor(
    deps: JobWorkDeps,
    batch: BatchRecord,
    {
      job,
      claim,
      reservation,
    }: { readonly job: ServiceJob; readonly claim: Claim; readonly reservation: Reservation | null },
  ) {
    this.#deps = deps
    this.batch = batch
    this.job = job
    this.#claim = claim
    this.#lines = new JobLines(deps, job, {
      batch: () => this.batch,
      isEnding: () => this.#isEnding(),
      mayBeRecorded: claim.fence > FIRST_FENCE,
    })
    this.#name = job.name
    this.#isNamed = job.name !== null
    this.#reservation = reservation
    this.dueMs = deps.clock.monotonicMs()
  }

  /** Submits the job. Never rejects: if the outcome is unknown, the next visits find it out. */
  async submit(lines: readonly string[]): Promise<void> {
    const { batchId, mark, upstreamModel: model, path } = this.job
    let access: ServiceAccess
    try {
      access = await this.#open()
    } catch (thrown) {
      await this.#guard(async () => {
        if (this.#noteFailure(thrown) === null) return
        // The key or the endpoint no longer exists. The service was not called, so the lines may run in another way.
        this.#deps.onBusy(batchId, FIRST_RETRY_MS)
        await this.#close('lost')
      })
      return
    }
    try {
      const { service, calls } = access
      const name = await service.submit(calls, { mark, model, path, lines })
      await this.#setName(name)
      this.#count('submitted')
      this.#wait(FIRST_POLL_MS)
    } catch (thrown) {
      await this.#guard(async () => {
        const error = this.#noteFailure(thrown)
        if (error === null) return
        this.#mustWait = error.metadata?.['provider_status'] === STATUS_TOO_MANY_REQUESTS
        // The service has read the job and rejects all of it.
        if (isLasting(error)) await this.#failAll(error)
        else if (isUnsent(error)) {
          this.#deps.onBusy(batchId, FIRST_RETRY_MS)
          await this.#close('lost')
        } else this.#wait(this.#backoffMs(error))
      })
    }
  }

  /** Does all work that is possible now, and sets the time of the next visit. Never rejects. */
  async visit(): Promise<void> {
    await this.#guard(async () => {
      const { jobs, owner, nowMs } = this.#deps
      const claim = await jobs.claim(this.job, owner, nowMs(), nowMs() + JOB_LEASE_MS)
      if (claim === null) {
        this.#leave()
        return
      }
      this.#lines.mayBeRecorded ||= claim.fence !== this.#claim.fence
      this.#claim = claim
      this.#access = null
      this.#reservation ??= await this.#reserve()
      try {
        await this.#advance(await this.#open())
        this.#failures = 0
      } catch (thrown) {
        const error = this.#noteFailure(thrown)
        if (error === null) return
        if (this.#isPastGrace()) await this.#close('given_up')
        else this.#wait(this.#backoffMs(error))
      }
    })
  }

  /** Lets another runner continue at once. Never rejects. */
  async release(): Promise<void> {
    this.#lines.stop()
    if (!this.isOver) await this.#deps.jobs.release(this.job, this.#claim).catch(() => undefined)
    this.#leave()
  }

  async #advance(access: ServiceAccess): Promise<void> {
    const name = this.#name ?? (await this.#find(access))
    if (name === null) return
    if (!this.#isNamed) await this.#setName(name)
    const { service, calls } = access
    if (this.#isEnding() && !this.#isCancelled) await this.#cancel(access, name)
    let state: JobState
    try {
      state = await service.state(calls, name)
    } catch (thrown) {
      const error = toGatewayError(thrown)
      if (error.metadata?.['provider_status'] !== STATUS_NOT_FOUND) throw thrown
      state = { kind: 'ended', error, unrun: null, isBusy: false }
    }
    if (state.kind === 'running') {
      if (this.#isPastGrace()) await this.#close('given_up')
      else this.#wait(Math.min(MAX_POLL_MS, FIRST_POLL_MS * POLL_GROWTH ** this.#polls++))
      return
    }
    if (state.isBusy && !this.#isEnding()) {
      this.#deps.onBusy(this.batch.id, BUSY_PAUSE_MS)
      await this.#close('busy')
      return
    }
    await this.#collect(access, name, state)
  }

  /**
   * Looks for a job that may have been submitted, and stores and returns its name. If the service has no such job, its
   * lines go into another one. Null: the visit is over.
   */
  async #find({ service, calls }: ServiceAccess): Promise<string | null> {
    const { jobs, clock, onBusy } = this.#deps
    const { batchId, mark, lines, createdAt } = this.job
    const jobsOfBatch = await jobs.ofBatch(batchId)
    const knownNames = new Set(jobsOfBatch.flatMap(({ name }) => (name === null ? [] : [name])))
    const sinceMs = Date.parse(createdAt)
    const result = await service.find(calls, { mark, lines, sinceMs, knownNames })
    if (result !== 'none' && result !== 'unsure') {
      await this.#setName(result.name)
      return result.name
    }
    if (result === 'unsure' && clock.nowMs() - sinceMs < UNSURE_WAIT_MS && !this.#isPastGrace()) {
      this.#wait(MAX_POLL_MS)
      return null
    }
    // The service did not receive it, so its lines go into another job.
    onBusy(batchId, FIRST_RETRY_MS)
    await this.#close('lost')
    return null
  }

  async #cancel({ service, calls }: ServiceAccess, name: string): Promise<void> {
    try {
      await service.cancel(calls, name)
    } catch (thrown) {
      // A job that has ended in the meantime cannot be cancelled.
      if (!isLasting(toGatewayError(thrown))) throw thrown
    }
    this.#isCancelled = true
    this.#polls = 0
  }

  /** Stores the outcome of each line that the service reports. Lines with a result are skipped. */
  async #collect(
    access: ServiceAccess,
    name: string,
    state: Extract<JobState, { kind: 'ended' }>,
  ): Promise<void> {
    const { service, calls } = access
    const reportedNumbers = new Set<number>()
    const failure = state.error === null ? null : calls.errorForClient(state.error)
    if (failure === null || failure.metadata?.['provider_status'] !== STATUS_NOT_FOUND) {
      for await (const page of service.lines(calls, name)) {
        const ends = new Map<number, LineEnd>()
        for (const { id, end } of page) {
          const number = lineNumber(this.job.mark, id)
          if (number === null || number >= this.batch.total || reportedNumbers.has(number)) continue
          reportedNumbers.add(number)
          ends.set(number, end)
        }
        await this.#lines.run(
          access,
          await this.#deps.jobs.lines(this.job, { numbers: [...ends.keys()] }),
          ends,
        )
        if (!(await this.#extendClaim())) return
      }
    }
    await this.#endUnfinished(
      access,
      failure === null ? { kind: state.unrun ?? 'missing' } : { kind: 'error', error: failure },
    )
    if (this.#deps.signal.aborted || this.isOver) return
    await this.#close(failure === null ? 'ended' : 'failed')
  }

  /** Fails all lines because the service rejects the job. */
  async #failAll(error: GatewayError): Promise<void> {
    await this.#endUnfinished(await this.#open(), { kind: 'error', error })
    if (this.#deps.signal.aborted || this.isOver) return
    await this.#close('refused')
  }

  async #endUnfinished(access: ServiceAccess, end: LineEnd): Promise<void> {
    for (let after = -1; ; ) {
      const lines = await this.#deps.jobs.lines(this.job, { after, ...UNFINISHED_PAGE })
      const last = lines.at(-1)
      if (last === undefined) return
      after = last.number
      await this.#lines.run(access, lines, new Map(lines.map(({ number }) => [number, end])))
      if (!(await this.#extendClaim())) return
    }
  }

  /** Reserves the possible cost of the job again after a restart. */
  async #reserve(): Promise<Reservation> {
    const { reserved, credentialId } = this.job
    if (reserved === '0') return UNLIMITED_RESERVATION
    const { caller } = await this.#lines.caller()
    return await this.#deps.quota.reserveAnyway(caller, Number(reserved), credentialId !== null)
  }

  async #open(): Promise<ServiceAccess> {
    this.#access ??= await this.#deps.access(this.batch, this.job, this.#deps.signal)
    return this.#access
  }

  async #setName(name: string): Promise<void> {
    this.#name = name
    const { jobs, log } = this.#deps
    if (await jobs.name(this.job, this.#claim, name)) {
      this.#isNamed = true
      const { batchId: batch, number: job, provider } = this.job
      log.notice('batches', 'provider batch job submitted', { batch, job, provider, name })
    } else this.#leave()
  }

  /** Extends the claim. Returns false if this runner must stop working on the job. */
  async #extendClaim(): Promise<boolean> {
    const { jobs, owner, nowMs, signal } = this.#deps
    if (signal.aborted) return false
    const claim = await jobs.claim(this.job, owner, nowMs(), nowMs() + JOB_LEASE_MS)
    if (claim === null || claim.fence !== this.#claim.fence) {
      this.#leave()
      return false
    }
    return true
  }

  async #close(outcome: JobOutcome): Promise<void> {
    if (await this.#deps.jobs.close(this.job, this.#claim)) {
      const { batchId: batch, number: job, provider, lines } = this.job
      this.#deps.log.notice('batches', 'provider batch job finished', {
        batch,
        job,
        provider,
        lines,
        outcome,
      })
      this.#count(outcome)
      if (outcome === 'lost' && !this.#mustWait) this.#deps.onLost(batch)
    }
    this.#leave()
  }

  #leave(): void {
    this.isOver = true
    this.#reservation?.settle(NO_SPENDING)
    this.#reservation = null
  }

  #count(outcome: ServiceJobOutcome): void {
    this.#deps.metrics.serviceJobs.inc({ provider: this.job.provider, outcome })
  }

  /** True once the batch is cancelled or has expired. */
  #isEnding(): boolean {
    return this.#endsMs() <= this.#deps.clock.nowMs()
  }

  #isPastGrace(): boolean {
    return this.#endsMs() + GRACE_PERIOD_MS <= this.#deps.clock.nowMs()
  }

  #endsMs(): number {
    const { cancellingAt, expiresAt } = this.batch
    return Math.min(
      Date.parse(expiresAt),
      cancellingAt === null ? Number.POSITIVE_INFINITY : Date.parse(cancellingAt),
    )
  }

  #wait(delayMs: number): void {
    this.dueMs = this.#deps.clock.monotonicMs() + delayMs
  }

  #backoffMs(error: GatewayError): number {
    const ms = Math.min(MAX_RETRY_MS, FIRST_RETRY_MS * 2 ** (this.#failures - 1))
    return Math.max(ms, (error.retryAfterSeconds ?? 0) * 1_000)
  }

  /** Null: the call ended because all work is stopped. */
  #noteFailure(thrown: unknown): GatewayError | null {
    if (this.#deps.signal.aborted) return null
    const error = toGatewayError(thrown)
    const { batchId: batch, number: job, provider } = this.job
    if (this.#failures++ === 0) {
      this.#deps.log.notice('batches', 'provider batch service is not answering', {
        batch,
        job,
        provider,
        error: error.code,
      })
      if (error.code === 'internal')
        this.#deps.log.fault('batches', 'provider batch job failed', error.cause ?? error)
    }
    return error
  }

  /** Runs work on the Store, which may be unavailable for a while. */
  async #guard(work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      if (this.#deps.signal.aborted) return
      this.#deps.log.fault('batches', 'cannot continue a provider batch job', error)
      this.#wait(FIRST_RETRY_MS)
    }
  }
}

/** The end of a job; `lost`: the service never received it. */
type JobOutcome = Exclude<ServiceJobOutcome, 'submitted'>
