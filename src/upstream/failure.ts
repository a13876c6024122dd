/**
 * A provider's refusal as our error: what the format understands of it, with `Retry-After`, the provider's name and
 * scrubbed text. The only ways by which text of a failure may reach a client. Pure.
 */
import type { Clock } from '../clock.ts'
import { type FailureCode, GatewayError } from '../errors.ts'
import { providerFailure } from '../formats/failure.ts'
import type { Format } from '../formats/format.ts'
import { retryAfterSeconds } from './retry-after.ts'
import { scrub } from './scrub.ts'

export { retryAfterSeconds } from './retry-after.ts'
export { holdsSecret, scrub } from './scrub.ts'

export interface Refusal {
  readonly format: Pick<Format, 'failure'>
  readonly status: number
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string>>
  /** Text of the body as far as it was read. */
  readonly body: string
  /** Every key that was sent with the request. */
  readonly secrets: readonly string[]
  /** Display name, for `error.metadata.provider_name`. */
  readonly providerName: string
  readonly clock: Clock
}

/** Failures for which waiting helps; elsewhere a `Retry-After` would only mislead. */
const WAITING_HELPS: ReadonlySet<FailureCode> = new Set<FailureCode>([
  'rate_limit_exceeded',
  'service_unavailable',
  'upstream_overloaded',
])

/** Formats write flat metadata; deeper than this is not ours. */
const METADATA_DEPTH = 4

/**
 * A failure that the provider told inside a reply, as a decoder understood it: scrubbed, with the provider's name.
 */
export function failureInReply(
  told: GatewayError,
  provider: Pick<Refusal, 'secrets' | 'providerName'>,
): GatewayError {
  const metadata = scrubbed(told.metadata ?? {}, provider.secrets, METADATA_DEPTH) as Record<string, unknown>
  metadata['provider_name'] = provider.providerName
  return new GatewayError(told.code, scrub(told.message, provider.secrets), {
    metadata,
    ...(told.retryAfterSeconds === undefined ? undefined : { retryAfterSeconds: told.retryAfterSeconds }),
    ...(told.cause === undefined ? undefined : { cause: told.cause }),
  })
}

export function upstreamFailure(refusal: Refusal): GatewayError {
  const told = understood(refusal)
  const { code, message, metadata = {} } = failureInReply(told, refusal)
  if (!WAITING_HELPS.has(code)) return new GatewayError(code, message, { metadata })
  const seconds = told.retryAfterSeconds ?? retryAfterSeconds(refusal.headers, refusal.clock)
  return new GatewayError(code, message, {
    metadata,
    ...(seconds === null ? undefined : { retryAfterSeconds: seconds }),
  })
}

function understood({ format, status, headers, body }: Refusal): GatewayError {
  // We ask for no compression; where it comes anyway, the bytes are not text.
  const encoding = headers['content-encoding'] ?? 'identity'
  try {
    return format.failure(status, encoding.toLowerCase() === 'identity' || encoding === '' ? body : '')
  } catch {
    return providerFailure({ status, code: null, message: null })
  }
}

function scrubbed(value: unknown, secrets: readonly string[], depth: number): unknown {
  if (typeof value === 'string') return scrub(value, secrets)
  if (typeof value !== 'object' || value === null) return value
  if (depth === 0) return null
  if (Array.isArray(value)) return value.map(item => scrubbed(item, secrets, depth - 1))
  const fields = Object.entries(value).map(([name, item]) => [
    scrub(name, secrets),
    scrubbed(item, secrets, depth - 1),
  ])
  return Object.fromEntries(fields)
}
