/**
 * The next move of a rollout: back, on, or hold. Pure.
 *
 * Requests of callers are compared with each other, and shadows with the requests that they repeat, never one with the
 * other: only plain requests are shadowed, so that the two are of different kinds.
 *
 * back: a figure of the candidate is proven worse, and is measured worse by at least half of its guard.
 * on: every guarded figure is proven to be worse by less than its guard in one of the comparisons, and nothing is against
 * the candidate in the other; or the time of the step is over, the arms of one comparison have LEAST_REQUESTS each, and
 * nothing is proven or measured against the candidate.
 * hold: everything else.
 */
import type { RolloutGuard } from '../../protocol/rollout.ts'
import type { ArmSums, StepSums } from '../../storage/rollouts.ts'
import { differenceInterval, type LogSums, meanOf, shareInterval } from './statistics.ts'

/** The chance that a candidate that is no worse is ever rolled back, over all steps and figures of a rollout. */
export const FALSE_ALARMS = 0.01
/** Requests of each arm without which time alone does not move a rollout. */
export const LEAST_REQUESTS = 200

export interface Decision {
  readonly does: 'back' | 'on' | 'hold'
  /** In words, with the figures. */
  readonly reason: string
}

export interface DecisionTerms {
  readonly guard: RolloutGuard
  /** True if requests are shadowed. */
  readonly isShadowed: boolean
  /** The number of steps that compare both arms: all except the step of 100 %. */
  readonly comparedSteps: number
  readonly isTimeOver: boolean
}

/** Two arms that are compared. */
interface Pair {
  readonly base: ArmSums
  readonly candidate: ArmSums
  readonly isOfShadows: boolean
}

/** One figure of both arms. */
interface Compared {
  readonly isProvenWorse: boolean
  readonly isProvenFine: boolean
  /** Worse by at least half of the guard, proven or not. */
  readonly isMeasuredWorse: boolean
  readonly text: string
}

type Share = 'errors' | 'judged'
type Figure = Exclude<keyof RolloutGuard, Share>

/** How the logarithms of a figure become its guard's unit. */
const FIGURES: Readonly<
  Record<
    Figure,
    {
      /** 1: more is worse; -1: less is worse. */
      readonly sign: 1 | -1
      /** The difference of logarithms, positive if worse, that the guard stands for. `base`: the mean of the base. */
      readonly logOf: (guard: number, base: number) => number
      readonly shown: (value: number) => string
      readonly name: string
    }
  >
> = {
  firstTokenMs: {
    sign: 1,
    logOf: (guard, base) => Math.log1p(guard / Math.exp(base)),
    shown: value => `${Math.round(value)} ms`,
    name: 'first token',
  },
  tokensPerSecond: {
    sign: -1,
    logOf: guard => -Math.log1p(-guard),
    shown: value => `${value.toPrecision(3)}/s`,
    name: 'tokens',
  },
  cost: {
    sign: 1,
    logOf: guard => Math.log1p(guard),
    shown: value => `${value.toPrecision(3)} USD`,
    name: 'cost',
  },
}

export function decide(
  sums: StepSums,
  { guard, isShadowed, comparedSteps, isTimeOver }: DecisionTerms,
): Decision {
  const { base, candidate, shadowed, shadow } = sums
  const callers: Pair = { base, candidate, isOfShadows: false }
  const shadows: Pair = { base: shadowed, candidate: shadow, isOfShadows: true }
  const pairs = isShadowed ? [callers, shadows] : [callers]
  const guarded = Object.entries(guard) as [keyof RolloutGuard, number][]
  const tests = guarded.flatMap(([figure, limit]) =>
    pairs.filter(pair => figure !== 'judged' || pair.isOfShadows).map(pair => ({ figure, limit, pair })),
  )
  const alpha = FALSE_ALARMS / (tests.length * Math.max(1, comparedSteps))
  const all = tests.map(({ figure, limit, pair }) => ({
    ...compared(figure, limit, pair, alpha),
    figure,
    isOfShadows: pair.isOfShadows,
    isKnown: pair.candidate.requests > 0,
  }))
  const worse = all.filter(each => each.isProvenWorse && each.isMeasuredWorse)
  if (worse.length > 0) return { does: 'back', reason: `proven worse: ${textOf(worse)}` }
  const known = all.some(each => each.isKnown) ? all.filter(each => each.isKnown) : all
  const against = all.filter(each => each.isProvenWorse || each.isMeasuredWorse)
  const isFine = (figure: keyof RolloutGuard) => all.some(each => each.figure === figure && each.isProvenFine)
  if (
    guarded.every(([figure]) => isFine(figure)) &&
    all.every(each => each.isProvenFine || !against.includes(each))
  )
    return { does: 'on', reason: `proven within the guard: ${textOf(known)}` }
  const missing = missingSamples(pairs, guard)
  if (isTimeOver && missing === null && against.length === 0)
    return { does: 'on', reason: `the time is over, and nothing is against it: ${textOf(known)}` }
  if (against.length > 0) return { does: 'hold', reason: `worse, but not proven: ${textOf(against)}` }
  if (isTimeOver && missing !== null) return { does: 'hold', reason: missing }
  return { does: 'hold', reason: `nothing is proven yet: ${textOf(known)}` }
}

/** The samples that are missing before a step is taken because its time is over; null: there are enough. */
function missingSamples(pairs: readonly Pair[], { judged }: RolloutGuard): string | null {
  const [callers, shadows] = pairs
  if (!pairs.some(({ base, candidate }) => Math.min(base.requests, candidate.requests) >= LEAST_REQUESTS)) {
    const has = `needs ${LEAST_REQUESTS} requests in each arm, and has ${callers?.base.requests} and ${callers?.candidate.requests}`
    return shadows === undefined ? has : `${has}; or as many shadows, and has ${shadows.candidate.requests}`
  }
  const answers = shadows?.candidate.judged ?? 0
  return judged === undefined || answers >= LEAST_REQUESTS
    ? null
    : `needs ${LEAST_REQUESTS} judged answers, and has ${answers}`
}

function textOf(all: readonly (Compared & { readonly isOfShadows: boolean })[]): string {
  const textFor = (isOfShadows: boolean) =>
    all
      .filter(each => each.isOfShadows === isOfShadows)
      .map(({ text }) => text)
      .join(', ')
  const [callers, shadows] = [textFor(false), textFor(true)]
  if (shadows === '') return callers
  return `${callers === '' ? '' : `${callers}; `}shadows: ${shadows}`
}

function compared(figure: keyof RolloutGuard, limit: number, pair: Pair, alpha: number): Compared {
  const { base, candidate } = pair
  return figure === 'errors' || figure === 'judged'
    ? comparedShares(SHARES[figure], base, candidate, limit, alpha)
    : comparedMeans(figure, base[figure], candidate[figure], limit, alpha)
}

/** Shares of a number of requests. */
const SHARES: Readonly<
  Record<Share, { readonly name: string; readonly all: keyof Counts; readonly bad: keyof Counts }>
> = {
  errors: { name: 'errors', all: 'requests', bad: 'errors' },
  judged: { name: 'not acceptable', all: 'judged', bad: 'unaccepted' },
}
type Counts = Pick<ArmSums, 'requests' | 'errors' | 'judged' | 'unaccepted'>

function comparedShares(
  { name, all, bad }: (typeof SHARES)[Share],
  base: Counts,
  candidate: Counts,
  guard: number,
  alpha: number,
): Compared {
  const ofBase = shareInterval(base[bad], base[all], alpha / 2)
  const ofCandidate = shareInterval(candidate[bad], candidate[all], alpha / 2)
  const [before, after] = [base, candidate].map(arm => arm[bad] / Math.max(1, arm[all])) as [number, number]
  return {
    isProvenWorse: ofCandidate.low > ofBase.high,
    isProvenFine: ofCandidate.high - ofBase.low < guard,
    isMeasuredWorse: after - before >= guard / 2,
    text: `${name} ${percent(after)} of ${candidate[all]} against ${percent(before)} of ${base[all]}`,
  }
}

function percent(share: number): string {
  return `${(100 * share).toFixed(2)} %`
}

const UNKNOWN = { isProvenWorse: false, isProvenFine: false, isMeasuredWorse: false } as const

function comparedMeans(
  figure: Figure,
  base: LogSums,
  candidate: LogSums,
  guard: number,
  alpha: number,
): Compared {
  const { name, shown, sign, logOf } = FIGURES[figure]
  const difference = differenceInterval(base, candidate, alpha)
  if (difference === null) return { ...UNKNOWN, text: `${name} not known yet` }
  const least = sign === 1 ? difference.low : -difference.high
  const most = sign === 1 ? difference.high : -difference.low
  const mean = meanOf(base)
  return {
    isProvenWorse: least > 0,
    isProvenFine: most < logOf(guard, mean),
    isMeasuredWorse: sign * difference.measured >= logOf(guard / 2, mean),
    text: `${name} ${shown(Math.exp(meanOf(candidate)))} against ${shown(Math.exp(mean))}`,
  }
}
