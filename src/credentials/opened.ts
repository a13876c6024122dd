/**
 * Opened provider keys, for a short time and in a bounded number. Hot path: a key in the cache costs one lookup,
 * synchronously; any other is read from the Store once, however many requests wait, and opened. Serve thread.
 *
 * What the vault opens is zeroed in the same call, right after it was read. The strings read from it cannot be: they
 * stay in memory until they are collected after eviction, as do the copies that requests under way hold.
 */
import { LRUCache } from 'lru-cache'
import { type Clock, type Timer, within } from '../clock.ts'
import { GatewayError, serviceUnavailable } from '../errors.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { CredentialRecord, CredentialStore, SealedSecret } from '../storage/store.ts'
import { type ProviderKey, parseProviderKey } from './parse/provider-key.ts'
import { ownerOf, type SecretOwner, type Vault } from './vault.ts'

/** What names a credential. With the sealed form the Store is not asked. */
export type CredentialRef = Pick<CredentialRecord, 'id' | 'organizationId' | 'workspaceId' | 'provider'> & {
  readonly sealed?: SealedSecret
}

export interface CredentialCacheSettings {
  readonly store: { readonly credentials: Pick<CredentialStore, 'find'> }
  readonly vault: Pick<Vault, 'open'>
  readonly clock: Clock
  readonly metrics: CredentialCacheMetrics
  /** Keys kept. Default 1,000. */
  readonly maxEntries?: number
  /** Memory of the keys kept, estimated. Default 4 MiB: 1,000 service accounts. */
  readonly maxBytes?: number
  /**
   * How long a key is kept: the longest a changed one goes on working here when no word of the change comes. Default
   * and at most 300 s; within 10 s after it the memory is free.
   */
  readonly ttlMs?: number
  /** Credentials that may be read from the Store at once; above it callers are told to come again. Default 100. */
  readonly maxLookups?: number
  /** How long a request waits for the Store. Default 2 s. */
  readonly lookupMs?: number
}

export type CredentialCacheMetrics = Pick<
  Metrics,
  | 'credentialEntries'
  | 'credentialBytes'
  | 'credentialHits'
  | 'credentialMisses'
  | 'credentialEvictions'
  | 'credentialAge'
>

export interface CredentialCache {
  /**
   * The key of a credential; a promise only when the Store has to be asked.
   * @throws (or rejects with) GatewayError `service_unavailable` when the Store does not answer,
   * `provider_unavailable` when there is no such credential any more, or when it does not open.
   */
  open(credential: CredentialRef): ProviderKey | Promise<ProviderKey>
  /** Drops what is remembered of a credential, after it was changed or removed. */
  forget(id: string): void
  /** Drops what is remembered of all credentials. */
  forgetAll(): void
  /** Drops everything, before the thread ends. */
  close(): void
}

const TTL_MAX_MS = 300_000
/** Expired keys that nobody asks for are dropped this often. */
const SWEEP_MS = 10_000
const DEFAULTS = {
  maxEntries: 1_000,
  maxBytes: 4 * 1024 * 1024,
  ttlMs: TTL_MAX_MS,
  maxLookups: 100,
  lookupMs: 2_000,
} satisfies Partial<CredentialCacheSettings>

/** Why an entry left, as the label says it. */
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
  /** The box that it was opened from; the same key wrapped anew keeps its box. */
  readonly box: string
  /** Whether the Store said so, not a caller, whose record may be old. */
  readonly read: boolean
  readonly bytes: number
  /** Monotonic. */
  readonly openedMs: number
}

/** A reading of the Store that is under way. */
interface Lookup {
  readonly id: string
  readonly result: Promise<ProviderKey>
}

/** Objects, map slots and the parts of strings that an entry needs beside its text. */
const ENTRY_BYTES = 1_024

export function createCredentialCache(settings: CredentialCacheSettings): CredentialCache {
  return new OpenedKeys(settings)
}

class OpenedKeys implements CredentialCache {
  readonly #settings: CredentialCacheSettings & typeof DEFAULTS
  readonly #entries: LRUCache<string, Entry>
  readonly #lookups = new Map<string, Lookup>()
  /** Forgotten ones too: they still wait for the Store. */
  #running = 0
  #sweep: Timer | null = null

  constructor(settings: CredentialCacheSettings) {
    this.#settings = { ...DEFAULTS, ...settings }
    const { clock, maxEntries, maxBytes, ttlMs } = this.#settings
    this.#entries = new LRUCache({
      max: maxEntries,
      maxSize: maxBytes,
      sizeCalculation: entry => entry.bytes,
      ttl: Math.min(ttlMs, TTL_MAX_MS),
      // The clock is asked each time; otherwise a timer of the library's own would hold its answer.
      ttlResolution: 0,
      // Never 0, which the library takes for "no time".
      perf: { now: () => clock.monotonicMs() + 1 },
      disposeAfter: (entry, _, reason) => this.#left(entry, reason),
    })
  }

  open(credential: CredentialRef): ProviderKey | Promise<ProviderKey> {
    const { metrics } = this.#settings
    const { id, sealed } = credential
    const entry = this.#entries.get(id)
    if (entry !== undefined && isOf(entry.owner, credential)) {
      // Whoever brings a record gets the key of that record. What came from such a record serves nobody else: the
      // record may be older than the last change.
      if (sealed === undefined ? entry.read : entry.box === sealed.box) {
        metrics.credentialHits.inc()
        return entry.key
      }
    }
    metrics.credentialMisses.inc()
    if (sealed === undefined) return this.#look(credential)
    const opened = this.#opened(credential, sealed, false)
    this.#keep(opened)
    return opened.key
  }

  forget(id: string): void {
    this.#entries.delete(id)
    for (const [name, lookup] of this.#lookups) if (lookup.id === id) this.#lookups.delete(name)
  }

  forgetAll(): void {
    this.#lookups.clear()
    this.#entries.clear()
  }

  close(): void {
    this.#sweep?.cancel()
    this.#sweep = null
    this.forgetAll()
  }

  #look(credential: CredentialRef): Promise<ProviderKey> {
    const lookups = this.#lookups
    // By the whole name: nobody may get what was read for another organization, even of the same id.
    const name = nameOf(credential)
    const lookup = lookups.get(name)
    if (lookup !== undefined) return lookup.result
    if (this.#running >= this.#settings.maxLookups) return Promise.reject(serviceUnavailable())
    this.#running++
    // What is read of a credential that was forgotten meanwhile may be the old state, and is not kept.
    const current = (): boolean => lookups.get(name)?.result === result
    const result: Promise<ProviderKey> = this.#read(credential, current).finally(() => {
      this.#running--
      if (current()) lookups.delete(name)
    })
    lookups.set(name, { id: credential.id, result })
    return result
  }

  async #read(credential: CredentialRef, current: () => boolean): Promise<ProviderKey> {
    const { store, clock, lookupMs } = this.#settings
    let record: CredentialRecord | null
    try {
      const asked = store.credentials.find(credential.organizationId, credential.id)
      record = await within(clock, lookupMs, asked)
    } catch (error) {
      throw serviceUnavailable(error)
    }
    if (record === null || record.disabled) throw unusable('is not there any more')
    const opened = this.#opened(credential, record.sealed, true)
    if (current()) this.#keep(opened)
    return opened.key
  }

  #opened(credential: CredentialRef, sealed: SealedSecret, read: boolean): Entry {
    const { vault, clock } = this.#settings
    const owner = ownerOf(credential)
    let secret: Buffer | null = null
    try {
      secret = vault.open(sealed, owner)
      const key = parseProviderKey(owner.provider, secret.toString())
      // Twice: as the key, and in the list of what has to be scrubbed.
      const bytes = ENTRY_BYTES + sealed.box.length + 2 * secret.length
      return { key, owner, box: sealed.box, read, bytes, openedMs: clock.monotonicMs() }
    } catch (error) {
      throw unusable('cannot be used', error)
    } finally {
      secret?.fill(0)
    }
  }

  #keep(entry: Entry): void {
    this.#entries.set(entry.owner.credentialId, entry)
    this.#gauge()
    this.#sweep ??= this.#settings.clock.after(SWEEP_MS, () => this.#purge())
  }

  #purge(): void {
    this.#sweep = null
    this.#entries.purgeStale()
    if (this.#entries.size > 0) this.#sweep = this.#settings.clock.after(SWEEP_MS, () => this.#purge())
  }

  #left(entry: Entry, reason: LRUCache.DisposeReason): void {
    const { metrics, clock } = this.#settings
    metrics.credentialEvictions.inc({ reason: EVICTION_REASONS[reason] })
    metrics.credentialAge.observe((clock.monotonicMs() - entry.openedMs) / 1000)
    this.#gauge()
  }

  #gauge(): void {
    const { metrics } = this.#settings
    metrics.credentialEntries.set(this.#entries.size)
    metrics.credentialBytes.set(this.#entries.calculatedSize)
  }
}

function isOf(owner: SecretOwner, credential: CredentialRef): boolean {
  return (
    owner.organizationId === credential.organizationId &&
    owner.workspaceId === credential.workspaceId &&
    owner.provider === credential.provider
  )
}

function nameOf({ id, organizationId, workspaceId, provider }: CredentialRef): string {
  return `${id}\n${organizationId}\n${workspaceId}\n${provider}`
}

/** Another key or endpoint may still serve. */
function unusable(how: string, cause?: unknown): GatewayError {
  return new GatewayError('provider_unavailable', `The stored key of this provider ${how}`, { cause })
}
