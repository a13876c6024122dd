/** Suffixes that ask for a model in another way, such as `:free`. Pure. */

const VARIANTS: ReadonlySet<string> = new Set([
  'beta',
  'exacto',
  'extended',
  'floor',
  'free',
  'nitro',
  'online',
  'thinking',
])

/** True for an id that ends in a known variant; a provider's own names may have colons too. */
export function endsInVariant(id: string): boolean {
  return VARIANTS.has(id.slice(id.lastIndexOf(':') + 1))
}
