/**
 * Whether the Store is there. Before it is used for the first time something has to be done with it; a gateway that is
 * started while its database is away goes on trying that. Main thread.
 */
import { type Clock, type Timer, within } from '../clock.ts'
import type { Log } from '../log/log.ts'
import { isAway } from '../storage/open.ts'
import type { Store } from '../storage/store.ts'

/** `new`: it has not been prepared yet, and nothing can be served. `away`: it has been, and does not answer now. */
export type StoreState = 'new' | 'there' | 'away'

export interface StoreWatch<T> {
  readonly state: StoreState
  /** Why the preparation failed, where the Store was there all the same; null otherwise. */
  readonly wrong: unknown
  /** What the preparation gave; does not settle when the watch is closed before. */
  readonly prepared: Promise<T>
  close(): void
}

export interface StoreWatchOptions<T> {
  readonly store: { readonly keys: Pick<Store['keys'], 'find'> }
  /** Called until it succeeds, never twice at once. */
  readonly prepare: () => Promise<T>
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
}

/** How long a start waits for a database that does not even refuse. */
const FIRST_MS = 5_000
/** A database that comes back is to be used within a second. */
const RETRY_MS = 500
/** What a database that is there is not right for takes people. */
const RETRY_WRONG_MS = 5_000
const PROBE_MS = 2_000
/** No key has it. */
const NO_HASH = ''

/**
 * Resolves after the first try, when it succeeded or the Store is away.
 * @throws what else the preparation threw at the first try
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
  #wrong: unknown = null
  #timer: Timer | null = null
  #told = false
  #closed = false

  constructor(options: StoreWatchOptions<T>) {
    this.#options = options
  }

  get state(): StoreState {
    return this.#state
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
    const tried = first.then(
      result => this.#succeed(result),
      (error: unknown) => {
        if (!started && !isAway(error)) throw error
        this.#fail(error)
      },
    )
    try {
      await Promise.race([tried, waited.promise])
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
    this.#there()
    this.#prepared.resolve(result)
    this.#schedule(PROBE_MS, () => this.#probe())
  }

  #fail(error: unknown): void {
    const away = isAway(error)
    this.#wrong = away ? null : error
    this.#tell(error)
    this.#schedule(away ? RETRY_MS : RETRY_WRONG_MS, () => this.#try())
  }

  #probe(): void {
    const { store, clock } = this.#options
    within(clock, PROBE_MS, store.keys.find(NO_HASH))
      .then(
        () => this.#there(),
        (error: unknown) => {
          this.#state = 'away'
          this.#tell(error)
        },
      )
      .then(() => this.#schedule(PROBE_MS, () => this.#probe()))
  }

  #there(): void {
    if (this.#told) this.#options.log.notice('the storage can be used')
    this.#told = false
    this.#state = 'there'
  }

  /** Once per outage. */
  #tell(error: unknown): void {
    if (!this.#told && !this.#closed) this.#options.log.fault('the storage cannot be used', error)
    this.#told = true
  }

  #schedule(delayMs: number, then: () => void): void {
    if (!this.#closed) this.#timer = this.#options.clock.after(delayMs, then)
  }
}
