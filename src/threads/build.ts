/**
 * The object graph of one serve thread: everything stateful is made here and handed down. Composition root.
 */
import { hashEndUser } from '../access/end-user-hash.ts'
import { createKeyRing } from '../access/keys.ts'
import { type Clock, systemClock, unixSeconds } from '../clock.ts'
import type { Config } from '../config.ts'
import { FORMATS } from '../formats/table.ts'
import { createListing } from '../gateway/listing.ts'
import { createGateway } from '../gateway/respond.ts'
import type { Log } from '../log.ts'
import { createMetrics, type Metrics } from '../metrics.ts'
import { type Catalog, createCatalog } from '../providers/catalog.ts'
import { createServer, type HttpServer } from '../server/http.ts'
import { createRoutes } from '../server/routes.ts'
import { simModels, simProvider } from '../sim/rows.ts'
import { openStore } from '../storage/open.ts'
import { createUndiciClient } from '../upstream/undici-client.ts'

export interface ServeOptions {
  readonly config: Config
  readonly simUrl: string | null
  /** Base64; see access/end-user-hash.ts. */
  readonly endUserKey: string
  readonly log: Log
  readonly clock?: Clock
}

/** One serving instance: its own server, caches, connections and metrics. */
export interface Serving {
  readonly server: HttpServer
  readonly metrics: Metrics
  /** Closes what the server stood on; call it after the server has drained or closed. */
  close(): Promise<void>
}

/**
 * The configured catalogue, with the simulated provider where one listens; `created` in Unix seconds.
 * @throws CatalogError
 */
export function buildCatalog(config: Config, simUrl: string | null, created = 0): Catalog {
  return createCatalog({
    // Configured rows first: the paths of errors count from there.
    providers: simUrl === null ? config.providers : [...config.providers, simProvider(simUrl)],
    models: simUrl === null ? config.models : [...config.models, ...simModels()],
    onAbort: config.onAbort,
    created,
  })
}

export async function buildServing(options: ServeOptions): Promise<Serving> {
  const { config, log } = options
  const clock = options.clock ?? systemClock
  const metrics = createMetrics()
  const catalog = buildCatalog(config, options.simUrl, unixSeconds(clock))
  const store = await openStore(config.storageUrl)
  const client = createUndiciClient({ clock, log })
  const endUserKey = Buffer.from(options.endUserKey, 'base64')
  const gateway = createGateway({
    catalog,
    client,
    formats: FORMATS,
    clock,
    log,
    metrics,
    timeouts: config.timeouts,
    hashEndUser: (organizationId, user) => hashEndUser(endUserKey, organizationId, user),
  })
  const { heartbeatMs, stallMs, uploadMs, requestMs } = config.timeouts
  const server = createServer({
    routes: createRoutes({
      gateway,
      listing: createListing(catalog),
      stream: { heartbeatMs, stallMs, clock, metrics },
    }),
    keys: createKeyRing({ store, clock, log }),
    uploadMs,
    requestMs,
    ...config.limits,
    maxConnections: Math.ceil(config.limits.maxConnections / config.threads.serve),
    clock,
    log,
    metrics,
  })
  return {
    server,
    metrics,
    async close() {
      await client.close()
      await store.close()
    },
  }
}
