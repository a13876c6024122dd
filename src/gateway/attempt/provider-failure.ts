/**
 * Provider failures during an attempt: error replies, replies that cannot be parsed, and the switch to another resource
 * of the same key, because an Azure key may have several.
 */
import type { Clock } from '../../clock.ts'
import { type FailureCode, GatewayError, rewritten, toGatewayError } from '../../errors.ts'
import type { AttemptRecord, Exchange } from '../../exchange/exchange.ts'
import type { Format } from '../../formats/format.ts'
import type { Log } from '../../log/log.ts'
import { failureInReply, upstreamFailure } from '../../upstream/failure.ts'
import type { UpstreamHead } from '../../upstream/transport.ts'
import { keyOwner, secretsOf } from './provider-request.ts'

/**
 * Converts an error thrown while reading a reply to a failure. If a hostile reply makes our code throw, it is the
 * provider's fault.
 */
export function failureOf(thrown: unknown, record: AttemptRecord, log: Log): GatewayError {
  if (!(thrown instanceof GatewayError)) {
    log.fault('gateway', "cannot parse a provider's reply", thrown)
    return unavailable('The provider sent a reply that cannot be understood', thrown)
  }
  if (thrown.code === 'overloaded') return thrown
  return failureInReply(thrown, {
    providerName: record.endpoint.provider.name,
    secrets: secretsOf(record),
  })
}

/** Reads the failure in an error reply. */
export function refusalIn(
  body: string,
  head: UpstreamHead | null,
  { format, clock }: { readonly format: Pick<Format, 'failure'>; readonly clock: Clock },
  record: AttemptRecord,
): GatewayError {
  return upstreamFailure({
    format,
    clock,
    body,
    status: head?.status ?? 0,
    headers: head?.headers ?? {},
    secrets: secretsOf(record),
    providerName: record.endpoint.provider.name,
    keyOwner: keyOwner(record),
    isOwnKey: record.credential !== null,
  })
}

export function cutShort(): GatewayError {
  return unavailable('The provider ended the reply before it was complete')
}

/** Failures in which a provider was involved, even if the gateway detected them. */
const OF_PROVIDERS: ReadonlySet<FailureCode> = new Set<FailureCode>([
  'provider_unavailable',
  'upstream_timeout',
  'unprocessable',
])

/** Adds the name of the provider at which the failure occurred, unless it has one already. */
export function withProvider(error: GatewayError, { endpoint }: AttemptRecord): GatewayError {
  if (!OF_PROVIDERS.has(error.code) || error.metadata?.['provider_name'] !== undefined) return error
  return rewritten(error, { metadata: { ...error.metadata, provider_name: endpoint.provider.name } })
}

/** Converts a thrown value to a GatewayError; an unexpected one is logged with its cause. */
export function asGatewayError({ log }: { readonly log: Log }, thrown: unknown): GatewayError {
  const error = toGatewayError(thrown)
  if (error.code === 'internal')
    log.fault('gateway', 'request failed with an unexpected error', error.cause ?? error)
  return error
}

function unavailable(message: string, cause?: unknown): GatewayError {
  return new GatewayError('provider_unavailable', message, cause === undefined ? {} : { cause })
}

/** Maximum number of resources of one key that a call tries. */
const RESOURCES_MAX = 4

/**
 * True if the key of a failed attempt has another resource that this call has not tried yet; the failure then says
 * nothing about the health of the endpoint. The failed resource is avoided for a while.
 * @param from the first attempt of this call among those of the exchange
 */
export function hasAnotherResource(
  { providerKey, endpoint, credential, health }: AttemptRecord,
  error: GatewayError,
  { attempts, signal }: Pick<Exchange, 'attempts' | 'signal'>,
  from: number,
  nowMs: number,
): boolean {
  const resources = providerKey?.resources
  if (resources === undefined || error.retry !== 'endpoint' || signal.aborted) return false
  resources.failed()
  const asked = attempts
    .slice(from)
    .filter(each => each.endpoint === endpoint && each.credential === credential).length
  if (asked >= Math.min(resources.count, RESOURCES_MAX)) return false
  health?.ended('none', nowMs)
  return true
}
