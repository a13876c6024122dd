/** Suffixes that request a variant of a model, such as `:free`. Pure. */

/** `pipeline/routing/names.ts` says what each asks for. */
const VARIANTS = ['exacto', 'extended', 'floor', 'free', 'nitro', 'online', 'thinking'] as const
export type Variant = (typeof VARIANTS)[number]

/** A publisher's mark for an early model, which asks for nothing. */
const BETA = 'beta'
const SUFFIXES: ReadonlySet<string> = new Set([...VARIANTS, BETA])

/** True for an id that ends in a known suffix; a provider's own names may have colons too. */
export function endsInVariant(id: string): boolean {
  return SUFFIXES.has(id.slice(id.lastIndexOf(':') + 1))
}
