/**
 * Serve threads that load their code while the main thread loads its own and opens the store, so that both happen at
 * the same time. They wait for their settings, which arrive when everything else is ready.
 */
import { once } from 'node:events'
import { MessageChannel, type MessagePort, SHARE_ENV, Worker } from 'node:worker_threads'
import type { Config } from '../config/settings.ts'
import type { ThreadSettings } from '../threads/thread-loop.ts'
import { makeCompileCache } from './compile-cache.ts'

/** The initial data of such a thread. */
export interface EarlyData {
  /** Its name. */
  readonly thread: string
  /** The folder of V8's compile cache; null if there is none. */
  readonly compileCache: string | null
  /** Its settings arrive here, as the only message. */
  readonly later: MessagePort
}

interface EarlyWorker {
  readonly worker: Worker
  readonly port: MessagePort
}

/** Unbuilt and built sources have different file extensions. */
const ENTRY = new URL(
  import.meta.url.endsWith('.ts') ? './early-serve.ts' : './early-serve.js',
  import.meta.url,
)

export class EarlyWorkers {
  readonly #waiting = new Map<string, EarlyWorker>()

  /** @param names of the threads */
  constructor(names: readonly string[], compileCache: string | null) {
    for (const thread of names) {
      const { port1: port, port2: later } = new MessageChannel()
      const workerData: EarlyData = { thread, compileCache, later }
      // The HTTP library reads its header limit from the environment of the process, hence SHARE_ENV.
      const worker = new Worker(ENTRY, { workerData, transferList: [later], env: SHARE_ENV })
      // A worker that cannot load is not used; the thread that starts instead reports the error.
      worker.on('error', () => this.#waiting.delete(thread))
      worker.on('exit', () => this.#waiting.delete(thread))
      this.#waiting.set(thread, { worker, port })
    }
  }

  /** Returns the worker for this thread, which continues with the settings; null if there is none (any more). */
  claim(settings: ThreadSettings): Worker | null {
    const entry = this.#waiting.get(settings.thread)
    if (entry === undefined) return null
    this.#waiting.delete(settings.thread)
    entry.worker.removeAllListeners()
    entry.port.postMessage(settings)
    entry.port.close()
    return entry.worker
  }

  /** Ends the workers that were not used. */
  close(): void {
    for (const { worker } of this.#waiting.values()) void worker.terminate()
    this.#waiting.clear()
  }
}

/** Starts the serve threads of a configuration, with the compile cache. */
export function startEarly({ storage, threads }: Config): EarlyWorkers {
  const names = Array.from({ length: threads.serve }, (_, index) => `serve-${index}`)
  return new EarlyWorkers(names, makeCompileCache(storage.url))
}

/** The settings of a thread, which may arrive later. */
export async function settingsOf(data: ThreadSettings | EarlyData): Promise<ThreadSettings> {
  if (!('later' in data)) return data
  const [settings] = (await once(data.later, 'message')) as [ThreadSettings]
  return settings
}
