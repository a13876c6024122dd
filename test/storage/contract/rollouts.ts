/** The contract of rollouts: one instance moves them, all of them add to their sums. */
import type { Test } from 'tap'
import { NO_SHADOWS } from '../../../src/protocol/rollout.ts'
import type { ArmSums, NewSums, RolloutRecord } from '../../../src/storage/rollouts.ts'
import type { Opened } from '../contract.ts'

const RECORD: RolloutRecord = {
  route: 'prod/chat',
  candidate: 'acme/new',
  state: 'running',
  step: 0,
  share: 0.5,
  reason: 'has begun',
  revision: 1,
  sinceMs: 1_800_000_000_123,
  ...NO_SHADOWS,
}

const figure = (count: number) => ({ count, sum: count * 6.5, squares: count * 43.25 })

function sums(requests: number, errors: number): ArmSums {
  return {
    requests,
    errors,
    firstTokenMs: figure(requests),
    tokensPerSecond: figure(requests + 1),
    cost: { count: requests, sum: -6.5, squares: 43.25 },
    judged: requests,
    unaccepted: errors,
  }
}

function added(arm: NewSums['arm'], of: ArmSums, fields: Partial<NewSums> = {}): NewSums {
  return { route: RECORD.route, candidate: RECORD.candidate, step: 0, arm, sums: of, ...fields }
}

export async function rolloutContract(t: Test, opened: Opened): Promise<void> {
  await t.test('a rollout begins once, and moves once from each revision', async t => {
    const { rollouts } = await opened(t)
    t.equal(await rollouts.find(RECORD.route), null)
    const begun = await Promise.all([rollouts.begin(RECORD, null), rollouts.begin(RECORD, null)])
    t.same(begun.toSorted(), [false, true])
    t.same(await rollouts.list(), [RECORD])
    const to = { state: 'running', step: 1, share: 10, reason: 'on', sinceMs: 1_800_000_060_000 } as const
    const moved = await Promise.all([rollouts.move(RECORD, to), rollouts.move(RECORD, to)])
    t.same(moved.toSorted(), [false, true])
    const now = { ...RECORD, ...to, revision: 2 }
    t.same(await rollouts.find(RECORD.route), now)
    await rollouts.explain(RECORD, 'of an older revision')
    await rollouts.explain(now, 'nothing is proven yet')
    t.equal((await rollouts.find(RECORD.route))?.reason, 'nothing is proven yet')
  })

  await t.test('the budget of shadows is never overdrawn, and a spent one is noted', async t => {
    const { rollouts } = await opened(t)
    await rollouts.begin(RECORD, null)
    const budget = 9_000_000_000_000_000
    const part = budget / 10
    const all = await Promise.all(
      Array.from({ length: 25 }, () => rollouts.reserveShadow(RECORD, part, budget, false)),
    )
    t.equal(all.filter(Boolean).length, 10)
    t.match(await rollouts.find(RECORD.route), { shadows: 0, shadowSpent: budget, shadowRefused: 0 })
    await rollouts.settleShadow(RECORD, 3 * part, 0, 0)
    t.equal(await rollouts.reserveShadow(RECORD, 4 * part, budget, true), false)
    t.match(await rollouts.find(RECORD.route), { shadowRefused: 0 }, 'smaller ones still fit')
    t.equal(await rollouts.reserveShadow(RECORD, 3 * part, budget, true), true)
    t.equal(await rollouts.reserveShadow(RECORD, part, budget, true), false)
    t.match(await rollouts.find(RECORD.route), { shadowRefused: budget })
    await rollouts.settleShadow(RECORD, part, 1, 1)
    await rollouts.settleShadow(RECORD, part, 2, 0)
    t.match(await rollouts.find(RECORD.route), {
      shadows: 1,
      shadowSpent: budget - 2 * part + 3,
      shadowRefused: 0,
    })
    t.equal(await rollouts.reserveShadow(RECORD, 2 * part - 2, budget, true), false, 'a little too much')
    t.equal(await rollouts.reserveShadow(RECORD, 2 * part - 3, budget, true), true)
    const other = { ...RECORD, candidate: 'acme/newer', revision: 2 }
    t.equal(await rollouts.begin(other, RECORD), true)
    await rollouts.settleShadow(RECORD, part, 1, 1)
    await rollouts.settleShadow(other, part, 1, 1)
    t.match(await rollouts.find(RECORD.route), { shadows: 0, shadowSpent: 0 }, 'nothing of an earlier one')
  })

  await t.test('sums of all instances add up by step and arm, and go with their rollout', async t => {
    const { rollouts } = await opened(t)
    await rollouts.begin(RECORD, null)
    await rollouts.add([])
    await Promise.all([
      rollouts.add([added('base', sums(9, 1)), added('candidate', sums(1, 0))]),
      rollouts.add([added('base', sums(90, 2)), added('base', sums(5, 5), { step: 1 })]),
    ])
    const { base, candidate } = await rollouts.sums(RECORD)
    t.match(base, {
      requests: 99,
      errors: 3,
      judged: 99,
      unaccepted: 3,
      firstTokenMs: figure(99),
      tokensPerSecond: { count: 101 },
    })
    t.match(base.cost, { count: 99, sum: -13, squares: 86.5 })
    t.same(candidate, sums(1, 0))
    t.match(await rollouts.sums({ ...RECORD, step: 1 }), {
      base: { requests: 5 },
      candidate: { requests: 0 },
    })
    const next = { ...RECORD, candidate: 'acme/newer', revision: 2 }
    t.equal(await rollouts.begin(next, { ...RECORD, revision: 7 }), false, 'somebody has moved it')
    t.equal(await rollouts.begin(next, RECORD), true)
    t.same(await rollouts.list(), [next])
    t.match(await rollouts.sums(RECORD), { base: { requests: 0 } })
  })
}
