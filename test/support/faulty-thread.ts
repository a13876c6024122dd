/**
 * A serve thread that fails when a test tells it to, over a channel that only this entry listens on: the entry of
 * the product has no such door. Used as `SupervisorOptions.entry`.
 */
import { BroadcastChannel, workerData } from 'node:worker_threads'
import type { ServeSettings } from '../../src/threads/messages.ts'

export interface Order {
  readonly thread: string
  /** Throw where nobody catches, or keep the event loop from turning for so long. */
  readonly fault: 'throw' | { readonly blockMs: number }
}

export const FAULT_CHANNEL = 'sluice-faulty-thread'

/** Null in the test itself, which imports the types and the name from here. */
const settings = workerData as ServeSettings | null

if (typeof settings?.thread === 'string') {
  const channel = new BroadcastChannel(FAULT_CHANNEL)
  channel.onmessage = (message: unknown) => {
    const { thread, fault } = (message as { data: Order }).data
    if (thread !== settings.thread) return
    if (fault === 'throw') setImmediate(() => fail())
    else Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, fault.blockMs)
  }
  channel.unref()
  await import('../../src/threads/serve.ts')
}

function fail(): never {
  throw new Error('told to fail')
}
