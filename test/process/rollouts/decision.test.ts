/** Decisions of rollouts over simulated requests, with seeds: false alarms, and how soon a worse candidate is taken back. */
import t from 'tap'
import { decide, LEAST_REQUESTS } from '../../../src/process/rollouts/decision.ts'
import { differenceInterval, MEAN_LEAST, shareInterval } from '../../../src/process/rollouts/statistics.ts'
import { addRecord, NO_SUMS } from '../../../src/process/rollouts/sums.ts'
import { ALL_PERCENT, DEFAULT_STEPS, nextStep, type RolloutGuard } from '../../../src/protocol/rollout.ts'

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
    const { does, reason } = decide(
      { base, candidate },
      { guard: GUARD, comparedSteps: COMPARED, isTimeOver },
    )
    if (does !== 'hold') return { does, reason, requests }
  }
  return { does: 'hold' as const, reason: '', requests: most }
}

t.test('of 200 good rollouts over all steps, at most two are taken back', t => {
  let [promoted, back] = [0, 0]
  for (let seed = 1; seed <= RUNS; seed++) {
    const random = randomFrom(seed)
    const world = { seed, errors: { base: 0.02, candidate: 0.02 } }
    let place = nextStep(DEFAULT_STEPS, { share: 0 })
    while (place.state === 'running') {
      const { does } = runStep(random, world, { share: place.share, heldFor: 25_000, most: 60_000 })
      if (does !== 'on') {
        if (does === 'back') back++
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
      const { does, requests } = runStep(randomFrom(seed), world, { share, most })
      if (does === 'back') needed.push(requests)
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
    decide({ base: arm(...base), candidate: arm(...candidate) }, { guard, comparedSteps: 3, isTimeOver })
  t.match(does([0, 0], [0, 0], true), { does: 'hold', reason: /needs 200 requests/ })
  t.match(does([LEAST_REQUESTS, 2], [LEAST_REQUESTS, 2], false), {
    does: 'hold',
    reason: /nothing is proven/,
  })
  t.match(does([LEAST_REQUESTS, 2], [LEAST_REQUESTS, 2], true), { does: 'on', reason: /time is over/ })
  t.match(does([LEAST_REQUESTS, 2], [LEAST_REQUESTS, 7], true), {
    does: 'hold',
    reason: /worse, but not proven/,
  })
  t.match(does([50_000, 500], [50_000, 510], false), { does: 'on', reason: /proven within/ })
  t.match(does([900, 0], [25, 25], false), { does: 'back', reason: /errors 100.00 % of 25/ })
  t.match(
    does([1_000_000, 10_000], [1_000_000, 11_500], false),
    { does: 'on' },
    'worse for certain, but by much less than the guard',
  )
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
  t.equal(differenceInterval(some(MEAN_LEAST - 1), some(10_000), 0.001), null)
  const difference = differenceInterval(some(1_000), some(10_000), 0.001)
  t.ok(difference !== null && difference.low < 0 && difference.high > 0)
  t.end()
})
