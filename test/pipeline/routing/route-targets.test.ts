/** The choice of a route's target. */
import t from 'tap'
import { Rollouts } from '../../../src/pipeline/routing/rollouts.ts'
import { drawnTargets, type RoutedRequest } from '../../../src/pipeline/routing/route-targets.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'
import { NO_SHADOWS } from '../../../src/protocol/rollout.ts'
import type { Condition, Route, RouteTarget } from '../../../src/protocol/route.ts'
import type { RolloutRecord } from '../../../src/storage/rollouts.ts'

const NOON = Date.UTC(2026, 6, 16, 12, 30)

function target(model: string, weight = 1, when: readonly Condition[] = []): RouteTarget {
  return { model, weight, preferences: null, when, key: JSON.stringify([model, when]) }
}

function route(targets: readonly RouteTarget[], fields: Partial<Route> = {}): Route {
  return { name: 'prod/chat', targets, fallback: [], sticky: 'session', rollout: null, ...fields }
}

function routed(id: string, request: Partial<ResponsesRequest> = {}): RoutedRequest {
  const whole = { model: 'prod/chat', input: 'Hello', ...request } as ResponsesRequest
  return { id, organizationId: 'org', request: whole, inputTokens: () => 500, nowMs: NOON }
}

const chosen = (of: Route, subject: RoutedRequest): string | undefined => drawnTargets(of, subject)[0]?.model

const REQUESTS = 100_000
/** Of all requests. */
const TOLERANCE = 0.005

t.test('100,000 requests follow the weights, whoever stays', t => {
  const weights = { 'a/a': 70, 'b/b': 25, 'c/c': 5, 'd/d': 0 }
  const targets = Object.entries(weights).map(([model, weight]) => target(model, weight))
  for (const sticky of ['none', 'session', 'user'] as const) {
    const of = route(targets, { sticky })
    const counts = new Map<string | undefined, number>()
    for (let n = 0; n < REQUESTS; n++) {
      const model = chosen(of, routed(`gen-${n}`, { session_id: `s-${n}`, user: `u-${n}` }))
      counts.set(model, (counts.get(model) ?? 0) + 1)
    }
    for (const [model, weight] of Object.entries(weights)) {
      const share = (counts.get(model) ?? 0) / REQUESTS
      t.ok(Math.abs(share - weight / 100) <= TOLERANCE, `${sticky} ${model}: ${share}`)
    }
    t.equal(counts.get('d/d'), undefined, 'a weight of 0 is no share')
  }
  t.end()
})

t.test('sessions stay, and a changed weight moves only those that the target wins', t => {
  const before = route([target('a/a', 90), target('b/b', 10)])
  const after = route([target('b/b', 20), target('a/a', 90), target('c/c', 10)])
  let moved = 0
  for (let n = 0; n < 10_000; n++) {
    const request = { session_id: `s-${n}` }
    const first = chosen(before, routed('one', request))
    t.equal(chosen(before, routed('two', { ...request, input: 'More' })), first) || t.end()
    const next = chosen(after, routed('three', request))
    if (next === first) continue
    moved++
    if (next === 'a/a') t.fail(`session ${n} came to a target that won nothing`)
  }
  // b wins 8 points, and c as many.
  t.ok(moved > 1_000 && moved < 2_200, `${moved} of 10,000`)
  t.end()
})

const RECORD = {
  route: 'prod/chat',
  candidate: 'new/n',
  state: 'running',
  reason: '',
  sinceMs: 0,
  ...NO_SHADOWS,
} as const

const rolloutsOf = (now: () => RolloutRecord) =>
  new Rollouts({
    store: { rollouts: { list: async () => [now()] } },
    clock: { after: () => ({ cancel: () => undefined }) },
    log: { fault: () => undefined },
  })

t.test('a rollout: 100,000 requests follow each step, and no session moves inside one, or back', async t => {
  const steps = [1, 10, 50, 100]
  const rollout = { candidate: target('new/n'), steps, holdMs: 1, guard: { errors: 0.02 }, shadow: null }
  const of = route([target('a/a', 3), target('b/b')], { rollout })
  let now: RolloutRecord = { ...RECORD, step: 0, share: 0, revision: 0 }
  const rollouts = rolloutsOf(() => now)
  t.equal(rollouts.of(of), null, 'the Store was not read yet')
  const isTried = (subject: RoutedRequest) => rollouts.of(of)?.part(subject).arm === 'candidate'
  const tried = new Set<number>()
  for (const [step, share] of steps.entries()) {
    now = { ...RECORD, step, share, revision: step }
    await rollouts.refresh()
    let count = 0
    let moved = 0
    for (let n = 0; n < REQUESTS; n++) {
      const session = { session_id: `s-${n}` }
      const isNow = isTried(routed('first', session))
      if (isNow) count++
      if (isNow !== isTried(routed('second', { ...session, input: 'More' }))) moved++
      if (tried.has(n) && !isNow) moved++
      if (isNow) tried.add(n)
    }
    t.ok(Math.abs(count / REQUESTS - share / 100) <= TOLERANCE, `step ${share}: ${count}`)
    t.equal(moved, 0, 'sessions that moved inside the step, or back')
  }
  now = { ...RECORD, state: 'rolled_back', step: 0, share: 0, revision: 9 }
  await rollouts.refresh()
  t.equal(rollouts.of(of), null, 'taken back')
  now = { ...RECORD, candidate: 'older/o', step: 2, share: 50, revision: 10 }
  await rollouts.refresh()
  t.equal(rollouts.of(of), null, 'another candidate of an earlier file')
  t.equal(rollouts.of(route(of.targets)), null)
})

t.test('shadows follow their share too, beside the step, and stop when their budget is spent', async t => {
  const shadow = { share: 20, budget: 1_000 }
  const rollout = {
    candidate: target('new/n'),
    steps: [0, 50, 100],
    holdMs: 1,
    guard: { errors: 0.02 },
    shadow,
  }
  const of = route([target('a/a')], { rollout })
  let now: RolloutRecord = { ...RECORD, step: 0, share: 0, revision: 1 }
  const rollouts = rolloutsOf(() => now)
  const counted = async (record: RolloutRecord) => {
    now = record
    await rollouts.refresh()
    const parts = Array.from({ length: REQUESTS }, (_, n) =>
      rollouts.of(of)?.part(routed('first', { session_id: `s-${n}` })),
    )
    const again = rollouts.of(of)?.part(routed('second', { session_id: 's-7' }))
    t.same(again, parts[7], 'a session is shadowed as a whole, so that it warms the same caches')
    return {
      tried: parts.filter(part => part?.arm === 'candidate').length / REQUESTS,
      shadowed: parts.filter(part => part?.arm === 'base' && part.shadow === 'figures').length / REQUESTS,
    }
  }
  const isAbout = (found: number, share: number) => t.ok(Math.abs(found - share) <= TOLERANCE, `${found}`)
  const atNone = await counted(now)
  t.equal(atNone.tried, 0)
  isAbout(atNone.shadowed, 0.2)
  const atHalf = await counted({ ...now, step: 1, share: 50, revision: 2 })
  isAbout(atHalf.tried, 0.5)
  isAbout(atHalf.shadowed, 0.2)
  const atMost = await counted({ ...now, step: 1, share: 90, revision: 3 })
  isAbout(atMost.tried, 0.9)
  isAbout(atMost.shadowed, 0.1)
  t.equal((await counted({ ...now, shadowRefused: 1_000 })).shadowed, 0, 'spent')
  isAbout((await counted({ ...now, shadowRefused: 999 })).shadowed, 0.1)
})

t.test('organizations, users and unnamed conversations', t => {
  const of = route([target('a/a'), target('b/b')])
  const spread = (subject: (n: number) => RoutedRequest, by = of) =>
    new Set(Array.from({ length: 64 }, (_, n) => chosen(by, subject(n)))).size
  t.equal(
    spread(n => ({ ...routed('x', { session_id: 's' }), organizationId: `org-${n}` })),
    2,
  )
  t.equal(
    spread(n => routed(`${n}`, { session_id: 's' })),
    1,
  )
  t.equal(
    spread(n => routed(`${n}`, { prompt_cache_key: 'k' })),
    1,
  )
  t.equal(
    spread(n => routed(`${n}`)),
    2,
    'requests that begin alike are no conversation',
  )
  const answered: ResponsesRequest['input'] = [
    { type: 'message', role: 'user', content: 'Hello' },
    { type: 'message', role: 'assistant', content: 'Hi' },
  ]
  t.equal(
    spread(n => routed(`${n}`, { input: answered })),
    1,
    'with an answer they are one',
  )
  const byUser = route(of.targets, { sticky: 'user' })
  t.equal(
    spread(n => routed(`${n}`, { user: 'ann', session_id: `${n}` }), byUser),
    1,
  )
  t.equal(
    spread(n => routed(`${n}`, { safety_identifier: 'ann', user: `${n}` }), byUser),
    1,
  )
  t.equal(
    spread(n => routed(`${n}`), byUser),
    2,
  )
  const toNobody = route(of.targets, { sticky: 'none' })
  t.equal(
    spread(n => routed(`${n}`, { session_id: 's' }), toNobody),
    2,
  )
  t.end()
})

t.test('conditions: targets that hold come before those without', t => {
  const image = { type: 'input_image', image_url: 'data:image/png;base64,AAAA' }
  const picture = [
    { type: 'message', role: 'user', content: [image] },
  ] as unknown as ResponsesRequest['input']
  const tools = [{ type: 'function', name: 'f' }] as unknown as NonNullable<ResponsesRequest['tools']>
  const cases: readonly [Condition, Partial<ResponsesRequest>, boolean][] = [
    [{ field: 'input_tokens', op: '>', value: 499 }, {}, true],
    [{ field: 'input_tokens', op: '>', value: 500 }, {}, false],
    [{ field: 'input_tokens', op: '<=', value: 500 }, {}, true],
    [{ field: 'hour', op: '=', value: 12 }, {}, true],
    [{ field: 'hour', op: 'in', value: [8, 9] }, {}, false],
    [{ field: 'tools', op: '=', value: true }, { tools }, true],
    [{ field: 'tools', op: '=', value: true }, {}, false],
    [{ field: 'tools', op: '!=', value: true }, {}, true],
    [{ field: 'images', op: '=', value: true }, { input: picture }, true],
    [{ field: 'images', op: '=', value: true }, {}, false],
    [{ field: 'files', op: '=', value: true }, { input: picture }, false],
    [{ field: 'audio', op: '=', value: false }, { input: picture }, true],
    [{ field: 'tag:tier', op: '=', value: 'gold' }, { metadata: { tier: 'gold' } }, true],
    [{ field: 'tag:tier', op: 'in', value: ['gold', 'blue'] }, { metadata: { tier: 'blue' } }, true],
    [{ field: 'tag:tier', op: '=', value: 'gold' }, {}, false],
    [{ field: 'tag:tier', op: '!=', value: 'gold' }, {}, true],
  ]
  for (const [condition, request, holds] of cases) {
    const of = route([target('usual/a'), target('special/b', 1, [condition])])
    t.same(
      drawnTargets(of, routed('x', request)).map(({ model }) => model),
      [holds ? 'special/b' : 'usual/a'],
      JSON.stringify([condition, request.metadata ?? null]),
    )
  }
  const both = target('special/b', 1, [
    { field: 'hour', op: '=', value: 12 },
    { field: 'tools', op: '=', value: true },
  ])
  t.same(drawnTargets(route([both]), routed('x')), [], 'all conditions have to hold')
  t.end()
})
