/** Credentials for tests: records sealed by a real vault, and a place to keep them without a database. */
import { randomBytes } from 'node:crypto'
import { ownerOf, type Vault } from '../../src/providers/credentials/vault.ts'
import type { VaultKey } from '../../src/providers/credentials/vault-keys.ts'
import type { CredentialRecord } from '../../src/storage/store.ts'
import { credentialOf } from './own-keys.ts'

/** A random master key. */
export function someVaultKey(id: string): VaultKey {
  return { id, secret: randomBytes(32) }
}

/** A record whose key is sealed by the vault. */
export function someCredential(
  vault: Vault,
  key: string,
  fields: Partial<CredentialRecord> = {},
): CredentialRecord {
  const bare = credentialOf('anthropic', {
    organizationId: 'org_1',
    workspaceId: 'ws_1',
    label: 'sk-...AbCd',
    createdAt: '2026-01-01T00:00:00.000Z',
    updatedAt: '2026-01-01T00:00:00.000Z',
    ...fields,
  })
  return { sealed: vault.seal(Buffer.from(key), ownerOf(bare)), ...bare }
}
