/**
 * Converts a provider's failure to a GatewayError, with its meaning according to the format, `Retry-After`, the
 * provider's name and scrubbed text. Text from a provider's failure reaches clients only through this file. Pure.
 */
import type { Clock } from '../../base/clock.ts'
import { type FailureCode, GatewayError } from '../../base/errors.ts'
import { scrub } from '../../base/scrub.ts'
import { DEFAULT_MESSAGE, providerFailure } from '../../formats/failure.ts'
import type { Format } from '../../formats/format.ts'
import { providerRates } from './provider-rates.ts'
import { retryAfterSeconds } from './retry-after.ts'

/** An error reply of a provider. */
export interface Refusal {
  readonly format: Pick<Format, 'failure'>
  readonly status: number
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string>>
  /** The text of the body that was read. */
  readonly body: string
  /** Every key that was sent with the request. */
  readonly secrets: readonly string[]
  /** Display name, for `error.metadata.provider_name`. */
  readonly providerName: string
  /** The owner of the key that was sent, in the gateway's words, e.g. `the gateway's key`. */
  readonly keyOwner: string
  /** True if the key belongs to the caller, who may know its limits. Absent: it does not. */
  readonly isOwnKey?: boolean
  readonly clock: Clock
}

/** Maximum depth of metadata. Formats write flat metadata. */
const METADATA_DEPTH = 4

/** Scrubs a failure that a decoder found inside a reply, and adds the provider's name. */
export function failureInReply(
  failure: GatewayError,
  provider: Pick<Refusal, 'secrets' | 'providerName'>,
): GatewayError {
  const metadata = scrubIn(failure.metadata ?? {}, provider.secrets, METADATA_DEPTH) as Record<
    string,
    unknown
  >
  metadata['provider_name'] = provider.providerName
  return new GatewayError(failure.code, scrub(failure.message, provider.secrets), {
    metadata,
    ...(failure.retryAfterSeconds === undefined
      ? undefined
      : { retryAfterSeconds: failure.retryAfterSeconds }),
    ...(failure.cause === undefined ? undefined : { cause: failure.cause }),
  })
}

/** Creates the error for an error reply of a provider. */
export function upstreamFailure(refusal: Refusal): GatewayError {
  const failure = interpret(refusal)
  const { code: failureCode, message: scrubbedMessage, metadata = {} } = failureInReply(failure, refusal)
  const isOwnKey = refusal.isOwnKey === true
  const text = isOwnKey ? scrubbedMessage : withoutIds(scrubbedMessage)
  const message = refusesKey(refusal, failureCode) ? keyRefused(refusal, text) : text
  // Callers can mend their own account, and would look in vain for a fault of the gateway.
  const code =
    failureCode === 'account_refused' && isOwnKey && refusal.status === 400
      ? 'credential_refused'
      : failureCode
  // For other failures, `Retry-After` would be misleading.
  if (failure.meaning.isBusy !== true) return new GatewayError(code, message, { metadata })
  const seconds = failure.retryAfterSeconds ?? retryAfterSeconds(refusal.headers, refusal.clock)
  const rates = isOwnKey ? providerRates(refusal.headers) : null
  return new GatewayError(code, message, {
    metadata,
    ...(rates === null ? undefined : { headers: rates }),
    ...(seconds === null ? undefined : { retryAfterSeconds: seconds }),
  })
}

function refusesKey({ status }: Refusal, failureCode: FailureCode): boolean {
  return failureCode === 'account_refused' || (status === 403 && failureCode === 'provider_unavailable')
}

/** Ids of teams, accounts, projects and keys in the words of providers. */
const OPERATOR_IDS =
  /\b(team|account|organization|project|workspace|api[ _-]key)((?:[ _-]id)?(?: ?[:=] ?| (?=[a-z]+[-_]\w*\d)))[\w.*-]+/gi

/** The message without ids of the operator, which others must not see. */
function withoutIds(text: string): string {
  return text.replace(OPERATOR_IDS, '$1$2[redacted]')
}

/** Without this error, callers would look for the fault in their own key, which the provider has never seen. */
function keyRefused({ status, providerName, keyOwner }: Refusal, providerText: string): string {
  const message = `${providerName} refused ${keyOwner}${status === 403 ? ', or the key lacks permission for this call' : ''}`
  return providerText === DEFAULT_MESSAGE ? message : `${message}: ${providerText}`
}

function interpret({ format, status, headers, body }: Refusal): GatewayError {
  // The gateway asks for no compression; if compressed bytes arrive anyway, they are not text.
  const encoding = headers['content-encoding'] ?? 'identity'
  try {
    return format.failure(status, encoding.toLowerCase() === 'identity' || encoding === '' ? body : '')
  } catch {
    return providerFailure({ status, code: null, message: null })
  }
}

function scrubIn(value: unknown, secrets: readonly string[], depth: number): unknown {
  if (typeof value === 'string') return scrub(value, secrets)
  if (typeof value !== 'object' || value === null) return value
  if (depth === 0) return null
  if (Array.isArray(value)) return value.map(item => scrubIn(item, secrets, depth - 1))
  const fields = Object.entries(value).map(([name, item]) => [
    scrub(name, secrets),
    scrubIn(item, secrets, depth - 1),
  ])
  return Object.fromEntries(fields)
}
