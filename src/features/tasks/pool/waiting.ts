/**
 * Jobs that wait for a worker, in one list per key. Keys take turns, so a key with a thousand jobs does not delay a key
 * with one. Pure.
 */

/** The part of a job that decides its position in the queue. */
interface KeyedJob {
  /** The API key that the job is for. Jobs of one key run in the order of their arrival. */
  readonly key: string
}

export class WaitingJobs<Job extends KeyedJob> {
  /** Never has empty lists; the first key has the next turn. */
  readonly #lists = new Map<string, Job[]>()
  #size = 0

  get size(): number {
    return this.#size
  }

  sizeOf(key: string): number {
    return this.#lists.get(key)?.length ?? 0
  }

  /** Adds a job after all jobs of its key. */
  add(job: Job): void {
    const list = this.#lists.get(job.key)
    if (list === undefined) this.#lists.set(job.key, [job])
    else list.push(job)
    this.#size++
  }

  /** Adds a job before all others. */
  addFirst(job: Job): void {
    const earlier = [...this.#lists]
    const list = this.#lists.get(job.key) ?? []
    list.unshift(job)
    this.#lists.clear()
    this.#lists.set(job.key, list)
    for (const [key, earlierList] of earlier) if (key !== job.key) this.#lists.set(key, earlierList)
    this.#size++
  }

  /** Removes the next job that may run. A key whose first job may not run now keeps its turn. */
  next(mayRun: (job: Job) => boolean): Job | null {
    for (const [key, list] of this.#lists) {
      const [job] = list
      if (job === undefined || !mayRun(job)) continue
      list.shift()
      this.#lists.delete(key)
      if (list.length > 0) this.#lists.set(key, list)
      this.#size--
      return job
    }
    return null
  }

  /** The last job of the key with the most jobs; null if none waits. */
  lastOfLongest(): Job | null {
    let longest: Job[] | null = null
    for (const list of this.#lists.values()) if (list.length > (longest?.length ?? 0)) longest = list
    return longest?.at(-1) ?? null
  }

  /** Returns false if the job does not wait. */
  remove(job: Job): boolean {
    const list = this.#lists.get(job.key)
    const index = list?.lastIndexOf(job) ?? -1
    if (list === undefined || index === -1) return false
    list.splice(index, 1)
    if (list.length === 0) this.#lists.delete(job.key)
    this.#size--
    return true
  }

  *[Symbol.iterator](): Generator<Job> {
    for (const list of this.#lists.values()) yield* list
  }
}
