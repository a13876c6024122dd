/** Calls management operations of a running gateway for commands. Over HTTP. */
import { isoInstant, systemClock } from '../../base/clock.ts'
import { createKey } from '../../callers/api-key.ts'
import { findConfig, processEnvironment } from '../../process/config/config.ts'
import { DEFAULT_ORGANIZATION_ID } from '../../storage/store.ts'
import { CONFIG_OPTION, type OptionValues } from './command.ts'
import { GatewayClient, versioned } from './gateway-client.ts'
import { auditEntry, withStore } from './keys.ts'
import { configWords, EXIT_FAILED, print } from './outcome.ts'
import { type PortTerms, portAddress } from './port-address.ts'
import { stopSignal } from './stop-signal.ts'
import { plain, table } from './terminal/text.ts'

export const MANAGEMENT_OPTIONS = {
  url: { value: 'URL', does: 'address of the gateway; default: the one in the configuration' },
  key: {
    value: 'KEY',
    does: 'management key; default: GATEWAY_MANAGEMENT_KEY, or the file that GATEWAY_MANAGEMENT_KEY_FILE names, or a new one that ends with the command, if the configuration file and the database are here',
  },
  config: CONFIG_OPTION,
} as const

const MANAGEMENT_PORT = {
  part: 'listen',
  defaultPort: 8080,
  key: 'managementKey',
  missing:
    'a management key is missing: pass --key KEY, or set GATEWAY_MANAGEMENT_KEY or GATEWAY_MANAGEMENT_KEY_FILE, or name the configuration file of the gateway by --config FILE on its machine; sluice keys create --name NAME --management makes one',
  otherKind:
    'this is an API key, but this needs a management key: pass one with --key KEY; sluice keys create --name NAME --management makes one',
} as const satisfies PortTerms

/** The new key for a command to which no key is given. */
interface OwnKey {
  /** Shown in the audit records. */
  readonly command: string
  readonly role: 'viewer' | 'operator'
}

/** Calls `use` with a client that has a management key. Returns the exit code. */
export async function withManagement(
  options: OptionValues,
  ownKey: OwnKey,
  use: (client: GatewayClient) => Promise<number>,
): Promise<number> {
  return await withManagementKey(options, ownKey, async (keyOption, signal) => {
    const { url, key } = portAddress({ ...options, ...keyOption }, MANAGEMENT_PORT)
    return await use(new GatewayClient({ url: versioned(url), key }, MANAGEMENT_PORT, signal))
  })
}

/** Prints rows of texts of the gateway under their names, or a sentence if there are none. */
export function printRows(
  names: readonly string[],
  rows: readonly (readonly string[])[],
  emptyText: string,
  numbers: ReadonlySet<number> = new Set(),
): void {
  if (rows.length === 0) print(emptyText)
  else
    for (const line of table([names, ...rows.map(row => row.map(cell => plain(cell)))], numbers)) print(line)
}

/** Longer than any command runs; at its end the key is removed anyway. */
const OWN_KEY_LIFETIME_MS = 86_400_000

/**
 * Calls `use`, with a new management key if no key is given and the configuration file is here: who reads the file and
 * the database may do everything anyway. The key ends with the command, even with one that is interrupted: `use` has to
 * end at the signal.
 */
export async function withManagementKey(
  options: OptionValues,
  { command, role }: OwnKey,
  use: (key: { readonly key?: string }, signal: AbortSignal) => Promise<number>,
): Promise<number> {
  const stopping = stopSignal()
  const { signal } = stopping
  const run = async (key: { readonly key?: string }): Promise<number> => {
    try {
      return await use(key, signal)
    } catch (error) {
      if (!signal.aborted) throw error
      return stopping.exitCode
    }
  }
  try {
    const { config, file } = findConfig(configWords(options['config']), processEnvironment())
    if (options['key'] !== undefined || file === null || config === null || config.managementKey !== null)
      return await run({})
    const name = `sluice ${command}`
    const { key, record } = createKey({
      kind: 'management',
      name,
      role,
      expiresAt: isoInstant(systemClock.nowMs() + OWN_KEY_LIFETIME_MS),
      clock: systemClock,
    })
    const object = { kind: 'key', id: record.hash, name } as const
    let code = EXIT_FAILED
    await withStore(options, async store => {
      await store.audited(
        ({ keys }) => keys.add(record),
        () => auditEntry('key.create', object),
      )
      try {
        code = await run({ key })
      } finally {
        await store.audited(
          ({ keys }) => keys.remove(DEFAULT_ORGANIZATION_ID, record.hash),
          () => auditEntry('key.delete', object),
        )
      }
    })
    return code
  } finally {
    stopping.end()
  }
}
