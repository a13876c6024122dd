/**
 * The main thread: starts the serve threads and the admin port, restarts a thread that died, drains on request.
 * Composition root together with build.ts.
 */
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { SHARE_ENV, Worker } from 'node:worker_threads'
import { AggregatorRegistry, Registry } from 'prom-client'
import type { Config } from '../config.ts'
import type { Log } from '../log.ts'
import { type AdminServer, startAdmin } from './admin.ts'
import type { FromThread, MetricSnapshot, ServeSettings, ToThread } from './messages.ts'

/** Start-up failed for a reason the operator can act on. */
export class StartError extends Error {
  override readonly name = 'StartError'
  readonly portTaken: boolean

  constructor(message: string, portTaken: boolean) {
    super(message)
    this.portTaken = portTaken
  }
}

export interface Supervisor {
  readonly url: string
  readonly adminUrl: string
  /** Stops taking requests, lets running ones finish within the grace time, then stops everything. */
  drain(graceMs: number): Promise<void>
}

export interface SupervisorOptions {
  readonly config: Config
  readonly simUrl: string | null
  readonly endUserKey: string
  readonly log: Log
}

/** A thread that does not answer a scrape within this is left out of it, rather than failing the whole. */
const SCRAPE_MS = 2_000
/** A thread that dies at once again is not restarted faster than this. */
const RESTART_MS = 500

export async function startSupervisor(options: SupervisorOptions): Promise<Supervisor> {
  const { config, log } = options
  const { simUrl, endUserKey } = options
  const threads: ServeThread[] = []
  let draining = false
  const port = await freePort(config.listen.host, config.listen.port)

  const start = async () => {
    const thread = new ServeThread({ config, simUrl, endUserKey, port, shared: config.threads.serve > 1 })
    await thread.listening()
    threads.push(thread)
    thread.onExit(code => {
      threads.splice(threads.indexOf(thread), 1)
      if (draining) return
      log.notice('serve thread died, restarting it', { exitCode: code })
      setTimeout(() => {
        if (!draining) start().catch(error => log.fault('serve thread cannot be restarted', error))
      }, RESTART_MS)
    })
  }

  const stopThreads = (graceMs: number) => Promise.all(threads.map(thread => thread.drain(graceMs)))
  let admin: AdminServer
  try {
    admin = await openAdmin(config, {
      metrics: () => mergedMetrics(threads),
      unreadyReason: () => (draining ? 'draining' : threads.length === 0 ? 'no serve thread is up' : null),
    })
    try {
      for (let count = 0; count < config.threads.serve; count++) await start()
    } catch (error) {
      await admin.close()
      throw error
    }
  } catch (error) {
    draining = true
    await stopThreads(0)
    throw error
  }

  return {
    url: `http://${config.listen.host.includes(':') ? `[${config.listen.host}]` : config.listen.host}:${port}`,
    adminUrl: admin.url,
    async drain(graceMs) {
      draining = true
      await stopThreads(graceMs)
      await admin.close()
    },
  }
}

/**
 * The port to serve on: asked for exclusively first, because threads share theirs and would share it with a
 * stranger unnoticed; and because a free one (0) has to be the same for all of them.
 * @throws StartError
 */
async function freePort(host: string, port: number): Promise<number> {
  const probe = createServer()
  try {
    probe.listen({ host, port, exclusive: true })
    await once(probe, 'listening')
    return (probe.address() as AddressInfo).port
  } catch (error) {
    throw cannotListen('listen.port', host, port, error)
  } finally {
    probe.close()
  }
}

function cannotListen(field: string, host: string, port: number, error: unknown): StartError {
  const code = (error as NodeJS.ErrnoException).code ?? 'unknown'
  return new StartError(`${field}: cannot listen on ${host}:${port} (${code})`, code === 'EADDRINUSE')
}

async function openAdmin(config: Config, sources: Parameters<typeof startAdmin>[2]): Promise<AdminServer> {
  const { host, port } = config.admin
  try {
    return await startAdmin(host, port, sources)
  } catch (error) {
    throw cannotListen('admin.port', host, port, error)
  }
}

async function mergedMetrics(threads: readonly ServeThread[]): Promise<string> {
  const snapshots = await Promise.all(threads.map(thread => thread.metrics()))
  const answered = snapshots.filter(snapshot => snapshot !== null)
  if (answered.length === 0) return new Registry().metrics()
  return AggregatorRegistry.aggregate(answered.map(snapshot => [...snapshot])).metrics()
}

class ServeThread {
  readonly #worker: Worker
  readonly #listening = Promise.withResolvers<number>()
  readonly #exited = Promise.withResolvers<number>()
  readonly #scrapes = new Map<number, (metrics: MetricSnapshot | null) => void>()
  #scrape = 0

  constructor(settings: ServeSettings) {
    this.#worker = new Worker(
      new URL(import.meta.url.endsWith('.ts') ? './serve.ts' : './serve.js', import.meta.url),
      {
        workerData: settings,
        // The HTTP library reads its header limit from the environment of the process.
        env: SHARE_ENV,
      },
    )
    this.#worker.on('message', (message: FromThread) => this.#receive(message))
    this.#worker.on('error', error => this.#listening.reject(error))
    this.#worker.on('exit', code => {
      this.#listening.reject(new StartError('a serve thread stopped while starting', false))
      for (const answer of this.#scrapes.values()) answer(null)
      this.#exited.resolve(code)
    })
  }

  /** The bound port, once requests are taken. @throws StartError */
  listening(): Promise<number> {
    return this.#listening.promise
  }

  onExit(callback: (code: number) => void): void {
    void this.#exited.promise.then(callback)
  }

  /** Null when the thread does not answer in time. */
  metrics(): Promise<MetricSnapshot | null> {
    const request = this.#scrape++
    return new Promise(resolve => {
      const timer = setTimeout(() => answer(null), SCRAPE_MS)
      const answer = (metrics: MetricSnapshot | null) => {
        clearTimeout(timer)
        this.#scrapes.delete(request)
        resolve(metrics)
      }
      this.#scrapes.set(request, answer)
      this.#send({ type: 'metrics', request })
    })
  }

  async drain(graceMs: number): Promise<void> {
    this.#send({ type: 'drain', graceMs })
    await this.#exited.promise
  }

  #send(message: ToThread): void {
    this.#worker.postMessage(message)
  }

  #receive(message: FromThread): void {
    switch (message.type) {
      case 'listening':
        this.#listening.resolve(message.port)
        break
      case 'refused':
        this.#listening.reject(new StartError(message.reason, message.portTaken))
        break
      case 'metrics':
        this.#scrapes.get(message.request)?.(message.metrics)
        break
      case 'drained':
        break
    }
  }
}
