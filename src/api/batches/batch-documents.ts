/** Batches in the form that clients get. Pure. */

import { sumToUsd } from '../../base/money.ts'
import { isTerminal } from '../../batches/states.ts'
import { BATCH_WINDOW } from '../../protocol/limits.ts'
import { type BatchStatus, type BatchUsage, NO_USAGE } from '../../protocol/management/batches.ts'
import type { BatchRecord, StoredResult } from '../../storage/batches.ts'
import { outputFileId, type ResultDocument } from './batch-outputs.ts'

/** A batch without its results. */
export function batchDocument(batch: BatchRecord) {
  const { id, endpoint, model, status, total, completed, failed, error, waiting } = batch
  const hasUsage = isTerminal(status) || completed + failed > 0
  return {
    id,
    object: 'batch',
    endpoint,
    model,
    completion_window: BATCH_WINDOW,
    status,
    created_at: secondsOf(batch.createdAt),
    finalized_at: batch.finalizedAt === null ? null : secondsOf(batch.finalizedAt),
    expires_at: secondsOf(batch.expiresAt),
    provider: batch.service?.provider ?? null,
    request_counts: { total, completed, failed },
    usage: hasUsage ? usageDocument(batch.usage) : null,
    error: error === null ? null : { message: error },
    waiting: waiting === null ? null : { reason: waiting.reason, since: secondsOf(waiting.since) },
    results: null,
    ...clientFields(batch),
  }
}

/** The additional fields that OpenAI's batch clients read. */
function clientFields(batch: BatchRecord) {
  const { status, inputFile, error } = batch
  const endedAt = batch.finalizedAt === null ? null : secondsOf(batch.finalizedAt)
  const timeOf = (state: BatchStatus) => (status === state ? endedAt : null)
  return {
    input_file_id: inputFile?.id ?? null,
    output_file_id: outputFileId(batch, 'output'),
    error_file_id: outputFileId(batch, 'errors'),
    errors:
      inputFile === null || error === null ? null : errorList([{ code: 'invalid_request', message: error }]),
    metadata: inputFile?.metadata ?? null,
    in_progress_at: batch.startedAt === null ? null : secondsOf(batch.startedAt),
    finalizing_at: timeOf('completed'),
    completed_at: timeOf('completed'),
    failed_at: timeOf('failed'),
    expired_at: timeOf('expired'),
    cancelling_at: batch.cancellingAt === null ? null : secondsOf(batch.cancellingAt),
    cancelled_at: timeOf('cancelled'),
  }
}

interface BatchFault {
  readonly code: string
  readonly message: string
  /** From 1; absent: the error concerns the whole file. */
  readonly line?: number
  readonly param?: string | null
}

/** Errors in the form of OpenAI's batch clients. */
export function errorList(faults: readonly BatchFault[]) {
  const data = faults.map(({ code, message, line = null, param = null }) => ({ code, line, message, param }))
  return { object: 'list', data }
}

/** The errors of failed lines. */
export function faultsOf(results: readonly StoredResult[]): readonly BatchFault[] {
  return results.flatMap(({ number, result }) => {
    const { error } = JSON.parse(result) as ResultDocument
    if (error === null) return []
    return { code: error.error_type, message: error.message, line: number + 1, param: error.param }
  })
}

/**
 * A batch as it was when it was accepted, regardless of its state now, so that a repeated request gets the same reply.
 */
export function newBatchDocument(batch: BatchRecord) {
  return batchDocument({
    ...batch,
    status: 'validating',
    completed: 0,
    failed: 0,
    usage: NO_USAGE,
    error: null,
    service: null,
    waiting: null,
    startedAt: null,
    cancellingAt: null,
    finalizedAt: null,
  })
}

/** Tokens of sound and pictures, and tokens cached for an hour, are not counted separately and are 0. */
function usageDocument(usage: BatchUsage) {
  const { inputTokens, cachedTokens, cacheWriteTokens, outputTokens, upstream } = usage
  return {
    prompt_tokens: inputTokens,
    completion_tokens: outputTokens,
    total_tokens: inputTokens + outputTokens,
    input_tokens: inputTokens,
    input_tokens_details: { cached_tokens: cachedTokens },
    output_tokens: outputTokens,
    output_tokens_details: { reasoning_tokens: usage.reasoningTokens },
    prompt_tokens_details: {
      audio_tokens: 0,
      cache_write_tokens: cacheWriteTokens,
      cached_tokens: cachedTokens,
      file_tokens: 0,
      video_tokens: 0,
    },
    completion_tokens_details: { audio_tokens: 0, image_tokens: 0, reasoning_tokens: usage.reasoningTokens },
    cache_creation: { ephemeral_1h_input_tokens: 0, ephemeral_5m_input_tokens: cacheWriteTokens },
    server_tool_use: {
      tool_calls_executed: usage.toolCallsExecuted,
      tool_calls_requested: usage.toolCallsRequested,
      web_search_requests: usage.webSearchRequests,
    },
    cost: usdOf(usage.cost),
    cost_details: {
      upstream_inference_prompt_cost: usdOf(upstream.prompt),
      upstream_inference_completions_cost: usdOf(upstream.completions),
      upstream_inference_cost: usdOf(String(BigInt(upstream.prompt) + BigInt(upstream.completions))),
    },
    is_byok: usage.isByok,
    iterations: [
      {
        type: 'message',
        input_tokens: inputTokens - cachedTokens - cacheWriteTokens,
        output_tokens: outputTokens,
        cache_creation: null,
        cache_creation_input_tokens: cacheWriteTokens,
        cache_read_input_tokens: cachedTokens,
      },
    ],
    service_tier: usage.serviceTier,
    speed: 'standard',
  }
}

/** An amount in units (base/money.ts) as US dollars. */
function usdOf(units: string): number {
  return sumToUsd(BigInt(units))
}

function secondsOf(instant: string): number {
  return Math.floor(Date.parse(instant) / 1000)
}
