/** Imported models and models listed by providers: one list per source. Types only. */

/** A list of models and where it comes from. */
export interface CatalogueSource {
  /** `import`, or `provider:` and the slug of the provider that sent the list. */
  readonly source: string
  /** Changes whenever the list changes. */
  readonly version: string
  /** Number of models. */
  readonly models: number
  /** The models as JSON, in the form that the catalogue reads. */
  readonly facts: string
  /** ISO 8601 UTC. */
  readonly updatedAt: string
}

type CatalogueSourceInfo = Omit<CatalogueSource, 'facts'>

/** Lists of models, which all instances share. */
export interface CatalogueStore {
  /** Adds a list, or replaces the earlier one of the same source. */
  put(source: CatalogueSource): Promise<void>
  find(source: string): Promise<CatalogueSource | null>
  /** All lists without their models, ordered by name. */
  list(): Promise<readonly CatalogueSourceInfo[]>
  /** Returns true if it existed. */
  remove(source: string): Promise<boolean>
}
