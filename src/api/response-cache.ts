/** The header with which a client says how its request uses the response cache. Pure. */
import { refuseField } from '../base/errors.ts'
import type { CacheWish, ClientRequest } from '../exchange/exchange.ts'
import { CACHE_SECONDS_MAX } from '../protocol/management/response-cache.ts'
import type { ResponsesRequest } from '../protocol/request.ts'

export const CACHE_HEADER = 'x-gateway-cache'
const HEADER_IN_MESSAGES = 'X-Gateway-Cache'

/** @throws GatewayError `invalid_request` */
export function cacheWish(value: string): CacheWish {
  const words = value
    .toLowerCase()
    .split(',')
    .map(word => word.trim())
  const seconds = words.map(word => /^seconds=(\d{1,9})$/.exec(word)?.[1]).find(text => text !== undefined)
  const isKnown = words.every(word => word === 'refresh' || word.startsWith('seconds='))
  const hasRepetition = new Set(words.map(word => word[0])).size < words.length
  const number = seconds === undefined ? null : Number(seconds)
  if (words.length === 1 && words[0] === 'off') return { action: 'off', seconds: null }
  if (!isKnown || hasRepetition || (number === null && words[0] !== 'refresh')) throw invalidHeader()
  if (number !== null && (number < 1 || number > CACHE_SECONDS_MAX)) throw invalidHeader()
  return { action: words.includes('refresh') ? 'refresh' : 'on', seconds: number }
}

function invalidHeader() {
  return refuseField(
    HEADER_IN_MESSAGES,
    `must be off, refresh or seconds=N with N from 1 to ${CACHE_SECONDS_MAX}; refresh and seconds=N may stand together, with a comma`,
  )
}

/** The losses, with one more if the request asked for the cache and forbids keeping its answer. */
export function lossesOf(
  wish: CacheWish | undefined,
  { provider }: ResponsesRequest,
  losses: ClientRequest['losses'],
): ClientRequest['losses'] {
  if (wish === undefined || wish.action === 'off') return losses
  if (provider?.zdr !== true && provider?.data_collection !== 'deny') return losses
  const reason = 'the request forbids keeping its answer'
  return [...(losses ?? []), { field: `header:${HEADER_IN_MESSAGES}`, action: 'dropped', reason }]
}
