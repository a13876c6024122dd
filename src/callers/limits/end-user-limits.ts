/** Cached rate limits of end users. Used only for requests of organizations in which an end user has any. */
import type { Clock } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { type EndUserRecord, isEndUserName } from '../../protocol/management/management.ts'
import type { RateLimit } from '../../protocol/management/rate-limit.ts'
import { StoreCache, type StoreCacheLimits } from '../../storage/invalidation/store-cache.ts'
import type { Store } from '../../storage/store.ts'
import type { EndUserLookup } from './quota.ts'

interface EndUserLimitsOptions extends Partial<StoreCacheLimits> {
  readonly store: { readonly endUsers: Pick<Store['endUsers'], 'find'> }
  readonly clock: Clock
  readonly log?: Pick<Log, 'fault' | 'notice'>
}

/** Maximum of cached end users, registered or not. */
const MAX_END_USERS = 10_000

/** An object, so that end users without limits are cached too. */
interface CachedLimit {
  readonly limits: RateLimit | null
}

export class EndUserLimits implements EndUserLookup {
  readonly #store: EndUserLimitsOptions['store']
  readonly #cache: StoreCache<EndUserRecord | null, CachedLimit>

  constructor({ store, ...others }: EndUserLimitsOptions) {
    this.#store = store
    this.#cache = new StoreCache({
      ...others,
      plural: 'end users',
      maxEntries: MAX_END_USERS,
      make: record => ({ limits: record?.isActive === true ? record.rateLimit : null }),
    })
  }

  /** Rejects with GatewayError `store_unavailable` if the store fails and nothing is cached: there may be a limit. */
  of(organizationId: string, user: string): RateLimit | null | Promise<RateLimit | null> {
    const name = nameOf(organizationId, user)
    const entry = this.#cache.get(name)
    return entry === undefined ? this.#load(name, organizationId, user) : entry.limits
  }

  async #load(name: string, organizationId: string, user: string): Promise<RateLimit | null> {
    // Names that cannot be registered are not looked up.
    if (!isEndUserName(user)) return null
    return (await this.#cache.load(name, () => this.#store.endUsers.find(organizationId, user))).limits
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
