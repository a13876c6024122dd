/** The meaning of statuses that providers return. `formats/faults.ts` reads their words first. Data. */
import type { FailureCode } from './errors.ts'

interface ProviderStatus {
  readonly code: FailureCode
  /**
   * Effect on the health of the endpoint, instead of the one in the failure's row; absent: as in that row. `named`:
   * none if the request may name something that does not exist.
   */
  readonly health?: 'failed' | 'limited' | 'none' | 'named'
  /** True if the provider rejects the gateway's key or does not have the model, so waiting does not help. */
  readonly refusesUs?: true
}

/** Statuses returned by providers. Any other 4xx status means a bad request, any other 5xx status a failure. */
export const PROVIDER_STATUSES: Readonly<Record<number, ProviderStatus>> = {
  400: { code: 'invalid_request', health: 'none' },
  401: { code: 'account_refused', health: 'failed', refusesUs: true },
  402: { code: 'account_refused', health: 'failed', refusesUs: true },
  403: { code: 'provider_unavailable', health: 'none', refusesUs: true },
  // A caller who names things that do not exist must not be able to block an endpoint for everyone else.
  404: { code: 'provider_unavailable', health: 'named', refusesUs: true },
  408: { code: 'upstream_timeout', health: 'none' },
  413: { code: 'payload_too_large', health: 'none' },
  422: { code: 'unprocessable', health: 'none' },
  429: { code: 'rate_limit_exceeded', health: 'limited' },
  503: { code: 'service_unavailable' },
  504: { code: 'upstream_timeout' },
  524: { code: 'upstream_timeout' },
  529: { code: 'upstream_overloaded' },
}
