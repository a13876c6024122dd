/**
 * Counts the credentials that each master key wraps, for the metrics. It asks the database on a timer, not per scrape,
 * so that an unavailable database does not delay a scrape. Main thread.
 */
import type { Clock, Timer } from '../clock.ts'
import type { CredentialStore } from '../storage/store.ts'
import type { Vault } from './vault.ts'

export interface KeyUsageGauge {
  /** By master key; null when the counts are unknown now. Keys outside the ring count together as `other`. */
  current(): ReadonlyMap<string, number> | null
  /** Resolves when the store is no longer used. */
  close(): Promise<void>
}

/** A rotation takes minutes, and people watch it. */
const INTERVAL_MS = 30_000

export const OTHER_KEYS = 'other'

export interface KeyUsageGaugeOptions {
  readonly store: { readonly credentials: Pick<CredentialStore, 'countByKeyId'> }
  readonly vault: Pick<Vault, 'has'>
  /** Of the ring; a key without credentials counts 0. */
  readonly keyIds: readonly string[]
  readonly clock: Clock
}

export function startKeyUsageGauge(options: KeyUsageGaugeOptions): KeyUsageGauge {
  const { store, vault, keyIds, clock } = options
  let counts: ReadonlyMap<string, number> | null = null
  let timer: Timer | null = null
  let closed = false

  const read = async (): Promise<void> => {
    try {
      counts = byLabel(await store.credentials.countByKeyId())
    } catch {
      // No figure is better than an outdated one. The store watch logs the outage.
      counts = null
    }
    if (!closed) timer = clock.after(INTERVAL_MS, readAgain)
  }
  const byLabel = (found: ReadonlyMap<string, number>): ReadonlyMap<string, number> => {
    const sums = new Map(keyIds.map(keyId => [keyId, 0]))
    for (const [keyId, count] of found) {
      const label = vault.has(keyId) ? keyId : OTHER_KEYS
      sums.set(label, (sums.get(label) ?? 0) + count)
    }
    return sums
  }
  let reading = read()
  function readAgain(): void {
    reading = read()
  }

  return {
    current: () => counts,
    async close() {
      closed = true
      timer?.cancel()
      await reading
    },
  }
}
