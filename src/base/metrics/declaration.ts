/** The declaration of a metric: kind, help, labels and buckets. Leaf. */

interface DeclarationOf<Kind> {
  readonly kind: Kind
  readonly name: string
  readonly help: string
  /** At most three on the hot path. */
  readonly labels: readonly string[]
  /**
   * Label values whose series start at zero, in every combination, so that a first event shows as an increase. A label
   * with other values too (a route), or with none here (a provider), starts with its first event: then all combinations
   * of the other labels start at zero with it.
   */
  readonly fromZero?: Readonly<Record<string, readonly string[]>>
}

interface GaugeDeclaration extends DeclarationOf<'gauge'> {
  /** Called for each scrape. The only label is `thread`. */
  readonly read?: () => number
}

interface HistogramDeclaration extends DeclarationOf<'histogram'> {
  /** Ascending upper bounds. */
  readonly buckets: readonly number[]
}

export type Declaration = DeclarationOf<'counter'> | GaugeDeclaration | HistogramDeclaration
