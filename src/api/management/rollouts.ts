/** GET /rollouts, GET /rollouts/{route} and POST /rollouts/{route}/advance, hold and rollback. */
import { GatewayError } from '../../base/errors.ts'
import { toUsd } from '../../base/money.ts'
import type { RolloutAnswer } from '../../protocol/management/rollouts.ts'
import {
  isFinished,
  isShadowSpent,
  nextStep,
  ROLLED_BACK,
  type RolloutProgress,
  type RolloutState,
  type ShadowTerms,
} from '../../protocol/rollout.ts'
import type { RouteRollout } from '../../protocol/route.ts'
import type { ArmSums, RolloutRecord } from '../../storage/rollouts.ts'
import type { Store } from '../../storage/store.ts'
import type { Handler } from '../operation.ts'
import { audited } from './audit.ts'
import type { ManagementParts } from './parts.ts'

type RolloutParts = Pick<ManagementParts, 'store' | 'rollouts'>

export function listRollouts({ store, rollouts }: RolloutParts): Handler {
  return async (_, reply) => {
    const records = await store.rollouts.list()
    const documents = [...rollouts()].flatMap(([route, { candidate, shadow }]) => {
      const record = records.find(item => item.route === route && item.candidate === candidate.model)
      return record === undefined ? [] : [documentOf(store, record, shadow)]
    })
    const data = await Promise.all(documents)
    reply.json(200, { data, total_count: data.length })
  }
}

export function findRollout(parts: RolloutParts): Handler {
  return async ({ params }, reply) => {
    const { record, rollout } = await requireRollout(parts, params.get('route') ?? '')
    reply.json(200, { data: await documentOf(parts.store, record, rollout.shadow) })
  }
}

/** The moves of an operator: the next state, and the reason that is stored. */
const OPERATOR_MOVES = {
  advance: {
    to: (record: RolloutRecord, { steps }: RouteRollout) => nextStep(steps, record),
    reason: 'an operator advanced it',
  },
  hold: {
    to: ({ step, share }: RolloutRecord) => ({ state: 'holding' as RolloutState, step, share }),
    reason: 'an operator holds it',
  },
  rollback: {
    to: ({ step }: RolloutRecord) => ({ step, ...ROLLED_BACK }),
    reason: 'an operator rolled it back',
  },
} as const
export type RolloutMove = keyof typeof OPERATOR_MOVES

export function moveRollout(parts: ManagementParts, name: RolloutMove): Handler {
  const { clock, changes } = parts
  return async (request, reply) => {
    const { record, rollout } = await requireRollout(parts, request.params.get('route') ?? '')
    // A promoted candidate can still be rolled back.
    if (record.state === 'rolled_back' || (isFinished(record) && name !== 'rollback'))
      throw alreadyFinished(record)
    const { to, reason } = OPERATOR_MOVES[name]
    const nextProgress = { ...to(record, rollout), reason, sinceMs: clock.nowMs() }
    const { route } = record
    const isMoved = await audited(
      parts,
      request,
      `rollout.${name}`,
      verbs => verbs.rollouts.move(record, nextProgress),
      wasMoved => (wasMoved ? { kind: 'rollout', id: route, name: record.candidate } : null),
    )
    if (!isMoved)
      throw new GatewayError(
        'conflict',
        'The rollout has just changed by itself: read GET /v1/rollouts/{route}, and try again',
      )
    changes.publish({ kind: 'rollouts' })
    reply.json(200, { data: await documentOf(parts.store, { ...record, ...nextProgress }, rollout.shadow) })
  }
}

async function requireRollout({ store, rollouts }: RolloutParts, route: string) {
  const rollout = rollouts().get(route)
  const record = rollout === undefined ? null : await store.rollouts.find(route)
  if (rollout === undefined)
    throw new GatewayError(
      'not_found',
      'The configuration has no rollout of this route: GET /v1/rollouts lists all rollouts',
    )
  if (record?.candidate !== rollout.candidate.model)
    throw new GatewayError(
      'not_found',
      'The rollout of this route has not begun yet: try again in a few seconds',
    )
  return { record, rollout }
}

function alreadyFinished({ state }: RolloutProgress): GatewayError {
  return new GatewayError(
    'conflict',
    `The rollout is ${state === 'promoted' ? 'promoted' : 'rolled back'}: name another candidate in the configuration to begin a new one`,
  )
}

async function documentOf(
  { rollouts }: Pick<Store, 'rollouts'>,
  record: RolloutRecord,
  terms: ShadowTerms | null,
): Promise<RolloutAnswer> {
  const { route, candidate, state, step, share, reason } = record
  const sums = await rollouts.sums(record)
  const arms = { base: toArm(sums.base), candidate: toArm(sums.candidate) }
  const summary = { route, candidate, state, step, share, reason }
  if (terms === null) return { ...summary, arms, shadow: null }
  return {
    ...summary,
    arms: { ...arms, shadowed: toArm(sums.shadowed), shadow: toArm(sums.shadow) },
    shadow: {
      share: terms.share,
      requests: record.shadows,
      spent_usd: toUsd(record.shadowSpent),
      budget_usd: toUsd(terms.budget),
      is_spent: isShadowSpent(record, terms),
    },
  }
}

function toArm({
  requests,
  errors,
  firstTokenMs,
  tokensPerSecond,
  cost,
  judged,
  unaccepted,
}: ArmSums): RolloutAnswer['arms']['base'] {
  return {
    requests,
    errors,
    first_token_ms: meanOf(firstTokenMs),
    tokens_per_second: meanOf(tokensPerSecond),
    cost: meanOf(cost),
    judged,
    unaccepted,
  }
}

/** The sums are sums of logarithms. */
function meanOf({ count, sum }: ArmSums['cost']): number | null {
  return count === 0 ? null : Math.exp(sum / count)
}
