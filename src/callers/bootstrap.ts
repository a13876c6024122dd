/** The first API keys: taken from the environment, or two generated ones for an empty store. */
import type { Clock } from '../base/clock.ts'
import type { Log } from '../base/log/log.ts'
import type { KeyKind } from '../protocol/management/keys.ts'
import type { Store } from '../storage/store.ts'
import { createKey, hashKey, isGuessable, keyForm, keyKind, keyRecord } from './api-key.ts'

/**
 * Thrown if configured keys have an invalid form or are easy to guess; the message has one line per key, which names
 * the variable, never its value.
 */
export class BootstrapError extends Error {
  override readonly name = 'BootstrapError'
}

/** Keys in plain text, to be shown once. */
export interface FirstKeys {
  readonly managementKey: string
  readonly apiKey: string
}

/** Values of GATEWAY_MANAGEMENT_KEY and GATEWAY_API_KEY; null when not set. */
interface ConfiguredKeys {
  readonly managementKey?: string | null
  readonly apiKey?: string | null
}

export interface BootstrapOptions extends ConfiguredKeys {
  readonly store: Store
  readonly clock: Clock
  readonly log: Pick<Log, 'notice'>
}

type CreatedKey = ReturnType<typeof createKey>

/**
 * Returns a function that adds the configured keys to the store, except those that were deleted there. If none are
 * configured, it adds two new keys to an empty store and returns them; in every other case it returns null. A call
 * after a failed one completes it, with the same keys.
 * @throws BootstrapError when a configured key is invalid, before anything is written
 */
export function createBootstrap(options: BootstrapOptions): () => Promise<FirstKeys | null> {
  const { store, clock, log } = options
  const { managementKey = null, apiKey = null } = options
  const faults = keyFaults(options)
  if (faults.length > 0) throw new BootstrapError(faults.join('\n'))
  let createdKeys: readonly [CreatedKey, CreatedKey] | null = null
  const add = async (name: string, kind: KeyKind, key: string): Promise<void> => {
    // A key that was deleted because it leaked must not come back with the next start.
    if (await store.keys.wasRemoved(hashKey(key))) {
      log.notice('keys', 'the key in this variable was deleted and stays invalid; set a new one', {
        variable: name,
      })
    } else await store.keys.add(keyRecord(key, kind, { name, clock }))
  }
  return async () => {
    if (managementKey !== null) await add('GATEWAY_MANAGEMENT_KEY', 'management', managementKey)
    if (apiKey !== null) await add('GATEWAY_API_KEY', 'inference', apiKey)
    if (managementKey !== null || apiKey !== null) return null
    if (createdKeys === null && (await store.keys.count()) > 0) return null
    createdKeys ??= [
      createKey({ kind: 'management', name: 'First management key', clock }),
      createKey({ kind: 'inference', name: 'First API key', clock }),
    ]
    const [management, inference] = createdKeys
    await store.keys.add(management.record)
    await store.keys.add(inference.record)
    return { managementKey: management.key, apiKey: inference.key }
  }
}

/** Checks that configured keys have a valid form and are not easy to guess; returns one line per fault. */
export function keyFaults({ managementKey, apiKey }: ConfiguredKeys): readonly string[] {
  const check = (variable: string, kind: KeyKind, key: string | null = null): readonly string[] => {
    if (key === null) return []
    if (keyKind(key) !== kind) return [`${variable}: expected ${keyForm(kind)}`]
    return isGuessable(key)
      ? [`${variable}: is too easy to guess; its 64 hexadecimal characters must be random`]
      : []
  }
  return [
    ...check('GATEWAY_MANAGEMENT_KEY', 'management', managementKey),
    ...check('GATEWAY_API_KEY', 'inference', apiKey),
  ]
}
