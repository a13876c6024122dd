/** Cached weights of registered end users. Used only for requests that wait because their API key is at its limit. */
import type { Clock } from '../base/clock.ts'
import type { Log } from '../base/log/log.ts'
import { END_USER_WEIGHT_DEFAULT } from '../protocol/limits.ts'
import { type EndUserRecord, isEndUserName } from '../protocol/management/management.ts'
import { StoreCache, type StoreCacheLimits } from '../storage/invalidation/store-cache.ts'
import type { Store } from '../storage/store.ts'

interface EndUserWeightsOptions extends Partial<StoreCacheLimits> {
  readonly store: { readonly endUsers: Pick<Store['endUsers'], 'find'> }
  readonly clock: Clock
  readonly log?: Pick<Log, 'fault' | 'notice'>
}

/** Maximum of cached end users, registered or not. */
const MAX_END_USERS = 10_000
/**
 * Maximum of concurrent lookups: a key at its limit may name a new end user in each request, and must not occupy the
 * store.
 */
const MAX_LOOKUPS = 16

export class EndUserWeights {
  readonly #store: EndUserWeightsOptions['store']
  readonly #cache: StoreCache<EndUserRecord | null, number>

  constructor({ store, ...others }: EndUserWeightsOptions) {
    this.#store = store
    this.#cache = new StoreCache({
      maxLookups: MAX_LOOKUPS,
      ...others,
      plural: 'end users',
      maxEntries: MAX_END_USERS,
      make: record => (record?.isActive === true ? record.weight : END_USER_WEIGHT_DEFAULT),
    })
  }

  /**
   * The weight of an end user; a promise only if the store has to be read. Rejects with GatewayError
   * `store_unavailable` if the store fails or has too many reads, and nothing is cached.
   */
  of(organizationId: string, user: string): number | Promise<number> {
    const name = nameOf(organizationId, user)
    return this.#cache.get(name) ?? this.#load(name, organizationId, user)
  }

  #load(name: string, organizationId: string, user: string): number | Promise<number> {
    // A request may contain a name that cannot be registered. Such names are not looked up.
    if (!isEndUserName(user)) return END_USER_WEIGHT_DEFAULT
    return this.#cache.load(name, () => this.#store.endUsers.find(organizationId, user))
  }

  /** Call it after the record of this end user has changed. */
  invalidate(organizationId: string, user: string): void {
    this.#cache.invalidate(nameOf(organizationId, user))
  }

  invalidateAll(): void {
    this.#cache.invalidateAll()
  }
}

function nameOf(organizationId: string, user: string): string {
  return `${organizationId} ${user}`
}
