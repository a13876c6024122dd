/** The summary of an exchange for its log line. The list of failed attempts is made only if one failed. */
import { systemCode } from '../../errors.ts'
import type { AttemptRecord, Exchange } from '../../exchange/exchange.ts'
import { type FailedAttempt, shownModel } from '../../log/log.ts'
import { toUsd } from '../../money.ts'
import type { ExchangeSummary, Outcome } from '../answer/answer.ts'
import { keptName, traceOf } from './client-fields.ts'

export interface SummaryDeps {
  /** See ProviderRequests. */
  readonly requests: { endUserOf(exchange: Exchange): string | null }
}

export function summarize({ requests }: SummaryDeps, exchange: Exchange, outcome: Outcome): ExchangeSummary {
  const { attempts, bill, client, request } = exchange
  const last = attempts.at(-1)
  const usage = bill.total?.usage
  const cost = bill.cost
  const hasEndUser = request.user !== undefined || request.safety_identifier != null
  const model = last?.endpoint.modelId ?? null
  const asked = request.model ?? request.models?.[0]
  const error = outcome.answered ? (outcome.refused ?? last?.error ?? null) : outcome.error
  return {
    firstTokenMs:
      exchange.firstTokenMs === null ? null : round(exchange.firstTokenMs - exchange.watch.startedMs),
    model,
    requestedModel: asked === undefined || asked === model ? undefined : shownModel(asked),
    provider: last?.endpoint.provider.slug ?? null,
    attempts: attempts.length,
    failedAttempts: attempts.length > 1 || error !== null ? failedAttempts(attempts) : undefined,
    inputTokens: usage?.inputTokens ?? null,
    outputTokens: usage?.outputTokens ?? null,
    finish: exchange.finish?.reason ?? null,
    cost: cost === null ? null : toUsd(cost + bill.inner.cost),
    error: error?.code ?? null,
    cause: error === null ? undefined : (systemCode(error) ?? undefined),
    trace: request.trace === undefined ? undefined : loggedTrace(request),
    session: request.session_id === undefined ? undefined : keptName(request.session_id),
    agent: client?.agent === undefined ? undefined : keptName(client.agent),
    parentAgent: client?.parentAgent === undefined ? undefined : keptName(client.parentAgent),
    endUser: hasEndUser ? (requests.endUserOf(exchange) ?? undefined) : undefined,
  }
}

/** Fields of a trace that a log line has. */
const TRACE_NAMES = ['trace_id', 'trace_name', 'span_name', 'generation_name', 'parent_span_id'] as const

function loggedTrace(request: Exchange['request']): ExchangeSummary['trace'] {
  const trace = traceOf(request)
  if (trace === undefined) return undefined
  const named = TRACE_NAMES.flatMap(name => (trace[name] === undefined ? [] : [[name, trace[name]] as const]))
  return named.length === 0 ? undefined : Object.fromEntries(named)
}

/** Attempts that a log line tells of: those of two turns at most. */
const TOLD_ATTEMPTS_MAX = 20

function failedAttempts(attempts: readonly AttemptRecord[]): readonly FailedAttempt[] | undefined {
  const failed = attempts.filter(attempt => attempt.error !== null).slice(0, TOLD_ATTEMPTS_MAX)
  if (failed.length === 0) return undefined
  return failed.map(({ endpoint, error, status }) => ({
    provider: endpoint.provider.slug,
    error: error?.code ?? null,
    status,
    cause: systemCode(error),
  }))
}

/** Log lines are read by people: a microsecond is fine enough. */
function round(ms: number): number {
  return Math.round(ms * 1000) / 1000
}
