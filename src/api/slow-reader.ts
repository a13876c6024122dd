/** Waits for a client that is slow to read a long reply. */
import type { RequestSignal } from '../signal.ts'
import type { Reply } from './operation.ts'

export class SlowReader {
  readonly #signal: RequestSignal
  #wake: () => void = () => undefined

  constructor(reply: Reply, signal: RequestSignal) {
    this.#signal = signal
    reply.onProgress(drained => {
      if (drained) this.#wake()
    })
    signal.addEventListener('abort', () => this.#wake(), { once: true })
  }

  /** Resolves when the client has taken what was written. Rejects with the reason of the abort. */
  async drained(): Promise<void> {
    if (!this.#signal.aborted) {
      await new Promise<void>(resolve => {
        this.#wake = resolve
      })
    }
    this.#signal.throwIfAborted()
  }
}
