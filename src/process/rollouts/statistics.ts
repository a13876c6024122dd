/**
 * Always-valid statistics: intervals that hold at every moment at once, so that a rollout may be checked after each
 * request without more false alarms. Pure.
 *
 * Errors: for each arm, the exact confidence sequence from a beta-binomial mixture (Robbins 1970; Howard, Ramdas,
 * McAuliffe, Sekhon 2021, "Time-uniform, nonparametric, nonasymptotic confidence sequences").
 * Means: the asymptotic confidence sequence from Robbins' normal mixture (Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas
 * 2021, "Time-uniform central limit theory and asymptotic confidence sequences", theorem 2.2), for the difference of two
 * means.
 */

/** Sums of the logarithms of a figure. */
export interface LogSums {
  readonly count: number
  readonly sum: number
  readonly squares: number
}

export interface Interval {
  readonly low: number
  readonly high: number
}

/** The mixture: a beta distribution, whose weight is on small shares of errors. Any fixed one is exact. */
const PRIOR = { errors: 1, others: 15 } as const
const BISECTIONS = 50

/** The shares of errors that are possible after `errors` of `requests`: wrong at any time with probability `alpha`. */
export function shareInterval(errors: number, requests: number, alpha: number): Interval {
  if (requests === 0) return { low: 0, high: 1 }
  const others = requests - errors
  const mixed =
    logBeta(PRIOR.errors + errors, PRIOR.others + others) -
    logBeta(PRIOR.errors, PRIOR.others) +
    Math.log(alpha)
  // A share is possible if the mixture does not explain the requests 1 / alpha times better.
  const isPossible = (share: number): boolean =>
    times(errors, Math.log(share)) + times(others, Math.log1p(-share)) > mixed
  const errorShare = errors / requests
  return {
    low: errors === 0 ? 0 : bisect(0, errorShare, isPossible),
    high: others === 0 ? 1 : bisect(1, errorShare, isPossible),
  }
}

/** 0 × -∞ is 0 here: an outcome that did not occur adds nothing. */
function times(count: number, logarithm: number): number {
  return count === 0 ? 0 : count * logarithm
}

/** The border between `outside`, which is not possible, and `inside`, which is. */
function bisect(outside: number, inside: number, isPossible: (share: number) => boolean): number {
  let [out, within] = [outside, inside]
  for (let step = 0; step < BISECTIONS; step++) {
    const middle = (out + within) / 2
    if (isPossible(middle)) within = middle
    else out = middle
  }
  return out
}

/** The number of requests for which the interval of a difference is narrowest. */
const NARROWEST_AT = 300
/** The theorem is about many requests: with fewer in an arm, nothing is proven. */
export const MEAN_MIN_REQUESTS = 100

/**
 * The difference of the means of logarithms, candidate minus base: wrong at any time with probability `alpha`. Null:
 * too few requests.
 */
export function differenceInterval(
  base: LogSums,
  candidate: LogSums,
  alpha: number,
): (Interval & { readonly estimate: number }) | null {
  if (Math.min(base.count, candidate.count) < MEAN_MIN_REQUESTS) return null
  const estimate = meanOf(candidate) - meanOf(base)
  const variance = varianceOf(base) / base.count + varianceOf(candidate) / candidate.count
  const requests = 1 / (1 / base.count + 1 / candidate.count)
  const logAlpha = -2 * Math.log(alpha)
  const spread = (requests * (logAlpha + Math.log(logAlpha + 1))) / NARROWEST_AT
  const radius = Math.sqrt(variance * (1 + 1 / spread) * (Math.log(spread + 1) + logAlpha))
  return { estimate, low: estimate - radius, high: estimate + radius }
}

export function meanOf({ count, sum }: LogSums): number {
  return sum / count
}

function varianceOf({ count, sum, squares }: LogSums): number {
  return Math.max(0, squares - (sum * sum) / count) / (count - 1)
}

function logBeta(a: number, b: number): number {
  return logGamma(a) + logGamma(b) - logGamma(a + b)
}

/** Below this the argument is raised, because Stirling's series is for large ones. */
const STIRLING_MIN = 10

/** Stirling's series. For positive arguments. */
function logGamma(argument: number): number {
  let [raised, correction] = [argument, 0]
  for (; raised < STIRLING_MIN; raised++) correction -= Math.log(raised)
  const inverse = 1 / raised
  const square = inverse * inverse
  const series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
  return correction + (raised - 0.5) * Math.log(raised) - raised + Math.log(2 * Math.PI) / 2 + series
}
