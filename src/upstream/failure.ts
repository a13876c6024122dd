/**
 * A provider's refusal as our error: what the format understands of it, with `Retry-After`, the provider's name and
 * scrubbed text. The only way by which text of a failed reply may reach a client. Pure.
 */
import type { Clock } from '../clock.ts'
import { type FailureCode, GatewayError } from '../errors.ts'
import type { Format } from '../formats/format.ts'
import { providerFailure } from '../formats/provider-failure.ts'
import { retryAfterSeconds } from './retry-after.ts'
import { scrub } from './scrub.ts'

export { retryAfterSeconds } from './retry-after.ts'
export { scrub } from './scrub.ts'

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

export function upstreamFailure(refusal: Refusal): GatewayError {
  const told = understood(refusal)
  const metadata = scrubbed(told.metadata ?? {}, refusal.secrets, METADATA_DEPTH) as Record<string, unknown>
  metadata['provider_name'] = refusal.providerName
  const message = scrub(told.message, refusal.secrets)
  if (!WAITING_HELPS.has(told.code)) return new GatewayError(told.code, message, { metadata })
  const seconds = told.retryAfterSeconds ?? retryAfterSeconds(refusal.headers, refusal.clock)
  return new GatewayError(told.code, message, {
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
