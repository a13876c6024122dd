/**
 * Orders models by cost tier. Models inside the tier are ordered by share, the others follow by their distance from it.
 * If no model is inside, the nearest models take their place. Pure.
 */
export interface CostedModel {
  readonly id: string
  /** Cost of an average generation; null if unknown. */
  readonly cost: number | null
  /** Share of the money spent on the task. */
  readonly share: number
}

/** A range of percentiles of cost. */
export interface Band {
  readonly from: number
  readonly to: number
  /** True if `to` is included. */
  readonly isClosed: boolean
}

type CostTier = 'low' | 'medium' | 'high' | 'xhigh' | 'max'

export const TIER_BANDS: Readonly<Record<CostTier, Band>> = {
  low: { from: 0, to: 20, isClosed: false },
  medium: { from: 20, to: 40, isClosed: false },
  high: { from: 40, to: 60, isClosed: false },
  xhigh: { from: 60, to: 80, isClosed: false },
  max: { from: 80, to: 100, isClosed: false },
}

/** The band of `cost_quality_tradeoff`, which only has a ceiling: 0 is the 90th percentile of cost, 10 the 10th. */
export function ceilingOf(tradeoff: number): Band {
  return { from: 0, to: 90 - 8 * tradeoff, isClosed: true }
}

export interface BandOrder {
  /** All models, first choice first. */
  readonly ids: readonly string[]
  /** Number of models in the band, or of those that replace it. */
  readonly top: number
}

interface BandDistance {
  readonly model: CostedModel
  /** Percentage of the models with a known cost that cost less; infinite if its own cost is unknown. */
  readonly percentile: number
  readonly distance: number
}

/** Returns a function that finds the percentile of a cost among these models; infinite if the cost is unknown. */
export function percentilesOf(models: readonly CostedModel[]): (cost: number | null) => number {
  const costs = models.flatMap(({ cost }) => (cost === null ? [] : [cost])).sort((a, b) => a - b)
  const cheaper = new Map<number, number>()
  for (const [rank, cost] of costs.entries()) if (!cheaper.has(cost)) cheaper.set(cost, rank)
  return cost => (cost === null ? Number.POSITIVE_INFINITY : (100 * (cheaper.get(cost) ?? 0)) / costs.length)
}

/**
 * Orders models by band. Models of equal standing keep their order. `percentileModels`: the models whose costs define
 * the percentiles.
 */
export function orderByBand(
  models: readonly CostedModel[],
  band: Band,
  percentileModels = models,
): BandOrder {
  const percentileOf = percentilesOf(percentileModels)
  const distances = models.map((model): BandDistance => {
    const percentile = percentileOf(model.cost)
    return { model, percentile, distance: distanceFrom(band, percentile) }
  })
  distances.sort(
    (a, b) =>
      compare(a.distance, b.distance) ||
      // Two models at the same distance may be on different sides of the band: the cheaper one is first.
      (isIn(band, a.percentile) ? 0 : compare(a.percentile, b.percentile)) ||
      compare(b.model.share, a.model.share),
  )
  const nearest = distances[0]?.distance ?? 0
  return {
    ids: distances.map(({ model }) => model.id),
    top: distances.filter(({ distance }) => distance === nearest).length,
  }
}

function isIn({ from, to, isClosed }: Band, percentile: number): boolean {
  return percentile >= from && (isClosed ? percentile <= to : percentile < to)
}

/** Distances are rounded to this fraction, so that equal ones on both sides of the band are equal. */
const DISTANCE_STEP = 1e-9

/** 0 inside the band; above 0 outside, even at its open end. */
function distanceFrom(band: Band, percentile: number): number {
  if (isIn(band, percentile)) return 0
  if (percentile === Number.POSITIVE_INFINITY) return percentile
  const distance = percentile < band.from ? band.from - percentile : percentile - band.to
  return Math.max(DISTANCE_STEP, Math.round(distance / DISTANCE_STEP) * DISTANCE_STEP)
}

/** Compares two numbers; equal infinities are equal. */
export function compare(a: number, b: number): number {
  return a === b ? 0 : a < b ? -1 : 1
}
