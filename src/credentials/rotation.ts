/**
 * Master keys over time: whether all that is sealed can be opened, and wrapping it anew by the key in force. Safe
 * beside running gateways whose ring has both keys: only the data keys are wrapped anew, row by row, each by compare
 * and swap, and whatever is read in between opens with one or the other. Can be stopped and begun again at any time.
 */
import type { CredentialRecord, CredentialStore } from '../storage/store.ts'
import { ownerOf, type Vault, VaultError } from './vault.ts'
import { VaultKeyError } from './vault-keys.ts'

type Sealed = Pick<CredentialStore, 'countByKeyId' | 'notWrappedBy' | 'reseal'>

/** Rows at a time: some hundred kilobytes. */
const BATCH_ROWS = 200
/** A row that changes under our hands this often, one after the other, is no accident. */
const TRIES = 5
/** Enough to tell one damaged row from a ring of wrong keys. */
const SAMPLE_ROWS = 100
/** No master key has it, so all rows are wrapped by others. */
const NO_KEY = ''

export interface RotationProgress {
  /** Credentials that the key in force wraps now, of those that it did not at the beginning. */
  readonly done: number
  readonly total: number
}

export interface RotationResult {
  readonly rewrapped: number
  /** Ids of credentials that could not be wrapped anew: they do not open with any key of the ring. */
  readonly failed: readonly string[]
}

export interface RotationOptions {
  readonly onProgress?: (progress: RotationProgress) => void
  /** Rows read at a time. */
  readonly batchRows?: number
}

/** Wraps everything by the vault's current key. What is added meanwhile is too. @throws what the Store throws */
export async function rotate(
  store: { readonly credentials: Sealed },
  vault: Vault,
  options: RotationOptions = {},
): Promise<RotationResult> {
  const { credentials } = store
  const { onProgress, batchRows = BATCH_ROWS } = options
  const counts = await credentials.countByKeyId()
  const before = sum(counts.values()) - (counts.get(vault.currentKeyId) ?? 0)
  const failed = new Set<string>()
  const tries = new Map<string, number>()
  let rewrapped = 0
  const tell = () => onProgress?.({ done: rewrapped, total: Math.max(before, rewrapped + failed.size) })
  tell()
  for (;;) {
    // Those that failed are found again each time; the others are behind or between them.
    const rows = await credentials.notWrappedBy(vault.currentKeyId, batchRows + failed.size)
    const open = rows.filter(({ id }) => !failed.has(id))
    if (open.length === 0) break
    for (const record of open) {
      const after = wrappedAnew(vault, record)
      if (after !== null && (await credentials.reseal(record.id, record.sealed, after))) {
        rewrapped++
        tries.delete(record.id)
        continue
      }
      // Changed or removed since it was read; unless it does not open at all, the next reading tells.
      const tried = (tries.get(record.id) ?? 0) + 1
      tries.set(record.id, tried)
      if (after === null || tried >= TRIES) failed.add(record.id)
    }
    tell()
  }
  return { rewrapped, failed: [...failed] }
}

/** Ids of the master keys that credentials need and the ring does not have, with the number of those credentials. */
export async function missingKeyIds(
  store: { readonly credentials: Pick<Sealed, 'countByKeyId'> },
  vault: Pick<Vault, 'has'>,
): Promise<ReadonlyMap<string, number>> {
  const counts = await store.credentials.countByKeyId()
  return new Map([...counts].filter(([keyId, count]) => count > 0 && !vault.has(keyId)))
}

/**
 * The check before anything is served: every credential has its master key in the ring, and the keys are the ones
 * that they are named as, as far as a sample tells.
 * @param source where the ring comes from, for the message
 * @throws VaultKeyError that names the key and says what to do
 */
export async function checkRing(
  store: { readonly credentials: Pick<Sealed, 'countByKeyId' | 'notWrappedBy'> },
  vault: Vault,
  source: string,
): Promise<void> {
  for (const [keyId, count] of await missingKeyIds(store, vault)) {
    throw new VaultKeyError(
      `${source}: ${credentialCount(count)} sealed with the master key ${shown(keyId)}, which is not in it; add that key behind the first one, then run sluice vault rotate before it is left out`,
    )
  }
  const opens = new Map<string, boolean>()
  for (const record of await store.credentials.notWrappedBy(NO_KEY, SAMPLE_ROWS)) {
    const { keyId } = record.sealed
    opens.set(keyId, opens.get(keyId) === true || wrappedAnew(vault, record) !== null)
  }
  for (const [keyId, good] of opens) {
    if (good) continue
    throw new VaultKeyError(
      `${source}: the master key ${shown(keyId)} in it is not the one that credentials were sealed with under this name; put the right one there`,
    )
  }
}

/** Null when it does not open. */
function wrappedAnew(vault: Vault, record: CredentialRecord) {
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

/** A name from the database goes onto a terminal. */
function shown(keyId: string): string {
  return /^[A-Za-z0-9_-]{1,32}$/.test(keyId) ? keyId : '(of no valid name)'
}

function sum(values: Iterable<number>): number {
  let total = 0
  for (const value of values) total += value
  return total
}
