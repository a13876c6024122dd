/**
 * Rotation of master keys: checks that every secret can be decrypted, re-encrypts secrets with the current key, and
 * counts them by key. It may run next to gateways that have both keys: only data keys are rewrapped, row by row, with
 * compare and swap, so every row can be decrypted with one of the two at any moment. It can be stopped and restarted at
 * any time.
 */
import type { Clock } from '../../base/clock.ts'
import type { CredentialRecord, CredentialStore } from '../../storage/store.ts'
import { type StoreCounts, startStoreCounts } from '../../storage/store-counts.ts'
import { ownerOf, type Vault, VaultError } from './vault.ts'
import { VaultKeyError } from './vault-keys.ts'

type RotationStore = Pick<CredentialStore, 'countByKeyId' | 'notWrappedBy' | 'reseal'>

/** Rows per read: a few hundred kilobytes. */
const BATCH_ROWS = 200
/** A row that changes this often between read and write counts as failed. */
const ATTEMPTS_MAX = 5
/** Enough to distinguish one damaged row from a ring of wrong keys. */
const SAMPLE_ROWS = 100
/** No master key has this id, so it matches all rows. */
const NO_KEY_ID = ''

export interface RotationProgress {
  /** Number of credentials rewrapped so far. */
  readonly rewrapped: number
  readonly total: number
}

interface RotationResult {
  readonly rewrapped: number
  /** Ids of credentials that were not rewrapped: no master key decrypts them, or they changed at every attempt. */
  readonly failed: readonly string[]
}

interface RotationOptions {
  readonly onProgress?: (progress: RotationProgress) => void
  /** Rows per read. */
  readonly batchRows?: number
}

/**
 * Rewraps all credentials with the vault's current key, including rows that are added in the meantime. @throws errors
 * of the Store
 */
export async function rotate(
  store: { readonly credentials: RotationStore },
  vault: Vault,
  options: RotationOptions = {},
): Promise<RotationResult> {
  const { credentials } = store
  const { onProgress, batchRows = BATCH_ROWS } = options
  const counts = await credentials.countByKeyId()
  const initialCount = sum(counts.values()) - (counts.get(vault.currentKeyId) ?? 0)
  const failed = new Set<string>()
  const attempts = new Map<string, number>()
  let rewrappedCount = 0
  const report = () =>
    onProgress?.({ rewrapped: rewrappedCount, total: Math.max(initialCount, rewrappedCount + failed.size) })
  report()
  for (;;) {
    // Failed rows are found again each time, so the limit grows by their number.
    const rows = await credentials.notWrappedBy(vault.currentKeyId, batchRows + failed.size)
    const pending = rows.filter(({ id }) => !failed.has(id))
    if (pending.length === 0) break
    for (const record of pending) {
      const newSeal = rewrap(vault, record)
      if (newSeal !== null && (await credentials.reseal(record.id, record.sealed, newSeal))) {
        rewrappedCount++
        attempts.delete(record.id)
        continue
      }
      // The row was changed or removed after it was read. It is tried again in the next round, unless it cannot be
      // decrypted at all.
      const attemptCount = (attempts.get(record.id) ?? 0) + 1
      attempts.set(record.id, attemptCount)
      if (newSeal === null || attemptCount >= ATTEMPTS_MAX) failed.add(record.id)
    }
    report()
  }
  return { rewrapped: rewrappedCount, failed: [...failed] }
}

/** Finds the ids of missing master keys, with the number of credentials that need them. */
export async function missingKeyIds(
  store: { readonly credentials: Pick<RotationStore, 'countByKeyId'> },
  vault: Pick<Vault, 'has'>,
): Promise<ReadonlyMap<string, number>> {
  const counts = await store.credentials.countByKeyId()
  return new Map([...counts].filter(([keyId, count]) => count > 0 && !vault.has(keyId)))
}

/**
 * Checks the master keys before anything is served: every key that a credential needs must exist, and a sample of
 * credentials must decrypt with it. Returns the ids of credentials that do not: a single one may be damaged, which must
 * not prevent the start.
 * @param source the variable or file of the master keys, for the message
 * @throws VaultKeyError with the key's id and what to do, for a key that is missing or that decrypts none of several
 */
export async function checkRing(
  store: { readonly credentials: Pick<RotationStore, 'countByKeyId' | 'notWrappedBy'> },
  vault: Vault,
  source: string,
): Promise<readonly string[]> {
  for (const [keyId, count] of await missingKeyIds(store, vault)) {
    throw new VaultKeyError(
      `${source}: ${credentialCount(count)} sealed with the master key ${printable(keyId)}, which is missing there; add that key after the first one, and run sluice vault rotate before you remove it`,
    )
  }
  const sample = await store.credentials.notWrappedBy(NO_KEY_ID, SAMPLE_ROWS)
  const failed = sample.filter(record => rewrap(vault, record) === null)
  for (const [keyId, rows] of Map.groupBy(failed, ({ sealed }) => sealed.keyId)) {
    const sampleSize = sample.filter(({ sealed }) => sealed.keyId === keyId).length
    if (rows.length < sampleSize || sampleSize === 1) continue
    throw new VaultKeyError(
      `${source}: none of ${sampleSize} credentials opens with the master key ${printable(keyId)}: it is not the key that they were sealed with under this id, or all of them were damaged; restore the right key, or the database from a backup`,
    )
  }
  return failed.map(({ id }) => id)
}

/** Null if it cannot be decrypted. */
function rewrap(vault: Vault, record: CredentialRecord) {
  try {
    return vault.rewrap(record.sealed, ownerOf(record))
  } catch (error) {
    if (error instanceof VaultError) return null
    throw error
  }
}

function credentialCount(count: number): string {
  return count === 1 ? '1 credential is' : `${count} credentials are`
}

/** An id from the database is printed on a terminal, so it must be safe. */
function printable(keyId: string): string {
  return /^[A-Za-z0-9_-]{1,32}$/.test(keyId) ? keyId : '(with an invalid name)'
}

function sum(values: Iterable<number>): number {
  let total = 0
  for (const value of values) total += value
  return total
}

/** Short enough to follow a rotation, which takes minutes. */
const COUNT_INTERVAL_MS = 30_000

export const OTHER_KEYS_LABEL = 'other'

interface KeyUsageGaugeOptions {
  readonly store: { readonly credentials: Pick<CredentialStore, 'countByKeyId'> }
  readonly vault: Pick<Vault, 'has'>
  /** Ids of the known master keys; a key without credentials counts 0. */
  readonly keyIds: readonly string[]
  readonly clock: Clock
}

/**
 * Counts the credentials that each master key wraps, for the metrics. Unknown master keys count together as `other`.
 * Main thread.
 */
export function startKeyUsageGauge(options: KeyUsageGaugeOptions): StoreCounts<string> {
  const { store, vault, keyIds, clock } = options
  const count = async (): Promise<ReadonlyMap<string, number>> => {
    const sums = new Map(keyIds.map(keyId => [keyId, 0]))
    for (const [keyId, number] of await store.credentials.countByKeyId()) {
      const label = vault.has(keyId) ? keyId : OTHER_KEYS_LABEL
      sums.set(label, (sums.get(label) ?? 0) + number)
    }
    return sums
  }
  return startStoreCounts({ count, intervalMs: COUNT_INTERVAL_MS, clock })
}
