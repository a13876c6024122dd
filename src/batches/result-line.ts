/** Line results: the result that the client reads for each line, and how its request ended. Pure. */
import { FAILURES, type FailureCode, fieldIn, type GatewayError, INTERNAL_MESSAGE } from '../base/errors.ts'
import type { PicoUsd } from '../base/money.ts'
import type { EndedExchange } from '../exchange/exchange.ts'
import { byokFee } from '../pipeline/accounting/charge.ts'
import { type BatchUsage, NO_USAGE } from '../protocol/management/batches.ts'
import type { StoredResult } from '../storage/batches.ts'
import type { UsageRecord } from '../storage/usage.ts'
import { resultId } from './ids.ts'

/** Error types by HTTP status, under the names that clients of batches know. */
const ERROR_TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  402: 'billing_error',
  403: 'permission_error',
  404: 'not_found_error',
  408: 'timeout_error',
  429: 'rate_limit_error',
  503: 'overloaded_error',
  524: 'timeout_error',
  529: 'overloaded_error',
}

/** The result of an answered line, as JSON without `custom_id`. `requestId`: its generation id. */
export function answeredLine(batchId: string, number: number, requestId: string, body: unknown): string {
  return JSON.stringify({
    id: resultId(batchId, number),
    response: { status_code: 200, request_id: requestId, body },
    error: null,
  })
}

/**
 * The stored result of a failed line: code and message (of internal errors the code alone), from which `wholeResult`
 * builds what clients read. Refused lines cost their sender nothing, so they must be small. `message`: with the field
 * names of the dialect.
 */
export function failedLine(
  { code, message: ownMessage }: Pick<GatewayError, 'code' | 'message'>,
  message = ownMessage,
): string {
  return JSON.stringify(FAILURES[code].status === 500 ? [code] : [code, message])
}

/** The result of a line as JSON without `custom_id`, from its stored form. Older versions stored failures in full. */
export function wholeResult(
  batchId: string,
  { number, result }: Pick<StoredResult, 'number' | 'result'>,
): string {
  if (!result.startsWith('[')) return result
  const [code, message = INTERNAL_MESSAGE] = JSON.parse(result) as [FailureCode, string?]
  const { status, errorType } = FAILURES[code]
  return JSON.stringify({
    id: resultId(batchId, number),
    response: null,
    error: {
      message,
      type: ERROR_TYPES[status] ?? (status < 500 ? 'invalid_request_error' : 'api_error'),
      param: status === 400 || status === 422 ? (fieldIn(message) ?? null) : null,
      error_type: errorType,
    },
  })
}

/** The usage and cost of an exchange. */
export function usageOf(
  { exchange: { bill }, isByok, serviceTier }: EndedExchange,
  byokFeePercent: number,
): BatchUsage {
  const { total, tools } = bill
  if (total === null && tools.requested === 0) return NO_USAGE
  const { usage } = total ?? {}
  return {
    inputTokens: usage?.inputTokens ?? 0,
    cachedTokens: usage?.cachedTokens ?? 0,
    cacheWriteTokens: usage?.cacheWriteTokens ?? 0,
    outputTokens: usage?.outputTokens ?? 0,
    reasoningTokens: usage?.reasoningTokens ?? 0,
    toolCallsExecuted: tools.executed,
    toolCallsRequested: tools.requested,
    webSearchRequests: usage?.webSearchRequests ?? 0,
    cost: String(chargedOf((bill.cost ?? 0) - tools.cost, isByok, byokFeePercent) + tools.cost),
    upstream: { prompt: String(total?.inputCost ?? 0), completions: String(total?.outputCost ?? 0) },
    isByok,
    serviceTier,
  }
}

/**
 * The usage of an earlier run of the line, from its usage record. The record lacks the prices of the endpoint and the
 * tool calls, so those of the later run are used.
 */
export function usageOfRecord(record: UsageRecord, later: BatchUsage, byokFeePercent: number): BatchUsage {
  const { inputTokens, cachedTokens, cacheWriteTokens, outputTokens, reasoningTokens } = record
  const { webSearchRequests, isByok, serviceTier } = record
  return {
    ...later,
    inputTokens,
    cachedTokens,
    cacheWriteTokens,
    outputTokens,
    reasoningTokens,
    webSearchRequests,
    cost: String(chargedOf(record.cost, isByok, byokFeePercent)),
    isByok,
    serviceTier,
  }
}

/** With a BYOK credential only the fee is charged. */
function chargedOf(cost: PicoUsd, isByok: boolean, byokFeePercent: number): PicoUsd {
  return isByok ? byokFee(cost, byokFeePercent) : cost
}
