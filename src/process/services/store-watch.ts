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

interface StoreWatchOptions<T> {
  readonly store: Pick<Store, 'probe'>
  /** Called until it succeeds, one call at a time. */
  readonly prepare: () => Promise<T>
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  /** The address of the database for the log, without user and password. */
  readonly address?: string
}

/** How long a start waits for a database that does not answer at all. */
const FIRST_TRY_MS = 5_000
/** A database is used within a second after it is back. */
const RETRY_MS = 500
/** An available database that cannot be prepared needs an operator. */
const PREPARATION_RETRY_MS = 5_000
const PROBE_INTERVAL_MS = 2_000

/**
 * Resolves after the first try, when it succeeded or the Store is away.
 * @throws any other error of the preparation at the first try
 */
export async function watchStore<T>(options: StoreWatchOptions<T>): Promise<StoreWatch<T>> {
  const watch = new StoreWatch(options)
  await watch.start()
  return watch
}

export class StoreWatch<T> {
  /** Like the next two fields, written only here. */
  state: StoreState = 'new'
  /** How long the last probe took, with or without an answer. 0 before the first. */
  probeSeconds = 0
  /** The error of the preparation if the Store itself was available; otherwise null. */
  preparationError: unknown = null
  readonly #options: StoreWatchOptions<T>
  readonly #prepared = Promise.withResolvers<T>()
  #timer: Timer | null = null
  /** True once the outage was logged. */
  #isLogged = false
  #closed = false

  constructor(options: StoreWatchOptions<T>) {
    this.#options = options
  }

  /** The result of the preparation; never settles if the watch is closed before. */
  get prepared(): Promise<T> {
    return this.#prepared.promise
  }

  async start(): Promise<void> {
    const { clock, prepare } = this.#options
    const first = prepare()
    const timeout = Promise.withResolvers<void>()
    const timer = clock.after(FIRST_TRY_MS, () => timeout.resolve())
    let isStarted = false
    const firstTry = first.then(
      result => this.#succeed(result),
      (error: unknown) => {
        if (!isStarted && !isAway(error)) throw error
        this.#fail(error)
      },
    )
    try {
      await Promise.race([firstTry, timeout.promise])
      isStarted = true
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
    this.preparationError = null
    this.#noteAvailable()
    this.#prepared.resolve(result)
    this.#schedule(PROBE_INTERVAL_MS, () => this.#probe())
  }

  #fail(error: unknown): void {
    const isUnavailable = isAway(error)
    this.preparationError = isUnavailable ? null : error
    this.#logOutage(error)
    this.#schedule(isUnavailable ? RETRY_MS : PREPARATION_RETRY_MS, () => this.#try())
  }

  #probe(): void {
    const { store, clock } = this.#options
    const sinceMs = clock.monotonicMs()
    within(clock, PROBE_INTERVAL_MS, store.probe())
      .then(
        () => this.#noteAvailable(),
        (error: unknown) => {
          this.state = 'away'
          this.#logOutage(error)
        },
      )
      .then(() => {
        this.probeSeconds = (clock.monotonicMs() - sinceMs) / 1000
        this.#schedule(PROBE_INTERVAL_MS, () => this.#probe())
      })
  }

  #noteAvailable(): void {
    if (this.#isLogged) this.#options.log.notice('store', 'the store is available again')
    this.#isLogged = false
    this.state = 'there'
  }

  /** Once per outage. */
  #logOutage(error: unknown): void {
    if (!this.#isLogged && !this.#closed) {
      const { log, address } = this.#options
      log.fault('store', 'cannot use the store', error, address === undefined ? undefined : { host: address })
    }
    this.#isLogged = true
  }

  #schedule(delayMs: number, next: () => void): void {
    if (!this.#closed) this.#timer = this.#options.clock.after(delayMs, next)
  }
}
