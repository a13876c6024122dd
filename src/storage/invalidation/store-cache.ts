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
  /** How long a record is used without a new read: the longest a change stays unseen if its invalidation is lost. */
  readonly freshMs: number
  /** How long a record stays valid after that while the store fails. */
  readonly staleMs: number
  /** How long a request waits for the store. */
  readonly lookupMs: number
  /** Reads under way at once; more are refused with `service_unavailable`. */
  readonly maxLookups: number
}

/** `Found` is the answer of the store, `Value` the form that is cached; null is never cached. */
export interface StoreCacheOptions<Found, Value> extends Partial<StoreCacheLimits> {
  readonly clock: Clock
  readonly log?: Pick<Log, 'fault' | 'notice'>
  /** Names the records in log lines; plural. */
  readonly plural: string
  /** Names kept in memory. */
  readonly maxEntries: number
  /** Limit of all sizes together; without it only names are counted. */
  readonly maxSize?: number
  /** Default 1. */
  readonly sizeOf?: (found: Found) => number
  /** Null: the record does not exist, and an older one is dropped. */
  readonly make: (found: Found) => Value
  /** Called with each loaded value, null too, unless the name was invalidated during the read. */
  readonly onLoad?: (name: string, value: Value) => void
}

const DEFAULTS = {
  freshMs: 30_000,
  // A longer outage of the store needs an operator anyway.
  staleMs: 600_000,
  lookupMs: 2_000,
  maxLookups: 1_000,
} satisfies StoreCacheLimits

/** While the store fails, it is asked for a known name again only this often. */
const RETRY_MS = 1_000

interface Entry<Value> {
  readonly value: Value
  readonly owner: string | null
  readonly size: number
  /** Monotonic; until then the store is not asked. */
  freshUntilMs: number
  /** Monotonic; until then the value is valid although the store fails. */
  readonly staleUntilMs: number
  /** The last read failed: the next caller gets the value at once. */
  failing: boolean
}

export class StoreCache<Found, Value> {
  readonly #options: StoreCacheOptions<Found, Value> & StoreCacheLimits
  readonly #clock: Clock
  readonly #entries: LRUCache<string, Entry<Value>>
  readonly #reads = new SingleFlight<Value>()
  #storeFails = false

  constructor(options: StoreCacheOptions<Found, Value>) {
    this.#options = { ...DEFAULTS, ...options }
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
   * Reads a name that is not fresh. Returns the known value at once if the last read failed.
   * Rejects with GatewayError `service_unavailable` when the store fails, or too many reads run, and nothing is known.
   * Call it from a method of its own: one that creates `read` after `get` pays for the closure in any case.
   * @param owner for `invalidateOwner`
   */
  load(name: string, read: () => Promise<Found>, owner: string | null = null): Value | Promise<Value> {
    const entry = this.#entries.get(name)
    if (entry?.failing !== true || this.#clock.monotonicMs() >= entry.staleUntilMs) {
      return this.#read(name, read, owner)
    }
    // The log has the outage already.
    this.#read(name, read, owner).catch(() => undefined)
    return entry.value
  }

  /** Drops a name after its record was changed. */
  invalidate(name: string): void {
    this.#entries.delete(name)
    this.#reads.drop(name)
  }

  /** Lets no read under way be kept: each may have what was before a change. */
  dropReads(): void {
    this.#reads.dropAll()
  }

  /** Drops all names that were loaded with this owner. */
  invalidateOwner(owner: string): void {
    // A copy: the cache cannot be iterated while entries are deleted.
    for (const [name, entry] of [...this.#entries.entries()]) {
      if (entry.owner === owner) this.#entries.delete(name)
    }
    this.#reads.dropOwner(owner)
  }

  /** Makes every name be read again before its next use; known values stay valid only while the store fails. */
  invalidateAll(): void {
    for (const entry of this.#entries.values()) {
      entry.freshUntilMs = Number.NEGATIVE_INFINITY
      entry.failing = false
    }
    this.#reads.dropAll()
  }

  #read(name: string, read: () => Promise<Found>, owner: string | null): Promise<Value> {
    const running = this.#reads.find(name)
    if (running !== undefined) return running
    // Async, so that the error is a rejection like every other.
    if (this.#reads.active >= this.#options.maxLookups) return (async () => this.#lastKnown(name))()
    return this.#reads.run(name, isCurrent => this.#refresh(name, read, owner, isCurrent), owner)
  }

  async #refresh(
    name: string,
    read: () => Promise<Found>,
    owner: string | null,
    isCurrent: () => boolean,
  ): Promise<Value> {
    const { lookupMs, make, sizeOf, onLoad } = this.#options
    let found: Found
    try {
      found = await within(this.#clock, lookupMs, read())
    } catch (error) {
      this.#logOutage(error)
      return this.#lastKnown(name, error)
    }
    this.#logRecovery()
    const value = make(found)
    // Even if the name was invalidated meanwhile: one more read is the safe side.
    if (value === null) this.#entries.delete(name)
    if (isCurrent()) {
      if (value !== null) this.#keep(name, value, owner, sizeOf?.(found) ?? 1)
      onLoad?.(name, value)
    }
    return value
  }

  #keep(name: string, value: Value, owner: string | null, size: number): void {
    const { freshMs, staleMs } = this.#options
    const freshUntilMs = this.#clock.monotonicMs() + freshMs
    const staleUntilMs = freshUntilMs + staleMs
    this.#entries.set(name, { value, owner, size, freshUntilMs, staleUntilMs, failing: false })
  }

  /** A failing store must neither turn away known callers nor admit unknown ones. */
  #lastKnown(name: string, cause?: unknown): Value {
    const entry = this.#entries.get(name)
    const nowMs = this.#clock.monotonicMs()
    if (entry === undefined || nowMs >= entry.staleUntilMs) throw storeUnavailable(cause)
    entry.freshUntilMs = Math.min(nowMs + RETRY_MS, entry.staleUntilMs)
    entry.failing = true
    return entry.value
  }

  /** Once per outage: further lines would say the same. */
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

/** A value over the whole limit is still kept, alone, rather than read for every request. */
function sizeLimit(maxSize: number) {
  return { maxSize, sizeCalculation: (entry: { readonly size: number }) => Math.min(entry.size, maxSize) }
}
