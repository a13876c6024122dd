/**
 * Provider failures during an attempt: error replies, replies that cannot be parsed, and the switch to another resource
 * of the same key, because an Azure key may have several.
 */
import type { Clock } from '../../base/clock.ts'
import { type FailureCode, GatewayError, rewritten, toGatewayError } from '../../base/errors.ts'
import { NOT_JSON } from '../../base/json.ts'
import type { Log } from '../../base/log/log.ts'
import type { AttemptRecord, Exchange } from '../../exchange/exchange.ts'
import type { Format } from '../../formats/format.ts'
import { failureInReply, upstreamFailure } from '../../providers/upstream/error-reply.ts'
import type { UpstreamHead } from '../../providers/upstream/transport.ts'
import { keyOwner, secretsOf } from './provider-request.ts'

/** The media type alone, short: parameters may be anything. */
const MEDIA_TYPE = /^[\w.+-]{1,64}\/[\w.+-]{1,64}(?=$|[\s;])/

/**
 * Converts an error thrown while reading a reply to a failure. If a hostile reply makes our code throw, it is the
 * provider's fault.
 */
export function failureOf(
  thrown: unknown,
  record: AttemptRecord,
  log: Log,
  head: UpstreamHead | null,
): GatewayError {
  if (!(thrown instanceof GatewayError)) {
    log.fault('gateway', "cannot parse a provider's reply", thrown)
    return unavailable('The provider sent a reply that cannot be understood', thrown)
  }
  if (thrown.code === 'overloaded') return thrown
  const error = thrown.message === NOT_JSON ? rewritten(thrown, { message: notJson(head) }) : thrown
  return failureInReply(error, {
    providerName: record.endpoint.provider.name,
    secrets: secretsOf(record),
  })
}

/** Tells the status and type of the reply, which is often a page of a proxy or of another address. */
function notJson(head: UpstreamHead | null): string {
  const type = MEDIA_TYPE.exec(head?.headers['content-type'] ?? '')?.[0]
  const mediaType = type === undefined ? 'no usable content type' : `content type ${type}`
  return `${NOT_JSON} (status ${head?.status ?? 'unknown'}, ${mediaType})`
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

export function cutShortError(): GatewayError {
  return unavailable('The provider ended the reply before it was complete')
}

/** Failures in which a provider was involved, even if the gateway detected them. */
const PROVIDER_FAILURES: ReadonlySet<FailureCode> = new Set<FailureCode>([
  'provider_unavailable',
  'reply_too_large',
  'upstream_timeout',
  'unprocessable',
])

/** Adds the name of the provider at which the failure occurred, unless it has one already. */
export function withProvider(error: GatewayError, { endpoint }: AttemptRecord): GatewayError {
  if (!PROVIDER_FAILURES.has(error.code) || error.metadata?.['provider_name'] !== undefined) return error
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
const MAX_RESOURCES = 4

/**
 * True if the key of a failed attempt has another resource that this call has not tried yet; the failure then says
 * nothing about the health of the endpoint. The failed resource is avoided for a while.
 * @param from index of this call's first attempt among the exchange's attempts
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
  const tryCount = attempts
    .slice(from)
    .filter(attempt => attempt.endpoint === endpoint && attempt.credential === credential).length
  if (tryCount >= Math.min(resources.count, MAX_RESOURCES)) return false
  health?.countEnd('none', nowMs)
  return true
}
