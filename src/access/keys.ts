/**
 * Authentication: looks up the API key in the Authorization header. Hot path: a known key costs one hash and one cache
 * lookup, synchronously. Concurrent requests with the same key share one read of the store.
 */
import { LRUCache } from 'lru-cache'
import type { Clock } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import { StoreCache, type StoreCacheLimits } from '../invalidation/store-cache.ts'
import type { Log } from '../log/log.ts'
import type { Caller } from '../protocol/records.ts'
import { whenReady } from '../ready.ts'
import type { KeyRecord, Store } from '../storage/store.ts'
import { hashKey, keyKind } from './api-key.ts'

export { createKey } from './api-key.ts'

/** `freshMs` is also the longest a disabled key stays valid if its invalidation is lost. */
export interface ApiKeysOptions extends Partial<StoreCacheLimits> {
  readonly store: Pick<Store, 'keys'>
  readonly clock: Clock
  readonly log?: Pick<Log, 'fault' | 'notice'>
  /** Known keys kept in memory. Default 10,000: about 5 MB. */
  readonly maxKeys?: number
  /** Unknown keys kept in memory, apart from the known ones so that guesses cannot evict those. */
  readonly maxUnknown?: number
  /** How long a key counts as unknown: the longest a key created elsewhere is refused after a first try. */
  readonly unknownMs?: number
}

const DEFAULTS = {
  maxKeys: 10_000,
  maxUnknown: 10_000,
  unknownMs: 5_000,
} satisfies Partial<ApiKeysOptions>

interface Known {
  readonly record: KeyRecord
  /** Wall clock; infinite when the key does not expire. */
  readonly expiresAtMs: number
}

/** The API keys of all organizations, cached. */
export class ApiKeys {
  readonly #keys: Store['keys']
  readonly #clock: Clock
  readonly #unknownMs: number
  /** By hash. */
  readonly #known: StoreCache<KeyRecord | null, Known | null>
  /** Hash to the monotonic time until which the key is unknown. */
  readonly #unknown: LRUCache<string, number>

  constructor(options: ApiKeysOptions) {
    const { store, maxKeys, maxUnknown, unknownMs, ...others } = { ...DEFAULTS, ...options }
    this.#keys = store.keys
    this.#clock = others.clock
    this.#unknownMs = unknownMs
    this.#known = new StoreCache({
      ...others,
      plural: 'API keys',
      maxEntries: maxKeys,
      make: withExpiry,
      onLoad: (hash, known) => this.#noteUnknown(hash, known),
    })
    this.#unknown = new LRUCache({ max: maxUnknown })
  }

  /**
   * Finds the record of the key in an Authorization header; a promise only when the store has to be asked.
   * @throws (or rejects with) GatewayError `authentication`, or `service_unavailable` when the store fails.
   */
  authenticate(authorization: string | undefined): KeyRecord | Promise<KeyRecord> {
    return this.find(hashKey(bearerKey(authorization)))
  }

  /** As `authenticate`, for a key that a request in the store names by its hash. */
  find(hash: string): KeyRecord | Promise<KeyRecord> {
    const known = this.#known.get(hash)
    if (known !== undefined) return this.#admit(known)
    if (this.#clock.monotonicMs() < (this.#unknown.get(hash) ?? 0)) throw invalidKey()
    return this.#load(hash)
  }

  /** Call it after the record of a key was added, changed or removed. */
  invalidate(hash: string): void {
    this.#known.invalidate(hash)
    this.#unknown.delete(hash)
  }

  /** Makes every key be read again before its next use; known records stay valid only while the store fails. */
  invalidateAll(): void {
    this.#known.invalidateAll()
    this.#unknown.clear()
  }

  #load(hash: string): KeyRecord | Promise<KeyRecord> {
    const known = this.#known.load(hash, () => this.#keys.find(hash))
    return whenReady(known, each => this.#admit(each))
  }

  #noteUnknown(hash: string, known: Known | null): void {
    if (known === null) this.#unknown.set(hash, this.#clock.monotonicMs() + this.#unknownMs)
    else this.#unknown.delete(hash)
  }

  #admit(known: Known | null): KeyRecord {
    if (known === null) throw invalidKey()
    if (known.record.disabled) throw new GatewayError('authentication', 'This API key is disabled')
    // An unreadable date counts as past.
    if (!(this.#clock.nowMs() < known.expiresAtMs))
      throw new GatewayError('authentication', 'This API key has expired')
    return known.record
  }
}

function withExpiry(record: KeyRecord | null): Known | null {
  if (record === null) return null
  const { expiresAt } = record
  return { record, expiresAtMs: expiresAt === null ? Number.POSITIVE_INFINITY : Date.parse(expiresAt) }
}

const SCHEME = /^bearer /i

/** Only a text of valid form is hashed or looked up. */
function bearerKey(authorization: string | undefined): string {
  if (authorization === undefined || authorization === '') {
    throw new GatewayError('authentication', 'Missing Authentication header')
  }
  const key = SCHEME.test(authorization) ? authorization.slice('bearer '.length) : ''
  if (keyKind(key) === null) throw invalidKey()
  return key
}

function invalidKey(): GatewayError {
  return new GatewayError('authentication', 'Invalid API key')
}

const CALLERS = new WeakMap<KeyRecord, Caller>()

/** The part of a key's record that the pipeline needs: the same object as long as the record is the same. */
export function callerOf(key: KeyRecord): Caller {
  const known = CALLERS.get(key)
  if (known !== undefined) return known
  const { hash, organizationId, workspaceId, creatorUserId, limit, limitReset, includeByokInLimit } = key
  const caller = {
    keyHash: hash,
    organizationId,
    workspaceId,
    memberId: creatorUserId,
    limit: limit === null ? null : { amount: limit, reset: limitReset, includeByok: includeByokInLimit },
  }
  CALLERS.set(key, caller)
  return caller
}
