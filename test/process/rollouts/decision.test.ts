/** Decisions of rollouts over simulated requests, with seeds: false alarms, and how soon a worse candidate is taken back. */
import t from 'tap'
import { decide, MIN_REQUESTS } from '../../../src/process/rollouts/decision.ts'
import {
  differenceInterval,
  MEAN_MIN_REQUESTS,
  shareInterval,
} from '../../../src/process/rollouts/statistics.ts'
import { additionsOf, addRecord, NO_SUMS } from '../../../src/process/rollouts/sums.ts'
import {
  ALL_PERCENT,
  DEFAULT_STEPS,
  type EndedRollout,
  nextStep,
  type RolloutFigures,
  type RolloutGuard,
} from '../../../src/protocol/rollout.ts'

const RUNS = 200
/** How often the sums are looked at. */
const LOOK_EVERY = 100
const GUARD: RolloutGuard = { errors: 0.02, firstTokenMs: 100, tokensPerSecond: 0.1, cost: 0.1 }
const COMPARED = DEFAULT_STEPS.filter(step => step < ALL_PERCENT).length

interface World {
  readonly seed: number
  /** Shares of failures. */
  readonly errors: { readonly base: number; readonly candidate: number }
  /** Times of the candidate's first token, in those of the base. */
  readonly slower?: number
}

interface StepTerms {
  readonly share: number
  /** Requests after which the time of the step is over; infinite: it never is. */
  readonly heldFor?: number
  readonly most: number
}

type Random = () => number

/** Mulberry32: the same numbers for the same seed. */
function randomFrom(seed: number): Random {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

const normal = (random: Random): number =>
  Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random())

/** Runs one step until something is decided. */
function runStep(
  random: Random,
  { errors, slower = 1 }: World,
  { share, heldFor = Number.POSITIVE_INFINITY, most }: StepTerms,
) {
  let [base, candidate] = [NO_SUMS, NO_SUMS]
  for (let requests = 1; requests <= most; requests++) {
    const isTried = random() * ALL_PERCENT < share
    const failed = random() < (isTried ? errors.candidate : errors.base)
    const generationMs = 2_000
    const record = {
      latencyMs: generationMs + 500 * Math.exp(0.5 * normal(random)) * (isTried ? slower : 1),
      generationMs,
      outputTokens: Math.ceil(200 * Math.exp(0.3 * normal(random))),
      cost: Math.ceil(1e9 * Math.exp(0.5 * normal(random))),
    }
    if (isTried) candidate = addRecord(candidate, record, failed)
    else base = addRecord(base, record, failed)
    if (requests % LOOK_EVERY > 0) continue
    const isTimeOver = requests >= heldFor
    const { move, reason } = decide(
      { base, candidate, shadowed: NO_SUMS, shadow: NO_SUMS },
      { guard: GUARD, isShadowed: false, comparedSteps: COMPARED, isTimeOver },
    )
    if (move !== 'hold') return { move, reason, requests }
  }
  return { move: 'hold' as const, reason: '', requests: most }
}

t.test('of 200 good rollouts over all steps, at most two are taken back', t => {
  let [promoted, back] = [0, 0]
  for (let seed = 1; seed <= RUNS; seed++) {
    const random = randomFrom(seed)
    const world = { seed, errors: { base: 0.02, candidate: 0.02 } }
    let place = nextStep(DEFAULT_STEPS, { share: 0 })
    while (place.state === 'running') {
      const { move } = runStep(random, world, { share: place.share, heldFor: 25_000, most: 60_000 })
      if (move !== 'on') {
        if (move === 'back') back++
        break
      }
      place = nextStep(DEFAULT_STEPS, place)
    }
    if (place.state === 'promoted') promoted++
  }
  t.comment(`${promoted} promoted, ${back} taken back`)
  t.ok(back <= 2, `${back} false alarms`)
  t.ok(promoted >= 0.95 * RUNS, `${promoted} promoted`)
  t.end()
})

/** As docs/rollouts.md promises. */
const PROMISED = [
  { name: '2 points more errors, half of the requests', share: 50, most: 20_000, errors: 0.03, slower: 1 },
  { name: '2 points more errors, a tenth of the requests', share: 10, most: 45_000, errors: 0.03, slower: 1 },
  {
    name: 'a first token 20 % slower, half of the requests',
    share: 50,
    most: 2_000,
    errors: 0.01,
    slower: 1.2,
  },
  {
    name: 'a first token 20 % slower, a tenth of the requests',
    share: 10,
    most: 5_000,
    errors: 0.01,
    slower: 1.2,
  },
  { name: 'a first token 20 % slower, a hundredth', share: 1, most: 50_000, errors: 0.01, slower: 1.2 },
] as const

for (const { name, share, most, errors, slower } of PROMISED) {
  t.test(`taken back within ${most} requests: ${name}`, t => {
    const needed: number[] = []
    for (let seed = 1; seed <= RUNS; seed++) {
      const world = { seed, errors: { base: 0.01, candidate: errors }, slower }
      const { move, requests } = runStep(randomFrom(seed), world, { share, most })
      if (move === 'back') needed.push(requests)
    }
    needed.sort((one, other) => one - other)
    t.comment(`${needed.length} of ${RUNS}, half of them within ${needed[needed.length >> 1]}`)
    t.ok(needed.length >= RUNS - 4, `${needed.length} of ${RUNS}`)
    t.end()
  })
}

t.test('the rule: what time alone moves, and what it does not', t => {
  const arm = (requests: number, errors: number) => ({ ...NO_SUMS, requests, errors })
  const guard = { errors: 0.02 }
  const does = (base: [number, number], candidate: [number, number], isTimeOver: boolean) =>
    decide(
      { base: arm(...base), candidate: arm(...candidate), shadowed: NO_SUMS, shadow: NO_SUMS },
      { guard, isShadowed: false, comparedSteps: 3, isTimeOver },
    )
  t.match(does([0, 0], [0, 0], true), { move: 'hold', reason: /needs 200 requests/ })
  t.match(does([MIN_REQUESTS, 2], [MIN_REQUESTS, 2], false), {
    move: 'hold',
    reason: /nothing is proven/,
  })
  t.match(does([MIN_REQUESTS, 2], [MIN_REQUESTS, 2], true), { move: 'on', reason: /time is over/ })
  t.match(does([MIN_REQUESTS, 2], [MIN_REQUESTS, 7], true), {
    move: 'hold',
    reason: /worse, but not proven/,
  })
  t.match(does([50_000, 500], [50_000, 510], false), { move: 'on', reason: /proven within/ })
  t.match(does([900, 0], [25, 25], false), { move: 'back', reason: /errors 100.00 % of 25/ })
  t.match(
    does([1_000_000, 10_000], [1_000_000, 11_500], false),
    { move: 'on' },
    'worse for certain, but by much less than the guard',
  )
  t.end()
})

interface ShadowWorld {
  readonly guard: RolloutGuard
  readonly errors: number
  /** The share of the candidate's answers that the judge does not accept; that of the base is 5 %. */
  readonly unaccepted: number
}

/** One step of shadows alone, with requests of other kinds beside them that nobody shadows. */
function runShadows(seed: number, { guard, errors, unaccepted }: ShadowWorld, most: number) {
  const random = randomFrom(seed)
  let sums = { base: NO_SUMS, candidate: NO_SUMS, shadowed: NO_SUMS, shadow: NO_SUMS }
  const figures = (times: number) => ({
    latencyMs: 2_000 + times * 500 * Math.exp(0.5 * normal(random)),
    generationMs: 2_000,
    outputTokens: Math.ceil(200 * Math.exp(0.3 * normal(random))),
    cost: Math.ceil(times * 1e9 * Math.exp(0.5 * normal(random))),
  })
  const add = (record: RolloutFigures, rollout: EndedRollout) => {
    for (const { arm, add } of additionsOf(record, rollout)) sums = { ...sums, [arm]: add(sums[arm]) }
  }
  const of = { candidate: 'acme/new', step: 0 }
  for (let shadows = 1; shadows <= most; shadows++) {
    // Requests with tools cost a tenth here: compared with them, every shadow would look dear and slow.
    for (let n = 0; n < 3; n++) add(figures(0.1), { ...of, arm: 'base', failed: false })
    const shadowed = { ...figures(1), failed: random() < 0.02 }
    add(shadowed, { ...of, arm: 'base', failed: shadowed.failed })
    add(figures(1), { ...of, arm: 'shadow', failed: random() < errors, shadowed })
    if (guard.judged !== undefined) {
      const accepted = { shadowed: random() >= 0.05, shadow: random() >= unaccepted }
      add(figures(1), { ...of, arm: 'judged', accepted })
    }
    if (shadows % LOOK_EVERY > 0) continue
    const isTimeOver = shadows === most
    const { move, reason } = decide(sums, {
      guard,
      isShadowed: true,
      comparedSteps: COMPARED + 1,
      isTimeOver,
    })
    if (move !== 'hold') return { move, reason, shadows }
  }
  return { move: 'hold' as const, reason: '', shadows: most }
}

t.test('shadows of a good candidate: none of 200 is taken back, though other requests are cheaper', t => {
  const outcomes = Array.from({ length: RUNS }, (_, seed) =>
    runShadows(seed + 1, { guard: { ...GUARD, judged: 0.1 }, errors: 0.02, unaccepted: 0.05 }, 3_000),
  )
  const [on, back] = ['on', 'back'].map(each => outcomes.filter(({ move }) => move === each).length)
  t.comment(`${on} went on, ${back} were taken back`)
  t.equal(back, 0)
  t.ok(Number(on) >= RUNS - 4)
  t.end()
})

t.test('shadows alone take a worse candidate back: 200 of 200', t => {
  const worlds = [
    { errors: 0.1, unaccepted: 0.05, says: /^proven worse: shadows: errors / },
    { errors: 0.02, unaccepted: 0.2, says: /^proven worse: shadows: not acceptable / },
  ]
  for (const { errors, unaccepted, says } of worlds) {
    const needed: number[] = []
    for (let seed = 1; seed <= RUNS; seed++) {
      const { move, reason, shadows } = runShadows(
        seed,
        { guard: { ...GUARD, judged: 0.05 }, errors, unaccepted },
        3_000,
      )
      if (move === 'back') needed.push(shadows)
      if (!says.test(reason)) t.fail(reason)
    }
    needed.sort((one, other) => one - other)
    t.comment(`half of them within ${needed[needed.length >> 1]}, all within ${needed.at(-1)}`)
    t.equal(needed.length, RUNS)
  }
  t.end()
})

t.test('the rule with shadows: time needs enough of them, and of judged answers', t => {
  const arm = (requests: number, judged: number) => ({ ...NO_SUMS, requests, judged })
  const does = (requests: number, judged: number, callers = 0) =>
    decide(
      {
        base: arm(50_000, 0),
        candidate: arm(callers, 0),
        shadowed: arm(requests, judged),
        shadow: arm(requests, judged),
      },
      { guard: { errors: 0.02, judged: 0.05 }, isShadowed: true, comparedSteps: 3, isTimeOver: true },
    )
  t.match(does(100, 0), {
    move: 'hold',
    reason: 'needs 200 requests in each arm, and has 50000 and 0; or as many shadows, and has 100',
  })
  t.match(does(200, 199), { move: 'hold', reason: 'needs 200 judged answers, and has 199' })
  t.match(does(200, 200), {
    move: 'on',
    reason: /^the time is over, .*: shadows: errors .*, not acceptable /,
  })
  t.match(does(0, 0, 300), { move: 'hold', reason: 'needs 200 judged answers, and has 0' })
  t.end()
})

t.test('intervals of shares are exact at the borders and hold the truth at every moment', t => {
  t.same(shareInterval(0, 0, 0.01), { low: 0, high: 1 })
  t.equal(shareInterval(0, 50, 0.01).low, 0)
  t.equal(shareInterval(50, 50, 0.01).high, 1)
  let misses = 0
  for (let seed = 1; seed <= 500; seed++) {
    const random = randomFrom(seed)
    let errors = 0
    for (let requests = 1; requests <= 1_000; requests++) {
      if (random() < 0.05) errors++
      if (requests % 20 > 0) continue
      const { low, high } = shareInterval(errors, requests, 0.05)
      if (low <= 0.05 && high >= 0.05) continue
      misses++
      break
    }
  }
  t.ok(misses <= 25, `${misses} of 500 left the interval at some moment`)
  t.end()
})

t.test('a difference of means needs enough requests of both', t => {
  const some = (count: number) => ({ count, sum: count, squares: 2 * count })
  t.equal(differenceInterval(some(MEAN_MIN_REQUESTS - 1), some(10_000), 0.001), null)
  const difference = differenceInterval(some(1_000), some(10_000), 0.001)
  t.ok(difference !== null && difference.low < 0 && difference.high > 0)
  t.end()
})
