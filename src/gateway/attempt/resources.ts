/** Several resources of one key, as a key of Azure may have them: another one is asked when one fails. */
import type { GatewayError } from '../../errors.ts'
import type { AttemptRecord, Exchange } from '../../exchange/exchange.ts'

/** Resources of one key that a call asks. */
const RESOURCES_MAX = 4

/**
 * True if the key of a failed attempt has a resource that this call has not asked yet; the failure says nothing of the
 * health of the endpoint then. The resource is avoided for a while.
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
