/** The HTTP front of one serve thread on a gateway: API keys, operations, limits of connections. Composition root. */
import { ApiKeys } from '../access/keys.ts'
import { createDataRegions } from '../api/data-region.ts'
import { createListing } from '../api/models.ts'
import type { Operation } from '../api/operation.ts'
import { createOperations } from '../api/operations.ts'
import { patternProblem } from '../guardrails/custom.ts'
import type { Invalidation } from '../invalidation/bus.ts'
import { createServer, type HttpServer } from '../server/http.ts'
import { StoreError } from '../storage/open.ts'
import type { BuiltGateway } from './build-gateway.ts'
import { connectionCap, descriptorLimit } from './descriptor-limit.ts'

export interface FrontOptions {
  /** Called with each record that a request changed, once this thread has dropped it. */
  readonly publish?: (change: Invalidation) => void
  /** False: until `prepared` is called no key is looked up, and callers are asked to come again. Default true. */
  readonly prepared?: boolean
}

/** A server with the caches of its own. */
export interface BuiltServer {
  readonly server: HttpServer
  /** The store is ready for use. */
  prepared(): void
  /** A record was changed: the next request reads it anew. */
  changed(change: Invalidation): void
}

export function buildServer(built: BuiltGateway, options: FrontOptions): BuiltServer {
  const { config, clock, log, metrics } = built
  let prepared = options.prepared ?? true
  const keys = apiKeysOf(built, () => prepared)
  const changed = (change: Invalidation): void => {
    if (change.kind === 'all') keys.invalidateAll()
    else if (change.kind === 'key') keys.invalidate(change.hash)
    built.changed(change)
  }
  const publish = (change: Invalidation): void => {
    changed(change)
    options.publish?.(change)
  }
  const server = createServer({
    operations: operationsOf(built, publish),
    keys,
    uploadMs: config.timeouts.uploadMs,
    requestMs: config.timeouts.requestMs,
    ...config.limits,
    maxConnections: Math.ceil(
      connectionCap(config.limits.maxConnections, descriptorLimit()) / config.threads.serve,
    ),
    clock,
    log,
    metrics,
  })
  return {
    server,
    changed,
    prepared() {
      prepared = true
    },
  }
}

function apiKeysOf({ store, clock, log }: BuiltGateway, isPrepared: () => boolean): ApiKeys {
  return new ApiKeys({
    store: {
      keys: {
        ...store.keys,
        async find(hash) {
          // A configured key may not be in the store yet: its holder must not be taken for a stranger.
          if (!isPrepared()) throw new StoreError('storage: is not ready yet', 'new')
          return await store.keys.find(hash)
        },
      },
    },
    clock,
    log,
  })
}

function operationsOf(built: BuiltGateway, publish: (change: Invalidation) => void): readonly Operation[] {
  const { gateway, offered, config, catalog, store, ledger, vault, clock, metrics } = built
  const { heartbeatMs, stallMs } = config.timeouts
  const providerNames = new Map(catalog.providers().map(({ slug, name }) => [slug, name]))
  return createOperations({
    gateway,
    offered,
    listing: createListing(catalog),
    ledger,
    stream: { heartbeatMs, stallMs, clock, metrics },
    dataRegionOf: createDataRegions(config.regions),
    byokFeePercent: config.byok.feePercent,
    store,
    vault,
    clock,
    changes: { publish },
    providerName: slug => providerNames.get(slug) ?? null,
    patternProblem,
  })
}
