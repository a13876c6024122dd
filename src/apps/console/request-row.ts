/**
 * One row of the live list, built from a request's usage record and the report of its serve thread. Either may arrive
 * first. Inner calls have only a record; requests that were refused early have only a report. Never contains prompts,
 * replies or keys. Pure.
 */
import { FAILURES, type FailureCode } from '../../base/errors.ts'
import { toUsd } from '../../base/money.ts'
import type { EndedRequest } from '../../protocol/ended-request.ts'
import type { UsageRecord } from '../../storage/usage.ts'

/** One try at a provider. */
export interface RowAttempt {
  readonly provider: string
  /** HTTP status of the provider; null without a reply. */
  readonly status: number | null
  readonly error: string | null
  /** Code of a system or protocol, such as `ECONNREFUSED`; null: unknown. */
  readonly cause: string | null
}

export interface RequestRow {
  /** Generation id. */
  readonly id: string
  /** ISO 8601 UTC: arrival of the request. */
  readonly at: string
  readonly model: string | null
  readonly provider: string | null
  /** HTTP status sent to the client, or its best estimate if its thread did not report it. */
  readonly status: number
  readonly outcome: string
  /** Failure code of the gateway; null: it did not fail, but the client may have left. */
  readonly error: string | null
  readonly cause: string | null
  /** Null: there was no content. */
  readonly firstTokenMs: number | null
  readonly durationMs: number
  readonly inputTokens: number | null
  readonly outputTokens: number | null
  /** USD; null without a usage record. */
  readonly cost: number | null
  /** In order, of all turns; without a usage record, only those that failed. */
  readonly attempts: readonly RowAttempt[]
  /** Milliseconds by stage; null if they were not measured. */
  readonly stages: EndedRequest['stages'] | null
  readonly workspace: string | null
  /** True if the gateway made it for another request of the caller. */
  readonly isInner: boolean
}

/** The status for a client that left, as in the log. */
const LEFT_STATUS = 499

/** True for a record of additional fees, which is not a request of its own. */
export function isFee({ parent, attempts, model }: UsageRecord): boolean {
  return parent !== undefined && model === null && attempts.length === 0
}

/** True for a failure of the gateway as counted by metrics and alerts, not caused by its caller. */
export function isFailure({ outcome }: Pick<RequestRow, 'outcome'>): boolean {
  return outcome === 'failed'
}

export function rowOfRecord(record: UsageRecord): RequestRow {
  const { latencyMs, generationMs } = record
  const status = statusOfRecord(record)
  return {
    id: record.id,
    at: record.createdAt,
    model: record.model ?? record.router ?? record.requestedModel ?? null,
    provider: record.provider,
    status,
    // The ledger does not mark refusals: a request that reached no provider because of its caller is one.
    outcome:
      record.outcome === 'failed' && status < 500 && record.attempts.length === 0
        ? 'refused'
        : record.outcome,
    error: record.error,
    cause: null,
    firstTokenMs: generationMs === null ? null : Math.max(0, latencyMs - generationMs),
    durationMs: latencyMs,
    inputTokens: record.inputTokens,
    outputTokens: record.outputTokens,
    cost: toUsd(record.cost),
    attempts: record.attempts.map(({ provider, status, error }) => ({
      provider,
      status,
      error,
      cause: null,
    })),
    stages: null,
    workspace: record.workspaceId,
    isInner: record.parent !== undefined,
  }
}

export function rowOfEnded(ended: EndedRequest): RequestRow {
  return {
    id: ended.id,
    at: new Date(Date.parse(ended.endedAt) - ended.durationMs).toISOString(),
    model: ended.model ?? ended.requestedModel ?? null,
    provider: ended.provider ?? null,
    status: ended.status,
    outcome: ended.outcome,
    error: ended.error ?? null,
    cause: ended.cause ?? null,
    firstTokenMs: ended.firstTokenMs ?? null,
    durationMs: ended.durationMs,
    inputTokens: ended.inputTokens ?? null,
    outputTokens: ended.outputTokens ?? null,
    cost: null,
    attempts: (ended.failedAttempts ?? []).map(({ provider, status, error, cause }) => ({
      provider,
      status,
      error,
      cause,
    })),
    stages: ended.stages,
    workspace: ended.workspace,
    isInner: false,
  }
}

/** The record's values, plus what only the thread knows: times, status, cause, stages. */
export function joined(record: RequestRow, ended: RequestRow): RequestRow {
  const { at, status, outcome, cause, stages, durationMs } = ended
  const failedAttempts = [...ended.attempts]
  const attempts = record.attempts.map(attempt => {
    if (attempt.error === null || attempt.error !== failedAttempts[0]?.error) return attempt
    return { ...attempt, cause: failedAttempts.shift()?.cause ?? null }
  })
  return {
    ...record,
    at,
    model: record.model ?? ended.model,
    status,
    outcome,
    error: record.error ?? ended.error,
    cause,
    firstTokenMs: ended.firstTokenMs ?? record.firstTokenMs,
    durationMs,
    attempts,
    stages,
  }
}

function statusOfRecord({ outcome, error }: UsageRecord): number {
  if (outcome === 'aborted') return LEFT_STATUS
  if (error === null) return 200
  return error in FAILURES ? FAILURES[error as FailureCode].status : 500
}
