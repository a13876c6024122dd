/**
 * Access to a job's batch service: its endpoint in the current catalogue, and the key that submitted the job. Batch
 * threads; serve threads when they delete data that a provider stores.
 */
import type { Clock } from '../../base/clock.ts'
import { GatewayError } from '../../base/errors.ts'
import type { Log } from '../../base/log/log.ts'
import type { PriceFactor } from '../../base/money.ts'
import type { Candidate } from '../../exchange/exchange.ts'
import { FORMATS } from '../../formats/table.ts'
import {
  BATCH_PRICE_FACTOR,
  type Endpoint,
  type OutgoingKey,
  ownKeyScheme,
  textFormat,
} from '../../protocol/provider.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { Credential, CredentialCatalog } from '../../providers/credentials/catalog.ts'
import type { OutgoingKeys } from '../../providers/credentials/outgoing-key.ts'
import { authHeaders } from '../../providers/upstream/auth.ts'
import type { Transport } from '../../providers/upstream/transport.ts'
import type { BatchRecord } from '../../storage/batches.ts'
import type { ServiceJob } from '../../storage/service-jobs.ts'
import type { BatchService } from './service.ts'
import { ServiceCalls, type ServiceKey } from './service-calls.ts'
import { batchServiceOf } from './table.ts'

export interface ServiceAccessDeps {
  readonly catalog: Pick<Catalog, 'model'>
  readonly credentials: Pick<CredentialCatalog, 'of'>
  readonly providerKeys: Pick<OutgoingKeys, 'ownKey' | 'sharedKey'>
  /** Results are as large as all replies of a job together. */
  readonly client: Transport
  readonly timeouts: { readonly upstreamHeadersMs: number; readonly upstreamIdleMs: number }
  readonly clock: Clock
  readonly log: Pick<Log, 'notice'>
}

/** A batch service that is ready to be called for one job. */
export interface ServiceAccess {
  readonly service: BatchService
  readonly calls: ServiceCalls
  readonly candidate: Candidate
  /** Null: the shared key, from the provider's row. */
  readonly providerKey: OutgoingKey | null
  readonly priceFactor: PriceFactor
}

export type JobOwner = Pick<BatchRecord, 'organizationId' | 'workspaceId' | 'model'>
type JobAddress = Pick<ServiceJob, 'provider' | 'credentialId' | 'upstreamModel' | 'format'>

/** Rejects with GatewayError if the endpoint or the credential no longer exists or cannot be used now. */
export async function accessService(
  deps: ServiceAccessDeps,
  owner: JobOwner,
  job: JobAddress,
  signal: AbortSignal,
): Promise<ServiceAccess> {
  const endpoint = deps.catalog
    .model(owner.model)
    ?.endpoints.find(
      ({ provider, upstreamModel, format }) =>
        provider.slug === job.provider && upstreamModel === job.upstreamModel && format === job.format,
    )
  const service = batchServiceOf(job.format)
  if (endpoint === undefined || service === null) {
    throw new GatewayError('provider_unavailable', 'The endpoint of this batch is no longer in the catalogue')
  }
  const { provider } = endpoint
  const credential = await credentialOf(deps, owner, job)
  const { providerKeys } = deps
  const providerKey = await (credential === null
    ? providerKeys.sharedKey(endpoint)
    : providerKeys.ownKey(credential, endpoint))
  const { client, timeouts, clock, log } = deps
  const calls = new ServiceCalls({
    client,
    provider,
    format: FORMATS[textFormat(endpoint)],
    key: keyOf(endpoint, credential, providerKey),
    timeouts,
    clock,
    log,
    signal,
  })
  const priceFactor = provider.batch?.priceFactor ?? BATCH_PRICE_FACTOR
  return { service, calls, candidate: { endpoint, credential }, providerKey, priceFactor }
}

async function credentialOf(
  { credentials }: ServiceAccessDeps,
  { organizationId, workspaceId }: JobOwner,
  { provider, credentialId }: JobAddress,
): Promise<Credential | null> {
  if (credentialId === null) return null
  const credential = (await credentials.of(organizationId, workspaceId)).find(provider, credentialId)
  if (credential !== null) return credential
  // Another key of the workspace would belong to another account.
  throw new GatewayError(
    'provider_unavailable',
    'The provider credential that submitted this batch is disabled or deleted',
  )
}

/** No known batch service accepts signed requests, so such keys fail like missing keys. */
function keyOf(
  endpoint: Endpoint,
  credential: Credential | null,
  providerKey: OutgoingKey | null,
): ServiceKey {
  const { auth, apiKey, baseUrl } = endpoint.provider
  const scheme = credential === null ? auth : ownKeyScheme(endpoint)
  const text = providerKey === null ? apiKey : providerKey.text
  return {
    headers: { ...authHeaders(providerKey?.scheme ?? scheme, text), ...providerKey?.headers },
    baseUrl: providerKey?.baseUrl ?? baseUrl,
    credentialId: credential?.id ?? null,
    secrets: providerKey?.secrets ?? (apiKey === null ? [] : [apiKey]),
    owner:
      credential === null
        ? "the gateway's key"
        : `the workspace's own key ${credential.name ?? credential.label}`,
  }
}
