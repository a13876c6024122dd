/** Adds usage records to the sums of an arm. Pure. */
import { toUsd } from '../../base/money.ts'
import type { EndedRollout, RolloutArm, RolloutFigures } from '../../protocol/rollout.ts'
import type { ArmSums } from '../../storage/rollouts.ts'
import type { LogSums } from './statistics.ts'

const NO_LOGS: LogSums = { count: 0, sum: 0, squares: 0 }
export const NO_SUMS: ArmSums = {
  requests: 0,
  errors: 0,
  firstTokenMs: NO_LOGS,
  tokensPerSecond: NO_LOGS,
  cost: NO_LOGS,
  judged: 0,
  unaccepted: 0,
}

/** Shorter answers say nothing about the speed. */
const SPEED_MIN = { tokens: 16, ms: 1 } as const

/** The change of an arm's sums by a usage record: `add` returns the new sums. */
interface Addition {
  readonly arm: RolloutArm
  readonly add: (sums: ArmSums) => ArmSums
}

/** A shadow adds to two arms, and so does its judge: each request stands beside its own repetition. */
export function additionsOf(record: RolloutFigures, rollout: EndedRollout): readonly Addition[] {
  if (rollout.arm === 'judged') {
    const { shadowed, shadow } = rollout.accepted
    return [
      { arm: 'shadowed', add: sums => addJudged(sums, shadowed) },
      { arm: 'shadow', add: sums => addJudged(sums, shadow) },
    ]
  }
  const { arm, failed } = rollout
  const own: Addition = { arm, add: sums => addRecord(sums, record, failed) }
  if (arm !== 'shadow') return [own]
  const { shadowed } = rollout
  return [own, { arm: 'shadowed', add: sums => addRecord(sums, shadowed, shadowed.failed) }]
}

function addJudged(sums: ArmSums, isAccepted: boolean): ArmSums {
  return { ...sums, judged: sums.judged + 1, unaccepted: sums.unaccepted + (isAccepted ? 0 : 1) }
}

/** If another model answered, the figures of the request do not count for this arm. */
export function addRecord(sums: ArmSums, record: RolloutFigures, failed: boolean): ArmSums {
  const requests = sums.requests + 1
  if (failed) return { ...sums, requests, errors: sums.errors + 1 }
  const { latencyMs, generationMs, outputTokens, cost } = record
  const isTimed = generationMs !== null && generationMs >= SPEED_MIN.ms && outputTokens >= SPEED_MIN.tokens
  return {
    ...sums,
    requests,
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
