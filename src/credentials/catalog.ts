/**
 * The own provider credentials of workspaces, remembered as routing needs them: without any key, sealed or not.
 * Hot path: a known workspace, above all one without credentials, costs one lookup, synchronously. The store is asked
 * once per workspace and refresh, however many requests wait.
 */
import type { Clock } from '../clock.ts'
import { Remembered, type RememberedLimits } from '../invalidation/store-cache.ts'
import type { Log } from '../log/log.ts'
import { type CredentialRecord, DEFAULT_WORKSPACE_ID, type Store } from '../storage/store.ts'
import { type Credential, NO_OWN_KEYS, OwnKeys } from './own-keys.ts'

export interface CredentialsSettings extends Partial<RememberedLimits> {
  readonly store: { readonly credentials: Pick<Store['credentials'], 'ofWorkspace'> }
  readonly clock: Clock
  readonly log?: Pick<Log, 'fault' | 'notice'>
  /** Workspaces kept in memory. */
  readonly maxWorkspaces?: number
  /** Credentials kept in memory, all workspaces together. Default 100,000: about 100 MB at worst. */
  readonly maxCredentials?: number
}

const DEFAULTS = { maxWorkspaces: 10_000, maxCredentials: 100_000 } satisfies Partial<CredentialsSettings>

export class Credentials {
  readonly #store: CredentialsSettings['store']
  readonly #known: Remembered<readonly CredentialRecord[], OwnKeys>

  constructor(settings: CredentialsSettings) {
    const { store, maxWorkspaces, maxCredentials, ...others } = { ...DEFAULTS, ...settings }
    this.#store = store
    this.#known = new Remembered({
      ...others,
      what: 'credentials',
      maxEntries: maxWorkspaces,
      maxSize: maxCredentials,
      sizeOf: records => 1 + records.length,
      make: ownKeysOf,
    })
  }

  /**
   * What a workspace has; a promise only when the store has to be asked. A key without a workspace (null) belongs to
   * the default one.
   * Rejects with GatewayError `service_unavailable` when the store fails and nothing is known: such a request must
   * not go to shared endpoints, which own keys may have removed.
   */
  of(organizationId: string, workspaceId: string | null): OwnKeys | Promise<OwnKeys> {
    const workspace = workspaceId ?? DEFAULT_WORKSPACE_ID
    const name = nameOf(organizationId, workspace)
    return this.#known.fresh(name) ?? this.#ask(name, organizationId, workspace)
  }

  /** Drops what is remembered of a workspace, after its credentials were changed. */
  forget(organizationId: string, workspaceId: string): void {
    this.#known.forget(nameOf(organizationId, workspaceId))
  }

  /** Has every workspace read anew when it next asks; what was known counts on only while the store fails. */
  doubtAll(): void {
    this.#known.doubtAll()
  }

  #ask(name: string, organizationId: string, workspaceId: string): OwnKeys | Promise<OwnKeys> {
    return this.#known.ask(name, () => this.#store.credentials.ofWorkspace(organizationId, workspaceId))
  }
}

function ownKeysOf(records: readonly CredentialRecord[]): OwnKeys {
  return records.length === 0 ? NO_OWN_KEYS : new OwnKeys(records.map(withoutKey))
}

function nameOf(organizationId: string, workspaceId: string): string {
  return `${organizationId}\n${workspaceId}`
}

function withoutKey({ sealed: _sealed, ...credential }: CredentialRecord): Credential {
  return credential
}
