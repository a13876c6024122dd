/** What a caller is told who may not make one more request: which limit it was, and how much of it is left. Pure. */
import { GatewayError } from '../errors.ts'
import type { SpendingLimit } from '../protocol/records.ts'
import type { Budget } from './budgets.ts'
import type { Refusal } from './counters.ts'

/** What an entry counts. */
export type Counted =
  | { readonly kind: 'limit'; readonly limit: SpendingLimit }
  | { readonly kind: 'budget'; readonly budget: Budget; readonly spender: 'member' | 'key' }
  | { readonly kind: 'credits' | 'requests' | 'tokens' }

const RESETS = { daily: 'daily ', weekly: 'weekly ', monthly: 'monthly ' } as const
const NANOS_PER_USD = 1e9
const NANO_DECIMALS = 9

/** `minuteEndMs`: when the counters of this minute are over, Unix milliseconds. */
export function refusalError(
  counted: Counted,
  amount: number,
  refusal: Refusal,
  nowMs: number,
  minuteEndMs: number,
): GatewayError {
  const left = Math.max(0, refusal.ceiling - refusal.total)
  switch (counted.kind) {
    case 'limit': {
      const { reset } = counted.limit
      const name = `${reset === null ? '' : RESETS[reset]}spending limit of this API key`
      return new GatewayError(
        'payment_required',
        `The ${name} does not allow this request: it may cost up to ${usd(amount)} USD, and ${usd(left)} of ${usd(refusal.ceiling)} USD are left`,
      )
    }
    case 'budget': {
      const { budget, spender } = counted
      const whose = spender === 'key' ? 'this API key' : 'the member of this API key'
      // The documented answer of guardrails, whatever of them it is that forbids.
      return new GatewayError(
        'permission_denied',
        `The ${budget.reset} budget that guardrail ${budget.name} gives ${whose} does not allow this request: it may cost up to ${usd(amount)} USD, and ${usd(left)} of ${usd(refusal.ceiling)} USD are left`,
        { metadata: { guardrail_id: budget.guardrailId } },
      )
    }
    case 'credits':
      return new GatewayError(
        'payment_required',
        `Insufficient credits: this request may cost up to ${usd(amount)} USD, and ${usd(left)} USD are left`,
      )
    case 'requests':
      return tooMany(`${refusal.ceiling} requests per minute`, left, refusal, nowMs, minuteEndMs)
    case 'tokens':
      return tooMany(
        `${refusal.ceiling} tokens per minute, and this request may take up to ${amount}`,
        left,
        refusal,
        nowMs,
        minuteEndMs,
      )
  }
}

function tooMany(
  what: string,
  left: number,
  { ceiling }: Refusal,
  nowMs: number,
  minuteEndMs: number,
): GatewayError {
  return new GatewayError('rate_limit_exceeded', `Rate limit exceeded: this API key has ${what}`, {
    retryAfterSeconds: Math.max(1, Math.ceil((minuteEndMs - nowMs) / 1000)),
    headers: {
      'X-RateLimit-Limit': String(ceiling),
      'X-RateLimit-Remaining': String(left),
      'X-RateLimit-Reset': String(minuteEndMs),
    },
  })
}

/** Without the zeros at the end, down to a billionth. */
function usd(nanos: number): string {
  return (nanos / NANOS_PER_USD).toFixed(NANO_DECIMALS).replace(/\.?0+$/, '')
}
