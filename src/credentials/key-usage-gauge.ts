/**
 * How many credentials each master key wraps, for the metrics: asked from time to time, never by a scrape, so that a
 * database that is away does not hold the scrape up. Main thread.
 */

import type { Clock, Timer } from '../clock.ts'
import type { CredentialStore } from '../storage/store.ts'
import type { Vault } from './vault.ts'

export interface SealedCounts {
  /** By master key; null when it is not known now. All keys that the ring does not have count as `other`. */
  current(): ReadonlyMap<string, number> | null
  /** Resolves when nothing uses the store any more. */
  close(): Promise<void>
}

/** A rotation takes minutes, and is looked at by people. */
const INTERVAL_MS = 30_000

export const OTHER_KEYS = 'other'

export interface SealedCountsOptions {
  readonly store: { readonly credentials: Pick<CredentialStore, 'countByKeyId'> }
  readonly vault: Pick<Vault, 'has'>
  /** Of the ring; a key without credentials counts 0. */
  readonly keyIds: readonly string[]
  readonly clock: Clock
}

export function watchSealedCounts(options: SealedCountsOptions): SealedCounts {
  const { store, vault, keyIds, clock } = options
  let counts: ReadonlyMap<string, number> | null = null
  let timer: Timer | null = null
  let closed = false

  const ask = async (): Promise<void> => {
    try {
      counts = byLabel(await store.credentials.countByKeyId())
    } catch {
      // No figure is better than an old one; that the database is away is told elsewhere.
      counts = null
    }
    if (!closed) timer = clock.after(INTERVAL_MS, again)
  }
  const byLabel = (found: ReadonlyMap<string, number>): ReadonlyMap<string, number> => {
    const sums = new Map(keyIds.map(keyId => [keyId, 0]))
    for (const [keyId, count] of found) {
      const label = vault.has(keyId) ? keyId : OTHER_KEYS
      sums.set(label, (sums.get(label) ?? 0) + count)
    }
    return sums
  }
  let running = ask()
  function again(): void {
    running = ask()
  }

  return {
    current: () => counts,
    async close() {
      closed = true
      timer?.cancel()
      await running
    },
  }
}
