/** The declaration of a metric: kind, help, labels and buckets. Leaf. */

interface DeclarationOf<Kind> {
  readonly kind: Kind
  readonly name: string
  readonly help: string
  /** At most three on the hot path. */
  readonly labels: readonly string[]
}

interface CounterDeclaration extends DeclarationOf<'counter'> {
  /** All values of each label, in the order of `labels`. Their series start at zero, so that a first event shows. */
  readonly fromZero?: Readonly<Record<string, readonly string[]>>
}

interface GaugeDeclaration extends DeclarationOf<'gauge'> {
  /** Read for each scrape. The only label is `thread`. */
  readonly read?: () => number
}

interface HistogramDeclaration extends DeclarationOf<'histogram'> {
  /** Ascending upper bounds. */
  readonly buckets: readonly number[]
}

export type Declaration = CounterDeclaration | GaugeDeclaration | HistogramDeclaration
