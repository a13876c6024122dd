/**
 * Counters and histograms with a very cheap increment. For each value, prom-client builds a key from the labels and
 * checks them; here the hot path looks up its series once, and an increment is one addition. A prom-client registry
 * accepts them like its own. Leaf. Hot path.
 */
import type { Metric, Registry } from 'prom-client'
import type { Exemplar } from './exposition.ts'

type Labels<Label extends string> = Readonly<Record<Label, string>>

interface FamilyOptions<Label extends string> {
  readonly name: string
  readonly help: string
  /**
   * More than three only outside the hot path. Without labels there is one series, which is reported from the start.
   */
  readonly labelNames?: readonly Label[]
  readonly registry: Registry
}

/** One sample in the form of prom-client. */
interface Sample<Label extends string> {
  readonly value: number
  readonly labels: Labels<Label> | (Labels<Label> & { readonly le: string | number })
  readonly metricName?: string
  readonly exemplar?: Exemplar
}

interface Series {
  /** True after the first value; before that the series is not reported. */
  readonly isReported: boolean
  clear(): void
}

/** All series of one metric, by their label values. */
abstract class Family<Label extends string, Entry extends Series> {
  readonly name: string
  readonly help: string
  readonly labelNames: readonly Label[]
  readonly aggregator = 'sum'
  abstract readonly type: string
  /** Keyed by the first label value, then by the others. */
  readonly #byFirst = new Map<string, Map<string, Entry>>()
  readonly #entries: { readonly labels: Labels<Label>; readonly series: Entry }[] = []

  protected constructor({ name, help, labelNames = [] }: FamilyOptions<Label>) {
    this.name = name
    this.help = help
    this.labelNames = labelNames
  }

  protected abstract make(): Entry
  protected abstract samples(labels: Labels<Label>, series: Entry, into: Sample<Label>[]): void

  /** The series of these label values, in the order of the label names; always the same object. */
  of(first = '', second = '', third = ''): Entry {
    let others = this.#byFirst.get(first)
    if (others === undefined) {
      others = new Map()
      this.#byFirst.set(first, others)
    }
    // Label values of the gateway contain no line breaks.
    const key = third === '' ? second : `${second}\n${third}`
    return others.get(key) ?? this.#add(others, key, [first, second, third])
  }

  /** The series of these labels by name, for callers off the hot path. */
  labels(labels: Labels<Label>): Entry {
    const { labelNames } = this
    const [first, second, third] = labelNames
    const last =
      labelNames.length > 3
        ? labelNames
            .slice(2)
            .map(name => labels[name])
            .join('\n')
        : labelOf(labels, third)
    return this.of(labelOf(labels, first), labelOf(labels, second), last)
  }

  /** The samples of a scrape, for prom-client. */
  async get() {
    const values: Sample<Label>[] = []
    for (const { labels, series } of this.#entries) {
      if (series.isReported || this.labelNames.length === 0) this.samples(labels, series, values)
    }
    const { name, help, type, aggregator } = this
    return { name, help, type, values, aggregator }
  }

  /** Sets all series to zero; callers may keep using theirs. */
  reset(): void {
    for (const { series } of this.#entries) series.clear()
  }

  #add(others: Map<string, Entry>, key: string, values: readonly string[]): Entry {
    const series = this.make()
    const { labelNames } = this
    const allValues = labelNames.length > 3 ? values.join('\n').split('\n') : values
    const labels = Object.fromEntries(labelNames.map((name, index) => [name, allValues[index] ?? '']))
    others.set(key, series)
    this.#entries.push({ labels: labels as Labels<Label>, series })
    return series
  }
}

function labelOf<Label extends string>(labels: Labels<Label>, name: Label | undefined): string {
  return name === undefined ? '' : labels[name]
}

/** Registers a family. The library's type is a union of its own classes, but it only uses members of a family. */
function register(registry: Registry, family: object): void {
  registry.registerMetric(family as Metric)
}

/** One series of a counter. */
export class Count implements Series {
  value = 0
  isReported = false

  /** @throws RangeError if `by` is negative or not finite. */
  inc(by = 1): void {
    if (!(by >= 0 && by < Number.POSITIVE_INFINITY)) throw new RangeError(`cannot count ${by}`)
    this.value += by
    this.isReported = true
  }

  clear(): void {
    this.value = 0
    this.isReported = false
  }
}

/** A counter with all its series. */
export class Counter<Label extends string = never> extends Family<Label, Count> {
  readonly type = 'counter'
  readonly #unlabelled: Count | null

  constructor(settings: FamilyOptions<Label>) {
    super(settings)
    this.#unlabelled = this.labelNames.length === 0 ? this.of() : null
    register(settings.registry, this)
  }

  /** Adds to the series of these labels; without labels, to the only series. */
  inc(labels: Labels<Label> | number = 1, by = 1): void {
    if (typeof labels === 'number') this.#unlabelled?.inc(labels)
    else this.labels(labels).inc(by)
  }

  protected make(): Count {
    return new Count()
  }

  protected samples(labels: Labels<Label>, { value }: Count, into: Sample<Label>[]): void {
    into.push({ value, labels })
  }
}

/** One series of a histogram. */
export class Distribution implements Series {
  readonly #bounds: readonly number[]
  /** Count of each bucket alone; the last bucket has no bound. */
  readonly counts: Float64Array
  sum = 0
  count = 0
  /** The newest exemplar of each bucket; null: none at all. */
  #exemplars: (Exemplar | undefined)[] | null = null

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds
    this.counts = new Float64Array(bounds.length + 1)
  }

  get isReported(): boolean {
    return this.count > 0
  }

  /** @throws RangeError if the value is not finite. */
  observe(value: number): void {
    if (!Number.isFinite(value)) throw new RangeError(`cannot observe ${value}`)
    const bounds = this.#bounds
    let bucket = 0
    while (bucket < bounds.length && value > (bounds[bucket] ?? 0)) bucket++
    this.counts[bucket] = (this.counts[bucket] ?? 0) + 1
    this.sum += value
    this.count++
  }

  /** Adds a stored trace in which a value was observed. */
  exemplify(exemplar: Exemplar): void {
    const index = this.#bounds.findIndex(bound => exemplar.value <= bound)
    this.#exemplars ??= Array.from(this.counts, () => undefined)
    this.#exemplars[index === -1 ? this.#bounds.length : index] = exemplar
  }

  /** The exemplar of this bucket. */
  exemplarAt(bucket: number): Exemplar | undefined {
    return this.#exemplars?.[bucket]
  }

  /** Adds a value to each distribution in one pass; NaN adds nothing. `parts`: number of parts per unit. */
  static observeAll(distributions: readonly Distribution[], values: Float64Array, parts: number): void {
    for (let index = 0; index < distributions.length; index++) {
      const value = (values[index] ?? Number.NaN) / parts
      if (!Number.isFinite(value)) continue
      const distribution = distributions[index] as Distribution
      const bounds = distribution.#bounds
      let bucket = 0
      while (bucket < bounds.length && value > (bounds[bucket] ?? 0)) bucket++
      distribution.counts[bucket] = (distribution.counts[bucket] ?? 0) + 1
      distribution.sum += value
      distribution.count++
    }
  }

  clear(): void {
    this.counts.fill(0)
    this.sum = 0
    this.count = 0
    this.#exemplars = null
  }
}

interface HistogramOptions<Label extends string> extends FamilyOptions<Label> {
  /** Ascending upper bounds; a last bucket without a bound is added. */
  readonly buckets: readonly number[]
}

/** A histogram with all its series. */
export class Histogram<Label extends string = never> extends Family<Label, Distribution> {
  readonly type = 'histogram'
  readonly #bounds: readonly number[]
  readonly #unlabelled: Distribution | null

  constructor(settings: HistogramOptions<Label>) {
    super(settings)
    this.#bounds = settings.buckets
    this.#unlabelled = this.labelNames.length === 0 ? this.of() : null
    register(settings.registry, this)
  }

  /** Adds to the series of these labels; without labels, to the only series. */
  observe(labels: Labels<Label> | number, value = 0): void {
    if (typeof labels === 'number') this.#unlabelled?.observe(labels)
    else this.labels(labels).observe(value)
  }

  protected make(): Distribution {
    return new Distribution(this.#bounds)
  }

  protected samples(labels: Labels<Label>, series: Distribution, into: Sample<Label>[]): void {
    const metricName = `${this.name}_bucket`
    let upTo = 0
    for (const [index, le] of [...this.#bounds, '+Inf'].entries()) {
      upTo += series.counts[index] ?? 0
      const exemplar = series.exemplarAt(index)
      const bucket = { metricName, value: upTo, labels: { le, ...labels } }
      into.push(exemplar === undefined ? bucket : { ...bucket, exemplar })
    }
    into.push({ metricName: `${this.name}_sum`, value: series.sum, labels })
    into.push({ metricName: `${this.name}_count`, value: series.count, labels })
  }
}
