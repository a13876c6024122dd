/** The errors of requests that a limit refuses: of spending, of credits, and per minute. Pure. */
import { GatewayError, RETRY_AFTER_SECONDS } from '../../base/errors.ts'
import { type RateKind, rateHeaders } from '../../protocol/rate-headers.ts'
import type { CounterRoom } from './counters.ts'
import type { MinuteLimit, SpendingRule } from './quota-entries.ts'

const RESETS = { daily: 'daily ', weekly: 'weekly ', monthly: 'monthly ' } as const
const NANOS_PER_USD = 1e9
const NANO_DECIMALS = 9

/** Names a spending limit, as the subject of a sentence. */
function nameOf(limit: SpendingRule): string {
  switch (limit.kind) {
    case 'limit': {
      const { reset } = limit.limit
      return `The ${reset === null ? '' : RESETS[reset]}spending limit of this API key`
    }
    case 'budget': {
      const { budget, spender } = limit
      const owner = spender === 'key' ? 'this API key' : 'the member of this API key'
      return `The ${budget.reset} budget that guardrail ${budget.name} gives ${owner}`
    }
    case 'credits':
      return 'Credits'
  }
}

/** The error for a request that costs more than the unspent part of a limit. `amount`: its lowest possible cost. */
export function spentError(limit: SpendingRule, amount: number, room: CounterRoom): GatewayError {
  const unspent = usd(Math.max(0, room.ceiling - room.used))
  if (limit.kind === 'credits') {
    return new GatewayError(
      'payment_required',
      `Insufficient credits: this request costs at least ${usd(amount)}; ${unspent} remains`,
      { limit: 'credits' },
    )
  }
  const message = `${nameOf(limit)} does not cover this request: it costs at least ${usd(amount)}; ${unspent} of ${usd(room.ceiling)} remains`
  if (limit.kind === 'limit') {
    return new GatewayError('payment_required', message, { ...ofDay(limit.limit.reset), limit: 'key_limit' })
  }
  // A budget belongs to a guardrail, and guardrails refuse requests with 403.
  const { metadata } = ofDay(limit.budget.reset)
  return new GatewayError('permission_denied', message, {
    metadata: { guardrail_id: limit.budget.guardrailId, ...metadata },
    limit: 'budget',
  })
}

/** Metadata that tells some clients not to retry today. */
function ofDay(reset: string | null): { readonly metadata?: { readonly limit_window: 'day' } } {
  return reset === 'daily' ? { metadata: { limit_window: 'day' } } : {}
}

/** The error for a request that must wait until running requests have ended. */
export class BusyError extends GatewayError {
  constructor(limit: SpendingRule) {
    const what = limit.kind === 'credits' ? 'The remaining credits are' : `${nameOf(limit)} is`
    super('rate_limit_exceeded', `${what} reserved for requests that are still running`, {
      retryAfterSeconds: RETRY_AFTER_SECONDS.moment,
      limit: limit.kind === 'limit' ? 'key_limit' : limit.kind,
    })
  }
}

/** The error for a request that exceeds a limit per minute. */
export function rateError(
  { limit, entry }: MinuteLimit,
  { total, ceiling }: CounterRoom,
  nowMs: number,
  minuteEndMs: number,
): GatewayError {
  const remaining = Math.max(0, ceiling - total)
  const rate =
    limit.kind === 'requests'
      ? `${ceiling} requests per minute`
      : `${ceiling} tokens per minute, but this request may use up to ${entry.amount}`
  return rateLimitError(limit.kind, rate, remaining, ceiling, nowMs, minuteEndMs)
}

function rateLimitError(
  kind: RateKind,
  rate: string,
  remaining: number,
  ceiling: number,
  nowMs: number,
  minuteEndMs: number,
): GatewayError {
  return new GatewayError('rate_limit_exceeded', `Rate limit exceeded: this API key is limited to ${rate}`, {
    retryAfterSeconds: Math.max(1, Math.ceil((minuteEndMs - nowMs) / 1000)),
    limit: kind === 'requests' ? 'requests_per_minute' : 'tokens_per_minute',
    headers: {
      'X-RateLimit-Limit': String(ceiling),
      'X-RateLimit-Remaining': String(remaining),
      'X-RateLimit-Reset': String(minuteEndMs),
      ...rateHeaders(kind, { limit: ceiling, remaining, resetMs: minuteEndMs }, nowMs),
    },
  })
}

/** Formats down to a billionth, without trailing zeros: `0.002 USD`. */
function usd(nanos: number): string {
  return `${(nanos / NANOS_PER_USD).toFixed(NANO_DECIMALS).replace(/\.?0+$/, '')} USD`
}
