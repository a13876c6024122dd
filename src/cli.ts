#!/usr/bin/env -S node --disable-warning=ExperimentalWarning
/** The operator's command line, on the store and configuration of the gateway. */
import { parseArgs } from 'node:util'
import { createKey } from './access/keys.ts'
import { isoInstant, systemClock } from './clock.ts'
import { loadConfig, processEnvironment } from './config/config.ts'
import { type RotationProgress, rotate } from './credentials/rotation.ts'
import { createVault, type Vault } from './credentials/vault.ts'
import { loadVaultRing } from './credentials/vault-keys.ts'
import type { AuditAction, AuditEntry, AuditObject } from './storage/audit.ts'
import { openStore } from './storage/open.ts'
import { DEFAULT_ORGANIZATION_ID, type Store } from './storage/store.ts'
import { buildCatalog } from './threads/build-catalog.ts'
import { startFailure } from './threads/start-failure.ts'

const USAGE = `usage:
  sluice keys create --name NAME [--management]   make a key and show it once
  sluice keys list                                hashes, labels and states of all keys
  sluice vault status                             credentials by the master key that wraps them
  sluice vault rotate                             wrap all credentials by the first master key
  sluice check [--config FILE]                    check a configuration without starting

Every command takes --config FILE and the environment of the gateway.`

const OPTIONS = {
  config: { type: 'string' },
  name: { type: 'string' },
  management: { type: 'boolean', default: false },
  help: { type: 'boolean', short: 'h', default: false },
} as const

/** The command line is invalid. */
class UsageError extends Error {
  override readonly name = 'UsageError'
}

/** Some credentials could not be rewrapped. */
class RotationError extends Error {
  override readonly name = 'RotationError'
}

type Values = ReturnType<typeof parseArgs<{ options: typeof OPTIONS; allowPositionals: true }>>['values']

const COMMANDS: Readonly<Record<string, (values: Values) => Promise<void>>> = {
  'keys create': async values => {
    const { name, management } = values
    if (name === undefined || name.trim() === '') throw new UsageError('--name: is required')
    await withStore(values, async store => {
      const { key, record } = createKey({
        kind: management === true ? 'management' : 'inference',
        name,
        clock: systemClock,
      })
      await store.audited(
        ({ keys }) => keys.add(record),
        () => entryOf('key.create', { kind: 'key', id: record.hash, name }),
      )
      print(key)
      process.stderr.write('Shown only now; the store keeps its hash.\n')
    })
  },
  'keys list': async values => {
    await withStore(values, async store => {
      for (const key of await store.keys.list(DEFAULT_ORGANIZATION_ID)) {
        print(
          [key.hash, key.kind, key.label, key.disabled ? 'disabled' : 'active', key.createdAt, key.name].join(
            '\t',
          ),
        )
      }
    })
  },
  'vault status': async values => {
    await withVault(values, async (store, vault) => {
      const counts = await store.credentials.countByKeyId()
      const keyIds = new Set([vault.currentKeyId, ...[...counts.keys()].sort()])
      for (const keyId of keyIds) {
        const state = keyId === vault.currentKeyId ? 'in force' : vault.has(keyId) ? 'older' : 'missing'
        print([keyId, state, counts.get(keyId) ?? 0].join('\t'))
      }
    })
  },
  'vault rotate': async values => {
    await withVault(values, async (store, vault) => {
      const bar = progressBar(process.stderr)
      const { rewrapped, failed } = await rotate(store, vault, { onProgress: bar.show }).finally(bar.end)
      // In many transactions, so that the gateway goes on meanwhile.
      await store.audited(
        async () => undefined,
        () => entryOf('vault.rotate', { kind: 'vault', id: vault.currentKeyId, name: null }),
      )
      print(`${rewrapped} credentials are now wrapped by ${vault.currentKeyId}`)
      if (failed.length === 0) return
      throw new RotationError(
        `${failed.length} credentials do not open with any master key given: ${failed.join(', ')}`,
      )
    })
  },
  check: async values => {
    const config = configuration(values)
    const catalog = buildCatalog(config, null)
    print(`configuration is good: ${catalog.providers().length} providers, ${catalog.models().length} models`)
  },
}

function entryOf(action: AuditAction, object: AuditObject): AuditEntry {
  return {
    organizationId: DEFAULT_ORGANIZATION_ID,
    createdAt: isoInstant(systemClock.nowMs()),
    action,
    actor: 'command line',
    object,
    address: null,
  }
}

function configuration(values: Values) {
  return loadConfig(values.config === undefined ? [] : ['--config', values.config], processEnvironment())
}

async function withStore(values: Values, use: (store: Store) => Promise<void>): Promise<void> {
  const store = await openStore(configuration(values).storage.url)
  try {
    await use(store)
  } finally {
    await store.close()
  }
}

function withVault(values: Values, use: (store: Store, vault: Vault) => Promise<void>): Promise<void> {
  const { keys } = loadVaultRing(configuration(values))
  return withStore(values, store => use(store, createVault(keys)))
}

const BAR_CELLS = 30

/** Drawn over itself on a terminal, and nowhere else. */
function progressBar(out: NodeJS.WriteStream) {
  return {
    show({ done, total }: RotationProgress): void {
      if (!out.isTTY) return
      const part = total === 0 ? 1 : done / total
      const filled = Math.floor(part * BAR_CELLS)
      const bar = `${'#'.repeat(filled)}${'.'.repeat(BAR_CELLS - filled)}`
      out.write(`\r[${bar}] ${Math.floor(part * 100)} %  ${done} of ${total}`)
    },
    end(): void {
      if (out.isTTY) out.write('\n')
    },
  }
}

function print(line: string): void {
  process.stdout.write(`${line}\n`)
}

async function main(): Promise<number> {
  try {
    const { values, positionals } = parseArgs({ options: OPTIONS, allowPositionals: true })
    const command = COMMANDS[positionals.join(' ')]
    if (values.help || command === undefined) {
      process.stderr.write(`${USAGE}\n`)
      return values.help ? 0 : 2
    }
    await command(values)
    return 0
  } catch (error) {
    const lines = operatorLines(error)
    if (lines === null) throw error
    for (const line of lines) process.stderr.write(`sluice: ${line}\n`)
    return 2
  }
}

/** Lines for an error that the operator can act on; null for a fault of our own. */
function operatorLines(error: unknown): readonly string[] | null {
  if (error instanceof UsageError || error instanceof RotationError || isArgumentError(error)) {
    return [error.message]
  }
  return startFailure(error)?.lines ?? null
}

function isArgumentError(error: unknown): error is TypeError {
  return (
    error instanceof TypeError && Reflect.get(error, 'code')?.toString().startsWith('ERR_PARSE_ARGS') === true
  )
}

process.exitCode = await main()
