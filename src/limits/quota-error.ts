/** The error for a request that does not fit a limit: names the limit and the rest of it. Pure. */
import { GatewayError } from '../errors.ts'
import type { LimitExceeded } from './counters.ts'
import type { EntryLimit } from './quota-entries.ts'

const RESETS = { daily: 'daily ', weekly: 'weekly ', monthly: 'monthly ' } as const
const NANOS_PER_USD = 1e9
const NANO_DECIMALS = 9

/** `minuteEndMs`: end of the counters of this minute, Unix milliseconds. */
export function quotaError(
  limit: EntryLimit,
  amount: number,
  exceeded: LimitExceeded,
  nowMs: number,
  minuteEndMs: number,
): GatewayError {
  const { ceiling } = exceeded
  const left = Math.max(0, ceiling - exceeded.total)
  switch (limit.kind) {
    case 'limit': {
      const { reset } = limit.limit
      const name = `${reset === null ? '' : RESETS[reset]}spending limit of this API key`
      return new GatewayError(
        'payment_required',
        `The ${name} does not allow this request: it may cost up to ${usd(amount)}; ${usd(left)} of ${usd(ceiling)} remains`,
      )
    }
    case 'budget': {
      const { budget, spender } = limit
      const owner = spender === 'key' ? 'this API key' : 'the member of this API key'
      // A budget is part of a guardrail, and guardrails answer with 403.
      return new GatewayError(
        'permission_denied',
        `The ${budget.reset} budget that guardrail ${budget.name} gives ${owner} does not allow this request: it may cost up to ${usd(amount)}; ${usd(left)} of ${usd(ceiling)} remains`,
        { metadata: { guardrail_id: budget.guardrailId } },
      )
    }
    case 'credits':
      return new GatewayError(
        'payment_required',
        `Insufficient credits: this request may cost up to ${usd(amount)}; ${usd(left)} remains`,
      )
    case 'requests':
      return rateLimitError(`${ceiling} requests per minute`, left, ceiling, nowMs, minuteEndMs)
    case 'tokens':
      return rateLimitError(
        `${ceiling} tokens per minute, and this request may take up to ${amount}`,
        left,
        ceiling,
        nowMs,
        minuteEndMs,
      )
  }
}

function rateLimitError(
  rate: string,
  left: number,
  ceiling: number,
  nowMs: number,
  minuteEndMs: number,
): GatewayError {
  return new GatewayError('rate_limit_exceeded', `Rate limit exceeded: this API key has ${rate}`, {
    retryAfterSeconds: Math.max(1, Math.ceil((minuteEndMs - nowMs) / 1000)),
    headers: {
      'X-RateLimit-Limit': String(ceiling),
      'X-RateLimit-Remaining': String(left),
      'X-RateLimit-Reset': String(minuteEndMs),
    },
  })
}

/** Down to a billionth, without zeros at the end: `0.002 USD`. */
function usd(nanos: number): string {
  return `${(nanos / NANOS_PER_USD).toFixed(NANO_DECIMALS).replace(/\.?0+$/, '')} USD`
}
