/** Credentials for tests: records sealed by a real vault, and where they are kept while no database is wanted. */
import { randomBytes, randomUUID } from 'node:crypto'
import { ownerOf, type Vault } from '../../src/access/vault.ts'
import type { VaultKey } from '../../src/access/vault-keys.ts'
import type { CredentialRecord } from '../../src/storage/store.ts'

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
  const bare = {
    id: randomUUID(),
    organizationId: 'org_1',
    workspaceId: 'ws_1',
    provider: 'anthropic',
    name: null,
    label: 'sk-...AbCd',
    disabled: false,
    isRequired: false,
    isFallback: false,
    isByokOnly: false,
    sortOrder: 0,
    allowedApiKeyHashes: null,
    allowedModels: null,
    allowedUserIds: null,
    declaredRegion: null,
    declaredZdr: null,
    createdAt: '2026-01-01T00:00:00.000Z',
    updatedAt: '2026-01-01T00:00:00.000Z',
    ...fields,
  }
  return { sealed: vault.seal(Buffer.from(key), ownerOf(bare)), ...bare }
}
