/**
 * One row of the live list: a request as its usage record and the note of its serve thread tell it. Either may come
 * first, and requests that were refused have no record. Never texts of prompts and replies, never keys. Pure.
 */
import { FAILURES, type FailureCode } from '../errors.ts'
import { toUsd } from '../money.ts'
import type { ExchangeNote } from '../protocol/exchange-note.ts'
import type { UsageRecord } from '../storage/usage.ts'

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
  /** HTTP status that the client got; as far as known, where no note came. */
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
  readonly stages: ExchangeNote['stages'] | null
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

export function rowOfRecord(record: UsageRecord): RequestRow {
  const { latencyMs, generationMs } = record
  return {
    id: record.id,
    at: record.createdAt,
    model: record.model ?? record.router ?? null,
    provider: record.provider,
    status: statusOfRecord(record),
    outcome: record.outcome,
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

export function rowOfNote(note: ExchangeNote): RequestRow {
  return {
    id: note.id,
    at: new Date(Date.parse(note.endedAt) - note.durationMs).toISOString(),
    model: note.model ?? note.requestedModel ?? null,
    provider: note.provider ?? null,
    status: note.status,
    outcome: note.outcome,
    error: note.error ?? null,
    cause: note.cause ?? null,
    firstTokenMs: note.firstTokenMs ?? null,
    durationMs: note.durationMs,
    inputTokens: note.inputTokens ?? null,
    outputTokens: note.outputTokens ?? null,
    cost: null,
    attempts: (note.failedAttempts ?? []).map(({ provider, status, error, cause }) => ({
      provider,
      status,
      error,
      cause,
    })),
    stages: note.stages,
    workspace: note.workspace,
    isInner: false,
  }
}

/** The record's figures with what only the note knows: status, cause, stages. */
export function joined(record: RequestRow, note: RequestRow): RequestRow {
  const { at, status, outcome, cause, stages, model } = note
  const causes = [...note.attempts]
  const attempts = record.attempts.map(attempt => {
    if (attempt.error === null || attempt.error !== causes[0]?.error) return attempt
    return { ...attempt, cause: causes.shift()?.cause ?? null }
  })
  const error = record.error ?? note.error
  return { ...record, at, model: record.model ?? model, error, status, outcome, cause, stages, attempts }
}

function statusOfRecord({ outcome, error }: UsageRecord): number {
  if (outcome === 'aborted') return LEFT_STATUS
  if (error === null) return 200
  return error in FAILURES ? FAILURES[error as FailureCode].status : 500
}
