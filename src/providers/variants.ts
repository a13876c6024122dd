/** Suffixes that request a variant of a model, such as `:free`. Pure. */

/** `pipeline/routing/names.ts` defines what each suffix requests. */
const VARIANTS = ['exacto', 'extended', 'floor', 'free', 'nitro', 'online', 'thinking'] as const
export type Variant = (typeof VARIANTS)[number]

/** A publisher's mark for an early model. It requests nothing. */
const BETA = 'beta'
const SUFFIXES: ReadonlySet<string> = new Set([...VARIANTS, BETA])

/** True for an id that ends in a known suffix. A provider's own names may contain colons too. */
export function endsInVariant(id: string): boolean {
  return SUFFIXES.has(id.slice(id.lastIndexOf(':') + 1))
}
