/** The keeper of rollouts: begins, steps on, takes back, repeats nothing; several instances on one store. */
import t, { type Test } from 'tap'
import type { AlertEvent } from '../../../src/process/alerts/alert-body.ts'
import { RolloutKeeper } from '../../../src/process/services/rollout-keeper.ts'
import type { RouteRollout } from '../../../src/protocol/route.ts'
import { openStore } from '../../../src/storage/open.ts'
import type { Store } from '../../../src/storage/store.ts'
import type { UsageRecord } from '../../../src/storage/usage.ts'
import { TestClock } from '../../support/test-clock.ts'

const HOLD_MS = 60_000

function routes(
  candidate: string | null,
  steps: readonly number[] = [10, 50, 100],
  shadow: RouteRollout['shadow'] = null,
) {
  const target = (model: string) => ({ model, weight: 1, preferences: null, when: [], key: model })
  const rollout: RouteRollout | null =
    candidate === null
      ? null
      : { candidate: target(candidate), steps, holdMs: HOLD_MS, guard: { errors: 0.02 }, shadow }
  return [{ name: 'prod/chat', rollout }]
}

function records(
  arm: 'base' | 'candidate',
  count: number,
  { failed = false, step = 0, candidate = 'acme/new' } = {},
): UsageRecord[] {
  const record = {
    requestedModel: 'prod/chat',
    latencyMs: 900,
    generationMs: 500,
    outputTokens: 50,
    cost: 1_000,
    rollout: { candidate, step, arm, failed },
  }
  return Array.from({ length: count }, () => record as unknown as UsageRecord)
}

async function world(t: Test) {
  const store = await openStore('sqlite::memory:')
  t.teardown(() => store.close())
  const clock = new TestClock()
  const raised: AlertEvent[] = []
  const logged: unknown[] = []
  let moves = 0
  const keeper = (given: ReturnType<typeof routes>, of: Pick<Store, 'rollouts'> = store) => {
    const made = new RolloutKeeper({
      store: of,
      routes: given,
      raise: event => raised.push(event),
      onMove: () => moves++,
      clock,
      log: {
        fault: () => undefined,
        notice: (_, message, fields) => void logged.push({ message, ...fields }),
      },
    })
    t.teardown(() => made.close())
    return made
  }
  return { store, clock, raised, logged, keeper, moves: () => moves }
}

t.test('without a rollout it does nothing at all', async t => {
  const { clock, keeper } = await world(t)
  const idle = keeper(routes(null))
  t.equal(idle.isWanted, false)
  t.equal(clock.armed, 0)
})

t.test('steps on when the time is over and nothing is against it, up to the promotion', async t => {
  const { clock, keeper, moves, raised, store } = await world(t)
  const [one, two] = [keeper(routes('acme/new')), keeper(routes('acme/new'))]
  await Promise.all([one.check(), two.check()])
  t.match(await store.rollouts.list(), [{ state: 'running', step: 0, share: 10 }])
  t.equal(moves(), 1, 'one instance began it')
  one.receive([...records('base', 150), ...records('candidate', 100)])
  two.receive([...records('base', 150), ...records('candidate', 100)])
  await one.check()
  await two.check()
  t.match(one.progress, [{ step: 0, reason: /nothing is proven yet: errors 0.00 % of/ }])
  clock.advance(HOLD_MS)
  await Promise.all([one.check(), two.check()])
  t.match(await store.rollouts.list(), [{ state: 'running', step: 1, share: 50, revision: 2 }])
  one.receive([...records('base', 300, { step: 1 }), ...records('candidate', 300, { step: 1 })])
  clock.advance(HOLD_MS)
  await one.check()
  await two.check()
  t.match(await store.rollouts.list(), [{ state: 'promoted', step: 2, share: 100 }])
  t.match(raised, [{ type: 'rollout.promoted' }, { type: 'rollout.promoted' }])
  t.equal(raised[0]?.window, raised[1]?.window, 'the same alert')
})

t.test(
  'a failing candidate is taken back, also while an operator holds it, and is not tried again',
  async t => {
    const { keeper, logged, raised, store } = await world(t)
    const one = keeper(routes('acme/new'))
    await one.check()
    const [record] = await store.rollouts.list()
    t.ok(record)
    if (record === undefined) return
    await store.rollouts.move(record, { ...record, state: 'holding', reason: 'an operator holds it' })
    one.receive([...records('base', 400), ...records('candidate', 30, { failed: true })])
    await one.check()
    t.match(
      logged,
      [
        { message: 'a rollout has begun' },
        { message: 'a rollout has moved', state: 'holding', share: 10, reason: 'an operator holds it' },
        { message: 'a rollout has moved', state: 'rolled_back', share: 0 },
      ],
      'the moves of operators are logged too',
    )
    t.match(await store.rollouts.list(), [
      { state: 'rolled_back', share: 0, reason: /proven worse: errors 100.00 % of 30 against 0.00 % of 400/ },
    ])
    t.match(raised, [
      { type: 'rollout.rolled_back', object: { kind: 'route', id: 'prod/chat' }, data: { share_before: 10 } },
    ])
    const again = keeper(routes('acme/new'))
    await again.check()
    t.match(await store.rollouts.list(), [{ state: 'rolled_back' }], 'a restart repeats nothing')
    again.receive(records('candidate', 30, { failed: true }))
    again.reconfigure(routes('acme/newer', [25, 100]))
    again.receive(records('candidate', 30, { failed: true }))
    await again.check()
    const [next] = await store.rollouts.list()
    t.match(next, { candidate: 'acme/newer', state: 'running', step: 0, share: 25 })
    t.match(await store.rollouts.sums({ route: 'prod/chat', candidate: 'acme/newer', step: 0 }), {
      candidate: { requests: 0 },
    })
  },
)

t.test('shadows count beside the requests that they repeat, and a spent budget is told once', async t => {
  const { keeper, moves, logged, store } = await world(t)
  const shadow = { share: 50, budget: 1_000 }
  const one = keeper(routes('acme/new', [0, 100], shadow))
  await one.check()
  t.match(await store.rollouts.list(), [{ state: 'running', step: 0, share: 0 }])
  const figures = { latencyMs: 900, generationMs: 500, outputTokens: 50, cost: 1_000 }
  const of = { candidate: 'acme/new', step: 0 }
  const record = (rollout: UsageRecord['rollout']) =>
    ({ ...figures, requestedModel: 'prod/chat', rollout }) as unknown as UsageRecord
  one.receive([
    record({ ...of, arm: 'base', failed: false }),
    record({ ...of, arm: 'shadow', failed: true, shadowed: { ...figures, failed: false } }),
    record({ ...of, arm: 'judged', accepted: { shadowed: true, shadow: false } }),
  ])
  await one.check()
  t.match(await store.rollouts.sums({ route: 'prod/chat', ...of }), {
    base: { requests: 1, judged: 0 },
    candidate: { requests: 0 },
    shadowed: { requests: 1, errors: 0, judged: 1, unaccepted: 0, firstTokenMs: { count: 1 } },
    shadow: { requests: 1, errors: 1, judged: 1, unaccepted: 1, firstTokenMs: { count: 0 } },
  })
  const before = moves()
  const place = { route: 'prod/chat', candidate: 'acme/new' }
  t.ok(await store.rollouts.reserveShadow(place, 900, 1_000, true))
  for (let round = 0; round < 2; round++) {
    t.notOk(await store.rollouts.reserveShadow(place, 200, 1_000, true))
    await one.check()
    t.match((await store.rollouts.find('prod/chat'))?.reason, /; the budget of its shadows is spent$/)
    t.match(one.measured, [{ route: 'prod/chat', shadowUsed: 0.9 }])
    await store.rollouts.settleShadow(place, 0, 0, 0)
    await one.check()
    t.notMatch((await store.rollouts.find('prod/chat'))?.reason, /budget/)
  }
  t.equal(moves() - before, 4, 'threads read each change')
  t.match(logged, [
    { message: 'a rollout has begun' },
    { message: 'the budget of its shadows is spent', spentUsd: 0.9e-9 },
  ])
  t.equal(logged.length, 2)
})

t.test('what the store did not take is added later, once', async t => {
  const { keeper, store } = await world(t)
  let isAway = true
  const away = {
    rollouts: {
      ...store.rollouts,
      add: (sums: Parameters<Store['rollouts']['add']>[0]) =>
        isAway ? Promise.reject(new Error('away')) : store.rollouts.add(sums),
    },
  }
  const one = keeper(routes('acme/new'), away)
  one.receive(records('base', 3))
  await one.check()
  one.receive(records('base', 4))
  isAway = false
  await one.check()
  await one.check()
  t.match(await store.rollouts.sums({ route: 'prod/chat', candidate: 'acme/new', step: 0 }), {
    base: { requests: 7 },
  })
})
