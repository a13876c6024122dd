/**
 * The object graph of one serve thread: everything stateful is made here and handed down. Composition root.
 */
import { hashEndUser } from '../access/end-user-hash.ts'
import { createKeyRing } from '../access/keys.ts'
import { type Clock, systemClock, unixSeconds } from '../clock.ts'
import type { Config } from '../config.ts'
import { FORMATS } from '../formats/table.ts'
import { Drains } from '../gateway/drains.ts'
import { createLedger } from '../gateway/ledger.ts'
import { createListing } from '../gateway/listing.ts'
import { createGateway } from '../gateway/respond.ts'
import type { Log } from '../log.ts'
import { createMetrics, type MetricLabels, type Metrics } from '../metrics.ts'
import { type Catalog, createCatalog } from '../providers/catalog.ts'
import { createServer, type HttpServer } from '../server/http.ts'
import { createRoutes } from '../server/routes.ts'
import { simModels, simProvider } from '../sim/rows.ts'
import { openStore } from '../storage/open.ts'
import { openSpool } from '../storage/spool.ts'
import { createUndiciClient } from '../upstream/undici-client.ts'
import { connectionCap, descriptorLimit } from './descriptor-limit.ts'

export interface ServeOptions {
  readonly config: Config
  readonly simUrl: string | null
  /** Base64; see access/end-user-hash.ts. */
  readonly endUserKey: string
  /** Names the thread in metrics; the same again after a restart. Default `serve-0`. */
  readonly thread?: string
  readonly log: Log
  /** Where usage records are spooled; the folder of a LedgerShipper. */
  readonly spoolFolder: string
  readonly clock?: Clock
}

/** One serving instance: its own server, caches, connections and metrics. */
export interface Serving {
  readonly server: HttpServer
  readonly metrics: Metrics
  /** The record of this key was changed: the next request reads it anew. */
  forgetKey(keyHash: string): void
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

/** Only providers that can be asked have series. */
function metricLabels(catalog: Catalog, thread: string): MetricLabels {
  const models = catalog.models()
  return {
    thread,
    models: models.map(model => model.id),
    providers: new Set(models.flatMap(model => model.endpoints.map(endpoint => endpoint.provider.slug))),
  }
}

export async function buildServing(options: ServeOptions): Promise<Serving> {
  const { config, log } = options
  const clock = options.clock ?? systemClock
  const catalog = buildCatalog(config, options.simUrl, unixSeconds(clock))
  const metrics = createMetrics(metricLabels(catalog, options.thread ?? 'serve-0'))
  const store = await openStore(config.storageUrl)
  const client = createUndiciClient({ clock, log })
  const endUserKey = Buffer.from(options.endUserKey, 'base64')
  const spool = openSpool(options.spoolFolder, {
    clock,
    log,
    onLost: () => metrics.usageRecords.inc({ accounting: 'lost' }),
  })
  const ledger = createLedger(spool, store.ledger)
  const drains = new Drains()
  const gateway = createGateway({
    catalog,
    ledger,
    drains,
    client,
    formats: FORMATS,
    clock,
    log,
    metrics,
    timeouts: config.timeouts,
    hashEndUser: (organizationId, user) => hashEndUser(endUserKey, organizationId, user),
  })
  const keys = createKeyRing({ store, clock, log })
  const { heartbeatMs, stallMs, uploadMs, requestMs } = config.timeouts
  const server = createServer({
    routes: createRoutes({
      gateway,
      listing: createListing(catalog),
      ledger,
      stream: { heartbeatMs, stallMs, clock, metrics },
    }),
    keys,
    uploadMs,
    requestMs,
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
    metrics,
    forgetKey: keyHash => keys.forget(keyHash),
    async close() {
      drains.endAll()
      await client.close()
      // What was cut off just now is accounted in this turn.
      await new Promise(resolve => setImmediate(resolve))
      spool.close()
      await store.close()
    },
  }
}
