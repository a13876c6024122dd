/**
 * The parts of a configuration that a plan compares: settings without secrets, prices of models, routes. The Store has
 * the snapshot with which a gateway was last started or reloaded. Pure.
 */
import type { Pricing } from '../../protocol/provider.ts'
import type { Route } from '../../protocol/route.ts'
import type { Catalog } from '../../providers/catalog.ts'
import { type Config, SETTINGS } from '../config/settings.ts'
import { withoutSecrets } from '../config/without-secrets.ts'

export interface PricedEndpoint {
  /** Slug of the provider. */
  readonly provider: string
  readonly pricing: Pricing
}

export interface Snapshot {
  readonly settings: Readonly<Record<string, unknown>>
  /** The endpoints of each model, by its id. */
  readonly models: Readonly<Record<string, readonly PricedEndpoint[]>>
  readonly routes: readonly Route[]
}

/** Compared separately, or set only by the environment, which a command does not share with the gateway. */
const EXCLUDED_PATHS: ReadonlySet<string> = new Set([
  'models',
  'routes',
  ...SETTINGS.flatMap(({ path, notes }) => (notes.environmentOnly === true ? (path[0] ?? []) : [])),
])

export function snapshotOf(config: Config, catalog: Catalog): Snapshot {
  const settings = Object.fromEntries(Object.entries(config).filter(([name]) => !EXCLUDED_PATHS.has(name)))
  return {
    // In the form of JSON, because the Store keeps JSON.
    settings: JSON.parse(JSON.stringify(withoutSecrets(settings))) as Snapshot['settings'],
    models: Object.fromEntries(
      catalog
        .models()
        .map(({ id, endpoints }) => [
          id,
          endpoints.map(({ provider: { slug: provider }, pricing }) => ({ provider, pricing })),
        ]),
    ),
    routes: catalog.routes().flatMap(({ route }) => route ?? []),
  }
}
