/**
 * The main thread: starts the serve threads and the admin port, restarts a thread that died, tells of one that
 * hangs, drains on request. Composition root together with build.ts.
 */
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import type { Config } from '../config/config.ts'
import { randomText } from '../ids.ts'
import type { Invalidation } from '../invalidation/bus.ts'
import { CounterServer } from '../limits/counter-server.ts'
import type { Counters } from '../limits/counters.ts'
import type { Log } from '../log/log.ts'
import { type AdminServer, startAdmin } from './admin.ts'
import { PULSE_MS } from './messages.ts'
import { createProcessMetrics } from './process-metrics.ts'
import { Scraper } from './scrape.ts'
import { ServeThread, StartError } from './serve-thread.ts'

export interface Supervisor {
  readonly url: string
  readonly adminUrl: string
  /**
   * Stops taking requests, lets running ones finish within the grace time, then stops everything. Called again with
   * less grace, it hurries. False: a thread did not stop, and only the end of the process ends it.
   */
  drain(graceMs: number): Promise<boolean>
  /** Makes every thread drop what it remembers of a record that was changed elsewhere. */
  changed(change: Invalidation): void
}

export interface SupervisorOptions {
  readonly config: Config
  readonly simUrl: string | null
  readonly endUserKey: string
  /** All master keys in the form of GATEWAY_VAULT_KEYS. */
  readonly vaultKeys: string
  /** Where the threads spool their usage records. */
  readonly spoolFolder: string
  /** Called when a thread has ended, with the name of its spool files: nobody writes them any more. */
  readonly writerGone?: (writer: string) => void
  readonly log: Log
  /** Called with each record that a thread changed, once all threads here are told: for other instances. */
  readonly onChange?: (change: Invalidation) => void
  /** What all threads count with; without, nothing that is limited is admitted. */
  readonly counters?: Counters & { readonly degraded: boolean }
  /** Until it resolves, requests are asked to come again, because the store is not ready. Default: it is. */
  readonly prepared?: Promise<unknown>
  /** Why no traffic may come yet, apart from the threads; null when it may. */
  readonly unreadyReason?: () => string | null
  /** What is away although traffic may come. */
  readonly degraded?: () => readonly string[]
  /** Whether the Store can be reached. Default: it can. */
  readonly storageUp?: () => boolean
  /** How many credentials each master key wraps; null when it is not known. */
  readonly sealedCounts?: () => ReadonlyMap<string, number> | null
  /** What a serve thread runs; default: serve.ts. Another one must do as it does. */
  readonly entry?: URL
  /** A thread that says nothing for this long counts as hanging. Default 10 s: no work of ours takes a tenth of it. */
  readonly hungMs?: number
  /** How long threads may take beyond the grace time to say goodbye and close their files. Default 5 s. */
  readonly stopMs?: number
}

/** A thread that dies is restarted after this, and after twice as long each time it dies again soon. */
const RESTART_MS = 500
const RESTART_MAX_MS = 30_000
/** A thread that lived this long died of something new. */
const SETTLED_MS = 60_000
const STOP_MS = 5_000
const HUNG_MS = 10_000

/** A free port may be taken by somebody else between the asking and the listening. */
const FREE_PORT_TRIES = 5

/** @throws StartError; nothing is left running then. */
export async function startSupervisor(options: SupervisorOptions): Promise<Supervisor> {
  const { host } = options.config.listen
  const supervisor = await startOnPort(options, options.config.listen.port === 0 ? FREE_PORT_TRIES : 1)
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${supervisor.port}`,
    adminUrl: supervisor.adminUrl,
    drain: graceMs => supervisor.drain(graceMs),
    changed: change => supervisor.changed(change),
  }
}

async function startOnPort(options: SupervisorOptions, tries: number): Promise<ThreadSupervisor> {
  const supervisor = new ThreadSupervisor(options, await choosePort(options.config))
  try {
    await supervisor.start()
    return supervisor
  } catch (error) {
    if (tries === 1 || !(error instanceof StartError) || !error.portTaken) throw error
    return startOnPort(options, tries - 1)
  }
}

const NO_COUNTERS: Counters = {
  take() {
    throw new Error('there are no counters')
  },
  give: () => undefined,
}

class ThreadSupervisor {
  readonly port: number
  readonly #options: SupervisorOptions
  readonly #process = createProcessMetrics()
  /** Those that take requests. */
  readonly #threads: ServeThread[] = []
  /** Those that run at all: one takes requests before we hear that it does. */
  readonly #alive = new Set<ServeThread>()
  /** Those whose event loop does not turn. */
  readonly #hung = new Set<ServeThread>()
  /** Starts that are under way. */
  readonly #rising = new Set<Promise<void>>()
  readonly #scraper: Scraper
  readonly #hurry = Promise.withResolvers<void>()
  #admin: AdminServer | null = null
  #watch: NodeJS.Timeout | undefined
  #watchedMs = 0
  #draining = false
  #prepared: boolean

  constructor(options: SupervisorOptions, port: number) {
    this.#options = options
    this.port = port
    this.#prepared = options.prepared === undefined
    void options.prepared?.then(() => {
      this.#prepared = true
      for (const thread of this.#alive) thread.prepared()
    })
    this.#scraper = new Scraper(this.#process, this.#threads, options.config.threads.serve)
  }

  get adminUrl(): string {
    return this.#admin?.url ?? ''
  }

  /** @throws StartError; nothing is left running then. */
  async start(): Promise<void> {
    const { config } = this.#options
    try {
      this.#admin = await openAdmin(config, {
        metrics: () => {
          this.#process.quotaDegraded.set(this.#options.counters?.degraded === true ? 1 : 0)
          this.#process.storageUp.set(this.#options.storageUp?.() === false ? 0 : 1)
          this.#showSealedCounts()
          return this.#scraper.page()
        },
        unreadyReason: () => this.#unreadyReason(),
        degraded: () => this.#options.degraded?.() ?? [],
      })
      for (let index = 0; index < config.threads.serve; index++) await this.#run(`serve-${index}`, 0)
    } catch (error) {
      await this.drain(0)
      throw error
    }
    this.#watchedMs = performance.now()
    this.#watch = setInterval(() => this.#watchPulses(), PULSE_MS).unref()
  }

  async drain(graceMs: number): Promise<boolean> {
    const { drainDelayMs } = this.#options.config.timeouts
    this.#draining = true
    clearInterval(this.#watch)
    if (graceMs > 0 && drainDelayMs > 0) await this.#within(drainDelayMs, this.#hurry.promise)
    else this.#hurry.resolve()
    const stopped = Promise.all([...this.#threads.map(thread => thread.drain(graceMs)), ...this.#rising])
    const inTime = await this.#within(graceMs + (this.#options.stopMs ?? STOP_MS), stopped)
    await this.#admin?.close()
    return inTime
  }

  changed(change: Invalidation): void {
    for (const thread of this.#alive) thread.changed(change)
  }

  /** The one way of every change that is made here: all threads first, then whoever else has to know. */
  readonly #publish = (change: Invalidation): void => {
    this.changed(change)
    this.#options.onChange?.(change)
  }

  /** Starts a thread and keeps it running. `deaths` counts those that came soon after each other. */
  async #run(name: string, deaths: number): Promise<void> {
    const { config, simUrl, endUserKey, vaultKeys, spoolFolder, entry, log } = this.#options
    const { counters = NO_COUNTERS } = this.#options
    const shared = config.listen.shared || config.threads.serve > 1
    const spoolWriter = randomText(12)
    const counting = new CounterServer(counters, log, answers => thread.counted(answers))
    const thread: ServeThread = new ServeThread(
      {
        thread: name,
        config,
        simUrl,
        endUserKey,
        vaultKeys,
        spoolFolder,
        spoolWriter,
        port: this.port,
        prepared: this.#prepared,
        shared,
      },
      { change: this.#publish, count: (takes, gives) => counting.receive(takes, gives) },
      entry,
    )
    this.#alive.add(thread)
    void thread.exited().then(() => {
      this.#alive.delete(thread)
      this.#options.writerGone?.(spoolWriter)
    })
    await thread.listening()
    const sinceMs = performance.now()
    this.#threads.push(thread)
    void thread.exited().then(exitCode => {
      counting.close()
      this.#forget(thread)
      if (this.#draining) return
      const again = performance.now() - sinceMs < SETTLED_MS ? deaths + 1 : 1
      log.notice('serve thread died, restarting it', { thread: name, exitCode })
      this.#restart(name, again)
    })
    // It came up while everything else was being stopped.
    if (this.#draining) await thread.drain(0)
  }

  #restart(name: string, deaths: number): void {
    const delayMs = Math.min(RESTART_MS * 2 ** (deaths - 1), RESTART_MAX_MS)
    setTimeout(() => {
      if (this.#draining) return
      this.#process.restarts.inc()
      const rising: Promise<void> = this.#run(name, deaths)
        .catch(error => {
          this.#options.log.fault('serve thread cannot be restarted', error)
          this.#restart(name, deaths + 1)
        })
        .finally(() => this.#rising.delete(rising))
      this.#rising.add(rising)
    }, delayMs).unref()
  }

  #forget(thread: ServeThread): void {
    if (thread.lastWord !== null) this.#scraper.note(thread, thread.lastWord)
    this.#threads.splice(this.#threads.indexOf(thread), 1)
    this.#hung.delete(thread)
  }

  /**
   * A hanging thread is told of, not ended: ending a worker whose sockets are open makes the HTTP library take the
   * whole process along, and with it the streams of all other threads.
   */
  #watchPulses(): void {
    const nowMs = performance.now()
    const lateMs = nowMs - this.#watchedMs - PULSE_MS
    this.#watchedMs = nowMs
    // We hung ourselves: what the threads said meanwhile has not been read yet.
    if (lateMs > PULSE_MS) return
    const { log, hungMs = HUNG_MS } = this.#options
    for (const thread of this.#threads) {
      const hangs = thread.silentMs > hungMs
      if (hangs === this.#hung.has(thread)) continue
      if (hangs) this.#hung.add(thread)
      else this.#hung.delete(thread)
      log.notice(hangs ? 'serve thread hangs' : 'serve thread goes on', { thread: thread.name })
    }
  }

  #showSealedCounts(): void {
    const { credentials } = this.#process
    credentials.reset()
    for (const [key_id, count] of this.#options.sealedCounts?.() ?? []) credentials.set({ key_id }, count)
  }

  #unreadyReason(): string | null {
    if (this.#draining) return 'draining'
    if (this.#threads.length === 0) return 'no serve thread is up'
    if (this.#hung.size > 0) return 'a serve thread hangs'
    return this.#options.unreadyReason?.() ?? null
  }

  /** Whether the work was done within the time. */
  async #within(limitMs: number, work: Promise<unknown>): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<false>(resolve => {
      timer = setTimeout(() => resolve(false), limitMs)
    })
    try {
      return await Promise.race([work.then(() => true as const), late])
    } finally {
      clearTimeout(timer)
    }
  }
}

/**
 * The port to serve on. Asked for exclusively first, because threads share theirs and would share it with a stranger
 * unnoticed, unless sharing is what the operator wants; and because a free one (0) has to be the same for all.
 * @throws StartError
 */
async function choosePort({ listen: { host, port, shared } }: Config): Promise<number> {
  if (shared && port !== 0) return port
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
