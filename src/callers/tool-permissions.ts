/** Cached list of the server tools that each workspace has disabled. Used only for requests that name a server tool. */
import type { Clock } from '../base/clock.ts'
import type { Log } from '../base/log/log.ts'
import type { WorkspaceRecord } from '../protocol/management/management.ts'
import type { Caller } from '../protocol/records.ts'
import { StoreCache, type StoreCacheLimits } from '../storage/invalidation/store-cache.ts'
import { DEFAULT_WORKSPACE_ID, type Store } from '../storage/store.ts'

interface ToolPermissionsOptions extends Partial<StoreCacheLimits> {
  readonly store: { readonly workspaces: Pick<Store['workspaces'], 'find'> }
  readonly clock: Clock
  readonly log?: Pick<Log, 'fault' | 'notice'>
}

/** Maximum of cached workspaces. */
const MAX_WORKSPACES = 10_000
const NO_TOOLS: ReadonlySet<string> = new Set()

export class ToolPermissions {
  readonly #store: ToolPermissionsOptions['store']
  readonly #cache: StoreCache<WorkspaceRecord | null, ReadonlySet<string>>

  constructor({ store, ...others }: ToolPermissionsOptions) {
    this.#store = store
    this.#cache = new StoreCache({
      ...others,
      plural: 'workspaces',
      maxEntries: MAX_WORKSPACES,
      make: record => (record?.disabledTools == null ? NO_TOOLS : new Set(record.disabledTools)),
    })
  }

  /**
   * Names of tools without a prefix; a promise only if the store has to be read. Rejects with GatewayError
   * `store_unavailable` if the store fails and nothing is cached, because the tool may be disabled.
   */
  disabledFor({ organizationId, workspaceId }: Caller): ReadonlySet<string> | Promise<ReadonlySet<string>> {
    const id = workspaceId ?? DEFAULT_WORKSPACE_ID
    const name = `${organizationId} ${id}`
    return (
      this.#cache.get(name) ??
      this.#cache.load(name, () => this.#store.workspaces.find(organizationId, id), organizationId)
    )
  }

  /** Call it after a workspace of the organization has changed. */
  invalidate(organizationId: string): void {
    this.#cache.invalidateOwner(organizationId)
  }

  invalidateAll(): void {
    this.#cache.invalidateAll()
  }
}
