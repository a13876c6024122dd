/** Own provider credentials for tests: records without restrictions, except those that a case sets, and their keys. */
import { generateKeyPairSync, randomBytes, randomUUID } from 'node:crypto'
import type { Credential } from '../../src/providers/credentials/catalog.ts'
import { ownerOf, type Vault } from '../../src/providers/credentials/vault.ts'
import type { VaultKey } from '../../src/providers/credentials/vault-keys.ts'
import {
  type CredentialRecord,
  DEFAULT_ORGANIZATION_ID,
  DEFAULT_WORKSPACE_ID,
} from '../../src/storage/store.ts'

export function credentialOf(provider: string, fields: Partial<Credential> = {}): Credential {
  return {
    id: randomUUID(),
    organizationId: DEFAULT_ORGANIZATION_ID,
    workspaceId: DEFAULT_WORKSPACE_ID,
    provider,
    name: null,
    label: '****',
    keyRevision: 1,
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
    createdAt: '2026-01-02T03:04:05.000Z',
    updatedAt: '2026-01-02T03:04:05.000Z',
    ...fields,
  }
}

/** The record as the Store has it, with its key sealed. */
export function sealedRecord(
  vault: Pick<Vault, 'seal'>,
  credential: Credential,
  key: string,
): CredentialRecord {
  return { ...credential, sealed: vault.seal(Buffer.from(key), ownerOf(credential)) }
}

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

/** The key file of a service account at Google, with an RSA key of its own. */
export function serviceAccount() {
  const { privateKey } = generateKeyPairSync('rsa', {
    modulusLength: 2048,
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
    publicKeyEncoding: { type: 'spki', format: 'pem' },
  })
  return {
    type: 'service_account',
    project_id: 'my-project-1',
    private_key_id: 'abc123',
    private_key: privateKey,
    client_email: 'sluice@my-project-1.iam.gserviceaccount.com',
  }
}
