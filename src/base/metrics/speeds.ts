/**
 * Speed of models: time to the first token and output speed for each pair of model and provider. The first pairs seen
 * have their own series, up to a limit; the others count as `other`. Leaf. Hot path.
 */
import type { Declaration } from './declaration.ts'
import type { Distribution, Histogram } from './series.ts'

/** Pairs of model and provider with their own series, about thirty each. */
export const MAX_PAIRS = 200

/** Seconds. From a small local model to a large one that thinks for minutes. */
const FIRST_TOKEN_BUCKETS = [0.05, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 120]
/** Seconds; 2,000 to 0.4 tokens a second. */
const PER_TOKEN_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5]

export const SPEED_METRICS = {
  modelFirstToken: {
    kind: 'histogram',
    name: 'gateway_model_time_to_first_token_seconds',
    help: 'From sending a streamed request to a provider to its first content, once for each attempt that was answered',
    labels: ['provider', 'model'],
    buckets: FIRST_TOKEN_BUCKETS,
  },
  modelPerToken: {
    kind: 'histogram',
    name: 'gateway_model_time_per_output_token_seconds',
    help: 'Time per output token of an answered attempt: after the first content of a stream, in total for a whole reply',
    labels: ['provider', 'model'],
    buckets: PER_TOKEN_BUCKETS,
  },
} as const satisfies Readonly<Record<string, Declaration>>

/** The series of one model at one provider. */
interface SpeedSeries {
  /** Seconds. */
  readonly firstToken: Distribution
  /** Seconds for each token. */
  readonly perToken: Distribution
}

/** Labels of models and providers that have series of their own. */
export interface PairLabels {
  readonly provider: (slug: string) => string
  readonly model: (id: string) => string
}

/** Finds the entry of a model at a provider. Beyond the limit, all share one entry. */
export class PairLookup<Entry> {
  readonly #labels: PairLabels
  readonly #make: (provider: string, model: string) => Entry
  /** Keyed by slug, then by model id. */
  readonly #known = new Map<string, Map<string, Entry>>()
  #size = 0
  #others: Entry | null = null

  constructor(labels: PairLabels, make: (provider: string, model: string) => Entry) {
    this.#labels = labels
    this.#make = make
  }

  of(provider: string, model: string): Entry {
    return this.#known.get(provider)?.get(model) ?? this.#add(provider, model)
  }

  #add(slug: string, id: string): Entry {
    const provider = this.#labels.provider(slug)
    const model = this.#labels.model(id)
    // Names without their own series may get some with the next catalogue.
    if (provider !== slug || model !== id || this.#size === MAX_PAIRS) {
      this.#others ??= this.#make(OTHER, OTHER)
      return this.#others
    }
    this.#size++
    const models = this.#known.get(slug) ?? new Map<string, Entry>()
    this.#known.set(slug, models)
    const entry = this.#make(provider, model)
    models.set(id, entry)
    return entry
  }
}

/** The label value beyond the limits. */
export const OTHER = 'other'

export function speedSeries(
  provider: string,
  model: string,
  {
    modelFirstToken,
    modelPerToken,
  }: {
    readonly modelFirstToken: Histogram<'provider' | 'model'>
    readonly modelPerToken: Histogram<'provider' | 'model'>
  },
): SpeedSeries {
  return { firstToken: modelFirstToken.of(provider, model), perToken: modelPerToken.of(provider, model) }
}
