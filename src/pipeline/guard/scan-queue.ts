/**
 * Queue of a guarded reply: processes its deltas one after the other. While one waits for a scan, the others queue; if
 * too many queue, it pauses the provider. One per attempt. Hot path of guarded replies.
 */
import type { Content } from '../answer/answer.ts'

export interface QueuedDelta {
  readonly kind: 'delta'
  readonly delta: Content
  /** True if its text is already in a window. */
  isAdded: boolean
}
export type QueuedStep = QueuedDelta | { readonly kind: 'end'; readonly done: () => void }

export interface QueueOwner {
  /** Runs work that had to wait, as if the provider had just sent it. */
  turn(work: () => void): void
  /** Pauses the provider, until `resume`. */
  pause(): void
  resume(): void
}

/** Characters that may queue during a scan before the provider is paused. */
const QUEUE_MAX_CHARS = 64 * 1024

export class ScanQueue {
  readonly #owner: QueueOwner
  /** False if a scan has to finish first, and the entry must be processed again. */
  readonly #process: (entry: QueuedStep) => boolean
  #entries: QueuedStep[] = []
  #chars = 0
  #isPaused = false
  #isWaiting = false
  #isStopped = false

  constructor(owner: QueueOwner, process: (entry: QueuedStep) => boolean) {
    this.#owner = owner
    this.#process = process
  }

  add(entry: QueuedStep): void {
    this.#entries.push(entry)
    if (!this.#isWaiting) {
      this.#run()
      return
    }
    if (entry.kind === 'delta' && 'text' in entry.delta) this.#chars += entry.delta.text.length
    if (this.#chars > QUEUE_MAX_CHARS) {
      this.#isPaused = true
      this.#owner.pause()
    }
  }

  /** Inserts entries directly after the one that is being processed. */
  insert(entries: readonly QueuedStep[]): void {
    const [current, ...laterEntries] = this.#entries
    this.#entries = [...(current === undefined ? [] : [current]), ...entries, ...laterEntries]
  }

  /** Waits for the promise, passes its value to `use`, and continues with the entry that is being processed. */
  wait<T>(promise: Promise<T>, use: (value: T) => void): void {
    this.#isWaiting = true
    const goOn = (takeValue: () => T): void => {
      this.#isWaiting = false
      if (this.#isStopped) return
      this.#owner.turn(() => {
        use(takeValue())
        if (!this.#isStopped) this.#run()
      })
    }
    promise.then(
      value => goOn(() => value),
      fault =>
        goOn(() => {
          throw fault
        }),
    )
  }

  /** Stops processing. */
  stop(): void {
    this.#isStopped = true
  }

  #run(): void {
    for (let entry = this.#entries[0]; entry !== undefined; entry = this.#entries[0]) {
      if (!this.#process(entry) || this.#isStopped) return
      this.#entries.shift()
    }
    this.#chars = 0
    if (!this.#isPaused) return
    this.#isPaused = false
    this.#owner.resume()
  }
}
