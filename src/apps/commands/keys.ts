/** `sluice keys`: creates, lists and rotates keys in the configured store. */

import { isoInstant, systemClock } from '../../base/clock.ts'
import { createKey, createSecret } from '../../callers/api-key.ts'
import { KEY_ROLES } from '../../callers/key-roles.ts'
import { loadConfig, processEnvironment } from '../../process/config/config.ts'
import { KEY_OVERLAP_MAX_SECONDS, KEY_SECRETS_MAX } from '../../protocol/limits.ts'
import type { KeyRecord } from '../../protocol/management/keys.ts'
import type { AuditAction, AuditEntry, AuditObject } from '../../storage/audit.ts'
import { openStore } from '../../storage/open.ts'
import { ConflictError, DEFAULT_ORGANIZATION_ID, type Store } from '../../storage/store.ts'
import { CONFIG_OPTION, type Command, CommandError, type OptionValues, UsageError } from './command.ts'
import { configWords, print } from './outcome.ts'
import { plain, table } from './terminal/text.ts'

export const keysCreate: Command = {
  name: 'keys create',
  does: 'create a key and show it once',
  options: {
    name: { value: 'NAME', required: true, does: 'the name of the key in lists' },
    management: { does: 'create a management key, which manages keys and cannot call models' },
    role: {
      value: 'ROLE',
      does: 'what the management key may do: viewer reads, operator also changes keys and rules, admin (default) does everything',
    },
    config: CONFIG_OPTION,
  },
  async run(options) {
    const { name, management } = options
    if (typeof name !== 'string' || name.trim() === '') throw new UsageError('--name: must not be empty')
    const role = roleFrom(options)
    await withStore(options, async store => {
      const { key, record } = createKey({
        kind: management === true ? 'management' : 'inference',
        name,
        clock: systemClock,
        role,
      })
      await store.audited(
        ({ keys }) => keys.add(record),
        () => auditEntry('key.create', { kind: 'key', id: record.hash, name }),
      )
      print(key)
      process.stderr.write('This key is shown only once; only its hash is stored.\n')
    })
    return 0
  },
}

export const keysList: Command = {
  name: 'keys list',
  does: 'list the hashes, labels and states of all keys',
  options: { config: CONFIG_OPTION },
  async run(options) {
    await withStore(options, async store => {
      const keys = await store.keys.list(DEFAULT_ORGANIZATION_ID)
      for (const line of keyTable(keys, process.stdout.isTTY)) print(line)
    })
    return 0
  },
}

/** A table with a header for a terminal; otherwise columns separated by tabs, for programs. */
export function keyTable(keys: readonly KeyRecord[], isTerminal: boolean): string[] {
  const rows = keys.map(({ hash, kind, label, disabled, createdAt, name }) => [
    hash,
    kind,
    label,
    disabled ? 'disabled' : 'active',
    createdAt,
    name,
  ])
  if (!isTerminal) return rows.map(row => row.join('\t'))
  const header = ['hash', 'kind', 'key', 'state', 'created', 'name']
  return table([header, ...rows.map(row => row.map(cell => plain(cell)))], new Set())
}

export const keysRotate: Command = {
  name: 'keys rotate',
  does: 'give a key a new secret and show it once; the old one stops working after the overlap',
  argument: 'HASH|NAME',
  options: {
    overlap: {
      value: 'TIME',
      required: true,
      does: 'how long the old secret keeps working: 0, or a number with s, m, h or d, up to 30d',
    },
    config: CONFIG_OPTION,
  },
  async run(options, argument) {
    const overlapSeconds = overlapFrom(options)
    await withStore(options, async store => {
      const target = keyNamed(await store.keys.list(DEFAULT_ORGANIZATION_ID), argument)
      const { hash, kind, name } = target
      if (target.identity !== null) throw new CommandError('the key of a console session cannot be rotated')
      const { key, secret } = createSecret(kind, systemClock)
      const endsAt = isoInstant(systemClock.nowMs() + overlapSeconds * 1000)
      try {
        await store.audited(
          ({ keys }) => keys.rotate(DEFAULT_ORGANIZATION_ID, hash, secret, endsAt, KEY_SECRETS_MAX),
          () => auditEntry('key.rotate', { kind: 'key', id: hash, name }),
        )
      } catch (thrown) {
        if (!(thrown instanceof ConflictError)) throw thrown
        throw new CommandError(
          `the key already has ${KEY_SECRETS_MAX} valid secrets, which is the maximum: wait until one has expired, or use --overlap 0`,
        )
      }
      print(key)
      process.stderr.write(
        `This secret is shown only once; only its hash is stored. The old secret stops working at ${endsAt}; a running gateway may take 30 s to notice.\n`,
      )
    })
    return 0
  },
}

/** @throws UsageError */
function roleFrom({ role, management }: OptionValues): KeyRecord['role'] {
  if (role === undefined) return null
  if (management !== true) throw new UsageError('--role: only management keys have a role: add --management')
  const knownRole = KEY_ROLES.find(name => name === role)
  if (knownRole === undefined) throw new UsageError(`--role: expects one of ${KEY_ROLES.join(', ')}`)
  return knownRole
}

const UNIT_SECONDS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600, d: 86_400 }

/** Seconds. @throws UsageError */
function overlapFrom({ overlap }: OptionValues): number {
  // Without a unit only 0 is unambiguous.
  const [, number, unit = ''] = /^(\d{1,7})([smhd])$/.exec(overlap === '0' ? '0s' : String(overlap)) ?? []
  const seconds = Number(number) * (UNIT_SECONDS[unit] ?? Number.NaN)
  if (!(seconds <= KEY_OVERLAP_MAX_SECONDS)) {
    throw new UsageError('--overlap: expects 0, or a time such as 90s, 30m, 1h or 7d, up to 30d')
  }
  return seconds
}

/** @throws CommandError unless it is the hash or the name of exactly one key */
function keyNamed(keys: readonly KeyRecord[], text: string): KeyRecord {
  const matches = keys.filter(({ hash, name }) => hash === text || name === text)
  const [key] = matches
  if (key === undefined)
    throw new CommandError('no key has this hash or name; sluice keys list shows all of them')
  if (matches.length > 1)
    throw new CommandError(
      `${matches.length} keys have this name; pass the hash of one of them: ${matches.map(({ hash }) => hash).join(', ')}`,
    )
  return key
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

/** Opens the configured store while `use` runs. */
export async function withStore(
  { config }: OptionValues,
  use: (store: Store) => Promise<void>,
): Promise<void> {
  const { storage } = loadConfig(configWords(config), processEnvironment())
  const store = await openStore(storage.url)
  try {
    await use(store)
  } finally {
    await store.close()
  }
}
