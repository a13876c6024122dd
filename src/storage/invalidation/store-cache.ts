/**
 * A bounded cache of store records by name (API keys, workspaces, callers). Hot path: a fresh record costs one
 * synchronous lookup and one comparison. Concurrent loads of one name share one read. While the store fails, a known
 * record stays valid for a limited time, and only the first caller waits for the failure.
 */
import { LRUCache } from 'lru-cache'
import { type Clock, within } from '../../base/clock.ts'
import { storeUnavailable } from '../../base/errors.ts'
import type { Log } from '../../base/log/log.ts'
import { SingleFlight } from './single-flight.ts'

export interface StoreCacheLimits {
  /**
   * How long a record is used without a new read. If an invalidation is lost, a change stays unseen for at most this
   * time.
   */
  readonly freshMs: number
  /** How long a record stays valid after that while the store fails. */
  readonly staleMs: number
  /** How long a request waits for the store. */
  readonly lookupMs: number
  /** Maximum of concurrent reads. Beyond it, a value that is still valid is used; without one, `store_unavailable`. */
  readonly maxLookups: number
}

/** `Stored` is the answer of the store, `Value` the form that is cached; null is never cached. */
export interface StoreCacheOptions<Stored, Value> extends Partial<StoreCacheLimits> {
  readonly clock: Clock
  readonly log?: Pick<Log, 'fault' | 'notice'>
  /** Plural name of the records, for log lines. */
  readonly plural: string
  /** Maximum of cached names. */
  readonly maxEntries: number
  /** Maximum of the sum of all sizes. Without it only names are counted. */
  readonly maxSize?: number
  /** Default 1. */
  readonly sizeOf?: (stored: Stored) => number
  /** Null: the record does not exist, and an older one is removed from the cache. */
  readonly make: (stored: Stored) => Value
  /** Called with each loaded value, including null, unless the name was invalidated during the read. */
  readonly onLoad?: (name: string, value: Value) => void
}

const DEFAULT_LIMITS = {
  freshMs: 30_000,
  // A longer outage of the store needs an operator anyway.
  staleMs: 600_000,
  lookupMs: 2_000,
  maxLookups: 1_000,
} satisfies StoreCacheLimits

/** Minimum time between two reads of a cached name while the store fails. */
const REREAD_INTERVAL_MS = 1_000

interface Entry<Value> {
  readonly value: Value
  readonly owner: string | null
  readonly size: number
  /** Monotonic; until then the store is not read. */
  freshUntilMs: number
  /** Monotonic; until then the value is valid even if the store fails. */
  readonly staleUntilMs: number
  /** The last read failed, so the next caller gets the cached value at once. */
  isFailing: boolean
}

export class StoreCache<Stored, Value> {
  readonly #options: StoreCacheOptions<Stored, Value> & StoreCacheLimits
  readonly #clock: Clock
  readonly #entries: LRUCache<string, Entry<Value>>
  readonly #reads = new SingleFlight<Value>()
  #storeFails = false

  constructor(options: StoreCacheOptions<Stored, Value>) {
    this.#options = { ...DEFAULT_LIMITS, ...options }
    this.#clock = options.clock
    const { maxEntries: max, maxSize } = options
    this.#entries = new LRUCache<string, Entry<Value>>({
      max,
      ...(maxSize === undefined ? {} : sizeLimit(maxSize)),
    })
  }

  /** The value of a name while it is fresh. */
  get(name: string): Value | undefined {
    const entry = this.#entries.get(name)
    return entry !== undefined && this.#clock.monotonicMs() < entry.freshUntilMs ? entry.value : undefined
  }

  /** Monotonic milliseconds until which the value of a name is fresh; 0: it is not known. */
  freshUntilMs(name: string): number {
    return this.#entries.get(name)?.freshUntilMs ?? 0
  }

  /** The value of a name, however old. */
  peek(name: string): Value | undefined {
    return this.#entries.get(name)?.value
  }

  /**
   * Reads a name that is not fresh. Returns the known value at once if the last read failed. Rejects with GatewayError
   * `store_unavailable` if no value is known and the store fails or too many reads run. Call it from a method of its
   * own: a method that creates `read` after `get` pays for the closure on every call.
   * @param owner for `invalidateOwner`
   */
  load(name: string, read: () => Promise<Stored>, owner: string | null = null): Value | Promise<Value> {
    const entry = this.#entries.get(name)
    if (entry?.isFailing !== true || this.#clock.monotonicMs() >= entry.staleUntilMs) {
      return this.#read(name, read, owner)
    }
    // The outage is already in the log.
    this.#read(name, read, owner).catch(() => undefined)
    return entry.value
  }

  /** Removes a name after its record was changed. */
  invalidate(name: string): void {
    this.#entries.delete(name)
    this.#reads.drop(name)
  }

  /** Keeps the results of running reads out of the cache, because they may show the state before a change. */
  dropReads(): void {
    this.#reads.dropAll()
  }

  /** Drops all names that were loaded with this owner. */
  invalidateOwner(owner: string): void {
    this.#drop(entry => entry.owner === owner)
    this.#reads.dropOwner(owner)
  }

  /** Drops the names whose values have changed. Reads that run are not affected. */
  invalidateEach(isChanged: (value: Value) => boolean): void {
    this.#drop(({ value }) => isChanged(value))
  }

  #drop(isDropped: (entry: Entry<Value>) => boolean): void {
    // A copy: the cache cannot be iterated while entries are deleted.
    for (const [name, entry] of [...this.#entries.entries()]) if (isDropped(entry)) this.#entries.delete(name)
  }

  /** Makes every name be read again before its next use. Cached values stay valid only while the store fails. */
  invalidateAll(): void {
    for (const entry of this.#entries.values()) {
      entry.freshUntilMs = Number.NEGATIVE_INFINITY
      entry.isFailing = false
    }
    this.#reads.dropAll()
  }

  #read(name: string, read: () => Promise<Stored>, owner: string | null): Promise<Value> {
    const currentRead = this.#reads.find(name)
    if (currentRead !== undefined) return currentRead
    // Async, so that this error is also a rejection.
    if (this.#reads.active >= this.#options.maxLookups) return (async () => this.#staleValue(name))()
    return this.#reads.run(name, isCurrent => this.#refresh(name, read, owner, isCurrent), owner)
  }

  async #refresh(
    name: string,
    read: () => Promise<Stored>,
    owner: string | null,
    isCurrent: () => boolean,
  ): Promise<Value> {
    const { lookupMs, make, sizeOf, onLoad } = this.#options
    let storedValue: Stored
    try {
      storedValue = await within(this.#clock, lookupMs, read())
    } catch (error) {
      this.#logOutage(error)
      return this.#staleValue(name, error)
    }
    this.#logRecovery()
    const value = make(storedValue)
    // Done even if the name was invalidated in the meantime: this costs at most one more read.
    if (value === null) this.#entries.delete(name)
    if (isCurrent()) {
      if (value !== null) this.#cache(name, value, owner, sizeOf?.(storedValue) ?? 1)
      onLoad?.(name, value)
    }
    return value
  }

  #cache(name: string, value: Value, owner: string | null, size: number): void {
    const { freshMs, staleMs } = this.#options
    const freshUntilMs = this.#clock.monotonicMs() + freshMs
    const staleUntilMs = freshUntilMs + staleMs
    this.#entries.set(name, { value, owner, size, freshUntilMs, staleUntilMs, isFailing: false })
  }

  /** A failing store must neither turn away known callers nor admit unknown ones. */
  #staleValue(name: string, cause?: unknown): Value {
    const entry = this.#entries.get(name)
    const nowMs = this.#clock.monotonicMs()
    if (entry === undefined || nowMs >= entry.staleUntilMs) throw storeUnavailable(cause)
    entry.freshUntilMs = Math.min(nowMs + REREAD_INTERVAL_MS, entry.staleUntilMs)
    entry.isFailing = true
    return entry.value
  }

  /** Logs once per outage. */
  #logOutage(error: unknown): void {
    const { log, plural } = this.#options
    if (!this.#storeFails) log?.fault('store', `cannot read ${plural} from the store`, error)
    this.#storeFails = true
  }

  #logRecovery(): void {
    const { log, plural } = this.#options
    if (this.#storeFails) log?.notice('store', `${plural} can be read from the store again`)
    this.#storeFails = false
  }
}

/** A value larger than the whole limit is still cached, alone, so that it is not read for every request. */
function sizeLimit(maxSize: number) {
  return { maxSize, sizeCalculation: (entry: { readonly size: number }) => Math.min(entry.size, maxSize) }
}
