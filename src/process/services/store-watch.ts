/**
 * Watches the availability of the Store. Prepares it before first use; a gateway that starts while its database is
 * unavailable retries that. Main thread.
 */
import { type Clock, type Timer, within } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { isAway } from '../../storage/open.ts'
import type { Store } from '../../storage/store.ts'

/** `new`: not prepared yet, so nothing can be served. `away`: prepared, but it does not answer now. */
type StoreState = 'new' | 'there' | 'away'

export interface StoreWatch<T> {
  readonly state: StoreState
  /** How long the last probe took, with or without an answer. 0 before the first. */
  readonly probeSeconds: number
  /** The error of the preparation if the Store itself was available; otherwise null. */
  readonly wrong: unknown
  /** The result of the preparation; never settles when the watch is closed before. */
  readonly prepared: Promise<T>
  close(): void
}

interface StoreWatchOptions<T> {
  readonly store: Pick<Store, 'probe'>
  /** Called until it succeeds, one call at a time. */
  readonly prepare: () => Promise<T>
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  /** The address of the database for the log, without user and password. */
  readonly place?: string
}

/** How long a start waits for a database that does not answer at all. */
const FIRST_MS = 5_000
/** A database is used within a second after it is back. */
const RETRY_MS = 500
/** An available database that cannot be prepared needs an operator. */
const RETRY_WRONG_MS = 5_000
const PROBE_MS = 2_000

/**
 * Resolves after the first try, when it succeeded or the Store is away.
 * @throws any other error of the preparation at the first try
 */
export async function watchStore<T>(options: StoreWatchOptions<T>): Promise<StoreWatch<T>> {
  const watch = new Watch(options)
  await watch.start()
  return watch
}

class Watch<T> implements StoreWatch<T> {
  readonly #options: StoreWatchOptions<T>
  readonly #prepared = Promise.withResolvers<T>()
  #state: StoreState = 'new'
  #probeMs = 0
  #wrong: unknown = null
  #timer: Timer | null = null
  /** The outage is in the log. */
  #logged = false
  #closed = false

  constructor(options: StoreWatchOptions<T>) {
    this.#options = options
  }

  get state(): StoreState {
    return this.#state
  }

  get probeSeconds(): number {
    return this.#probeMs / 1000
  }

  get wrong(): unknown {
    return this.#wrong
  }

  get prepared(): Promise<T> {
    return this.#prepared.promise
  }

  async start(): Promise<void> {
    const { clock, prepare } = this.#options
    const first = prepare()
    const waited = Promise.withResolvers<void>()
    const timer = clock.after(FIRST_MS, () => waited.resolve())
    let started = false
    const firstTry = first.then(
      result => this.#succeed(result),
      (error: unknown) => {
        if (!started && !isAway(error)) throw error
        this.#fail(error)
      },
    )
    try {
      await Promise.race([firstTry, waited.promise])
      started = true
    } finally {
      timer.cancel()
    }
  }

  close(): void {
    this.#closed = true
    this.#timer?.cancel()
  }

  #try(): void {
    this.#options.prepare().then(
      result => this.#succeed(result),
      (error: unknown) => this.#fail(error),
    )
  }

  #succeed(result: T): void {
    this.#wrong = null
    this.#noteAvailable()
    this.#prepared.resolve(result)
    this.#schedule(PROBE_MS, () => this.#probe())
  }

  #fail(error: unknown): void {
    const isUnavailable = isAway(error)
    this.#wrong = isUnavailable ? null : error
    this.#logOutage(error)
    this.#schedule(isUnavailable ? RETRY_MS : RETRY_WRONG_MS, () => this.#try())
  }

  #probe(): void {
    const { store, clock } = this.#options
    const sinceMs = clock.monotonicMs()
    within(clock, PROBE_MS, store.probe())
      .then(
        () => this.#noteAvailable(),
        (error: unknown) => {
          this.#state = 'away'
          this.#logOutage(error)
        },
      )
      .then(() => {
        this.#probeMs = clock.monotonicMs() - sinceMs
        this.#schedule(PROBE_MS, () => this.#probe())
      })
  }

  #noteAvailable(): void {
    if (this.#logged) this.#options.log.notice('store', 'the store is available again')
    this.#logged = false
    this.#state = 'there'
  }

  /** Once per outage. */
  #logOutage(error: unknown): void {
    if (!this.#logged && !this.#closed) {
      const { log, place } = this.#options
      log.fault('store', 'cannot use the store', error, place === undefined ? undefined : { host: place })
    }
    this.#logged = true
  }

  #schedule(delayMs: number, next: () => void): void {
    if (!this.#closed) this.#timer = this.#options.clock.after(delayMs, next)
  }
}
