/** `sluice keys`: creates and lists keys in the configured store. */
import { createKey } from '../access/keys.ts'
import { isoInstant, systemClock } from '../clock.ts'
import { loadConfig, processEnvironment } from '../config/config.ts'
import type { AuditAction, AuditEntry, AuditObject } from '../storage/audit.ts'
import { openStore } from '../storage/open.ts'
import { DEFAULT_ORGANIZATION_ID, type Store } from '../storage/store.ts'
import { CONFIG_OPTION, type Command, type Given, UsageError } from './command.ts'
import { configWords, print } from './outcome.ts'

export const keysCreate: Command = {
  name: 'keys create',
  does: 'make a key and show it once',
  options: {
    name: { value: 'NAME', required: true, does: 'name of the key in lists' },
    management: { does: 'a management key; it makes and changes keys, and cannot call models' },
    config: CONFIG_OPTION,
  },
  async run(given) {
    const { name, management } = given
    if (typeof name !== 'string' || name.trim() === '') throw new UsageError('--name: expects NAME')
    await withStore(given, async store => {
      const { key, record } = createKey({
        kind: management === true ? 'management' : 'inference',
        name,
        clock: systemClock,
      })
      await store.audited(
        ({ keys }) => keys.add(record),
        () => auditEntry('key.create', { kind: 'key', id: record.hash, name }),
      )
      print(key)
      process.stderr.write('Shown only now; the store keeps its hash.\n')
    })
    return 0
  },
}

export const keysList: Command = {
  name: 'keys list',
  does: 'hashes, labels and states of all keys',
  options: { config: CONFIG_OPTION },
  async run(given) {
    await withStore(given, async store => {
      for (const key of await store.keys.list(DEFAULT_ORGANIZATION_ID)) {
        const state = key.disabled ? 'disabled' : 'active'
        print([key.hash, key.kind, key.label, state, key.createdAt, key.name].join('\t'))
      }
    })
    return 0
  },
}

/** The audit record of a change made by the command line. */
export function auditEntry(action: AuditAction, object: AuditObject): AuditEntry {
  return {
    organizationId: DEFAULT_ORGANIZATION_ID,
    createdAt: isoInstant(systemClock.nowMs()),
    action,
    actor: 'command line',
    object,
    address: null,
  }
}

/** Opens the store of the configuration for as long as it is used. */
export async function withStore({ config }: Given, use: (store: Store) => Promise<void>): Promise<void> {
  const { storage } = loadConfig(configWords(config), processEnvironment())
  const store = await openStore(storage.url)
  try {
    await use(store)
  } finally {
    await store.close()
  }
}
