/** `sluice vault`: counts the credentials under each master key, and re-encrypts all of them with the first key. */
import { loadConfig, processEnvironment } from '../../process/config/config.ts'
import { createVault, type Vault } from '../../providers/credentials/vault.ts'
import {
  missingKeyIds,
  type RotationProgress,
  rotate,
} from '../../providers/credentials/vault-key-rotation.ts'
import { loadVaultRing } from '../../providers/credentials/vault-keys.ts'
import type { Store } from '../../storage/store.ts'
import { CONFIG_OPTION, type Command, type OptionValues } from './command.ts'
import { auditEntry, withStore } from './keys.ts'
import { complain, configWords, EXIT_BAD_CONFIGURATION, print } from './outcome.ts'
import { ProgressBar, percent } from './terminal/progress-bar.ts'
import { count } from './terminal/text.ts'

export const vaultStatus: Command = {
  name: 'vault status',
  does: 'count credentials by the master key that encrypts them',
  options: { config: CONFIG_OPTION },
  async run(options) {
    await withVault(options, async (store, vault) => {
      const counts = await store.credentials.countByKeyId()
      const keyIds = new Set([vault.currentKeyId, ...[...counts.keys()].sort()])
      for (const keyId of keyIds) {
        const state = keyId === vault.currentKeyId ? 'in force' : vault.has(keyId) ? 'older' : 'missing'
        print([keyId, state, counts.get(keyId) ?? 0].join('\t'))
      }
    })
    return 0
  },
}

export const vaultRotate: Command = {
  name: 'vault rotate',
  does: 'encrypt all credentials with the first master key',
  options: { config: CONFIG_OPTION },
  async run(options) {
    let failed: readonly string[] = []
    await withVault(options, async (store, vault) => {
      const bar = rotationBar()
      const rotation = await rotate(store, vault, { onProgress: bar.show }).finally(bar.end)
      // The rotation itself uses many transactions, so that the gateway is not blocked.
      await store.audited(
        async () => undefined,
        () => auditEntry('vault.rotate', { kind: 'vault', id: vault.currentKeyId, name: null }),
      )
      print(`${rotation.rewrapped} credentials are now encrypted with ${vault.currentKeyId}`)
      failed = rotation.failed
    })
    if (failed.length === 0) return 0
    complain([
      `${failed.length} credentials were not re-encrypted, because no given master key decrypts them or because they changed meanwhile; run the command again: ${failed.join(', ')}`,
    ])
    return EXIT_BAD_CONFIGURATION
  },
}

function withVault(options: OptionValues, use: (store: Store, vault: Vault) => Promise<void>): Promise<void> {
  const ring = loadVaultRing(loadConfig(configWords(options['config']), processEnvironment()))
  return withStore(options, async store => {
    const vault = createVault(ring.keys)
    if ((await missingKeyIds(store, vault)).size === 0) ring.save()
    await use(store, vault)
  })
}

/** Shows the progress of the rotation if standard error is a terminal. */
function rotationBar() {
  const bar = new ProgressBar(process.stderr, processEnvironment())
  return {
    show({ rewrapped, total }: RotationProgress): void {
      bar.show(total === 0 ? 1 : rewrapped / total, [
        { text: percent(rewrapped, total), rank: 0 },
        { text: `${count(rewrapped)} of ${count(total)}`, rank: 1 },
      ])
    },
    end: () => bar.end(),
  }
}
