/** One runner of batches: a gateway without a server. Composition root; the batch thread and tests start it. */

import { whenReady } from '../../base/maybe-promise.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import { parseFactor } from '../../base/money.ts'
import type { Tracing } from '../../base/telemetry/tracing.ts'
import type { CheckBodies } from '../../batches/body-check.ts'
import { type LineEndpoints, runByDialect, runEmbeddings } from '../../batches/endpoints.ts'
import type { LiveLoad } from '../../batches/pressure.ts'
import { BatchRunner } from '../../batches/runner.ts'
import { accessService } from '../../batches/services/service-access.ts'
import type { ServiceRunnerDeps } from '../../batches/services/service-runner.ts'
import { ApiKeys } from '../../callers/keys.ts'
import { createChatCompletions } from '../../dialects/chat-completions.ts'
import { createEmbeddings } from '../../dialects/embeddings.ts'
import { createMessages } from '../../dialects/messages.ts'
import { createResponsesDialect } from '../../dialects/responses.ts'
import { namesProvider } from '../../pipeline/routing/candidate.ts'
import type { BatchEndpoint } from '../../protocol/management/batches.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { PackedCatalogue } from '../../providers/shared-catalogue.ts'
import { createTransports, proxiesOf } from '../../providers/upstream/egress.ts'
import type { Transport } from '../../providers/upstream/transport.ts'
import { AdmissionControl } from '../../server/admission/admission-control.ts'
import type { Load } from '../../server/admission/load.ts'
import type { BatchRecord } from '../../storage/batches.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'
import { BatchAdmission } from '../threads/batch-admission.ts'
import { LostRights } from '../threads/lost-rights.ts'
import { type BuiltGateway, buildGateway } from './gateway.ts'
import type { GatewayOptions } from './gateway-parts.ts'

interface BatchingOptions extends GatewayOptions {
  /** 0 to 1, to spread retries. Default: random. */
  readonly random?: () => number
  /** Traces of lines. Default: there are none. */
  readonly tracing?: Tracing
}

/** A batch runner with its gateway. */
export interface Batching {
  readonly runner: BatchRunner
  readonly metrics: Metrics
  readonly load: Load
  /** Call it after a record has changed. */
  invalidate(change: Invalidation): void
  live(thread: string, load: LiveLoad): void
  /** Replaces the catalogue while requests run. */
  catalogue(packed: PackedCatalogue): void
  /** Closes the gateway; call it after the runner has drained. */
  close(): Promise<void>
}

/** Labels of metrics. */
const METRIC_ROUTES: Readonly<Record<BatchEndpoint, string>> = {
  '/v1/responses': 'batch/responses',
  '/v1/chat/completions': 'batch/chat/completions',
  '/v1/messages': 'batch/messages',
  '/v1/embeddings': 'batch/embeddings',
}

/** Bodies of one page are checked in milliseconds; a machine that is busy takes longer. */
const CHECK_TIMEOUT_MS = 60_000
/** Time that a batch waits while other callers' documents are read. */
const CHECK_WAIT_MS = 600_000

export async function buildBatching(options: BatchingOptions): Promise<Batching> {
  const built = await buildGateway(options)
  const { config, clock, log, metrics, store, catalog } = built
  const keys = new ApiKeys({ store, clock, log })
  const control = new AdmissionControl(
    {
      clock,
      log,
      metrics,
      requestMs: config.timeouts.requestMs,
      ...(options.tracing === undefined ? {} : { tracing: options.tracing }),
    },
    {
      ...config.limits,
      // The runner has limits of its own.
      maxInFlight: Number.POSITIVE_INFINITY,
      openPerKey: Number.POSITIVE_INFINITY,
      bytesInFlightPerKey: Number.POSITIVE_INFINITY,
    },
  )
  const { load } = control
  const services = servicesOf(built)
  const runner = new BatchRunner({
    work: store.batches.work,
    services: { jobs: store.batches.jobs, access: services.access, quota: built.quota, catalog },
    endpoints: endpointsOf(built),
    check: checkBy(built),
    admit: (id, { endpoint }) => new BatchAdmission(control, METRIC_ROUTES[endpoint], id),
    keyOf: hash => keys.find(hash),
    countRequest: caller => whenReady(built.rate.enter(caller), () => undefined),
    ledger: built.ledger,
    firstLane: batch => firstProvider(catalog, batch),
    priceFactor: parseFactor(config.batches.priceFactor),
    byokFeePercent: config.byok.feePercent,
    concurrency: config.batches.concurrency,
    hasRoom: () => load.overloadReason(0) === null,
    countMemory: bytes => load.count(bytes),
    random: options.random ?? Math.random,
    clock,
    log,
    metrics,
  })
  const lostRights = new LostRights({ keys, rights: built.rights, clock, sources: [control] })
  return {
    runner,
    metrics,
    load,
    live: (thread, live) => runner.setPressure(thread, live),
    invalidate(change) {
      if (change.kind === 'all') keys.invalidateAll()
      else if (change.kind === 'key') keys.invalidate(change.hash)
      else if (change.kind === 'rates') keys.invalidateOf(change.organizationId)
      built.invalidate(change)
      void lostRights.endForbidden(change)
      if (change.kind === 'batches' || change.kind === 'all') runner.wake()
    },
    catalogue: packed => built.catalogue.receive(packed),
    async close() {
      await services.close()
      await built.close()
    },
  }
}

function endpointsOf({ gateway, offered }: BuiltGateway): LineEndpoints {
  return {
    '/v1/responses': runByDialect(createResponsesDialect(offered), gateway),
    '/v1/chat/completions': runByDialect(createChatCompletions(offered), gateway),
    '/v1/messages': runByDialect(createMessages(offered), gateway),
    '/v1/embeddings': runEmbeddings(createEmbeddings(offered), gateway),
  }
}

function checkBy({ tasks, offered }: BuiltGateway): CheckBodies {
  return ({ endpoint, model, keyHash }, lines) =>
    tasks.run(
      'check-batch-bodies',
      { endpoint, model, offered, bodies: lines.map(({ number, body }) => ({ number, body })) },
      { key: keyHash, deadlineMs: CHECK_TIMEOUT_MS, waitMs: CHECK_WAIT_MS },
    )
}

/** The provider that will most likely serve the lines of a batch. */
function firstProvider(catalog: Catalog, { model, preferences }: BatchRecord): string {
  const endpoints = catalog.model(model)?.endpoints ?? []
  const only = preferences?.only ?? []
  const allowed = endpoints.find(endpoint => only.some(name => namesProvider(name, endpoint)))
  return (allowed ?? endpoints[0])?.provider.slug ?? model
}

/** A job's results are all its replies in one; anything larger is not a valid result. */
const RESULTS_MAX_BYTES = 8 * 1024 * 1024 * 1024

/** Access to batch services of providers. Connections are opened when a service is first called. */
function servicesOf(built: BuiltGateway) {
  const { config, clock, log } = built
  const { timeouts } = config
  let client: Transport | null = null
  const transport = (): Transport => {
    client ??= createTransports({
      clock,
      log,
      ...config.upstream,
      maxResponseBytes: RESULTS_MAX_BYTES,
      proxies: proxiesOf(config),
      undici: true,
    })
    return client
  }
  const access: ServiceRunnerDeps['access'] = (batch, job, signal) =>
    accessService({ ...built, client: transport(), timeouts }, batch, job, signal)
  return { access, close: async () => client?.close() }
}
