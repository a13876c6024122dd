/**
 * Works on one provider batch job from submission to its last line, in repeated passes that each hold the claim of the
 * job. State that must survive a crash is in the Store; the rest is recomputed. Batch thread.
 */
import type { Clock } from '../../base/clock.ts'
import { type GatewayError, toGatewayError } from '../../base/errors.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { ServiceJobOutcome } from '../../base/metrics/table.ts'
import { FREE } from '../../callers/limits/quota.ts'
import type { Reservation } from '../../protocol/records.ts'
import type { BatchRecord, Claim } from '../../storage/batches.ts'
import type { ServiceJob, ServiceJobStore } from '../../storage/service-jobs.ts'
import { lineNumber } from './job-drafts.ts'
import { JobLines, type JobLinesDeps, type LineEnd, NOTHING } from './job-lines.ts'
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
  /** The batch waits so long before it makes another job. */
  readonly onBusy: (batchId: string, delayMs: number) => void
  /** Called when the service did not get a job, so that its lines are in the queue again. */
  readonly onLost: (batchId: string) => void
}

/** How long a claim lasts without a visit: longer than the longest pause between two, and a slow visit. */
export const JOB_LEASE_MS = 180_000
/** The first question for the state; each later one waits half as long again. */
const POLL_FIRST_MS = 2_000
const POLL_MAX_MS = 30_000
const POLL_GROWTH = 1.5
/** After a failed call. */
const RETRY_FIRST_MS = 2_000
const RETRY_MAX_MS = 60_000
/** The pause of its batch when the service has too much in the queue of the account. */
const BUSY_MS = 300_000
/** A service that says nothing, or does not cancel, is not waited for any longer after the end of the batch. */
const GRACE_MS = 900_000
/** One that may have a job of ours, but does not say so before it has ended, is waited for so long. */
const UNSURE_MS = 3_600_000
/** Lines of which the service said nothing are read page by page. */
const REST = { limit: 64, maxBytes: 8 * 1024 * 1024 } as const
const GONE = 404
const TOO_MANY = 429
/** Claims are numbered from 1, so a later number tells of an earlier claim. */
const FIRST_FENCE = 1

export class JobWork {
  readonly job: ServiceJob
  /** As the Store had it last. */
  batch: BatchRecord
  /** Monotonic: the next visit. */
  dueMs: number
  /** Nothing is left to do, or another runner has it. */
  isOver = false
  readonly #deps: JobWorkDeps
  #claim: Claim
  #name: string | null
  /** The Store has the name. */
  #isNamed: boolean
  /** Of this visit: a key may be gone by the next one. */
  #access: ServiceAccess | null = null
  /** The job's reservation in its caller's limits; null: not reserved yet. */
  #held: Reservation | null
  #isCancelled = false
  /** The service asked to wait before it takes more. */
  #isToWait = false
  #polls = 0
  #failures = 0
  readonly #lines: JobLines

  constructor(
    deps: JobWorkDeps,
    batch: BatchRecord,
    {
      job,
      claim,
      held,
    }: { readonly job: ServiceJob; readonly claim: Claim; readonly held: Reservation | null },
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
    this.#held = held
    this.dueMs = deps.clock.monotonicMs()
  }

  /** Submits the job. Never rejects: what is not known then is found out by the next visits. */
  async submit(lines: readonly string[]): Promise<void> {
    const { batchId, mark, upstreamModel: model, path } = this.job
    let access: ServiceAccess
    try {
      access = await this.#open()
    } catch (thrown) {
      await this.#guard(async () => {
        if (this.#noteFailure(thrown) === null) return
        // Its key is gone. Nobody has asked the service, so the lines may go another way.
        this.#deps.onBusy(batchId, RETRY_FIRST_MS)
        await this.#close('lost')
      })
      return
    }
    try {
      const { service, calls } = access
      const name = await service.submit(calls, { mark, model, path, lines })
      await this.#named(name)
      this.#count('submitted')
      this.#wait(POLL_FIRST_MS)
    } catch (thrown) {
      await this.#guard(async () => {
        const error = this.#noteFailure(thrown)
        if (error === null) return
        // The service has read it, and takes none of it.
        this.#isToWait = error.metadata?.['provider_status'] === TOO_MANY
        if (isLasting(error)) await this.#failAll(error)
        else if (isUnsent(error)) {
          this.#deps.onBusy(batchId, RETRY_FIRST_MS)
          await this.#close('lost')
        } else this.#wait(this.#backoffMs(error))
      })
    }
  }

  /** Does what can be done now, and says when to come again. Never rejects. */
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
      this.#held ??= await this.#reserve()
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

  /** Lets another runner go on at once. Never rejects. */
  async release(): Promise<void> {
    this.#lines.stop()
    if (!this.isOver) await this.#deps.jobs.release(this.job, this.#claim).catch(() => undefined)
    this.#leave()
  }

  async #advance(access: ServiceAccess): Promise<void> {
    const name = this.#name ?? (await this.#find(access))
    if (name === null) return
    if (!this.#isNamed) await this.#named(name)
    const { service, calls } = access
    if (this.#isEnding() && !this.#isCancelled) await this.#cancel(access, name)
    let state: JobState
    try {
      state = await service.state(calls, name)
    } catch (thrown) {
      const error = toGatewayError(thrown)
      if (error.metadata?.['provider_status'] !== GONE) throw thrown
      state = { kind: 'ended', error, unrun: null, isBusy: false }
    }
    if (state.kind === 'running') {
      if (this.#isPastGrace()) await this.#close('given_up')
      else this.#wait(Math.min(POLL_MAX_MS, POLL_FIRST_MS * POLL_GROWTH ** this.#polls++))
      return
    }
    if (state.isBusy && !this.#isEnding()) {
      this.#deps.onBusy(this.batch.id, BUSY_MS)
      await this.#close('busy')
      return
    }
    await this.#collect(access, name, state)
  }

  /** The name of a job that may have been submitted; null: the visit is over. */
  async #find({ service, calls }: ServiceAccess): Promise<string | null> {
    const { jobs, clock, onBusy } = this.#deps
    const { batchId, mark, lines, createdAt } = this.job
    const others = await jobs.ofBatch(batchId)
    const known = new Set(others.flatMap(({ name }) => (name === null ? [] : [name])))
    const sinceMs = Date.parse(createdAt)
    const found = await service.find(calls, { mark, lines, sinceMs, known })
    if (found !== 'none' && found !== 'unsure') {
      await this.#named(found.name)
      return found.name
    }
    if (found === 'unsure' && clock.nowMs() - sinceMs < UNSURE_MS && !this.#isPastGrace()) {
      this.#wait(POLL_MAX_MS)
      return null
    }
    // The service has not got it: its lines make another job.
    onBusy(batchId, RETRY_FIRST_MS)
    await this.#close('lost')
    return null
  }

  async #cancel({ service, calls }: ServiceAccess, name: string): Promise<void> {
    try {
      await service.cancel(calls, name)
    } catch (thrown) {
      // One that has ended meanwhile cannot be cancelled.
      if (!isLasting(toGatewayError(thrown))) throw thrown
    }
    this.#isCancelled = true
    this.#polls = 0
  }

  /** Takes what the service has of each line. Lines that have a result already are left out. */
  async #collect(
    access: ServiceAccess,
    name: string,
    state: Extract<JobState, { kind: 'ended' }>,
  ): Promise<void> {
    const { service, calls } = access
    const seen = new Set<number>()
    const failure = state.error === null ? null : calls.shownError(state.error)
    if (failure === null || failure.metadata?.['provider_status'] !== GONE) {
      for await (const page of service.lines(calls, name)) {
        const ends = new Map<number, LineEnd>()
        for (const { id, end } of page) {
          const number = lineNumber(this.job.mark, id)
          if (number === null || number >= this.batch.total || seen.has(number)) continue
          seen.add(number)
          ends.set(number, end)
        }
        await this.#lines.take(
          access,
          await this.#deps.jobs.lines(this.job, { numbers: [...ends.keys()] }),
          ends,
        )
        if (!(await this.#goesOn())) return
      }
    }
    await this.#takeRest(
      access,
      failure === null ? { kind: state.unrun ?? 'missing' } : { kind: 'error', error: failure },
    )
    if (this.#deps.signal.aborted || this.isOver) return
    await this.#close(failure === null ? 'ended' : 'failed')
  }

  /** Fails all lines because the service does not take the job. */
  async #failAll(error: GatewayError): Promise<void> {
    await this.#takeRest(await this.#open(), { kind: 'error', error })
    if (this.#deps.signal.aborted || this.isOver) return
    await this.#close('refused')
  }

  async #takeRest(access: ServiceAccess, end: LineEnd): Promise<void> {
    for (let after = -1; ; ) {
      const lines = await this.#deps.jobs.lines(this.job, { after, ...REST })
      const last = lines.at(-1)
      if (last === undefined) return
      after = last.number
      await this.#lines.take(access, lines, new Map(lines.map(({ number }) => [number, end])))
      if (!(await this.#goesOn())) return
    }
  }

  /** Reserves again what the job may cost, after a restart. */
  async #reserve(): Promise<Reservation> {
    const { reserved, credentialId } = this.job
    if (reserved === '0') return FREE
    const { caller } = await this.#lines.caller()
    return await this.#deps.quota.hold(caller, Number(reserved), credentialId !== null)
  }

  async #open(): Promise<ServiceAccess> {
    this.#access ??= await this.#deps.access(this.batch, this.job, this.#deps.signal)
    return this.#access
  }

  async #named(name: string): Promise<void> {
    this.#name = name
    const { jobs, log } = this.#deps
    if (await jobs.name(this.job, this.#claim, name)) {
      this.#isNamed = true
      const { batchId: batch, number: job, provider } = this.job
      log.notice('batches', 'provider batch job submitted', { batch, job, provider, name })
    } else this.#leave()
  }

  /** Extends the claim. False: the work is over here. */
  async #goesOn(): Promise<boolean> {
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
      if (outcome === 'lost' && !this.#isToWait) this.#deps.onLost(batch)
    }
    this.#leave()
  }

  #leave(): void {
    this.isOver = true
    this.#held?.settle(NOTHING)
    this.#held = null
  }

  #count(outcome: ServiceJobOutcome): void {
    this.#deps.metrics.serviceJobs.inc({ provider: this.job.provider, outcome })
  }

  /** True once the batch is cancelled or has expired. */
  #isEnding(): boolean {
    return this.#endsMs() <= this.#deps.clock.nowMs()
  }

  #isPastGrace(): boolean {
    return this.#endsMs() + GRACE_MS <= this.#deps.clock.nowMs()
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
    const ms = Math.min(RETRY_MAX_MS, RETRY_FIRST_MS * 2 ** (this.#failures - 1))
    return Math.max(ms, (error.retryAfterSeconds ?? 0) * 1_000)
  }

  /** Null: it ended because all work ends. */
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

  /** Work on the Store, which may be away for a while. */
  async #guard(work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      if (this.#deps.signal.aborted) return
      this.#deps.log.fault('batches', 'cannot continue a provider batch job', error)
      this.#wait(RETRY_FIRST_MS)
    }
  }
}

/** How a job ended; `lost`: the service never got it. */
type JobOutcome = Exclude<ServiceJobOutcome, 'submitted'>
