/**
 * Slugs of routers: names in `model` and `models` that stand for a choice among models, such as `gateway/auto`. Pure.
 * Hot path: every request checks whether its model is one of them.
 */

/** Routers of the gateway are written `gateway/NAME` or `openrouter/NAME`; others have a complete slug. */
const ROUTER_NAMES = [
  'auto',
  'auto-beta',
  'free',
  'fusion',
  'fusion-flash',
  'pareto-code',
  'bodybuilder',
  'nvidia/switchyard',
  'typesafe/jev-router',
] as const
export type RouterName = (typeof ROUTER_NAMES)[number]

interface RouterSlug {
  readonly name: RouterName
  /** Variants with their colons, such as `:nitro`; empty: none. */
  readonly variants: string
}

const ROUTER_SLUGS: ReadonlyMap<string, RouterSlug> = new Map(
  ROUTER_NAMES.flatMap(name => {
    const slug: RouterSlug = { name, variants: '' }
    const spellings = name.includes('/') ? [name] : [`gateway/${name}`, `openrouter/${name}`]
    return spellings.map(spelling => [spelling, slug] as const)
  }),
)

/** The router that a model name stands for; null: it names a model. */
export function routerSlug(model: string): RouterSlug | null {
  const exactMatch = ROUTER_SLUGS.get(model)
  if (exactMatch !== undefined) return exactMatch
  const colon = model.indexOf(':')
  if (colon === -1) return null
  const router = ROUTER_SLUGS.get(model.slice(0, colon))
  return router === undefined ? null : { name: router.name, variants: model.slice(colon) }
}

interface NamedModels {
  readonly model?: string
  readonly models?: readonly string[]
}

/** The first router in a request, with its spelling there; null: only models. */
export function routerOf({ model, models }: NamedModels): (RouterSlug & { readonly slug: string }) | null {
  const modelRouter = model === undefined ? null : routerSlug(model)
  if (modelRouter !== null) return { ...modelRouter, slug: model ?? '' }
  if (models === undefined) return null
  for (const slug of models) {
    const router = routerSlug(slug)
    if (router !== null) return { ...router, slug }
  }
  return null
}

/** The name of a model with the variants of a router; a variant is not added twice. */
export function withVariants(id: string, variants: string): string {
  const missingVariants = variants
    .split(':')
    .filter(variant => variant !== '' && !id.split(':').includes(variant, 1))
  return [id, ...missingVariants].join(':')
}
