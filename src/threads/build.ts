/** One serving instance: a gateway and its HTTP server. Composition root; what serve threads and tests start. */
import type { Invalidation } from '../invalidation/bus.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { HttpServer } from '../server/http.ts'
import { buildGateway, type GatewayOptions } from './build-gateway.ts'
import { buildServer, type FrontOptions } from './build-server.ts'

export type ServeOptions = GatewayOptions & FrontOptions

/** One serving instance: its own server, caches, connections and metrics. */
export interface Serving {
  readonly server: HttpServer
  readonly metrics: Metrics
  /** The store is ready for use. */
  prepared(): void
  /** A record was changed: the next request reads it anew. */
  changed(change: Invalidation): void
  /** Closes what the server stood on; call it after the server has drained or closed. */
  close(): Promise<void>
}

export async function buildServing(options: ServeOptions): Promise<Serving> {
  const gateway = await buildGateway(options)
  return { ...buildServer(gateway, options), metrics: gateway.metrics, close: () => gateway.close() }
}
