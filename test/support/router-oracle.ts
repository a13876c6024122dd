/** The documented rules of routers, implemented a second time in a different way, for comparison with the product. */
export interface OracleModel {
  readonly id: string
  /** USD for a token; null: the row has no price. */
  readonly prompt: number | null
  readonly completion: number | null
  readonly coding: number
}

export interface OracleTask {
  readonly inputTokens: number
  readonly outputTokens: number
  readonly level: 'low' | 'medium' | 'high'
  readonly models: Readonly<Record<string, number>>
}

function costIn(model: OracleModel, task: OracleTask): number | null {
  if (model.prompt === null || model.completion === null) return null
  // In 1e-12 USD, so that equal costs are equal.
  return (
    task.inputTokens * Math.round(model.prompt * 1e12) +
    task.outputTokens * Math.round(model.completion * 1e12)
  )
}

/** Percent of the priced models that cost less. */
function percentileIn(model: OracleModel, all: readonly OracleModel[], task: OracleTask): number | null {
  const cost = costIn(model, task)
  if (cost === null) return null
  const costs = all.map(each => costIn(each, task)).filter(each => each !== null)
  return (100 * costs.filter(each => each < cost).length) / costs.length
}

/** A glob with `*`, as a regular expression. */
export function globMatches(pattern: string, id: string): boolean {
  const escaped = pattern.split('*').map(part => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
  return new RegExp(`^${escaped.join('.*')}$`, 's').test(id)
}

interface OracleBand {
  readonly from: number
  readonly to: number
  readonly isClosed: boolean
}

const TIERS = ['low', 'medium', 'high', 'xhigh', 'max']

export function autoBand(settings: { cost_tier?: string; cost_quality_tradeoff?: number }): OracleBand {
  if (settings.cost_tier !== undefined) {
    const at = TIERS.indexOf(settings.cost_tier)
    return { from: 20 * at, to: 20 * at + 20, isClosed: false }
  }
  const tradeoff = settings.cost_quality_tradeoff ?? 9
  return { from: 0, to: 90 - 8 * tradeoff, isClosed: true }
}

/** Inside by share; then the others by distance, the cheaper first; unknown prices last. */
export function bandOrder(
  models: readonly OracleModel[],
  among: readonly OracleModel[],
  task: OracleTask,
  band: OracleBand,
): string[] {
  const share = (model: OracleModel): number => task.models[model.id] ?? 0
  const rows = models.map((model, index) => ({ model, index, at: percentileIn(model, among, task) }))
  const isInside = (at: number | null): boolean =>
    at !== null && at >= band.from && (band.isClosed ? at <= band.to : at < band.to)
  const byShare = (a: (typeof rows)[number], b: (typeof rows)[number]): number =>
    share(b.model) - share(a.model) || a.index - b.index
  const inside = rows.filter(({ at }) => isInside(at)).sort(byShare)
  const unknown = rows.filter(({ at }) => at === null).sort(byShare)
  const outside = rows.filter(({ at }) => at !== null && !isInside(at))
  const distance = (at: number): number => (at < band.from ? band.from - at : at - band.to)
  outside.sort((a, b) => {
    const [of, than] = [a.at ?? 0, b.at ?? 0]
    const apart = distance(of) - distance(than)
    if (Math.abs(apart) > 1e-9) return apart
    return of - than || byShare(a, b)
  })
  return [...inside, ...outside, ...unknown].map(({ model }) => model.id)
}

function priceBy(model: OracleModel, source: string): number {
  if (model.prompt === null || model.completion === null) return Number.POSITIVE_INFINITY
  const [prompt, completion] = [Math.round(model.prompt * 1e12), Math.round(model.completion * 1e12)]
  return source === 'prompt' ? prompt / 1e6 : (3 * prompt + completion) / 4 / 1e6
}

/** The first three. */
export function paretoChoice(
  models: readonly OracleModel[],
  settings: { min_coding_score?: number; max_price?: number; price_source?: string },
): string[] {
  const source = settings.price_source ?? 'prompt'
  const price = (model: OracleModel): number => priceBy(model, source)
  const cap = settings.max_price
  if (cap !== undefined) {
    const under = models.filter(model => price(model) <= cap)
    const dominated = (model: OracleModel): boolean =>
      under.some(
        other =>
          other.coding >= model.coding &&
          price(other) <= price(model) &&
          (other.coding > model.coding || price(other) < price(model)),
      )
    const best = (list: readonly OracleModel[]): OracleModel[] =>
      list.toSorted((a, b) => b.coding - a.coding || price(a) - price(b))
    const ordered = [...best(under.filter(each => !dominated(each))), ...best(under.filter(dominated))]
    return ordered.slice(0, 3).map(({ id }) => id)
  }
  const asked = settings.min_coding_score ?? 1
  const tier = (score: number): number => (score >= 0.66 ? 2 : score >= 0.33 ? 1 : 0)
  const steps =
    [
      [0, 1, 2],
      [1, 2, 0],
      [2, 1, 0],
    ][tier(asked)] ?? []
  for (const step of steps) {
    const found = models.filter(model => tier(model.coding) === step)
    if (found.length === 0) continue
    const sorted = found.toSorted((a, b) => {
      const [of, than] = [price(a), price(b)]
      return of === than ? b.coding - a.coding : of < than ? -1 : 1
    })
    return sorted.slice(0, 3).map(({ id }) => id)
  }
  return []
}

const LEVELS = ['low', 'medium', 'high'] as const

export function jevLevel(task: OracleTask, tier: string | undefined, effort: string | undefined): string {
  if (tier !== undefined) return tier
  const shift = ['high', 'xhigh', 'max'].includes(effort ?? '')
    ? 1
    : ['low', 'minimal', 'none'].includes(effort ?? '')
      ? -1
      : 0
  return LEVELS[Math.min(2, Math.max(0, LEVELS.indexOf(task.level) + shift))] ?? ''
}

export function jevBand(level: string): OracleBand {
  const at = [...LEVELS].map(String).indexOf(level)
  return { from: (100 * at) / 3, to: (100 * (at + 1)) / 3, isClosed: false }
}
