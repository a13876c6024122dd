/**
 * The queue of one pool: keys take turns, the number of waiting jobs and their waiting time are bounded, a running job
 * has a deadline, a job whose worker died before starting it is retried once, and each job has exactly one outcome.
 * Each worker has one job at a time. Serve threads.
 */
import type { Clock, Timer } from '../../../base/clock.ts'
import type { Metrics } from '../../../base/metrics/metrics.ts'
import type { RequestSignal } from '../../../base/signal.ts'
import { fromPlain, type PoolName, TaskError, type TaskOutcome, type TaskReply } from '../task.ts'
import { WaitingJobs } from './waiting.ts'
import type { WorkerSet, WorkerSlot } from './worker-set.ts'

/**
 * A job past its deadline may be about to end, so its worker gets this much more time. Starting another worker takes
 * longer.
 */
const END_GRACE_MS = 25

export interface TaskQueueOptions {
  readonly pool: PoolName
  readonly clock: Clock
  readonly metrics: TaskSeries
  /** Maximum jobs that wait while all workers are busy. Beyond it, the key with the most jobs loses its last one. */
  readonly maxWaitingJobs: number
  /** Jobs of one key that may wait; further ones are refused. */
  readonly waitingPerKey: number
  /** Jobs of one key that may run at once. */
  readonly runningPerKey: number
  /** True ends the worker of a cancelled job at once: for long jobs. Short jobs run to their end or deadline. */
  readonly endCancelled: boolean
}

export interface JobTerms {
  /** The API key that the job is for. */
  readonly key: string
  /** Milliseconds that it may wait for a worker. */
  readonly waitMs: number
  /** Milliseconds that it may run. */
  readonly runMs: number
  /**
   * True for a job that occupies a worker for tens of milliseconds: one of several workers is kept free of such jobs.
   * Jobs of a key with recent long jobs also count as long.
   */
  readonly long: boolean
  readonly signal: RequestSignal | undefined
}

interface Job extends JobTerms {
  readonly task: string
  readonly input: unknown
  readonly admittedMs: number
  /** The time at which the job has waited, or run, for too long. */
  deadlineAtMs: number
  readonly resolve: (output: unknown) => void
  readonly reject: (error: TaskError) => void
  settled: boolean
  /** The worker that runs the job; null while it waits. */
  worker: WorkerSlot | null
  /** True after the job was queued again because its worker died. */
  retried: boolean
  timer: Timer | null
  removeListener: () => void
}

const doNothing = () => undefined

export class TaskQueue {
  readonly #options: TaskQueueOptions
  readonly #clock: Clock
  readonly #workers: WorkerSet
  readonly #waiting = new WaitingJobs<Job>()
  /** Unanswered jobs by worker, including settled ones. */
  readonly #running = new Map<WorkerSlot, Job>()
  readonly #metrics: TaskMetrics
  readonly #longKeys = new LongKeys()
  /** Number of jobs without an outcome. */
  #openJobs = 0
  #isClosed = false
  #whenIdle: () => void = doNothing

  /** @param createWorkers gets the function to call whenever a worker becomes ready */
  constructor(options: TaskQueueOptions, createWorkers: (onReady: () => void) => WorkerSet) {
    this.#options = options
    this.#clock = options.clock
    this.#metrics = new TaskMetrics(options.metrics, options.pool)
    this.#workers = createWorkers(() => this.#dispatch())
  }

  /** Number of jobs that wait for a worker. */
  get waitingJobs(): number {
    return this.#waiting.size
  }

  /** Resolves with the output, or rejects with a TaskError, within the time to wait and the time to run. */
  run(task: string, input: unknown, terms: JobTerms): Promise<unknown> {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>()
    const admittedMs = this.#clock.monotonicMs()
    const job: Job = {
      ...terms,
      task,
      input,
      admittedMs,
      deadlineAtMs: admittedMs + terms.waitMs,
      resolve,
      reject,
      settled: false,
      worker: null,
      retried: false,
      timer: null,
      removeListener: doNothing,
    }
    if (++this.#openJobs === 1) this.#workers.keepAlive(true)
    if (this.#isClosed || terms.signal?.aborted === true) {
      this.#fail(job, 'cancelled')
      return promise
    }
    this.#waiting.add(job)
    this.#watch(job)
    this.#workers.expect(task)
    this.#dispatch()
    if (job.worker === null && this.#waiting.sizeOf(job.key) > this.#maxWaitingOfKey())
      this.#fail(job, 'overloaded', true)
    else if (this.waitingJobs > this.#options.maxWaitingJobs + this.#starting()) {
      const droppedJob = this.#waiting.lastOfLongest()
      if (droppedJob !== null) this.#fail(droppedJob, 'overloaded')
    }
    return promise
  }

  /**
   * Refuses the next job of a key before its input is built, if `run` would refuse it.
   * @throws TaskError `overloaded`
   */
  checkRoom(task: string, key: string): void {
    if (this.#waiting.sizeOf(key) < this.#maxWaitingOfKey()) return
    this.#metrics.record(task, 'overloaded', 0, null)
    throw new TaskError('overloaded', null, true)
  }

  /** Refuses new jobs, lets running ones finish within the grace time, cancels the others and ends the workers. */
  async close(graceMs: number): Promise<void> {
    this.#isClosed = true
    if (graceMs > 0 && this.#openJobs > 0) {
      const { promise, resolve } = Promise.withResolvers<void>()
      this.#whenIdle = resolve
      const timer = this.#clock.after(graceMs, resolve)
      await promise
      timer.cancel()
    }
    for (const job of [...this.#waiting, ...this.#running.values()]) this.#fail(job, 'cancelled')
    await this.#workers.close()
  }

  #maxWaitingOfKey(): number {
    return this.#options.waitingPerKey + this.#starting()
  }

  /** Number of starting workers. For each, one more job may wait, because it takes one at once. */
  #starting(): number {
    let starting = 0
    for (const { state } of this.#workers.slots()) if (state === 'starting') starting++
    return starting
  }

  #watch(job: Job): void {
    const { signal } = job
    job.timer = this.#clock.after(job.waitMs, () => this.#abandon(job, 'timeout'))
    if (signal === undefined) return
    const abort = () => this.#abandon(job, 'cancelled')
    signal.addEventListener('abort', abort, { once: true })
    job.removeListener = () => signal.removeEventListener('abort', abort)
  }

  /** Rejects the job at once, and ends its worker if the job keeps running. */
  #abandon(job: Job, outcome: 'timeout' | 'cancelled'): void {
    if (job.settled) return
    this.#fail(job, outcome)
    const { worker } = job
    if (worker === null) return
    const atOnce = outcome === 'timeout' || this.#options.endCancelled
    const remainingMs = atOnce ? 0 : Math.max(0, job.deadlineAtMs - this.#clock.monotonicMs())
    this.#clock.after(remainingMs + END_GRACE_MS, () => {
      if (this.#running.get(worker) !== job) return
      // Another worker must start, however long the job would have taken.
      this.#longKeys.recordLostWorker(job.key)
      worker.end()
    })
  }

  #dispatch(): void {
    while (this.waitingJobs > 0) {
      const worker = this.#freeWorker()
      const job = worker === null ? null : this.#waiting.next(this.#mayRun)
      if (worker === null || job === null) break
      void this.#send(job, worker)
    }
    this.#metrics.setDepth(this.waitingJobs)
  }

  /**
   * True if the job's key runs fewer jobs than it may, and the job leaves a worker to short jobs if it is long: one that
   * is ready, not one that is starting.
   */
  readonly #mayRun = (job: Job): boolean => {
    const slots = this.#workers.slots()
    let jobsOfKey = 0
    let longJobs = 0
    let readyWorkers = 0
    for (const { state } of slots) if (state === 'ready') readyWorkers++
    for (const runningJob of this.#running.values()) {
      if (runningJob.key === job.key) jobsOfKey++
      if (this.#isLong(runningJob)) longJobs++
    }
    if (jobsOfKey >= this.#options.runningPerKey) return false
    return !this.#isLong(job) || slots.size === 1 || longJobs < readyWorkers - 1
  }

  #isLong({ long, key }: Job): boolean {
    return long || this.#longKeys.has(key)
  }

  #freeWorker(): WorkerSlot | null {
    for (const worker of this.#workers.slots()) {
      if (worker.state === 'ready' && !this.#running.has(worker)) return worker
    }
    return null
  }

  async #send(job: Job, worker: WorkerSlot): Promise<void> {
    job.worker = worker
    this.#running.set(worker, job)
    job.timer?.cancel()
    job.deadlineAtMs = this.#clock.monotonicMs() + job.runMs
    job.timer = this.#clock.after(job.runMs, () => this.#abandon(job, 'timeout'))
    let reply: TaskReply | null = null
    try {
      reply = await worker.post(job.task, job.input)
      this.#longKeys.recordJob(job.key, reply.cpuMs)
    } catch {
      // The worker died, or the input could not be copied; the state of the worker shows which.
    }
    this.#running.delete(worker)
    if (!job.settled) this.#answer(job, reply, worker)
    this.#dispatch()
  }

  #answer(job: Job, reply: TaskReply | null, worker: WorkerSlot): void {
    if (reply?.kind === 'done') {
      this.#settle(job, 'ok', reply.ranMs)
      job.resolve(reply.output)
    } else if (reply?.kind === 'failed') {
      this.#settle(job, 'failed', reply.ranMs)
      job.reject(fromPlain(reply.failure))
    } else if (worker.state !== 'dead') {
      this.#settle(job, 'failed')
      job.reject(fromPlain({ code: 'uncopyable', message: 'the input cannot be copied to another thread' }))
    } else if (worker.hasStarted || job.retried) {
      this.#fail(job, 'crashed')
    } else {
      job.worker = null
      job.retried = true
      this.#waiting.addFirst(job)
    }
  }

  #fail(job: Job, outcome: 'overloaded' | 'timeout' | 'crashed' | 'cancelled', keyFull = false): void {
    if (job.settled) return
    this.#settle(job, outcome)
    job.reject(new TaskError(outcome, null, keyFull))
  }

  #settle(job: Job, outcome: TaskOutcome, ranMs: number | null = null): void {
    job.settled = true
    if (--this.#openJobs === 0) {
      this.#workers.keepAlive(false)
      this.#whenIdle()
    }
    job.timer?.cancel()
    job.removeListener()
    if (job.worker === null && this.#waiting.remove(job)) this.#metrics.setDepth(this.waitingJobs)
    this.#metrics.record(job.task, outcome, this.#clock.monotonicMs() - job.admittedMs, ranMs)
  }
}

/** The metrics that a pool adds to. */
export type TaskSeries = Pick<Metrics, 'taskQueueDepth' | 'taskWait' | 'taskRun' | 'taskOutcomes'>

/** The metrics of one pool. */
class TaskMetrics {
  readonly #series: TaskSeries
  readonly #depth: ReturnType<TaskSeries['taskQueueDepth']['labels']>
  readonly #wait: ReturnType<TaskSeries['taskWait']['labels']>

  constructor(series: TaskSeries, pool: PoolName) {
    this.#series = series
    this.#depth = series.taskQueueDepth.labels({ pool })
    this.#wait = series.taskWait.labels({ pool })
    this.setDepth(0)
  }

  setDepth(jobs: number): void {
    this.#depth.set(jobs)
  }

  /** @param ranMs null for a job that did not run to its end */
  record(task: string, outcome: TaskOutcome, tookMs: number, ranMs: number | null): void {
    this.#series.taskOutcomes.inc({ task, outcome })
    // A job that is refused at once has not waited.
    if (outcome !== 'overloaded') this.#wait.observe(Math.max(0, tookMs - (ranMs ?? 0)) / 1000)
    if (ranMs !== null) this.#series.taskRun.observe({ task }, ranMs / 1000)
  }
}

/** CPU milliseconds from which a job counts as long. */
const LONG_JOB_MS = 50
/** Duration that counts for a job whose worker was ended: another worker must start and load its code. */
const LOST_WORKER_MS = 800
const MAX_LONG_KEYS = 1_000

/** Keys whose jobs occupy a worker for long, learned from the durations of their recent jobs. */
class LongKeys {
  /** Expected milliseconds of the next job, by key; only for keys with long jobs. */
  readonly #expectedMs = new Map<string, number>()

  /** True if the next job of the key counts as long. */
  has(key: string): boolean {
    return this.#expectedMs.has(key)
  }

  /** Records the duration of a job. Several short jobs make up for a long one. */
  recordJob(key: string, tookMs: number): void {
    const expectedMs = Math.max(tookMs, (this.#expectedMs.get(key) ?? 0) / 2)
    this.#expectedMs.delete(key)
    if (expectedMs <= LONG_JOB_MS) return
    this.#expectedMs.set(key, expectedMs)
    if (this.#expectedMs.size <= MAX_LONG_KEYS) return
    const [oldest = ''] = this.#expectedMs.keys()
    this.#expectedMs.delete(oldest)
  }

  /** Records that a job of the key was abandoned and its worker ended. */
  recordLostWorker(key: string): void {
    this.recordJob(key, LOST_WORKER_MS)
  }
}
