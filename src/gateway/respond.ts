/**
 * The pipeline of one request: route, try the candidates in order until one is committed or done, finish,
 * account. The only place that decides what a failure means for the exchange.
 */
import { unixSeconds } from '../clock.ts'
import { type FailureCode, GatewayError, toGatewayError } from '../errors.ts'
import type { Attempt, Call, Exchange } from '../exchange.ts'
import type { Catalog } from '../providers/catalog.ts'
import type { Endpoint } from '../providers/provider.ts'
import { markAttempt } from '../stages.ts'
import { account, settle, summarize, waive } from './account.ts'
import type { Ending } from './assemble.ts'
import { AttemptRun, type AttemptTools, type Finish } from './attempt.ts'
import type { Gateway } from './gateway.ts'
import type { Ledger } from './ledger.ts'
import { routingMetadata } from './metadata.ts'
import { type Route, route } from './route.ts'
import type { Outcome, Sink } from './sink.ts'

export interface GatewayTools extends AttemptTools {
  readonly catalog: Catalog
  readonly ledger: Ledger
}

/** A request is worth this many tries; beyond it the caller waits longer than a retry of its own would take. */
const MAX_ATTEMPTS = 10

export function createGateway(tools: GatewayTools): Gateway {
  return {
    async respond(call, sink) {
      const exchange = openExchange(tools, call)
      const outcome = await serve(tools, exchange, sink).catch(thrown => refusal(tools, exchange, thrown))
      account(tools, exchange, outcome.answered ? null : outcome.error)
      return { ...outcome, summary: summarize(exchange, outcome) }
    },
  }
}

function openExchange(tools: GatewayTools, call: Call): Exchange {
  return {
    ...call,
    createdAt: unixSeconds(tools.clock),
    startedMs: call.marks.acceptedMs,
    candidates: [],
    attempts: [],
    firstTokenMs: null,
    usage: null,
    cost: null,
    shownUsage: null,
    finish: null,
    serviceTier: null,
    upstreamId: null,
    outputCharacters: 0,
    accounting: 'none',
    accounted: false,
  }
}

async function serve(tools: GatewayTools, exchange: Exchange, sink: Sink): Promise<Outcome> {
  const { marks } = exchange
  marks.validatedMs = tools.clock.monotonicMs()
  const routed = route(exchange.request, tools.catalog)
  marks.routedMs = tools.clock.monotonicMs()
  exchange.candidates = routed.candidates
  const debug: Readonly<Record<string, unknown>>[] = []
  let next = routed.candidates[0]
  while (next !== undefined) {
    const attempt: Attempt = { endpoint: next, isByok: false, status: null, error: null }
    markAttempt(marks, exchange.attempts.length === 0 ? marks.routedMs : tools.clock.monotonicMs())
    exchange.attempts.push(attempt)
    exchange.upstreamId = null
    exchange.outputCharacters = 0
    const run = new AttemptRun(tools, exchange, attempt, sink, debug)
    try {
      const finish = await run.run()
      settle(exchange, attempt, run.usage, finish)
      // The record is safe before the caller sees the end: whatever was answered is in the ledger.
      account(tools, exchange, null)
      sink.hold?.()
      run.assembler.finish(finish.reason, ending(tools, exchange, finish))
      sink.end()
      return { answered: true }
    } catch (thrown) {
      const error = foreseen(tools, thrown)
      attempt.error = error
      settle(exchange, attempt, run.usage, null)
      if (error.code === 'client_closed') {
        account(tools, exchange, error)
        return { answered: true }
      }
      if (run.committed) {
        account(tools, exchange, error)
        sink.hold?.()
        run.assembler.fail(error, ending(tools, exchange, null))
        sink.end()
        return { answered: true }
      }
      next = candidateAfter(routed, exchange, attempt, error)
    }
  }
  throw lastError(exchange.attempts)
}

/** The next endpoint worth trying after a failure, if there is one. */
function candidateAfter(
  routed: Route,
  exchange: Exchange,
  failed: Attempt,
  error: GatewayError,
): Endpoint | undefined {
  if (error.retry === 'never' || !routed.fallbacks || exchange.attempts.length >= MAX_ATTEMPTS)
    return undefined
  return routed.candidates
    .slice(routed.candidates.indexOf(failed.endpoint) + 1)
    .find(endpoint => error.retry === 'endpoint' || endpoint.modelId !== failed.endpoint.modelId)
}

/**
 * One answer for all failed attempts: the last one's, except that a rate limit speaks for the request only when
 * every attempt met one; then the shortest of the hints to wait is passed on.
 */
function lastError(attempts: readonly Attempt[]): GatewayError {
  const errors = attempts.map(attempt => attempt.error).filter(error => error !== null)
  const last = errors.at(-1)
  if (last === undefined) return new GatewayError('internal', 'Internal Server Error')
  if (attempts.length === 1) return last
  const spokesman = errors.findLast(error => error.code !== 'rate_limit_exceeded') ?? last
  const waits = errors.map(error => error.retryAfterSeconds)
  const retryAfterSeconds = waits.every(wait => wait !== undefined)
    ? Math.min(...waits)
    : spokesman.retryAfterSeconds
  return new GatewayError(spokesman.code, spokesman.message, {
    metadata: {
      ...spokesman.metadata,
      previous_errors: attempts.slice(0, -1).map(attempt => ({
        provider: attempt.endpoint.provider.name,
        code: attempt.error?.errorType ?? null,
        status: attempt.status,
      })),
    },
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
    cause: spokesman,
  })
}

function ending(tools: GatewayTools, exchange: Exchange, finish: Finish | null): Ending {
  return {
    completedAt: unixSeconds(tools.clock),
    usage: exchange.shownUsage,
    serviceTier: finish?.serviceTier ?? null,
    metadata: exchange.withMetadata ? routingMetadata(exchange, finish !== null) : null,
  }
}

function refusal(tools: GatewayTools, exchange: Exchange, thrown: unknown): Outcome {
  const error = foreseen(tools, thrown)
  waive(exchange)
  const routed = exchange.candidates.length > 0
  return {
    answered: false,
    error,
    metadata: exchange.withMetadata && routed ? routingMetadata(exchange, false) : null,
  }
}

/** The thrown value as a GatewayError; one we did not foresee is logged with where it came from. */
function foreseen(tools: GatewayTools, thrown: unknown): GatewayError {
  const error = toGatewayError(thrown)
  const masked: FailureCode = 'internal'
  if (error.code === masked) tools.log.fault('exchange failed', error.cause ?? error)
  return error
}
