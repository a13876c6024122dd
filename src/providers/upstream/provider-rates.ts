/** The headers of a provider about its own limits, for callers who use a key of their own. Pure. */

/** Names of providers' rate-limit headers. */
const RATE_HEADER_NAME = /^(?:x-ratelimit|anthropic-(?:ratelimit|priority))-[a-z0-9-]{1,60}$/
/** Numbers, durations, points in time. */
const RATE_HEADER_VALUE = /^[A-Za-z0-9:.+-]{1,64}$/
const PROVIDER_RATES_MAX = 32

/**
 * The headers of a provider's reply that state its limits; null if there are none. `headers`: with lower-case names.
 */
export function providerRates(
  headers: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> | null {
  let rates: Record<string, string> | null = null
  let count = 0
  for (const name in headers) {
    const value = headers[name] ?? ''
    if (!RATE_HEADER_NAME.test(name) || !RATE_HEADER_VALUE.test(value)) continue
    rates ??= {}
    rates[name] = value
    if (++count === PROVIDER_RATES_MAX) break
  }
  return rates
}
