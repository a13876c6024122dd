/**
 * Who is asking: from the Authorization header to the record of the key. Hot path: a known key costs one hash
 * and one cache lookup, synchronously. The store is asked once per key and refresh, however many requests wait.
 */
import { LRUCache } from 'lru-cache'
import type { Clock } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import { Remembered, type RememberedLimits } from '../invalidation/store-cache.ts'
import type { Log } from '../log/log.ts'
import type { KeyRecord, Store } from '../storage/store.ts'
import { hashKey, keyKind } from './api-key.ts'

export { createKey } from './api-key.ts'

/** `freshMs` is also the longest a disabled key goes on working if no word of it comes. */
export interface KeyRingSettings extends Partial<RememberedLimits> {
  readonly store: Pick<Store, 'keys'>
  readonly clock: Clock
  readonly log?: Pick<Log, 'fault' | 'notice'>
  /** Known keys kept in memory. Default 10,000: about 5 MB. */
  readonly maxKeys?: number
  /** Unknown keys kept in memory, apart from the known ones so that guessing cannot push those out. */
  readonly maxUnknown?: number
  /** How long a key is taken for unknown: the longest a key made elsewhere has to wait after a first try. */
  readonly unknownMs?: number
}

const DEFAULTS = {
  maxKeys: 10_000,
  maxUnknown: 10_000,
  unknownMs: 5_000,
} satisfies Partial<KeyRingSettings>

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

interface Known {
  readonly record: KeyRecord
  /** Wall clock; infinite when the key does not expire. */
  readonly expiresAtMs: number
}

export function createKeyRing(settings: KeyRingSettings): KeyRing {
  return new CachedKeyRing(settings)
}

class CachedKeyRing implements KeyRing {
  readonly #keys: Store['keys']
  readonly #clock: Clock
  readonly #unknownMs: number
  /** By hash. */
  readonly #known: Remembered<KeyRecord | null, Known | null>
  /** Hash to the monotonic time until which the key is unknown. */
  readonly #unknown: LRUCache<string, number>

  constructor(settings: KeyRingSettings) {
    const { store, maxKeys, maxUnknown, unknownMs, ...others } = { ...DEFAULTS, ...settings }
    this.#keys = store.keys
    this.#clock = others.clock
    this.#unknownMs = unknownMs
    this.#known = new Remembered({
      ...others,
      what: 'keys',
      maxEntries: maxKeys,
      make: knownOf,
      learned: (hash, known) => this.#learned(hash, known),
    })
    this.#unknown = new LRUCache({ max: maxUnknown })
  }

  authenticate(authorization: string | undefined): KeyRecord | Promise<KeyRecord> {
    const hash = hashKey(bearerKey(authorization))
    const known = this.#known.fresh(hash)
    if (known !== undefined) return this.#admitted(known)
    if (this.#clock.monotonicMs() < (this.#unknown.get(hash) ?? 0)) throw invalid()
    return this.#ask(hash)
  }

  forget(hash: string): void {
    this.#known.forget(hash)
    this.#unknown.delete(hash)
  }

  doubtAll(): void {
    this.#known.doubtAll()
    this.#unknown.clear()
  }

  #ask(hash: string): KeyRecord | Promise<KeyRecord> {
    const known = this.#known.ask(hash, () => this.#keys.find(hash))
    return known instanceof Promise ? known.then(each => this.#admitted(each)) : this.#admitted(known)
  }

  #learned(hash: string, known: Known | null): void {
    if (known === null) this.#unknown.set(hash, this.#clock.monotonicMs() + this.#unknownMs)
    else this.#unknown.delete(hash)
  }

  #admitted(known: Known | null): KeyRecord {
    if (known === null) throw invalid()
    if (known.record.disabled) throw new GatewayError('authentication', 'This API key is disabled')
    // A date that cannot be read has to count as passed.
    if (!(this.#clock.nowMs() < known.expiresAtMs))
      throw new GatewayError('authentication', 'This API key has expired')
    return known.record
  }
}

function knownOf(record: KeyRecord | null): Known | null {
  if (record === null) return null
  const { expiresAt } = record
  return { record, expiresAtMs: expiresAt === null ? Number.POSITIVE_INFINITY : Date.parse(expiresAt) }
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
