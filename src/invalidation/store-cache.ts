/**
 * What the store says of names (API keys, workspaces, callers), remembered in a bounded number. Hot path: what is
 * fresh costs one lookup and one comparison, synchronously. The store is asked once per name and refresh, however many
 * requests wait. While it fails, what is known counts on for a while, and who comes next does not wait for it again.
 */
import { LRUCache } from 'lru-cache'
import { type Clock, within } from '../clock.ts'
import { serviceUnavailable } from '../errors.ts'
import type { Log } from '../log/log.ts'

export interface RememberedLimits {
  /** How long a value is believed without asking again: the longest a change goes unseen if no word of it comes. */
  readonly freshMs: number
  /** How long after its last confirmation a known value goes on to count while the store fails. */
  readonly staleMs: number
  /** How long a request waits for the store. */
  readonly lookupMs: number
  /** Names that may be looked up at once; above it callers are told to come again. */
  readonly maxLookups: number
}

/** `Found` is what the store answers, `Value` what is made of it and kept; null is never kept. */
export interface RememberedSettings<Found, Value> extends Partial<RememberedLimits> {
  readonly clock: Clock
  readonly log?: Pick<Log, 'fault' | 'notice'>
  /** What is looked up, as the log calls it: in the plural. */
  readonly what: string
  /** Names kept in memory. */
  readonly maxEntries: number
  /** Sizes of all that is kept, together; without it only names are counted. */
  readonly maxSize?: number
  /** Default 1. */
  readonly sizeOf?: (found: Found) => number
  /** Null: there is no such thing, and what was known of it counts no longer. */
  readonly make: (found: Found) => Value
  /** Called with what was made, null too, unless the name was forgotten since the store was asked. */
  readonly learned?: (name: string, value: Value) => void
}

const DEFAULTS = {
  freshMs: 30_000,
  // A store that is away for longer than this needs people anyway.
  staleMs: 600_000,
  lookupMs: 2_000,
  maxLookups: 1_000,
} satisfies RememberedLimits

/** While the store fails, it is asked for a known name again only this often. */
const RETRY_MS = 1_000

interface Entry<Value> {
  readonly value: Value
  readonly owner: string | null
  readonly size: number
  /** Monotonic; until then the store is not asked. */
  freshUntilMs: number
  /** Monotonic; until then the value counts although the store fails. */
  readonly staleUntilMs: number
  /** The store failed when it was last asked: who comes next does not wait for it again. */
  failing: boolean
}

interface Lookup<Value> {
  readonly owner: string | null
  readonly result: Promise<Value>
}

export class Remembered<Found, Value> {
  readonly #settings: RememberedSettings<Found, Value> & RememberedLimits
  readonly #clock: Clock
  readonly #entries: LRUCache<string, Entry<Value>>
  readonly #lookups = new Map<string, Lookup<Value>>()
  /** Forgotten ones too: they still wait for the store. */
  #running = 0
  #storeFails = false

  constructor(settings: RememberedSettings<Found, Value>) {
    this.#settings = { ...DEFAULTS, ...settings }
    this.#clock = settings.clock
    const { maxEntries: max, maxSize } = settings
    this.#entries = new LRUCache<string, Entry<Value>>({
      max,
      ...(maxSize === undefined ? {} : boundOf(maxSize)),
    })
  }

  /** What is known of a name and need not be asked for. */
  fresh(name: string): Value | undefined {
    const entry = this.#entries.get(name)
    return entry !== undefined && this.#clock.monotonicMs() < entry.freshUntilMs ? entry.value : undefined
  }

  /** What is known of a name, however old. */
  last(name: string): Value | undefined {
    return this.#entries.get(name)?.value
  }

  /**
   * What the store says of a name that is not fresh; the last known value at once where the store failed just now.
   * Rejects with GatewayError `service_unavailable` when the store fails and nothing is known, or too many wait.
   * To be called by a method of its own: one that makes `read` after `fresh` pays for the closure in any case.
   * @param owner for `forgetAllOf`
   */
  ask(name: string, read: () => Promise<Found>, owner: string | null = null): Value | Promise<Value> {
    const entry = this.#entries.get(name)
    if (entry?.failing !== true || this.#clock.monotonicMs() >= entry.staleUntilMs) {
      return this.#look(name, read, owner)
    }
    // Nobody waits for it, and the log has the outage.
    this.#look(name, read, owner).catch(() => undefined)
    return entry.value
  }

  /** Drops what is remembered of a name, after it was changed. */
  forget(name: string): void {
    this.#entries.delete(name)
    this.#lookups.delete(name)
  }

  /** Drops what is remembered of all names that were asked for with this owner. */
  forgetAllOf(owner: string): void {
    // A list of its own: the cache cannot be walked while entries leave it.
    for (const [name, entry] of [...this.#entries.entries()]) {
      if (entry.owner === owner) this.#entries.delete(name)
    }
    for (const [name, lookup] of this.#lookups) if (lookup.owner === owner) this.#lookups.delete(name)
  }

  /** Has every name read anew when it is next asked for; what was known counts on only while the store fails. */
  doubtAll(): void {
    for (const entry of this.#entries.values()) {
      entry.freshUntilMs = Number.NEGATIVE_INFINITY
      entry.failing = false
    }
    this.#lookups.clear()
  }

  #look(name: string, read: () => Promise<Found>, owner: string | null): Promise<Value> {
    const lookups = this.#lookups
    const running = lookups.get(name)
    if (running !== undefined) return running.result
    // Async, so that a refusal comes as a rejection like every other.
    if (this.#running >= this.#settings.maxLookups) return (async () => this.#lastKnown(name))()
    // What is read for a name that was forgotten meanwhile may be the old state, and is not kept.
    const current = (): boolean => lookups.get(name)?.result === result
    this.#running++
    const result: Promise<Value> = this.#refresh(name, read, owner, current).finally(() => {
      this.#running--
      if (current()) lookups.delete(name)
    })
    lookups.set(name, { owner, result })
    return result
  }

  async #refresh(
    name: string,
    read: () => Promise<Found>,
    owner: string | null,
    current: () => boolean,
  ): Promise<Value> {
    const { lookupMs, make, sizeOf, learned } = this.#settings
    let found: Found
    try {
      found = await within(this.#clock, lookupMs, read())
    } catch (error) {
      this.#failed(error)
      return this.#lastKnown(name, error)
    }
    this.#answered()
    const value = make(found)
    // Even when it was forgotten meanwhile: asking once more is the safe side.
    if (value === null) this.#entries.delete(name)
    if (current()) {
      if (value !== null) this.#keep(name, value, owner, sizeOf?.(found) ?? 1)
      learned?.(name, value)
    }
    return value
  }

  #keep(name: string, value: Value, owner: string | null, size: number): void {
    const { freshMs, staleMs } = this.#settings
    const freshUntilMs = this.#clock.monotonicMs() + freshMs
    const staleUntilMs = freshUntilMs + staleMs
    this.#entries.set(name, { value, owner, size, freshUntilMs, staleUntilMs, failing: false })
  }

  /** A store that does not answer must not turn away who is known, nor let anyone new in. */
  #lastKnown(name: string, cause?: unknown): Value {
    const entry = this.#entries.get(name)
    const nowMs = this.#clock.monotonicMs()
    if (entry === undefined || nowMs >= entry.staleUntilMs) throw serviceUnavailable(cause)
    entry.freshUntilMs = Math.min(nowMs + RETRY_MS, entry.staleUntilMs)
    entry.failing = true
    return entry.value
  }

  #failed(error: unknown): void {
    const { log, what } = this.#settings
    // Once per outage: the next thousand lines would say the same.
    if (!this.#storeFails) log?.fault(`${what} cannot be looked up`, error)
    this.#storeFails = true
  }

  #answered(): void {
    const { log, what } = this.#settings
    if (this.#storeFails) log?.notice(`${what} can be looked up again`)
    this.#storeFails = false
  }
}

/** One value over the whole limit is still kept, alone, rather than asked for with every request. */
function boundOf(maxSize: number) {
  return { maxSize, sizeCalculation: (entry: { readonly size: number }) => Math.min(entry.size, maxSize) }
}
