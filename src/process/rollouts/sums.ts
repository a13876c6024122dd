/** Adds usage records to the sums of an arm. Pure. */
import { toUsd } from '../../base/money.ts'
import type { ArmSums } from '../../storage/rollouts.ts'
import type { UsageRecord } from '../../storage/usage.ts'
import type { LogSums } from './statistics.ts'

const NONE: LogSums = { count: 0, sum: 0, squares: 0 }
export const NO_SUMS: ArmSums = {
  requests: 0,
  errors: 0,
  firstTokenMs: NONE,
  tokensPerSecond: NONE,
  cost: NONE,
}

/** Shorter answers say nothing about the speed. */
const SPEED_LEAST = { tokens: 16, ms: 1 } as const

type Figures = Pick<UsageRecord, 'latencyMs' | 'generationMs' | 'outputTokens' | 'cost'>

/** If another model answered, the figures of the request do not count for this arm. */
export function addRecord(sums: ArmSums, record: Figures, failed: boolean): ArmSums {
  const requests = sums.requests + 1
  if (failed) return { ...sums, requests, errors: sums.errors + 1 }
  const { latencyMs, generationMs, outputTokens, cost } = record
  const isTimed =
    generationMs !== null && generationMs >= SPEED_LEAST.ms && outputTokens >= SPEED_LEAST.tokens
  return {
    requests,
    errors: sums.errors,
    firstTokenMs: add(sums.firstTokenMs, generationMs === null ? 0 : latencyMs - generationMs),
    tokensPerSecond: add(sums.tokensPerSecond, isTimed ? (1_000 * outputTokens) / generationMs : 0),
    cost: add(sums.cost, toUsd(cost)),
  }
}

/** A figure that is not above 0 is unknown. */
function add(sums: LogSums, value: number): LogSums {
  if (!(value > 0)) return sums
  const logarithm = Math.log(value)
  return {
    count: sums.count + 1,
    sum: sums.sum + logarithm,
    squares: sums.squares + logarithm * logarithm,
  }
}
