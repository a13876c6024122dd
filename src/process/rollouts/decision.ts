/**
 * The next move of a rollout: back, on, or hold. Pure.
 *
 * Requests of callers are compared with each other, and shadows with the requests that they repeat, never one with the
 * other: only plain requests are shadowed, so that the two are of different kinds.
 *
 * back: a figure of the candidate is proven worse, and is measured worse by at least half of its guard.
 * on: every guarded figure is proven to be worse by less than its guard in one of the comparisons, and nothing is against
 * the candidate in the other; or the time of the step is over, the arms of one comparison have MIN_REQUESTS each (and
 * with a guard of the judge, as many answers were judged), and nothing is proven or measured against the candidate.
 * hold: everything else.
 */
import type { RolloutGuard } from '../../protocol/rollout.ts'
import type { ArmSums, StepSums } from '../../storage/rollouts.ts'
import { differenceInterval, type LogSums, meanOf, shareInterval } from './statistics.ts'

/** The chance that a candidate that is no worse is ever rolled back, over all steps and figures of a rollout. */
export const FALSE_ALARMS = 0.01
/** Requests of each arm without which time alone does not move a rollout. */
export const MIN_REQUESTS = 200

export interface Decision {
  readonly move: 'back' | 'on' | 'hold'
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
interface Comparison {
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
      readonly format: (value: number) => string
      readonly name: string
    }
  >
> = {
  firstTokenMs: {
    sign: 1,
    logOf: (guard, base) => Math.log1p(guard / Math.exp(base)),
    format: value => `${Math.round(value)} ms`,
    name: 'first token',
  },
  tokensPerSecond: {
    sign: -1,
    logOf: guard => -Math.log1p(-guard),
    format: value => `${value.toPrecision(3)}/s`,
    name: 'tokens',
  },
  cost: {
    sign: 1,
    logOf: guard => Math.log1p(guard),
    format: value => `${value.toPrecision(3)} USD`,
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
  const comparisons = tests.map(({ figure, limit, pair }) => ({
    ...compare(figure, limit, pair, alpha),
    figure,
    isOfShadows: pair.isOfShadows,
    isKnown: pair.candidate.requests > 0,
  }))
  const worse = comparisons.filter(comparison => comparison.isProvenWorse && comparison.isMeasuredWorse)
  if (worse.length > 0) return { move: 'back', reason: `proven worse: ${textOf(worse)}` }
  const knownComparisons = comparisons.some(comparison => comparison.isKnown)
    ? comparisons.filter(each => each.isKnown)
    : comparisons
  const adverse = comparisons.filter(comparison => comparison.isProvenWorse || comparison.isMeasuredWorse)
  const isFine = (figure: keyof RolloutGuard) =>
    comparisons.some(comparison => comparison.figure === figure && comparison.isProvenFine)
  if (
    guarded.every(([figure]) => isFine(figure)) &&
    comparisons.every(comparison => comparison.isProvenFine || !adverse.includes(comparison))
  )
    return { move: 'on', reason: `proven within the guard: ${textOf(knownComparisons)}` }
  const shortage = missingSamples(pairs, guard)
  if (isTimeOver && shortage === null && adverse.length === 0)
    return { move: 'on', reason: `the time is over, and nothing is against it: ${textOf(knownComparisons)}` }
  if (adverse.length > 0) return { move: 'hold', reason: `worse, but not proven: ${textOf(adverse)}` }
  if (isTimeOver && shortage !== null) return { move: 'hold', reason: shortage }
  return { move: 'hold', reason: `nothing is proven yet: ${textOf(knownComparisons)}` }
}

/** The samples that are missing before a step is taken because its time is over; null: there are enough. */
function missingSamples(pairs: readonly Pair[], { judged }: RolloutGuard): string | null {
  const [callers, shadows] = pairs
  if (!pairs.some(({ base, candidate }) => Math.min(base.requests, candidate.requests) >= MIN_REQUESTS)) {
    const has = `needs ${MIN_REQUESTS} requests in each arm, and has ${callers?.base.requests} and ${callers?.candidate.requests}`
    return shadows === undefined ? has : `${has}; or as many shadows, and has ${shadows.candidate.requests}`
  }
  const answers = shadows?.candidate.judged ?? 0
  return judged === undefined || answers >= MIN_REQUESTS
    ? null
    : `needs ${MIN_REQUESTS} judged answers, and has ${answers}`
}

function textOf(comparisons: readonly (Comparison & { readonly isOfShadows: boolean })[]): string {
  const textFor = (isOfShadows: boolean) =>
    comparisons
      .filter(comparison => comparison.isOfShadows === isOfShadows)
      .map(({ text }) => text)
      .join(', ')
  const [callers, shadows] = [textFor(false), textFor(true)]
  if (shadows === '') return callers
  return `${callers === '' ? '' : `${callers}; `}shadows: ${shadows}`
}

function compare(figure: keyof RolloutGuard, limit: number, pair: Pair, alpha: number): Comparison {
  const { base, candidate } = pair
  return figure === 'errors' || figure === 'judged'
    ? compareShares(SHARES[figure], base, candidate, limit, alpha)
    : compareMeans(figure, base[figure], candidate[figure], limit, alpha)
}

/** Shares of a number of requests. */
const SHARES: Readonly<
  Record<Share, { readonly name: string; readonly all: keyof Counts; readonly bad: keyof Counts }>
> = {
  errors: { name: 'errors', all: 'requests', bad: 'errors' },
  judged: { name: 'not acceptable', all: 'judged', bad: 'unaccepted' },
}
type Counts = Pick<ArmSums, 'requests' | 'errors' | 'judged' | 'unaccepted'>

function compareShares(
  { name, all, bad }: (typeof SHARES)[Share],
  base: Counts,
  candidate: Counts,
  guard: number,
  alpha: number,
): Comparison {
  const baseInterval = shareInterval(base[bad], base[all], alpha / 2)
  const candidateInterval = shareInterval(candidate[bad], candidate[all], alpha / 2)
  const [before, after] = [base, candidate].map(arm => arm[bad] / Math.max(1, arm[all])) as [number, number]
  return {
    isProvenWorse: candidateInterval.low > baseInterval.high,
    isProvenFine: candidateInterval.high - baseInterval.low < guard,
    isMeasuredWorse: after - before >= guard / 2,
    text: `${name} ${percent(after)} of ${candidate[all]} against ${percent(before)} of ${base[all]}`,
  }
}

function percent(share: number): string {
  return `${(100 * share).toFixed(2)} %`
}

const UNKNOWN_COMPARISON = { isProvenWorse: false, isProvenFine: false, isMeasuredWorse: false } as const

function compareMeans(
  figure: Figure,
  base: LogSums,
  candidate: LogSums,
  guard: number,
  alpha: number,
): Comparison {
  const { name, format, sign, logOf } = FIGURES[figure]
  const difference = differenceInterval(base, candidate, alpha)
  if (difference === null) return { ...UNKNOWN_COMPARISON, text: `${name} not known yet` }
  const minWorse = sign === 1 ? difference.low : -difference.high
  const maxWorse = sign === 1 ? difference.high : -difference.low
  const mean = meanOf(base)
  return {
    isProvenWorse: minWorse > 0,
    isProvenFine: maxWorse < logOf(guard, mean),
    isMeasuredWorse: sign * difference.estimate >= logOf(guard / 2, mean),
    text: `${name} ${format(Math.exp(meanOf(candidate)))} against ${format(Math.exp(mean))}`,
  }
}
