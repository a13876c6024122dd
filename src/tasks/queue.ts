/**
 * Who waits for a worker, and what becomes of them: bounded admission, deadlines that count the waiting, one second
 * try for jobs whose worker died before they began, and exactly one outcome for each. Knows workers by an interface
 * only; pool.ts has the real ones.
 */
import type { Clock, Timer } from '../clock.ts'
import { fromPlain, TaskError, type TaskOutcome } from './failure.ts'
import { Slots } from './job-state.ts'
import type { PoolName, TaskReply } from './task.ts'
import { createTally, type TaskMetrics } from './task-metrics.ts'
import type { Crew, Hand } from './worker-set.ts'

/** A job past its deadline may be about to end: so long its worker is left alone. Starting another takes longer. */
const GRACE_MS = 25
/** A worker that answers nothing for so long, while jobs lie there untouched, will not begin them; it never started. */
const STALLED_MS = 5_000

export interface LineOptions {
  readonly pool: PoolName
  readonly clock: Clock
  readonly metrics: TaskMetrics
  readonly workers: number
  /** Jobs that one worker is handed at once; all but one lie ready, so that it need not wait for the next. */
  readonly perWorker: number
  /** Jobs that wait beyond those; more are refused. */
  readonly waitingMax: number
  /** Whether a job that its caller gave up is worth its worker: long ones are, short ones end by themselves. */
  readonly endCancelled: boolean
}

interface Job {
  readonly task: string
  readonly input: unknown
  readonly admittedMs: number
  readonly dueMs: number
  readonly resolve: (output: unknown) => void
  readonly reject: (error: TaskError) => void
  settled: boolean
  /** Where it lies; null: it waits. */
  place: Place | null
  tries: number
  timer: Timer | null
  forget: () => void
}

interface Place {
  readonly desk: Desk
  readonly slot: number
}

/** What the line remembers of a worker. */
interface Desk {
  readonly hand: Hand
  /** Jobs that it has not answered yet, settled ones included. */
  readonly jobs: Set<Job>
  /** Jobs that it goes on with although they are over; it gets no other until it answers. */
  readonly overdue: Set<Job>
  heardMs: number
}

const nothing = () => undefined

export class Line {
  readonly #slots: Slots
  readonly #options: LineOptions
  readonly #clock: Clock
  readonly #crew: Crew
  readonly #waiting = new Set<Job>()
  /** Jobs whose worker died before they began; they come first. */
  readonly #again = new Set<Job>()
  readonly #desks = new Map<Hand, Desk>()
  readonly #tally: ReturnType<typeof createTally>
  /** Jobs without an outcome. */
  #open = 0
  #closed = false
  #whenIdle: () => void = nothing

  /** @param hire makes the workers; they share `slots` and call `room` whenever one more takes jobs */
  constructor(options: LineOptions, hire: (slots: SharedArrayBuffer, room: () => void) => Crew) {
    this.#options = options
    this.#clock = options.clock
    this.#slots = new Slots(options.workers * options.perWorker)
    this.#tally = createTally(options)
    this.#crew = hire(this.#slots.memory, () => this.#dispatch())
  }

  /** Jobs that no worker has been handed. */
  get waiting(): number {
    return this.#waiting.size + this.#again.size
  }

  /** Resolves with the output, or rejects with a TaskError, within the deadline. */
  run(task: string, input: unknown, deadlineMs: number, signal?: AbortSignal): Promise<unknown> {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>()
    const admittedMs = this.#clock.monotonicMs()
    const job: Job = {
      task,
      input,
      admittedMs,
      dueMs: admittedMs + deadlineMs,
      resolve,
      reject,
      settled: false,
      place: null,
      tries: 0,
      timer: null,
      forget: nothing,
    }
    if (++this.#open === 1) this.#crew.hold(true)
    if (this.#closed || signal?.aborted === true) {
      this.#fail(job, 'cancelled')
      return promise
    }
    this.#waiting.add(job)
    this.#dispatch()
    // One that a worker takes at once does not wait: the bound is on those that do.
    if (job.place === null && this.waiting > this.#options.waitingMax) this.#fail(job, 'overloaded')
    else this.#watch(job, deadlineMs, signal)
    return promise
  }

  /** Takes no more jobs, lets those there are finish within the grace time, cancels the rest, ends the workers. */
  async close(graceMs: number): Promise<void> {
    this.#closed = true
    if (graceMs > 0 && this.#open > 0) {
      const { promise, resolve } = Promise.withResolvers<void>()
      this.#whenIdle = resolve
      const timer = this.#clock.after(graceMs, resolve)
      await promise
      timer.cancel()
    }
    for (const job of [...this.#again, ...this.#waiting]) this.#fail(job, 'cancelled')
    for (const { jobs } of this.#desks.values()) for (const job of jobs) this.#fail(job, 'cancelled')
    await this.#crew.close()
  }

  #watch(job: Job, deadlineMs: number, signal: AbortSignal | undefined): void {
    job.timer = this.#clock.after(deadlineMs, () => this.#giveUp(job, 'timeout'))
    if (signal === undefined) return
    const abort = () => this.#giveUp(job, 'cancelled')
    signal.addEventListener('abort', abort, { once: true })
    job.forget = () => signal.removeEventListener('abort', abort)
  }

  /** The caller is told at once; the worker is called back, or ended if it does not leave the job. */
  #giveUp(job: Job, outcome: 'timeout' | 'cancelled'): void {
    if (job.settled) return
    this.#fail(job, outcome)
    const { place } = job
    if (place === null) return
    if (this.#slots.withdraw(place.slot)) {
      this.#endIfStalled(job, place.desk)
      return
    }
    const hurry = outcome === 'timeout' || this.#options.endCancelled
    if (hurry) place.desk.overdue.add(job)
    const leftMs = hurry ? 0 : Math.max(0, job.dueMs - this.#clock.monotonicMs())
    this.#clock.after(leftMs + GRACE_MS, () => {
      if (place.desk.jobs.has(job)) place.desk.hand.end()
    })
  }

  #endIfStalled(job: Job, desk: Desk): void {
    const quietMs = this.#clock.monotonicMs() - desk.heardMs
    this.#clock.after(Math.max(GRACE_MS, STALLED_MS - quietMs), () => {
      // A job that has begun is the business of its own deadline.
      if (!desk.jobs.has(job) || this.#hasBegun(desk)) return
      if (this.#clock.monotonicMs() - desk.heardMs >= STALLED_MS) desk.hand.end()
      else this.#endIfStalled(job, desk)
    })
  }

  #hasBegun(desk: Desk): boolean {
    for (const { place } of desk.jobs) if (place?.desk === desk && this.#slots.begun(place.slot)) return true
    return false
  }

  #dispatch(): void {
    while (this.waiting > 0) {
      const desk = this.#leastBusy()
      if (desk === null) break
      const slot = this.#slots.take()
      if (slot === null) break
      const line = this.#again.size > 0 ? this.#again : this.#waiting
      const [job] = line
      if (job === undefined) break
      line.delete(job)
      void this.#send(job, { desk, slot })
    }
    if (this.waiting === 0 && this.#desks.size > 1) this.#share()
    this.#tally.depth(this.waiting)
  }

  /** A worker that has nothing to do takes a job that lies with a busy one, which may be hanging. */
  #share(): void {
    const free = this.#leastBusy()
    const slot = free === null || free.jobs.size > 0 ? null : this.#slots.take()
    if (free === null || slot === null) return
    for (const { jobs } of this.#desks.values()) {
      // Its first one is about to begin, if it has not.
      for (const job of [...jobs].slice(1)) {
        if (job.settled || job.place === null || !this.#slots.withdraw(job.place.slot)) continue
        job.tries--
        void this.#send(job, { desk: free, slot })
        return
      }
    }
    this.#slots.give(slot)
  }

  #leastBusy(): Desk | null {
    let best: Desk | null = null
    for (const hand of this.#crew.hands()) {
      if (hand.dead) continue
      const desk = this.#deskOf(hand)
      if (desk.overdue.size > 0 || desk.jobs.size >= this.#options.perWorker) continue
      if (best === null || desk.jobs.size < best.jobs.size) best = desk
    }
    return best
  }

  #deskOf(hand: Hand): Desk {
    let desk = this.#desks.get(hand)
    if (desk === undefined) {
      desk = { hand, jobs: new Set(), overdue: new Set(), heardMs: this.#clock.monotonicMs() }
      this.#desks.set(hand, desk)
    }
    return desk
  }

  async #send(job: Job, place: Place): Promise<void> {
    const { desk, slot } = place
    const { task, input } = job
    job.place = place
    job.tries++
    if (desk.jobs.size === 0) desk.heardMs = this.#clock.monotonicMs()
    desk.jobs.add(job)
    let reply: TaskReply | null = null
    try {
      reply = await desk.hand.post({ task, input, slot })
    } catch {
      // Whether the worker died or the input could not be copied, the worker itself tells.
    }
    const begun = this.#slots.begun(slot)
    // The worker has answered or is gone: nobody looks at the slot any more.
    this.#slots.give(slot)
    desk.heardMs = this.#clock.monotonicMs()
    desk.jobs.delete(job)
    desk.overdue.delete(job)
    if (desk.hand.dead && desk.jobs.size === 0) this.#desks.delete(desk.hand)
    // Another worker may have it by now.
    if (!job.settled && job.place === place) this.#answer(job, reply, { begun, dead: desk.hand.dead })
    this.#dispatch()
  }

  #answer(job: Job, reply: TaskReply | null, { begun, dead }: { begun: boolean; dead: boolean }): void {
    if (reply?.kind === 'done') {
      this.#settle(job, 'ok', reply.ranMs)
      job.resolve(reply.output)
    } else if (reply?.kind === 'failed') {
      this.#settle(job, 'failed', reply.ranMs)
      job.reject(fromPlain(reply.failure))
    } else if (!dead) {
      this.#settle(job, 'failed')
      job.reject(fromPlain({ code: 'uncopyable', message: 'the input cannot go to another thread' }))
    } else if (begun || job.tries > 1) {
      this.#fail(job, 'crashed')
    } else {
      job.place = null
      this.#again.add(job)
    }
  }

  #fail(job: Job, outcome: 'overloaded' | 'timeout' | 'crashed' | 'cancelled'): void {
    if (job.settled) return
    this.#settle(job, outcome)
    job.reject(new TaskError(outcome))
  }

  #settle(job: Job, outcome: TaskOutcome, ranMs: number | null = null): void {
    job.settled = true
    if (--this.#open === 0) {
      this.#crew.hold(false)
      this.#whenIdle()
    }
    job.timer?.cancel()
    job.forget()
    if (this.#waiting.delete(job) || this.#again.delete(job)) this.#tally.depth(this.waiting)
    this.#tally.over(job.task, outcome, this.#clock.monotonicMs() - job.admittedMs, ranMs)
  }
}
