/** The keys that are there from the start: those of the environment, or two of our own for an empty store. */
import type { Clock } from '../clock.ts'
import type { KeyKind, Store } from '../storage/store.ts'
import { createKey, keyForm, keyKind, keyRecord } from './api-key.ts'

/** A configured key that is none; the message names the variable, never its value. */
export class BootstrapError extends Error {
  override readonly name = 'BootstrapError'
}

/** Keys in plain, to be shown once. */
export interface FirstKeys {
  readonly managementKey: string
  readonly apiKey: string
}

export interface BootstrapSettings {
  readonly store: Store
  readonly clock: Clock
  /** Value of GATEWAY_MANAGEMENT_KEY and GATEWAY_API_KEY; null when not set. */
  readonly managementKey?: string | null
  readonly apiKey?: string | null
}

type Created = ReturnType<typeof createKey>

/**
 * Makes configured keys valid when the store does not know them. Without any and with an empty store two keys
 * are made and returned; in every other case the result is null.
 * @throws BootstrapError before anything is written; whatever the store throws.
 */
export async function ensureKeys(settings: BootstrapSettings): Promise<FirstKeys | null> {
  return await createBootstrap(settings)()
}

/**
 * The same to be called until it succeeds: a call that failed half-way is finished by the next one, with the same keys.
 * @throws BootstrapError
 */
export function createBootstrap(settings: BootstrapSettings): () => Promise<FirstKeys | null> {
  const { store, clock } = settings
  const managementKey = checked('GATEWAY_MANAGEMENT_KEY', 'management', settings.managementKey ?? null)
  const apiKey = checked('GATEWAY_API_KEY', 'inference', settings.apiKey ?? null)
  let made: readonly [Created, Created] | null = null
  return async () => {
    if (managementKey !== null) {
      await store.keys.add(keyRecord(managementKey, 'management', { name: 'GATEWAY_MANAGEMENT_KEY', clock }))
    }
    if (apiKey !== null) {
      await store.keys.add(keyRecord(apiKey, 'inference', { name: 'GATEWAY_API_KEY', clock }))
    }
    if (managementKey !== null || apiKey !== null) return null
    if (made === null && (await store.keys.count()) > 0) return null
    made ??= [
      createKey({ kind: 'management', name: 'First management key', clock }),
      createKey({ kind: 'inference', name: 'First API key', clock }),
    ]
    const [management, inference] = made
    await store.keys.add(management.record)
    await store.keys.add(inference.record)
    return { managementKey: management.key, apiKey: inference.key }
  }
}

function checked(variable: string, kind: KeyKind, key: string | null): string | null {
  if (key !== null && keyKind(key) !== kind)
    throw new BootstrapError(`${variable}: expected ${keyForm(kind)}`)
  return key
}
