/**
 * Authentication: looks up the API key of a request (`authorizationOf` in server/head-checks.ts finds it in the headers), and
 * refuses one that is unknown, disabled or expired. Hot path: a known key costs one hash and one synchronous cache
 * lookup, whichever of its secrets the caller sends. Concurrent requests with the same key share one read of the store.
 */
import { LRUCache } from 'lru-cache'
import type { Clock } from '../base/clock.ts'
import { GatewayError } from '../base/errors.ts'
import type { Log } from '../base/log/log.ts'
import { whenReady } from '../base/maybe-promise.ts'
import type { KeyRecord } from '../protocol/management/keys.ts'
import type { Caller } from '../protocol/records.ts'
import { StoreCache, type StoreCacheLimits } from '../storage/invalidation/store-cache.ts'
import type { Store } from '../storage/store.ts'
import { hashKey, keyKind } from './api-key.ts'

/** `freshMs` is also how long a disabled key may stay valid if its invalidation is lost. */
export interface ApiKeysOptions extends Partial<StoreCacheLimits> {
  readonly store: Pick<Store, 'keys'>
  readonly clock: Clock
  readonly log?: Pick<Log, 'fault' | 'notice'>
  /** Maximum of cached known keys. Default 10,000: about 5 MB. */
  readonly maxKeys?: number
  /** Maximum of cached unknown keys. They are separate, so that guesses cannot evict known keys. */
  readonly maxUnknown?: number
  /**
   * How long a key counts as unknown. After a failed try, a key that is then created elsewhere is refused for at most
   * this long.
   */
  readonly unknownMs?: number
}

const DEFAULTS = {
  maxKeys: 10_000,
  maxUnknown: 10_000,
  unknownMs: 5_000,
} satisfies Partial<ApiKeysOptions>

interface CachedKey {
  readonly record: KeyRecord
  /** Wall clock; infinite when the key does not expire. */
  readonly expiresAtMs: number
  /** The time at which this secret or the key itself expires. */
  readonly endsAtMs: number
}

/** The reason why a key is no longer valid. */
export type KeyLoss = 'key_deleted' | 'key_disabled' | 'key_expired'

/** The API keys of all organizations, cached. */
export class ApiKeys {
  readonly #keys: Store['keys']
  readonly #clock: Clock
  readonly #unknownMs: number
  /** Keyed by the hash of a secret; the hash of the first secret identifies the key. */
  readonly #cache: StoreCache<KeyRecord | null, CachedKey | null>
  /** Hash to the monotonic time until which the key is unknown. */
  readonly #unknown: LRUCache<string, number>
  /** Cached later secrets, by the hash of the key. */
  readonly #laterSecrets: LRUCache<string, Set<string>>

  constructor(options: ApiKeysOptions) {
    const { store, maxKeys, maxUnknown, unknownMs, ...others } = { ...DEFAULTS, ...options }
    this.#keys = store.keys
    this.#clock = others.clock
    this.#unknownMs = unknownMs
    this.#cache = new StoreCache({
      ...others,
      plural: 'API keys',
      maxEntries: maxKeys,
      make: withExpiry,
      onLoad: (hash, cachedKey) => this.#noteRead(hash, cachedKey),
    })
    this.#unknown = new LRUCache({ max: maxUnknown })
    this.#laterSecrets = new LRUCache({ max: maxKeys, dispose: hashes => this.#dropSecrets(hashes) })
  }

  /**
   * Finds the record of the key in an Authorization header; a promise only if the store has to be read.
   * @throws (or rejects with) GatewayError `authentication`, or `store_unavailable` when the store fails.
   */
  authenticate(authorization: string | undefined): KeyRecord | Promise<KeyRecord> {
    return this.bySecret(hashKey(bearerKey(authorization)))
  }

  /** Like `authenticate`, by the hash of a secret. */
  bySecret(hash: string): KeyRecord | Promise<KeyRecord> {
    const cachedKey = this.#cache.get(hash)
    return cachedKey === undefined ? this.#load(hash, true) : this.#admit(cachedKey, true)
  }

  /** The key identified by the hash of its first secret, even if that secret has expired. Throws like `bySecret`. */
  find(hash: string): KeyRecord | Promise<KeyRecord> {
    const cachedKey = this.#cache.get(hash)
    return cachedKey === undefined ? this.#load(hash, false) : this.#admit(cachedKey, false)
  }

  /** The reason why a valid key no longer is; null: it still is, or cannot be read now. Never rejects. */
  async lostBy(hash: string): Promise<KeyLoss | null> {
    try {
      await this.find(hash)
      return null
    } catch (thrown) {
      if (!(thrown instanceof GatewayError) || thrown.code !== 'authentication') return null
      const record = this.#cache.get(hash)?.record
      if (record === undefined) return 'key_deleted'
      return record.disabled ? 'key_disabled' : 'key_expired'
    }
  }

  /** Call it after the record of a key, or one of its secrets, has been added, changed or removed. */
  invalidate(hash: string): void {
    this.#cache.invalidate(hash)
    this.#unknown.delete(hash)
    this.#laterSecrets.delete(hash)
    // A read by a later secret does not know yet which key it belongs to, so all are dropped.
    this.#cache.dropReads()
  }

  /** Call it after rate limits of the organization's workspaces or end users have changed. */
  invalidateOf(organizationId: string): void {
    this.#cache.invalidateEach(cachedKey => cachedKey?.record.organizationId === organizationId)
    this.#cache.dropReads()
  }

  /** Forces a new read of every key before its next use; cached records are used only while the store fails. */
  invalidateAll(): void {
    this.#cache.invalidateAll()
    this.#unknown.clear()
  }

  #load(hash: string, bySecret: boolean): KeyRecord | Promise<KeyRecord> {
    if (this.#clock.monotonicMs() < (this.#unknown.get(hash) ?? 0)) throw invalidKey()
    return whenReady(
      this.#cache.load(hash, () => this.#keys.find(hash)),
      cachedKey => this.#admit(cachedKey, bySecret),
    )
  }

  #noteRead(hash: string, cachedKey: CachedKey | null): void {
    if (cachedKey === null) this.#unknown.set(hash, this.#clock.monotonicMs() + this.#unknownMs)
    else {
      this.#unknown.delete(hash)
      const { record } = cachedKey
      if (record.hash !== hash) this.#noteLaterSecret(record.hash, hash)
    }
  }

  #noteLaterSecret(hash: string, laterHash: string): void {
    const hashes = this.#laterSecrets.get(hash)
    if (hashes === undefined) this.#laterSecrets.set(hash, new Set([laterHash]))
    else hashes.add(laterHash)
  }

  #dropSecrets(hashes: ReadonlySet<string>): void {
    for (const hash of hashes) this.#cache.invalidate(hash)
  }

  #admit(cachedKey: CachedKey | null, bySecret: boolean): KeyRecord {
    if (cachedKey === null) throw invalidKey()
    if (cachedKey.record.disabled) throw new GatewayError('authentication', 'This API key is disabled')
    const endsAtMs = bySecret ? cachedKey.endsAtMs : cachedKey.expiresAtMs
    if (endsAtMs === Number.POSITIVE_INFINITY) return cachedKey.record
    const nowMs = this.#clock.nowMs()
    // An unreadable date counts as past.
    if (nowMs < endsAtMs) return cachedKey.record
    if (nowMs < cachedKey.expiresAtMs) {
      throw new GatewayError(
        'authentication',
        'This is the old secret of a rotated API key, and it has expired; use the new secret',
      )
    }
    throw new GatewayError('authentication', 'This API key has expired')
  }
}

function withExpiry(record: KeyRecord | null): CachedKey | null {
  if (record === null) return null
  const expiresAtMs = untilMs(record.expiresAt)
  const secretMs = untilMs(record.secretExpiresAt)
  return { record, expiresAtMs, endsAtMs: Math.min(expiresAtMs, secretMs) }
}

function untilMs(expiresAt: string | null): number {
  return expiresAt === null ? Number.POSITIVE_INFINITY : Date.parse(expiresAt)
}

const BEARER = /^bearer /i

/**
 * Hashes the key in an Authorization header, for `bySecret`.
 * @throws GatewayError `authentication`
 */
export function secretHash(authorization: string | undefined): string {
  return hashKey(bearerKey(authorization))
}

/** Only a text of valid form is hashed or looked up. */
function bearerKey(authorization: string | undefined): string {
  if (authorization === undefined || authorization === '') {
    throw new GatewayError('authentication', 'Missing Authentication header')
  }
  const key = BEARER.test(authorization) ? authorization.slice('bearer '.length) : ''
  if (keyKind(key) === null) throw invalidKey()
  return key
}

function invalidKey(): GatewayError {
  return new GatewayError('authentication', 'Invalid API key')
}

const CALLERS = new WeakMap<KeyRecord, Caller>()

/** Extracts the part of a key's record that the pipeline needs. Returns the same object for the same record. */
export function callerOf(key: KeyRecord): Caller {
  const cachedCaller = CALLERS.get(key)
  if (cachedCaller !== undefined) return cachedCaller
  const { hash, organizationId, workspaceId, creatorUserId, limit, limitReset, includeByokInLimit, rates } =
    key
  const { loopPolicy, caching } = key
  const caller = {
    keyHash: hash,
    organizationId,
    workspaceId,
    memberId: creatorUserId,
    limit: limit === null ? null : { amount: limit, reset: limitReset, includeByok: includeByokInLimit },
    rates,
    loops: loopPolicy === null || loopPolicy.action === 'off' ? null : loopPolicy,
    caching,
  }
  CALLERS.set(key, caller)
  return caller
}
