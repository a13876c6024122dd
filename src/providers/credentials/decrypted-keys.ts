/**
 * A cache of decrypted provider keys, bounded by time, number and memory. Hot path: a cached key costs one synchronous
 * lookup. Any other key is read from the Store and decrypted; concurrent requests share one read. Serve thread.
 *
 * The buffer that the vault decrypts into is zeroed in the same call, right after it is read. The strings made from it
 * cannot be zeroed. Like the copies in running requests, they stay in memory until they are collected after eviction.
 */
import { LRUCache } from 'lru-cache'
import { type Clock, type Timer, within } from '../../base/clock.ts'
import { GatewayError, RETRY_AFTER_SECONDS, serviceUnavailable, storeUnavailable } from '../../base/errors.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import { SingleFlight } from '../../storage/invalidation/single-flight.ts'
import type { CredentialRecord, CredentialStore, SealedSecret } from '../../storage/store.ts'
import { type ProviderKey, parseProviderKey } from './parse/provider-key.ts'
import { ownerOf, type SecretOwner, type Vault, VaultError } from './vault.ts'

/** Identifies a credential. If it includes the sealed form, the Store is not read. */
export type CredentialRef = Pick<
  CredentialRecord,
  'id' | 'organizationId' | 'workspaceId' | 'provider' | 'keyRevision'
> & {
  readonly sealed?: SealedSecret
}

export interface DecryptedKeysOptions {
  readonly store: { readonly credentials: Pick<CredentialStore, 'find'> }
  readonly vault: Pick<Vault, 'open'>
  readonly clock: Clock
  readonly metrics: DecryptedKeysMetrics
  /** Maximum of cached keys. Default 1,000. */
  readonly maxEntries?: number
  /** Estimated memory of the cached keys. Default 4 MiB: 1,000 service accounts. */
  readonly maxBytes?: number
  /**
   * How long a key is cached. If its invalidation is lost, a changed key is used here for at most this long. Default
   * and maximum 300 s; its memory is free within 10 s after that.
   */
  readonly ttlMs?: number
  /** Maximum of concurrent reads of the Store; more are refused with `service_unavailable`. Default 100. */
  readonly maxLookups?: number
  /** How long a request waits for the Store. Default 2 s. */
  readonly lookupMs?: number
}

type DecryptedKeysMetrics = Pick<
  Metrics,
  | 'credentialEntries'
  | 'credentialBytes'
  | 'credentialHits'
  | 'credentialMisses'
  | 'credentialEvictions'
  | 'credentialAge'
  | 'credentialOpenFailures'
>

const TTL_MAX_MS = 300_000
/** How often expired keys are removed if no request asks for them. */
const SWEEP_INTERVAL_MS = 10_000
const DEFAULT_LIMITS = {
  maxEntries: 1_000,
  maxBytes: 4 * 1024 * 1024,
  ttlMs: TTL_MAX_MS,
  maxLookups: 100,
  lookupMs: 2_000,
} satisfies Partial<DecryptedKeysOptions>

/** The metric label for each reason of the cache library. */
const EVICTION_REASONS = {
  evict: 'capacity',
  expire: 'expired',
  delete: 'forgotten',
  set: 'replaced',
  fetch: 'replaced',
} satisfies Record<LRUCache.DisposeReason, string>

interface Entry {
  readonly key: ProviderKey
  readonly owner: SecretOwner
  /** The sealed box that the key came from; a rewrapped key keeps its box. */
  readonly box: string
  /** True if it was read from the Store; false if the caller passed the record, which may be outdated. */
  readonly fromStore: boolean
  readonly bytes: number
  /** Monotonic. */
  readonly openedMs: number
}

/** Memory of objects, map slots and string headers of an entry, in addition to its text. */
const ENTRY_BYTES = 1_024

export class DecryptedKeys {
  readonly #options: DecryptedKeysOptions & typeof DEFAULT_LIMITS
  readonly #entries: LRUCache<string, Entry>
  readonly #reads = new SingleFlight<ProviderKey>()
  #sweep: Timer | null = null

  constructor(options: DecryptedKeysOptions) {
    this.#options = { ...DEFAULT_LIMITS, ...options }
    const { clock, maxEntries, maxBytes, ttlMs } = this.#options
    this.#entries = new LRUCache({
      max: maxEntries,
      maxSize: maxBytes,
      sizeCalculation: entry => entry.bytes,
      ttl: Math.min(ttlMs, TTL_MAX_MS),
      // The clock is read each time; otherwise the library would cache the time with a timer.
      ttlResolution: 0,
      // Never 0, which the library reads as "no time".
      perf: { now: () => clock.monotonicMs() + 1 },
      disposeAfter: (entry, _, reason) => this.#noteEviction(entry, reason),
    })
  }

  /**
   * Decrypts the key of a credential; a promise only if the Store has to be read.
   * @throws (or rejects with) GatewayError `store_unavailable` if the Store does not answer, `service_unavailable` if
   * too many reads run, `provider_unavailable` if the credential no longer exists or is disabled,
   * `credential_unreadable` if it cannot be decrypted: then no other key may replace it.
   */
  open(credential: CredentialRef): ProviderKey | Promise<ProviderKey> {
    const { metrics } = this.#options
    const { id, sealed } = credential
    const entry = this.#entries.get(id)
    if (entry !== undefined && ownerMatches(entry.owner, credential)) {
      // A caller that passes a record gets the key of that record. The entry serves no other caller, because the record
      // may be older than the last change.
      if (sealed === undefined ? entry.fromStore : entry.box === sealed.box) {
        metrics.credentialHits.inc()
        return entry.key
      }
    }
    metrics.credentialMisses.inc()
    if (sealed === undefined) return this.#load(credential)
    const newEntry = this.#open(credential, sealed, false)
    this.#cache(newEntry)
    return newEntry.key
  }

  /** Call it after a credential was changed or removed. */
  invalidate(id: string): void {
    this.#entries.delete(id)
    this.#reads.dropOwner(id)
  }

  invalidateAll(): void {
    this.#reads.dropAll()
    this.#entries.clear()
  }

  /** Drops all keys before the thread ends. */
  close(): void {
    this.#sweep?.cancel()
    this.#sweep = null
    this.invalidateAll()
  }

  #load(credential: CredentialRef): Promise<ProviderKey> {
    // The full name is compared: a caller must not get a key of another organization, even if the ids are equal.
    const name = nameOf(credential)
    const runningRead = this.#reads.find(name)
    if (runningRead !== undefined) return runningRead
    if (this.#reads.active >= this.#options.maxLookups) return Promise.reject(serviceUnavailable())
    return this.#reads.run(name, isCurrent => this.#read(credential, isCurrent), credential.id)
  }

  async #read(credential: CredentialRef, isCurrent: () => boolean): Promise<ProviderKey> {
    const { store, clock, lookupMs } = this.#options
    let record: CredentialRecord | null
    try {
      const lookup = store.credentials.find(credential.organizationId, credential.id)
      record = await within(clock, lookupMs, lookup)
    } catch (error) {
      throw storeUnavailable(error)
    }
    if (record === null || record.disabled) throw missingError()
    // A record that the caller passed may be older than the last change.
    const { sealed, keyRevision } = record
    const entry = this.#open({ ...credential, keyRevision }, sealed, true)
    if (isCurrent()) this.#cache(entry)
    return entry.key
  }

  #open(credential: CredentialRef, sealed: SealedSecret, fromStore: boolean): Entry {
    const { vault, clock, metrics } = this.#options
    const owner = ownerOf(credential)
    let secret: Buffer | null = null
    try {
      secret = vault.open(sealed, owner)
      const key = parseProviderKey(owner.provider, secret.toString())
      // Counted twice: as the key, and in the list of secrets to scrub.
      const bytes = ENTRY_BYTES + sealed.box.length + 2 * secret.length
      return { key, owner, box: sealed.box, fromStore, bytes, openedMs: clock.monotonicMs() }
    } catch (error) {
      const reason = error instanceof VaultError ? error.reason : 'invalid'
      metrics.credentialOpenFailures.inc({ reason })
      throw unreadableError(owner.provider, error)
    } finally {
      secret?.fill(0)
    }
  }

  #cache(entry: Entry): void {
    this.#entries.set(entry.owner.credentialId, entry)
    this.#updateGauges()
    this.#sweep ??= this.#options.clock.after(SWEEP_INTERVAL_MS, () => this.#purge())
  }

  #purge(): void {
    this.#sweep = null
    this.#entries.purgeStale()
    if (this.#entries.size > 0)
      this.#sweep = this.#options.clock.after(SWEEP_INTERVAL_MS, () => this.#purge())
  }

  #noteEviction(entry: Entry, reason: LRUCache.DisposeReason): void {
    const { metrics, clock } = this.#options
    metrics.credentialEvictions.inc({ reason: EVICTION_REASONS[reason] })
    metrics.credentialAge.observe((clock.monotonicMs() - entry.openedMs) / 1000)
    this.#updateGauges()
  }

  #updateGauges(): void {
    const { metrics } = this.#options
    metrics.credentialEntries.set(this.#entries.size)
    metrics.credentialBytes.set(this.#entries.calculatedSize)
  }
}

function ownerMatches(owner: SecretOwner, credential: CredentialRef): boolean {
  return (
    owner.organizationId === credential.organizationId &&
    owner.workspaceId === credential.workspaceId &&
    owner.provider === credential.provider
  )
}

function nameOf({ id, organizationId, workspaceId, provider }: CredentialRef): string {
  return `${id}\n${organizationId}\n${workspaceId}\n${provider}`
}

/** Another key or endpoint may still serve the request. */
function missingError(): GatewayError {
  return new GatewayError(
    'provider_unavailable',
    'The stored credential for this provider no longer exists or is disabled',
  )
}

/** The workspace chose to pay with its own key, so a damaged row must not make the operator pay. */
function unreadableError(provider: string, cause: unknown): GatewayError {
  return new GatewayError(
    'credential_unreadable',
    `The workspace's stored credential for ${provider} cannot be opened; enter its key again, or disable it`,
    { retryAfterSeconds: RETRY_AFTER_SECONDS.operator, cause },
  )
}
