/**
 * The part of the batch runner that uses provider batch services: turns deferred lines into jobs, and works on the jobs
 * until all results are in. Claims divide the jobs among the runners. Batch thread.
 */

import { type Clock, isoInstant } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { callerOf } from '../../callers/keys.ts'
import type { Reservation } from '../../protocol/records.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { BatchRecord, ClaimedLine, HeldLine } from '../../storage/batches.ts'
import type { ServicePart } from '../line-run.ts'
import { isTerminal } from '../states.ts'
import { type JobDraft, JobDrafts, release } from './job-drafts.ts'
import { JOB_LEASE_MS, JobWork, type JobWorkDeps } from './job-work.ts'
import { serviceProviderOf } from './service-probe.ts'

export interface ServiceRunnerDeps extends Omit<JobWorkDeps, 'signal' | 'onBusy' | 'onLost'> {
  readonly catalog: Pick<Catalog, 'model'>
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  /** Returns lines to the queue. */
  readonly giveBack: (lines: readonly Pick<ClaimedLine, 'batchId' | 'number' | 'fence' | 'tries'>[]) => void
  /** Called when a job is finished. */
  readonly onOver: () => void
}

/** How often jobs of dead runners are looked for. */
const DISCOVERY_INTERVAL_MS = 5_000
/** Maximum of jobs that are submitted at the same time, because each is in memory. One service may use half of them. */
const MAX_SUBMISSIONS = 2
/**
 * Maximum of concurrent visits. Each may collect a job, of which a page is in memory. One service may use half of them.
 */
const MAX_VISITS = 4
/** After this many jobs that its service did not receive, the lines of a batch run as live requests. */
const MAX_LOST_JOBS = 3
/** Delay after a failure of the Store. */
const RETRY_MS = 2_000

export class ServiceRunner {
  readonly #deps: ServiceRunnerDeps
  readonly #drafts: JobDrafts
  readonly #ending = new AbortController()
  /** Jobs that this runner works on, by batch and number. */
  readonly #works = new Map<string, JobWork>()
  readonly #visiting = new Map<JobWork, Promise<void>>()
  /** Drafts that are being stored and submitted. */
  readonly #submitting = new Map<JobDraft, Promise<void>>()
  /** Monotonic milliseconds until which a batch creates no job, by batch id. */
  readonly #pauses = new Map<string, number>()
  /** Number of jobs that the service did not receive, by batch. */
  readonly #lostJobs = new Map<string, number>()
  #discovery: Promise<void> | null = null
  #discoverMs = Number.NEGATIVE_INFINITY
  #batches: ReadonlyMap<string, BatchRecord> = new Map()

  constructor(deps: ServiceRunnerDeps) {
    this.#deps = deps
    this.#drafts = new JobDrafts(deps)
  }

  /** Lines that wait for their job. */
  get lines(): readonly HeldLine[] {
    return this.#drafts.lines
  }

  /** The provider (slug) whose batch service runs as much of the batch as it can; null: the gateway runs it. */
  providerOf(batch: Pick<BatchRecord, 'model' | 'preferences'>): string | null {
    return serviceProviderOf(this.#deps.catalog, batch)
  }

  /** The service's part in the run of a line. */
  partOf(batch: BatchRecord, line: ClaimedLine): ServicePart {
    if (batch.service === null || this.#runsLive(batch)) return {}
    return { submit: call => this.#drafts.add(batch, line, call) }
  }

  /** True while no lines of the batch should be claimed: its service is busy, or asks to wait. */
  isHeldBack(batch: Pick<BatchRecord, 'id' | 'service' | 'preferences'>): boolean {
    const { id, service } = batch
    if (service === null || this.#runsLive(batch)) return false
    const { clock } = this.#deps
    if (this.#drafts.isFull || !this.#maySubmit(service.provider)) return true
    return (this.#pauses.get(id) ?? 0) > clock.monotonicMs()
  }

  /** True after its service did not receive several jobs, unless the caller excludes live requests. */
  #runsLive({ id, preferences }: Pick<BatchRecord, 'id' | 'preferences'>): boolean {
    return (this.#lostJobs.get(id) ?? 0) >= MAX_LOST_JOBS && preferences?.allowFallbacks !== false
  }

  /** Other runners have these lines now. */
  dropLost(lines: readonly HeldLine[]): void {
    this.#drafts.dropLost(lines)
  }

  /** Does the due work for these batches, which are all open ones. `isEnding`: no more jobs are created for it. */
  visit(batches: ReadonlyMap<string, BatchRecord>, isEnding: (batch: BatchRecord) => boolean): void {
    if (this.#ending.signal.aborted) return
    this.#batches = batches
    for (const work of this.#works.values()) work.batch = batches.get(work.batch.id) ?? work.batch
    this.#drop(({ batch: { id } }) => {
      const current = batches.get(id)
      return current === undefined || isEnding(current)
    })
    this.#submitReady()
    this.#visitDue()
    this.#discover()
    const nowMs = this.#deps.clock.monotonicMs()
    for (const id of this.#lostJobs.keys()) if (!batches.has(id)) this.#lostJobs.delete(id)
    for (const [id, untilMs] of this.#pauses) if (untilMs <= nowMs) this.#pauses.delete(id)
  }

  /** True if the batch has no open jobs or drafts. Rejects with the error of the Store. */
  async isOver({ id }: Pick<BatchRecord, 'id'>): Promise<boolean> {
    if (this.#drafts.has(id)) return false
    if ([...this.#submitting.keys()].some(({ batch }) => batch.id === id)) return false
    const open = await this.#deps.jobs.openJobs()
    return open.every(({ batchId }) => batchId !== id)
  }

  /** Resolves when submissions are finished. Drafts go back to the queue. */
  async settle(): Promise<void> {
    this.#drop(() => true)
    await Promise.all(this.#submitting.values())
  }

  /** Ends all work. Other runners can continue with the jobs at once. */
  async close(): Promise<void> {
    this.#ending.abort(new Error('the batch runner is closed'))
    this.#drop(() => true)
    await Promise.all([...this.#works.values()].map(work => work.release()))
    await Promise.all([...this.#visiting.values(), ...this.#submitting.values(), this.#discovery])
  }

  /** Returns drafts to the queue, except those that are being submitted. */
  #drop(matches: (draft: JobDraft) => boolean): void {
    const dropped = this.#drafts.drop(draft => !this.#submitting.has(draft) && matches(draft))
    if (dropped.length > 0) this.#deps.giveBack(dropped)
  }

  #submitReady(): void {
    const { clock } = this.#deps
    for (const draft of [...this.#drafts.ready()]) {
      const isPaused = (this.#pauses.get(draft.batch.id) ?? 0) > clock.monotonicMs()
      if (isPaused || this.#submitting.has(draft) || !this.#maySubmit(draft.facts.provider)) continue
      const submitting = this.#submit(draft)
        .catch(error => {
          this.#deps.log.fault('batches', 'cannot prepare a provider batch job', error)
          this.#pause(draft.batch.id, RETRY_MS)
        })
        .finally(() => this.#submitting.delete(draft))
      this.#submitting.set(draft, submitting)
    }
  }

  #maySubmit(provider: string): boolean {
    const providers = [...this.#submitting.keys()].map(({ facts }) => facts.provider)
    return hasFreeSlot(providers, provider, MAX_SUBMISSIONS)
  }

  /** Rejects with the error of the Store; then the draft stays. */
  async #submit(draft: JobDraft): Promise<void> {
    const { jobs, owner, nowMs, clock, giveBack } = this.#deps
    const { batch, facts, mark } = draft
    // A copy of the lines: a line that the job has claimed is soon reported as lost, and leaves the draft.
    const draftLines = [...draft.lines]
    const lines = draftLines.map(({ line }) => line)
    if (lines.length === 0) {
      this.#drafts.remove(draft)
      return
    }
    const reservedSum = draftLines.reduce((sum, draftLine) => sum + BigInt(Math.ceil(draftLine.reserved)), 0n)
    const openedJob = await jobs.open(
      owner,
      {
        ...facts,
        batchId: batch.id,
        mark,
        reserved: String(reservedSum),
        createdAt: isoInstant(clock.nowMs()),
      },
      lines,
      nowMs() + JOB_LEASE_MS,
    )
    this.#drafts.remove(draft)
    if (openedJob === null) {
      release(draft)
      giveBack(lines)
      return
    }
    const claimedNumbers = new Set(openedJob.lines.map(({ number }) => number))
    const texts = draftLines.filter(({ line }) => claimedNumbers.has(line.number)).map(({ text }) => text)
    const reservation = await this.#reserve(draft, reservedSum)
    const { job, claim } = openedJob
    const work = new JobWork(this.#workDeps(), this.#batches.get(batch.id) ?? batch, {
      job,
      claim,
      reservation,
    })
    this.#works.set(jobName(job), work)
    // No visits until the submission is over.
    work.dueMs = Number.POSITIVE_INFINITY
    await work.submit(texts)
    if (work.dueMs === Number.POSITIVE_INFINITY) work.dueMs = clock.monotonicMs()
    this.#noteOver(work)
  }

  /** Replaces the reservations of all lines by one. Null: the next visit reserves. */
  async #reserve(draft: JobDraft, amount: bigint): Promise<Reservation | null> {
    const { quota, keyOf, log } = this.#deps
    try {
      if (amount === 0n) return null
      const caller = callerOf(await keyOf(draft.batch.keyHash))
      return await quota.reserveAnyway(caller, Number(amount), draft.facts.credentialId !== null)
    } catch (error) {
      log.fault('batches', 'cannot reserve the cost of a provider batch job', error)
      return null
    } finally {
      release(draft)
    }
  }

  #visitDue(): void {
    const nowMs = this.#deps.clock.monotonicMs()
    const dueWorks = [...this.#works.values()].filter(({ dueMs }) => dueMs <= nowMs)
    for (const work of dueWorks.sort((first, second) => first.dueMs - second.dueMs)) {
      const visitedProviders = [...this.#visiting.keys()].map(({ job }) => job.provider)
      if (!hasFreeSlot(visitedProviders, work.job.provider, MAX_VISITS)) continue
      // No other visit until this one has set the time.
      work.dueMs = Number.POSITIVE_INFINITY
      const visiting = work.visit().then(() => {
        this.#visiting.delete(work)
        this.#noteOver(work)
      })
      this.#visiting.set(work, visiting)
    }
  }

  #noteOver(work: JobWork): void {
    if (!work.isOver) return
    this.#works.delete(jobName(work.job))
    this.#deps.onOver()
  }

  /** Claims jobs without a runner: jobs of dead runners, and of this one before its restart. */
  #discover(): void {
    const { clock, log } = this.#deps
    const nowMs = clock.monotonicMs()
    const isNeeded = [...this.#batches.values()].some(({ service }) => service !== null)
    if (!isNeeded || this.#discovery !== null || nowMs < this.#discoverMs) return
    this.#discoverMs = nowMs + DISCOVERY_INTERVAL_MS
    this.#discovery = this.#claimFreeJobs()
      .catch(error => log.fault('batches', 'cannot read provider batch jobs from the store', error))
      .finally(() => {
        this.#discovery = null
      })
  }

  async #claimFreeJobs(): Promise<void> {
    const { jobs, owner, nowMs } = this.#deps
    for (const { status, ...job } of await jobs.openJobs()) {
      const name = jobName(job)
      const batch = this.#batches.get(job.batchId)
      const hasEnded = status === null || isTerminal(status)
      if (this.#works.has(name) || this.#ending.signal.aborted) continue
      if ([...this.#submitting.keys()].some(({ mark }) => mark === job.mark)) continue
      if (batch === undefined && !hasEnded) continue
      const claim = await jobs.claim(job, owner, nowMs(), nowMs() + JOB_LEASE_MS)
      if (claim === null) continue
      // Its batch has ended without it.
      if (batch === undefined) await jobs.close(job, claim)
      else this.#works.set(name, new JobWork(this.#workDeps(), batch, { job, claim, reservation: null }))
    }
  }

  #pause(batchId: string, delayMs: number): void {
    this.#pauses.set(batchId, this.#deps.clock.monotonicMs() + delayMs)
  }

  #workDeps(): JobWorkDeps {
    return {
      ...this.#deps,
      signal: this.#ending.signal,
      onBusy: (batchId, delayMs) => this.#pause(batchId, delayMs),
      onLost: batchId => this.#lostJobs.set(batchId, (this.#lostJobs.get(batchId) ?? 0) + 1),
    }
  }
}

/** True if a slot is free for this provider. `usedBy`: the providers that have slots. */
function hasFreeSlot(usedBy: readonly string[], provider: string, slots: number): boolean {
  return usedBy.length < slots && usedBy.filter(other => other === provider).length < slots / 2
}

function jobName({ batchId, number }: { readonly batchId: string; readonly number: number }): string {
  return `${batchId}/${number}`
}
