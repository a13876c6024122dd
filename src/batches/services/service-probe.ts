/**
 * Probes the batch service for a new batch that cannot run in any other way, so that the caller learns of an outage at
 * once and not a day later. Serve threads.
 */
import type { Clock } from '../../base/clock.ts'
import { GatewayError, toGatewayError } from '../../base/errors.ts'
import type { Candidate } from '../../exchange/exchange.ts'
import { namesProvider } from '../../pipeline/routing/candidate.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { BatchRecord } from '../../storage/batches.ts'
import { accessService, type JobOwner, type ServiceAccessDeps } from './service-access.ts'
import { batchServiceOf } from './table.ts'

/** A batch that is being accepted. */
type ProbedBatch = JobOwner & Pick<BatchRecord, 'preferences'>

/**
 * Resolves if the service accepts jobs, or is not needed. Rejects with `provider_unavailable` if it refuses or does not
 * answer in time, or with the reason of the signal. `first`: the candidate that a request of the batch would use.
 */
export type ProbeService = (batch: ProbedBatch, first: Candidate | null, signal: AbortSignal) => Promise<void>

const ANSWER_TIMEOUT_MS = 5_000
/** Statuses of a service that works, whatever it answers to this request. */
const REACHABLE_STATUSES: ReadonlySet<unknown> = new Set([400, 404, 405, 413, 422, 429])
/** A name that no job has. */
const PROBE_MARK = 'probe'

export function createServiceProbe(deps: ServiceAccessDeps & { readonly clock: Clock }): ProbeService {
  return async (batch, first, signal) => {
    const needsService = batch.preferences?.allowFallbacks === false
    if (first === null || !needsService || serviceProviderOf(deps.catalog, batch) === null) return
    const { endpoint, credential } = first
    const { provider, upstreamModel, format } = endpoint
    const deadline = new AbortController()
    const timer = deps.clock.after(ANSWER_TIMEOUT_MS, () =>
      deadline.abort(new GatewayError('provider_unavailable', 'it did not answer within 5 s')),
    )
    const job = { provider: provider.slug, credentialId: credential?.id ?? null, upstreamModel, format }
    const bounded = AbortSignal.any([signal, deadline.signal])
    try {
      const { service, calls } = await accessService(deps, batch, job, bounded)
      await service.find(calls, {
        mark: PROBE_MARK,
        sinceMs: deps.clock.nowMs(),
        lines: 0,
        knownNames: new Set(),
      })
    } catch (thrown) {
      signal.throwIfAborted()
      const { message, metadata } = toGatewayError(thrown)
      if (REACHABLE_STATUSES.has(metadata?.['provider_status'])) return
      throw new GatewayError(
        'provider_unavailable',
        `The batch service of ${provider.name} is not accepting batches at the moment, and provider.allow_fallbacks is false: ${message}`,
        { metadata: { provider_name: provider.name }, cause: thrown },
      )
    } finally {
      timer.cancel()
    }
  }
}

/** The provider (slug) whose batch service runs as much of the batch as it can; null: the gateway runs it. */
export function serviceProviderOf(
  catalog: Pick<Catalog, 'model'>,
  { model, preferences }: Pick<BatchRecord, 'model' | 'preferences'>,
): string | null {
  const only = preferences?.only ?? []
  const endpoints = (catalog.model(model)?.endpoints ?? []).filter(
    endpoint => only.length === 0 || only.some(name => namesProvider(name, endpoint)),
  )
  const [first] = endpoints
  if (first === undefined || first.provider.batch === undefined) return null
  const { slug } = first.provider
  const isServed = endpoints.every(
    ({ provider, format }) => provider.slug === slug && batchServiceOf(format) !== null,
  )
  return isServed ? slug : null
}
