/** Imported models and models listed by providers: one list per source. Types only. */

/** A list of models and where it comes from. */
export interface CatalogueSource {
  /** `import`, or `provider:` and the slug of the provider that told it. */
  readonly source: string
  /** Changes with the list. */
  readonly version: string
  /** How many models there are. */
  readonly models: number
  /** The models as JSON; the catalogue knows their form. */
  readonly facts: string
  /** ISO 8601 UTC. */
  readonly updatedAt: string
}

type CatalogueSourceInfo = Omit<CatalogueSource, 'facts'>

/** Lists of models, which all instances share. */
export interface CatalogueStore {
  /** Adds a list, or puts it in the place of the earlier one of its source. */
  put(source: CatalogueSource): Promise<void>
  find(source: string): Promise<CatalogueSource | null>
  /** All of them without their models, by name. */
  list(): Promise<readonly CatalogueSourceInfo[]>
  /** Returns true if there was one. */
  remove(source: string): Promise<boolean>
}
