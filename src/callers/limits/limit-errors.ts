/** The errors of requests that a limit refuses: of spending, of credits, per minute, and of requests at once. Pure. */
import { GatewayError, type LimitName, RETRY_AFTER_SECONDS } from '../../base/errors.ts'
import { rateHeaders } from '../../protocol/rate-headers.ts'
import type { CounterRoom } from './counters.ts'
import {
  type LimitedRate,
  minuteEndMs,
  RATE_FIELDS,
  type RateRule,
  type SpendingRule,
} from './quota-entries.ts'

const RESET_WORDS = { daily: 'daily ', weekly: 'weekly ', monthly: 'monthly ' } as const
const NANOS_PER_USD = 1e9
const NANO_DECIMALS = 9

/** Names a spending limit, as the subject of a sentence. */
function nameOf(limit: SpendingRule): string {
  switch (limit.kind) {
    case 'limit': {
      const { reset } = limit.limit
      return `The ${reset === null ? '' : RESET_WORDS[reset]}spending limit of this API key`
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

/** The error for a running request whose limit has no money left for it. */
export function overrunError(limit: SpendingRule): GatewayError {
  const message = `${nameOf(limit)} ${limit.kind === 'credits' ? 'were' : 'was'} spent, or lowered, while the request ran`
  if (limit.kind !== 'budget') {
    return new GatewayError('limit_spent', message, {
      limit: limit.kind === 'limit' ? 'key_limit' : 'credits',
    })
  }
  const { guardrailId } = limit.budget
  return new GatewayError('budget_spent', message, {
    metadata: { guardrail_id: guardrailId },
    limit: 'budget',
  })
}

/** Metadata that tells some clients not to retry today. */
function ofDay(reset: string | null): { readonly metadata?: { readonly limit_window: 'day' } } {
  return reset === 'daily' ? { metadata: { limit_window: 'day' } } : {}
}

/** The error for a request that fits as soon as running requests have ended. */
export class BusyError extends GatewayError {
  constructor(
    message: string,
    details: Omit<NonNullable<ConstructorParameters<typeof GatewayError>[2]>, 'code'>,
  ) {
    super('rate_limit_exceeded', message, details)
  }
}

/** The error for a request whose money running requests have reserved. */
export function reservedError(limit: SpendingRule): BusyError {
  const subject = limit.kind === 'credits' ? 'The remaining credits are' : `${nameOf(limit)} is`
  return new BusyError(`${subject} reserved for requests that are still running`, {
    retryAfterSeconds: RETRY_AFTER_SECONDS.moment,
    limit: limit.kind === 'limit' ? 'key_limit' : limit.kind,
  })
}

const OWNER_NAMES: Readonly<Record<RateRule['owner'], string>> = {
  key: 'this API key',
  workspace: 'the workspace of this API key',
  end_user: 'this end user',
}

/** The error for a request that exceeds a rate limit: a `BusyError` if running requests only reserve what it needs. */
export function rateError(
  { limit, entry }: LimitedRate,
  { used, total, ceiling }: CounterRoom,
  nowMs: number,
): GatewayError {
  const { kind, owner } = limit
  const name: LimitName = RATE_FIELDS[kind]
  const refused = (limitText: string): string =>
    `Rate limit exceeded: ${OWNER_NAMES[owner]} is limited to ${limitText}`
  const metadata = { limit: name, limited: owner }
  if (kind === 'parallel') {
    return new BusyError(refused(`${ceiling} ${ceiling === 1 ? 'request' : 'requests'} at once`), {
      retryAfterSeconds: RETRY_AFTER_SECONDS.moment,
      limit: name,
      metadata,
    })
  }
  const remaining = Math.max(0, ceiling - total)
  const resetMs = minuteEndMs(nowMs)
  const message = refused(
    kind === 'requests'
      ? `${ceiling} requests per minute`
      : `${ceiling} tokens per minute, but this request may use up to ${entry.amount}`,
  )
  const details = {
    retryAfterSeconds: Math.max(1, Math.ceil((resetMs - nowMs) / 1000)),
    limit: name,
    metadata,
    headers: {
      'X-RateLimit-Limit': String(ceiling),
      'X-RateLimit-Remaining': String(remaining),
      'X-RateLimit-Reset': String(resetMs),
      ...rateHeaders(kind, { limit: ceiling, remaining, resetMs }, nowMs),
    },
  }
  // A request that runs was counted, and stays counted when it ends.
  const isReserved = kind === 'tokens' && used + entry.amount <= ceiling
  return isReserved
    ? new BusyError(message, details)
    : new GatewayError('rate_limit_exceeded', message, details)
}

/** Formats down to a billionth, without trailing zeros: `0.002 USD`. */
function usd(nanos: number): string {
  return `${(nanos / NANOS_PER_USD).toFixed(NANO_DECIMALS).replace(/\.?0+$/, '')} USD`
}
