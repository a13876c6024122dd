/**
 * Limits how many runs are active at once. Workspaces take turns, and no workspace can fill the queue alone or use more
 * than its part of the runs, because a run may last as long as its code wants. Pure.
 */

interface RunQueueOptions {
  readonly running: number
  readonly runningPerWorkspace: number
  /** Maximum waiting runs of one workspace. */
  readonly waitingPerWorkspace: number
  readonly maxWaiting: number
}

interface WaitingRun {
  readonly workspace: string
  readonly begin: () => void
}

export class RunQueue {
  readonly #options: RunQueueOptions
  readonly #running = new Map<string, number>()
  readonly #waiting: WaitingRun[] = []
  #runningCount = 0

  constructor(options: RunQueueOptions) {
    this.#options = options
  }

  /** Runs the work now or later; null if too many runs wait. Rejects with the reason of the signal while it waits. */
  run<T>(workspace: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> | null {
    if (this.#mayBegin(workspace)) return this.#begin(workspace, work)
    const waitingOfWorkspace = this.#waiting.filter(entry => entry.workspace === workspace).length
    const { maxWaiting, waitingPerWorkspace } = this.#options
    if (waitingOfWorkspace >= waitingPerWorkspace || this.#waiting.length >= maxWaiting) return null
    return new Promise<T>((resolve, reject) => {
      const abort = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(entry), 1)
        reject(signal.reason as Error)
      }
      const entry: WaitingRun = {
        workspace,
        begin: () => {
          signal.removeEventListener('abort', abort)
          this.#begin(workspace, work).then(resolve, reject)
        },
      }
      if (signal.aborted) return reject(signal.reason as Error)
      signal.addEventListener('abort', abort, { once: true })
      this.#waiting.push(entry)
    })
  }

  async #begin<T>(workspace: string, work: () => Promise<T>): Promise<T> {
    this.#runningCount++
    this.#running.set(workspace, (this.#running.get(workspace) ?? 0) + 1)
    try {
      return await work()
    } finally {
      this.#runningCount--
      const stillRunning = (this.#running.get(workspace) ?? 1) - 1
      if (stillRunning === 0) this.#running.delete(workspace)
      else this.#running.set(workspace, stillRunning)
      this.#beginNext()
    }
  }

  #mayBegin(workspace: string): boolean {
    const { running, runningPerWorkspace } = this.#options
    return this.#runningCount < running && (this.#running.get(workspace) ?? 0) < runningPerWorkspace
  }

  /** Begins the first waiting run of the workspace that has the fewest running. */
  #beginNext(): void {
    let nextRun: WaitingRun | null = null
    let fewestRunning = Number.POSITIVE_INFINITY
    for (const entry of this.#waiting) {
      const runCount = this.#running.get(entry.workspace) ?? 0
      if (runCount < fewestRunning && this.#mayBegin(entry.workspace)) {
        nextRun = entry
        fewestRunning = runCount
      }
    }
    if (nextRun === null) return
    this.#waiting.splice(this.#waiting.indexOf(nextRun), 1)
    nextRun.begin()
  }
}
