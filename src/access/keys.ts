/**
 * Who is asking: from the Authorization header to the record of the key. Hot path: a known key costs one hash
 * and one cache lookup, synchronously. The store is asked once per key and refresh, however many requests wait.
 */
import { LRUCache } from 'lru-cache'
import type { Clock } from '../clock.ts'
import { GatewayError, serviceUnavailable } from '../errors.ts'
import type { Log } from '../log.ts'
import type { KeyRecord, Store } from '../storage/store.ts'
import { hashKey, keyKind } from './api-key.ts'

export { createKey } from './api-key.ts'

export interface KeyRingSettings {
  readonly store: Pick<Store, 'keys'>
  readonly clock: Clock
  readonly log?: Pick<Log, 'fault' | 'notice'>
  /** Known keys kept in memory. Default 10,000: about 5 MB. */
  readonly maxKeys?: number
  /** Unknown keys kept in memory, apart from the known ones so that guessing cannot push those out. */
  readonly maxUnknown?: number
  /** How long a key is believed without asking the store again: the longest a disabled key goes on working. */
  readonly freshMs?: number
  /** How long a key is taken for unknown: the longest a key made elsewhere has to wait after a first try. */
  readonly unknownMs?: number
  /** How long after its last confirmation a known key goes on working while the store fails. */
  readonly staleMs?: number
  /** How long a request waits for the store. */
  readonly lookupMs?: number
  /** Keys that may be looked up at once; above it callers are told to come again. */
  readonly maxLookups?: number
}

const DEFAULTS = {
  maxKeys: 10_000,
  maxUnknown: 10_000,
  freshMs: 30_000,
  unknownMs: 5_000,
  // A store that is away for longer than this needs people anyway.
  staleMs: 600_000,
  lookupMs: 2_000,
  maxLookups: 1_000,
} satisfies Partial<KeyRingSettings>
type Limits = typeof DEFAULTS

/** While the store fails, a known key asks it again only this often. */
const RETRY_MS = 1_000

export interface KeyRing {
  /**
   * The record of the key in an Authorization header; a promise only when the store has to be asked.
   * @throws (or rejects with) GatewayError `authentication`, or `service_unavailable` when the store fails.
   */
  authenticate(authorization: string | undefined): KeyRecord | Promise<KeyRecord>
  /** Drops what is remembered of a key, after it was made or changed. */
  forget(hash: string): void
  /** Has every key read anew when it is next used; what was known counts on only while the store fails. */
  doubtAll(): void
}

interface Entry {
  readonly record: KeyRecord
  /** Wall clock; infinite when the key does not expire. */
  readonly expiresAtMs: number
  /** Monotonic; until then the store is not asked. */
  freshUntilMs: number
  /** Monotonic; until then the record counts although the store fails. */
  readonly staleUntilMs: number
  /** The store failed when it was last asked: who comes next does not wait for it again. */
  failing: boolean
}

export function createKeyRing(settings: KeyRingSettings): KeyRing {
  return new CachedKeyRing(settings)
}

class CachedKeyRing implements KeyRing {
  readonly #keys: Store['keys']
  readonly #clock: Clock
  readonly #log: Pick<Log, 'fault' | 'notice'> | undefined
  readonly #limits: Limits
  readonly #known: LRUCache<string, Entry>
  /** Hash to the monotonic time until which the key is unknown. */
  readonly #unknown: LRUCache<string, number>
  readonly #lookups = new Map<string, Promise<KeyRecord>>()
  #storeFails = false

  constructor(settings: KeyRingSettings) {
    this.#keys = settings.store.keys
    this.#clock = settings.clock
    this.#log = settings.log
    this.#limits = { ...DEFAULTS, ...defined(settings) }
    this.#known = new LRUCache({ max: this.#limits.maxKeys })
    this.#unknown = new LRUCache({ max: this.#limits.maxUnknown })
  }

  authenticate(authorization: string | undefined): KeyRecord | Promise<KeyRecord> {
    const hash = hashKey(bearerKey(authorization))
    const nowMs = this.#clock.monotonicMs()
    const entry = this.#known.get(hash)
    if (entry !== undefined && nowMs < entry.freshUntilMs) return this.#admitted(entry)
    if (entry?.failing === true && nowMs < entry.staleUntilMs) {
      this.#ask(hash).catch(() => undefined)
      return this.#admitted(entry)
    }
    if (nowMs < (this.#unknown.get(hash) ?? 0)) throw invalid()
    return this.#ask(hash)
  }

  forget(hash: string): void {
    this.#known.delete(hash)
    this.#unknown.delete(hash)
    this.#lookups.delete(hash)
  }

  doubtAll(): void {
    for (const entry of this.#known.values()) {
      entry.freshUntilMs = Number.NEGATIVE_INFINITY
      entry.failing = false
    }
    this.#unknown.clear()
    this.#lookups.clear()
  }

  #ask(hash: string): Promise<KeyRecord> {
    const lookups = this.#lookups
    const running = lookups.get(hash)
    if (running !== undefined) return running
    if (lookups.size >= this.#limits.maxLookups) return Promise.resolve(this.#lastKnown(hash))
    const current = (): boolean => lookups.get(hash) === lookup
    const lookup: Promise<KeyRecord> = this.#refresh(hash, current).finally(() => {
      if (current()) lookups.delete(hash)
    })
    lookups.set(hash, lookup)
    return lookup
  }

  /** `current` tells whether the key was not forgotten since: what is read then may be the old state. */
  async #refresh(hash: string, current: () => boolean): Promise<KeyRecord> {
    const limits = this.#limits
    let record: KeyRecord | null
    try {
      record = await within(this.#clock, limits.lookupMs, this.#keys.find(hash))
    } catch (error) {
      // Once per outage: the next thousand lines would say the same.
      if (!this.#storeFails) this.#log?.fault('keys cannot be looked up', error)
      this.#storeFails = true
      return this.#lastKnown(hash, error)
    }
    if (this.#storeFails) {
      this.#storeFails = false
      this.#log?.notice('keys can be looked up again')
    }
    const nowMs = this.#clock.monotonicMs()
    if (record === null) {
      this.#known.delete(hash)
      if (current()) this.#unknown.set(hash, nowMs + limits.unknownMs)
      throw invalid()
    }
    const entry: Entry = {
      record,
      expiresAtMs: record.expiresAt === null ? Number.POSITIVE_INFINITY : Date.parse(record.expiresAt),
      freshUntilMs: nowMs + limits.freshMs,
      staleUntilMs: nowMs + limits.freshMs + limits.staleMs,
      failing: false,
    }
    if (current()) {
      this.#known.set(hash, entry)
      this.#unknown.delete(hash)
    }
    return this.#admitted(entry)
  }

  /** A store that does not answer must not turn good keys away, nor let anyone new in. */
  #lastKnown(hash: string, cause?: unknown): KeyRecord {
    const entry = this.#known.get(hash)
    const nowMs = this.#clock.monotonicMs()
    if (entry === undefined || nowMs >= entry.staleUntilMs) throw serviceUnavailable(cause)
    entry.freshUntilMs = Math.min(nowMs + RETRY_MS, entry.staleUntilMs)
    entry.failing = true
    return this.#admitted(entry)
  }

  #admitted(entry: Entry): KeyRecord {
    if (entry.record.disabled) throw new GatewayError('authentication', 'This API key is disabled')
    // A date that cannot be read has to count as passed.
    if (!(this.#clock.nowMs() < entry.expiresAtMs))
      throw new GatewayError('authentication', 'This API key has expired')
    return entry.record
  }
}

const SCHEME = /^bearer /i

/** Only what has the form of a key is ever hashed or looked up. */
function bearerKey(authorization: string | undefined): string {
  if (authorization === undefined || authorization === '') {
    throw new GatewayError('authentication', 'Missing Authentication header')
  }
  const key = SCHEME.test(authorization) ? authorization.slice('bearer '.length) : ''
  if (keyKind(key) === null) throw invalid()
  return key
}

function invalid(): GatewayError {
  return new GatewayError('authentication', 'Invalid API key')
}

/** @throws when the time is over first; the promise's own outcome is then ignored. */
export function within<T>(clock: Clock, limitMs: number, promise: Promise<T>): Promise<T> {
  return new Promise((done, failed) => {
    const timer = clock.after(limitMs, () => failed(new Error('the store did not answer in time')))
    promise.then(done, failed).finally(() => timer.cancel())
  })
}

/** Leaves out what is undefined, so that it does not cover a default. */
function defined(settings: KeyRingSettings): Partial<Limits> {
  return Object.fromEntries(
    Object.keys(DEFAULTS).flatMap(name => {
      const value: unknown = Reflect.get(settings, name)
      return value === undefined ? [] : [[name, value]]
    }),
  )
}
