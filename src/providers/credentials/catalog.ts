/**
 * The provider credentials of workspaces: which requests each credential may serve, in which order, and which shared
 * endpoints they exclude. Cached without any key material. Hot path: a known workspace, and above all one without
 * credentials, costs one synchronous lookup. Concurrent requests of one workspace share one read of the store.
 *
 * The restrictions of a credential (models, API keys, users) limit whose requests may use it. The exclusion of shared
 * endpoints is a rule of the workspace: it applies if any enabled credential asks for it, even to callers who may not
 * use that credential. So nobody reaches a shared endpoint because a credential excludes them.
 */
import type { Clock } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import type { DataRegion } from '../../protocol/data-regions.ts'
import type { Endpoint, Model } from '../../protocol/provider.ts'
import { StoreCache, type StoreCacheLimits } from '../../storage/invalidation/store-cache.ts'
import { type CredentialRecord, DEFAULT_WORKSPACE_ID, type Store } from '../../storage/store.ts'

/** A credential without its key, sealed or not. */
export type Credential = Omit<CredentialRecord, 'sealed'>

/** The part of a request that the restrictions of credentials depend on. */
interface CredentialCaller {
  /** SHA-256 of the API key, lowercase hexadecimal. */
  readonly keyHash: string
  /** `user` of the request, compared exactly; null if there is none. */
  readonly user: string | null
}

export interface CredentialCatalogOptions extends Partial<StoreCacheLimits> {
  readonly store: { readonly credentials: Pick<Store['credentials'], 'ofWorkspace'> }
  readonly clock: Clock
  readonly log?: Pick<Log, 'fault' | 'notice'>
  /** Maximum of cached workspaces. */
  readonly maxWorkspaces?: number
  /** Maximum of cached credentials of all workspaces together. Default 100,000: about 100 MB at worst. */
  readonly maxCredentials?: number
}

const DEFAULT_LIMITS = {
  maxWorkspaces: 10_000,
  maxCredentials: 100_000,
} satisfies Partial<CredentialCatalogOptions>

/** The credentials of all workspaces, cached. */
export class CredentialCatalog {
  readonly #store: CredentialCatalogOptions['store']
  readonly #workspaces: StoreCache<readonly CredentialRecord[], WorkspaceCredentials>

  constructor(options: CredentialCatalogOptions) {
    const { store, maxWorkspaces, maxCredentials, ...cacheOptions } = { ...DEFAULT_LIMITS, ...options }
    this.#store = store
    this.#workspaces = new StoreCache({
      ...cacheOptions,
      plural: 'provider credentials',
      maxEntries: maxWorkspaces,
      maxSize: maxCredentials,
      sizeOf: records => 1 + records.length,
      make: credentialsOf,
    })
  }

  /**
   * Finds the credentials of a workspace; null stands for the default one. A promise only if the store has to be read.
   * Rejects with GatewayError `store_unavailable` if the store fails and nothing is cached: such a request must not
   * use shared endpoints, because a credential may exclude them.
   */
  of(
    organizationId: string,
    workspaceId: string | null,
  ): WorkspaceCredentials | Promise<WorkspaceCredentials> {
    const workspace = workspaceId ?? DEFAULT_WORKSPACE_ID
    const name = nameOf(organizationId, workspace)
    return this.#workspaces.get(name) ?? this.#load(name, organizationId, workspace)
  }

  /** Monotonic milliseconds until which `of` need not read the store; 0: it must. */
  freshUntilMs(organizationId: string, workspaceId: string | null): number {
    return this.#workspaces.freshUntilMs(nameOf(organizationId, workspaceId ?? DEFAULT_WORKSPACE_ID))
  }

  /** Call it after credentials of a workspace have changed. */
  invalidate(organizationId: string, workspaceId: string): void {
    this.#workspaces.invalidate(nameOf(organizationId, workspaceId))
  }

  /** Marks every workspace as stale: it is read again before its next use. Cached ones stay valid only while the store fails. */
  invalidateAll(): void {
    this.#workspaces.invalidateAll()
  }

  #load(
    name: string,
    organizationId: string,
    workspaceId: string,
  ): WorkspaceCredentials | Promise<WorkspaceCredentials> {
    return this.#workspaces.load(name, () => this.#store.credentials.ofWorkspace(organizationId, workspaceId))
  }
}

function nameOf(organizationId: string, workspaceId: string): string {
  return `${organizationId}\n${workspaceId}`
}

function credentialsOf(records: readonly CredentialRecord[]): WorkspaceCredentials {
  return records.length === 0 ? NO_CREDENTIALS : new WorkspaceCredentials(records.map(withoutKey))
}

function withoutKey({ sealed: _sealed, ...credential }: CredentialRecord): Credential {
  return credential
}

/** One enabled credential with its restrictions as sets; null: no restriction. */
interface RestrictedCredential {
  readonly credential: Credential
  readonly models: ReadonlySet<string> | null
  readonly keyHashes: ReadonlySet<string> | null
  readonly users: ReadonlySet<string> | null
}

const NO_RESTRICTED_CREDENTIALS: readonly RestrictedCredential[] = []

/** The credentials of one workspace. Pure. Built once per load of the workspace, then only lookups. */
export class WorkspaceCredentials {
  /** Keyed by slug of the provider, in the order in which they are tried. */
  readonly #byProvider = new Map<string, RestrictedCredential[]>()
  /** Providers whose shared endpoints are excluded for every model. */
  readonly #required = new Set<string>()
  readonly #byokOnly: RestrictedCredential[] = []

  /** @param records in any order; disabled ones are ignored */
  constructor(records: readonly Credential[]) {
    for (const credential of records.toSorted(compareOrder)) {
      if (credential.disabled) continue
      const restricted: RestrictedCredential = {
        credential,
        models: toSet(credential.allowedModels),
        keyHashes: toSet(credential.allowedApiKeyHashes),
        users: toSet(credential.allowedUserIds),
      }
      const sameProvider = this.#byProvider.get(credential.provider)
      if (sameProvider === undefined) this.#byProvider.set(credential.provider, [restricted])
      else sameProvider.push(restricted)
      if (credential.isRequired) this.#required.add(credential.provider)
      if (credential.isByokOnly) this.#byokOnly.push(restricted)
    }
  }

  /** True if there is no enabled credential. */
  get isEmpty(): boolean {
    return this.#byProvider.size === 0
  }

  /**
   * Selects the credentials that may serve a model at a provider for this caller, including fallback ones, in the order
   * in which they are tried. Models are compared by their exact catalogue id, including variants. Providers are
   * compared by their exact slug: a key is sent only to the provider it belongs to.
   */
  select(endpoint: Endpoint, caller: CredentialCaller): readonly Credential[] {
    const candidates = this.#byProvider.get(endpoint.provider.slug) ?? NO_RESTRICTED_CREDENTIALS
    if (candidates.length === 0) return []
    return candidates
      .filter(restricted => admits(restricted, endpoint.modelId, caller))
      .map(each => each.credential)
  }

  /** The enabled credentials at the model's provider that `select` leaves out. */
  unfit(endpoint: Endpoint, caller: CredentialCaller): readonly Credential[] {
    const candidates = this.#byProvider.get(endpoint.provider.slug) ?? NO_RESTRICTED_CREDENTIALS
    if (candidates.length === 0) return []
    return candidates
      .filter(restricted => !admits(restricted, endpoint.modelId, caller))
      .map(each => each.credential)
  }

  /** The enabled credential with this id for a provider, without regard to who may use it; null: there is none. */
  find(provider: string, id: string): Credential | null {
    const candidates = this.#byProvider.get(provider) ?? NO_RESTRICTED_CREDENTIALS
    return candidates.find(({ credential }) => credential.id === id)?.credential ?? null
  }

  /** True if a provider's shared endpoints are excluded for every model, even if no credential applies. */
  isRequiredAt(provider: string): boolean {
    return this.#required.has(provider)
  }

  /**
   * True if the model's shared endpoints are excluded at every provider: a credential with this setting applies to the
   * model, and its provider serves it.
   */
  isByokOnly(model: Model): boolean {
    return this.#byokOnly.some(
      ({ credential, models }) =>
        (models === null || models.has(model.id)) &&
        model.endpoints.some(endpoint => endpoint.provider.slug === credential.provider),
    )
  }
}

/** A workspace without credentials. */
export const NO_CREDENTIALS = new WorkspaceCredentials([])

/**
 * True if data stays in the region when the endpoint is called with this credential, or with the shared key if it is
 * null. The credential must be declared for the region. Its declaration also counts if the endpoint itself has no
 * region.
 */
export function staysInRegion(
  region: DataRegion,
  endpoint: Endpoint,
  credential: Pick<Credential, 'declaredRegion'> | null,
): boolean {
  if (credential === null) return endpoint.region === region
  return credential.declaredRegion === region && (endpoint.region === null || endpoint.region === region)
}

type DeclaredPolicy = Pick<Credential, 'declaredZdr'>

/** True if the provider retains no data. The credential's declaration overrides the endpoint's policy. */
export function retainsNothing(endpoint: Endpoint, credential: DeclaredPolicy | null): boolean {
  return credential?.declaredZdr ?? endpoint.zdr
}

/** True if the provider neither retains data nor trains on it. A declaration covers both. */
export function collectsNothing(endpoint: Endpoint, credential: DeclaredPolicy | null): boolean {
  return credential?.declaredZdr ?? (endpoint.zdr && endpoint.trains !== true)
}

function admits(restricted: RestrictedCredential, modelId: string, caller: CredentialCaller): boolean {
  const { models, keyHashes, users } = restricted
  return (
    (models === null || models.has(modelId)) &&
    (keyHashes === null || keyHashes.has(caller.keyHash)) &&
    (users === null || (caller.user !== null && users.has(caller.user)))
  )
}

/** Equal sort orders exist only in a restored database. Then the older credential is first. */
function compareOrder(a: Credential, b: Credential): number {
  return a.sortOrder - b.sortOrder || compare(a.createdAt, b.createdAt) || compare(a.id, b.id)
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

function toSet(list: readonly string[] | null): ReadonlySet<string> | null {
  return list === null ? null : new Set(list)
}
