/** Default fusion models: from the settings, otherwise chosen by the prices in the catalogue. Pure. */
import { type Model, makesEmbeddings } from '../../../protocol/provider.ts'
import type { Catalog } from '../../../providers/catalog.ts'
import type { FusionSettings } from '../settings.ts'

export type FusionPreset = 'general-high' | 'general-budget' | 'general-fast'

export interface FusionModels {
  /** Ids for the panel; empty: the catalogue has no suitable model. */
  panel(preset: FusionPreset | null): readonly string[]
  /** Id of the analyst in the settings; null: none. */
  readonly analyst: string | null
}

/** Members of a default panel. */
const PANEL_SIZE = 3

export function createFusionModels({
  config: { fusion },
  catalog,
}: {
  readonly config: { readonly fusion: FusionSettings }
  readonly catalog: Pick<Catalog, 'models'>
}): FusionModels {
  return {
    analyst: fusion.analyst,
    panel(preset) {
      if (preset === 'general-budget') {
        return fusion.budgetPanel.length > 0 ? fusion.budgetPanel : byPrice(catalog.models(), 1)
      }
      if (preset === 'general-fast') {
        return fusion.fastPanel.length > 0 ? fusion.fastPanel : byPrice(catalog.models(), 1)
      }
      return fusion.panel.length > 0 ? fusion.panel : byPrice(catalog.models(), -1)
    },
  }
}

/**
 * Models by price, first one of each author. `direction` is 1 for the cheapest first, and -1 for the most expensive
 * first, which are usually the best.
 */
function byPrice(models: readonly Model[], direction: 1 | -1): readonly string[] {
  const ranked = models
    .filter(model => !makesEmbeddings(model) && model.outputModalities.includes('text'))
    .flatMap(({ id, endpoints }) => {
      const [first] = endpoints
      // A free model may be a sample with a small quota, and an unknown price says nothing about quality.
      if (first === undefined || first.pricing.isUnknown === true || first.pricing.completion === 0) return []
      return [
        { id, author: id.slice(0, id.indexOf('/')), price: first.pricing.prompt + first.pricing.completion },
      ]
    })
    .toSorted((a, b) => direction * (a.price - b.price))
  const authors = new Set<string>()
  const firstOfAuthors = ranked.filter(({ author }) => !authors.has(author) && authors.add(author))
  return [...new Set([...firstOfAuthors, ...ranked])].slice(0, PANEL_SIZE).map(({ id }) => id)
}
