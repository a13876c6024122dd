/**
 * A serve thread that fails when a test tells it to, over a channel that only this entry listens to: the entry of the
 * product has no such hook. Used as `SupervisorOptions.entry`.
 */
import { BroadcastChannel, workerData } from 'node:worker_threads'
import type { ThreadSettings } from '../../../src/process/threads/thread-loop.ts'

export interface Order {
  readonly thread: string
  /** Throw where nobody catches, or keep the event loop from turning until the block is released. */
  readonly fault: 'throw' | { readonly block: SharedArrayBuffer }
}

const [HELD, RELEASED] = [0, 1]

/** Keeps the event loop of a thread from turning, for as long as a test wants it to. */
export class Block {
  readonly shared = new SharedArrayBuffer(8)
  readonly #cells = new Int32Array(this.shared)

  /** Whether the thread stands still. */
  get holds(): boolean {
    return Atomics.load(this.#cells, HELD) === 1
  }

  release(): void {
    Atomics.store(this.#cells, RELEASED, 1)
    Atomics.notify(this.#cells, RELEASED)
  }
}

function standStill(shared: SharedArrayBuffer): void {
  const cells = new Int32Array(shared)
  Atomics.store(cells, HELD, 1)
  Atomics.wait(cells, RELEASED, 0)
}

export const FAULT_CHANNEL = 'sluice-faulty-thread'

/** Null in the test itself, which imports the types and the name from here. */
const settings = workerData as ThreadSettings | null

if (typeof settings?.thread === 'string') {
  const channel = new BroadcastChannel(FAULT_CHANNEL)
  channel.onmessage = (message: unknown) => {
    const { thread, fault } = (message as { data: Order }).data
    if (thread !== settings.thread) return
    if (fault === 'throw') setImmediate(() => fail())
    else standStill(fault.block)
  }
  channel.unref()
  await import('../../../src/process/threads/serve.ts')
}

function fail(): never {
  throw new Error('told to fail')
}
