/**
 * What a rollout does next: back, on, or hold. Pure.
 *
 * back: a figure of the candidate is proven worse, and is measured worse by at least half of its guard.
 * on: every guarded figure is proven to be worse by less than its guard; or the time of the step is over, each arm has
 * LEAST_REQUESTS, and nothing is proven or measured against the candidate.
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
  /** The number of steps that compare both arms: all except the step of 100 %. */
  readonly comparedSteps: number
  readonly isTimeOver: boolean
}

/** One figure of both arms. */
interface Compared {
  readonly isProvenWorse: boolean
  readonly isProvenFine: boolean
  /** Worse by at least half of the guard, proven or not. */
  readonly isMeasuredWorse: boolean
  readonly text: string
}

type Figure = Exclude<keyof RolloutGuard, 'errors'>

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

export function decide({ base, candidate }: StepSums, terms: DecisionTerms): Decision {
  const { guard, comparedSteps, isTimeOver } = terms
  const guarded = Object.entries(guard) as [keyof RolloutGuard, number][]
  const alpha = FALSE_ALARMS / (guarded.length * Math.max(1, comparedSteps))
  const all = guarded.map(([figure, limit]) =>
    figure === 'errors'
      ? comparedErrors(base, candidate, limit, alpha)
      : comparedMeans(figure, base[figure], candidate[figure], limit, alpha),
  )
  const worse = all.filter(each => each.isProvenWorse && each.isMeasuredWorse)
  if (worse.length > 0) return { does: 'back', reason: `proven worse: ${textOf(worse)}` }
  if (all.every(each => each.isProvenFine))
    return { does: 'on', reason: `proven within the guard: ${textOf(all)}` }
  const isEnough = Math.min(base.requests, candidate.requests) >= LEAST_REQUESTS
  const against = all.filter(each => each.isProvenWorse || each.isMeasuredWorse)
  if (isTimeOver && isEnough && against.length === 0)
    return { does: 'on', reason: `the time is over, and nothing is against it: ${textOf(all)}` }
  if (against.length > 0) return { does: 'hold', reason: `worse, but not proven: ${textOf(against)}` }
  if (isTimeOver)
    return {
      does: 'hold',
      reason: `needs ${LEAST_REQUESTS} requests in each arm, and has ${base.requests} of the base and ${candidate.requests} of the candidate`,
    }
  return { does: 'hold', reason: `nothing is proven yet: ${textOf(all)}` }
}

function textOf(all: readonly Compared[]): string {
  return all.map(({ text }) => text).join(', ')
}

function comparedErrors(base: ArmSums, candidate: ArmSums, guard: number, alpha: number): Compared {
  const ofBase = shareInterval(base.errors, base.requests, alpha / 2)
  const ofCandidate = shareInterval(candidate.errors, candidate.requests, alpha / 2)
  const [before, after] = [base, candidate].map(({ errors, requests }) => errors / Math.max(1, requests)) as [
    number,
    number,
  ]
  return {
    isProvenWorse: ofCandidate.low > ofBase.high,
    isProvenFine: ofCandidate.high - ofBase.low < guard,
    isMeasuredWorse: after - before >= guard / 2,
    text: `errors ${percent(after)} of ${candidate.requests} against ${percent(before)} of ${base.requests}`,
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
