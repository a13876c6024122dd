/**
 * One row of the live list, built from a request's usage record and the report of its serve thread. Either may arrive
 * first, and refused requests have no record. Never contains prompts, replies or keys. Pure.
 */
import { FAILURES, type FailureCode } from '../../base/errors.ts'
import { toUsd } from '../../base/money.ts'
import type { EndedRequest } from '../../protocol/ended-request.ts'
import type { UsageRecord } from '../../storage/usage.ts'

/** One try at a provider. */
export interface RowAttempt {
  readonly provider: string
  /** HTTP status of the provider; null without a reply, or where it answered well. */
  readonly status: number | null
  readonly error: string | null
  /** Code of a system or protocol, such as `ECONNREFUSED`; null: not known. */
  readonly cause: string | null
}

export interface RequestRow {
  /** Generation id. */
  readonly id: string
  /** ISO 8601 UTC: when it came. */
  readonly at: string
  readonly model: string | null
  readonly provider: string | null
  /** HTTP status that the client got; as far as known, where its thread told nothing. */
  readonly status: number
  readonly outcome: string
  /** Our failure code; null: it ended well. */
  readonly error: string | null
  readonly cause: string | null
  /** Null: there was no content. */
  readonly firstTokenMs: number | null
  readonly durationMs: number
  readonly inputTokens: number | null
  readonly outputTokens: number | null
  /** USD; null without a usage record. */
  readonly cost: number | null
  /** In order; those before the last one failed. */
  readonly attempts: readonly RowAttempt[]
  /** Milliseconds by stage; null where nobody watched. */
  readonly stages: EndedRequest['stages'] | null
  readonly workspace: string | null
  /** The gateway made it for another request of the caller. */
  readonly isInner: boolean
}

/** The status of a client that left, as the log has it. */
const LEFT_STATUS = 499

/** True for the record of fees beside another record, which is no request of its own. */
export function isFee({ parent, attempts, model }: UsageRecord): boolean {
  return parent !== undefined && model === null && attempts.length === 0
}

/** A request that the gateway failed, as metrics and alerts count it: not one that its caller spoiled or left. */
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
    // The ledger knows no refusals: a request that asked nobody, and was its caller's fault, is one.
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

/** The record's figures with what only the thread knows: times, status, cause, stages. */
export function joined(record: RequestRow, ended: RequestRow): RequestRow {
  const { at, status, outcome, cause, stages, durationMs } = ended
  const failed = [...ended.attempts]
  const attempts = record.attempts.map(attempt => {
    if (attempt.error === null || attempt.error !== failed[0]?.error) return attempt
    return { ...attempt, cause: failed.shift()?.cause ?? null }
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
