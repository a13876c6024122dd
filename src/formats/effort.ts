/** Efforts of reasoning and the budgets they stand for: the documented shares, the same at every provider. Pure. */
import type { ResponsesRequest } from '../protocol/request.ts'

type Wished = NonNullable<NonNullable<ResponsesRequest['reasoning']>['effort']>

/** An effort that thinks at all. */
export type Effort = Exclude<Wished, 'none'>

/** The part of the output limit that each effort may spend on thinking. */
export const EFFORT_SHARES: Readonly<Record<Effort, number>> = {
  max: 0.95,
  xhigh: 0.95,
  high: 0.8,
  medium: 0.5,
  low: 0.2,
  minimal: 0.1,
}

/** The offered effort whose share is nearest; of two equally near, the one named first. */
export function nearestEffort(share: number, offered: readonly [Effort, ...Effort[]]): Effort {
  const distance = (effort: Effort): number => Math.abs(EFFORT_SHARES[effort] - share)
  return offered.reduce((best, effort) => (distance(effort) < distance(best) ? effort : best))
}
