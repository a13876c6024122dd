/** One serving instance: a gateway with its HTTP server. Composition root; serve threads and tests start it. */

import { OutputSizes } from '../../api/batches/batch-outputs.ts'
import { createListing, type Listing, LiveListing } from '../../api/models/models.ts'
import { InterfaceDocument } from '../../api/openapi.ts'
import type { Operation } from '../../api/operation.ts'
import { createOperations } from '../../api/operations.ts'
import { createDataRegions } from '../../api/request-facts.ts'
import { systemClock } from '../../base/clock.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { Tracing } from '../../base/telemetry/tracing.ts'
import { BatchAcceptances } from '../../batches/accept.ts'
import { createServiceProbe } from '../../batches/services/service-probe.ts'
import { Uploads, uploadsFolder } from '../../batches/uploads.ts'
import { EndUserWeights } from '../../callers/end-user-weights.ts'
import { ApiKeys, callerOf } from '../../callers/keys.ts'
import { capturesFolder } from '../../features/captures/folder.ts'
import type { ExplanationWriter } from '../../features/explanations/writer.ts'
import { patternProblem } from '../../features/guardrails/custom.ts'
import { createCheckText } from '../../pipeline/guard/guard.ts'
import { describeNewKey } from '../../providers/credentials/new-key.ts'
import { ProofKeys } from '../../providers/credentials/proof-keys.ts'
import type { PackedCatalogue } from '../../providers/shared-catalogue.ts'
import type { ConsoleFeed } from '../../server/admission/console-feed.ts'
import type { CreateFront } from '../../server/front.ts'
import { loadFront } from '../../server/http-libraries.ts'
import { HttpServer } from '../../server/server.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'
import { StoreError } from '../../storage/open.ts'
import type { Transcripts } from '../../storage/transcripts/transcripts.ts'
import { LostRights } from '../threads/lost-rights.ts'
import { createTranscripts } from '../threads/transcripts.ts'
import { type BuiltGateway, buildGateway } from './gateway.ts'
import type { GatewayOptions } from './gateway-parts.ts'
import { connectionCap, descriptorLimit } from './operating-system.ts'

/** This many batch bodies of maximum size may wait on disk per thread. */
const CONCURRENT_UPLOADS = 8
/** This many files, in the same way. */
const CONCURRENT_FILES = 8

export type ServeOptions = Omit<GatewayOptions, 'transcripts'> & FrontOptions

/** One serving instance: its own server, caches, connections and metrics. */
export interface Serving extends BuiltServer {
  readonly metrics: Metrics
  /** Replaces the catalogue while requests run. */
  catalogue(packed: PackedCatalogue): void
  /** Begins no more shadows, because the server drains. */
  stopShadows(): void
  /** Closes the gateway; call it after the server has drained or closed. */
  close(): Promise<void>
}

export async function buildServing(serveOptions: ServeOptions): Promise<Serving> {
  const { config, clock = systemClock } = serveOptions
  const options = {
    ...serveOptions,
    transcripts: serveOptions.transcripts ?? createTranscripts(config, clock),
  }
  const gateway = await buildGateway(options)
  const built = buildServer(gateway, (await loadFront(config.listen.front)).create, options)
  return {
    ...built,
    metrics: gateway.metrics,
    stopShadows: () => gateway.shadows.stop(),
    catalogue: packed => gateway.catalogue.receive(packed),
    close: () => {
      built.lostRights.stop()
      return gateway.close()
    },
  }
}

interface FrontOptions {
  /** Called with each record that a request changed, once this thread has dropped it. */
  readonly publish?: (change: Invalidation) => void
  /** Resumable streams; default: only this server's streams. */
  readonly transcripts?: Transcripts
  /** False: until `prepared` is called, no key is looked up, and requests are rejected with 503. Default true. */
  readonly prepared?: boolean
  /** Receives requests while somebody watches the console. Default: nobody can. */
  readonly consoleFeed?: ConsoleFeed
  /** Traces of requests. Default: there are none. */
  readonly tracing?: Tracing
  /** Receives finished requests in order to explain them. Default: none are explained. */
  readonly explanations?: ExplanationWriter
}

/** A server with its caches of API keys and end-user weights. */
interface BuiltServer {
  readonly server: HttpServer
  readonly lostRights: LostRights
  /** The interface description as JSON; generated once. */
  document(): string
  /** Called when the store is ready for use. */
  prepared(): void
  /** Call it after a record has changed: the next request reads it again. */
  invalidate(change: Invalidation): void
}

export function buildServer(built: BuiltGateway, front: CreateFront, options: FrontOptions): BuiltServer {
  const { config, clock, log, metrics, rate } = built
  const { limits, listen, threads } = config
  let isPrepared = options.prepared ?? true
  const keys = apiKeysOf(built, () => isPrepared)
  built.reservationWait.callerNow = async caller => callerOf(await keys.find(caller.keyHash))
  const weights = new EndUserWeights({ store: built.store, clock, log })
  const invalidate = (change: Invalidation): void => {
    if (change.kind === 'all') {
      keys.invalidateAll()
      weights.invalidateAll()
    } else if (change.kind === 'key') keys.invalidate(change.hash)
    else if (change.kind === 'rates') keys.invalidateOf(change.organizationId)
    else if (change.kind === 'end-user') weights.invalidate(change.organizationId, change.user)
    built.invalidate(change)
    void lostRights.endForbidden(change)
  }
  const publish = (change: Invalidation): void => {
    invalidate(change)
    options.publish?.(change)
  }
  const document = new InterfaceDocument()
  const server = new HttpServer({
    front,
    operations: operationsOf(
      built,
      document,
      publish,
      options.transcripts ?? createTranscripts(config, clock),
    ),
    keys,
    weights,
    rate: {
      limitsAll: config.quotas.requestsPerMinute !== null,
      enter: key => rate.enter(callerOf(key)),
      refuse: key => rate.refuse(callerOf(key)),
    },
    uploadMs: config.timeouts.uploadMs,
    requestMs: config.timeouts.requestMs,
    ...limits,
    maxConnections: Math.ceil(connectionCap(limits.maxConnections, descriptorLimit()) / threads.serve),
    connectionsPerAddress: Math.ceil(limits.connectionsPerAddress / threads.serve),
    trustedProxies: listen.trustedProxies,
    tls: listen.tls,
    chunkFlush: listen.chunkFlush,
    bytesInFlightPerKey: limits.bytesInFlightPerKey ?? Math.floor(limits.maxBufferedBytes / 4),
    clock,
    log,
    metrics,
    ...(options.consoleFeed === undefined ? {} : { consoleFeed: options.consoleFeed }),
    ...(options.tracing === undefined ? {} : { tracing: options.tracing }),
    ...(options.explanations === undefined ? {} : { explanations: options.explanations }),
  })
  built.shadows.isBusy = () => server.load.isBusy
  const lostRights = new LostRights({ keys, rights: built.rights, clock, sources: server.keyed })
  return {
    server,
    lostRights,
    document: () => document.serialized.json.toString(),
    invalidate,
    prepared() {
      isPrepared = true
      // They could not be read before: the shares of rollouts, and the pauses.
      built.invalidate({ kind: 'rollouts' })
      built.invalidate({ kind: 'pauses' })
    },
  }
}

/** Uses the thread's current catalogue. */
function listingOf({ catalogue, health, clock }: BuiltGateway): Listing {
  let live: LiveListing | null = null
  catalogue.follow(({ documents, version }, catalog) => {
    const listing = createListing(catalog, {
      documents,
      version,
      measures: { of: endpoint => health.figures(endpoint) },
      clock,
    })
    // Its bytes are there before the first caller asks for them.
    listing.models(new URLSearchParams())
    if (live === null) live = new LiveListing(listing)
    else live.replace(listing)
  })
  if (live === null) throw new TypeError('a holder has a catalogue')
  return live
}

function apiKeysOf({ store, clock, log }: BuiltGateway, isPrepared: () => boolean): ApiKeys {
  return new ApiKeys({
    store: {
      keys: {
        ...store.keys,
        async find(hash) {
          // A configured key may not be in the store yet, and must not be cached as unknown.
          if (!isPrepared()) throw new StoreError('storage: not ready yet', 'new')
          return await store.keys.find(hash)
        },
      },
    },
    clock,
    log,
  })
}

function operationsOf(
  built: BuiltGateway,
  document: InterfaceDocument,
  publish: (change: Invalidation) => void,
  transcripts: Transcripts,
): readonly Operation[] {
  const { gateway, offered, config, catalog, store, ledger, vault, clock, log, metrics, tasks } = built
  const { heartbeatMs, stallMs } = config.timeouts
  return createOperations({
    gateway,
    summaries: built.summaries,
    offered,
    listing: listingOf(built),
    restrictionsOf: caller => built.guard.restrictions(caller),
    ledger,
    stream: { heartbeatMs, stallMs, clock, metrics },
    transcripts,
    frameSeal: built.frameSeal,
    resumeWindowMs: config.resume.windowMs,
    replayKeptMs: config.idempotency.keepSeconds * 1000,
    dataRegionOf: createDataRegions(config.regions),
    proofs: {
      keys: new ProofKeys({ path: config.proof.keyFile, clock, log }),
      clock,
      log,
      region: config.region,
    },
    byokFeePercent: config.byok.feePercent,
    explanations: store.explanations,
    store,
    vault,
    clock,
    captures: {
      running: built.captures,
      maxBytes: config.capture.maxBytes,
      folder: capturesFolder(config.storage.url),
    },
    changes: { publish },
    providerName: slug => catalog.provider(slug)?.name ?? null,
    describeKey: (slug, key) => describeNewKey(slug, catalog.provider(slug), key),
    patternProblem,
    checkText: createCheckText(tasks),
    rateLimitDefault: {
      requests_per_minute: config.quotas.requestsPerMinute,
      tokens_per_minute: config.quotas.tokensPerMinute,
      parallel: null,
    },
    keyCheck: built.keyCheck,
    rollouts: () =>
      new Map(
        catalog
          .routes()
          .flatMap(({ route }) => (route?.rollout == null ? [] : [[route.name, route.rollout]])),
      ),
    acceptances: new BatchAcceptances({
      uploads: new Uploads({
        folder: uploadsFolder(config.storage.url),
        maxBytes: CONCURRENT_UPLOADS * config.batches.maxBytes,
      }),
      tasks,
      admit: built.requestCheck,
      probe: createServiceProbe({ ...built, timeouts: config.timeouts }),
      storageUrl: config.storage.url,
      bounds: config.batches,
      clock,
    }),
    batchMaxBytes: config.batches.maxBytes,
    files: built.files,
    fileUploads: new Uploads({
      folder: uploadsFolder(config.storage.url),
      maxBytes: CONCURRENT_FILES * config.tools.files.maxFileBytes,
    }),
    outputSizes: new OutputSizes(),
    document,
    ...(config.docs.public ? { reference: { isSecure: config.listen.tls !== null } } : {}),
  })
}
