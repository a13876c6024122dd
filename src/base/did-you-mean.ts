/** Finds the known word nearest to a mistyped one. Leaf. */
import { distance } from 'fastest-levenshtein'

/** Words that differ in a larger part of their letters are not similar, unless SWAPPED allows it. */
const MAX_DIFFERENT = 1 / 3
/**
 * Two different letters are always allowed, because two swapped ones count as two; in shorter words, where a swap often
 * makes another word, only one.
 */
const SWAPPED = { letters: 2, minChars: 4 } as const

/** The known word nearest to this one; null if none is near. Case and separators are ignored. */
export function nearest(word: string, known: Iterable<string>): string | null {
  const plain = plainOf(word)
  let best: { readonly name: string; readonly far: number } | null = null
  for (const name of known) {
    const other = plainOf(name)
    const least = plain.length < SWAPPED.minChars ? 1 : SWAPPED.letters
    const limit = Math.max(least, Math.floor(Math.max(plain.length, other.length) * MAX_DIFFERENT))
    // The lengths already differ too much. This also bounds the work for hostile words.
    if (Math.abs(plain.length - other.length) > limit) continue
    const far = distance(plain, other)
    if (far <= limit && (best === null || far < best.far)) best = { name, far }
  }
  return best?.name ?? null
}

/** `; did you mean NAME?`, or an empty text: the end of an error message. */
export function didYouMean(word: string, known: Iterable<string>): string {
  const name = nearest(word, known)
  return name === null ? '' : `; did you mean ${name}?`
}

function plainOf(word: string): string {
  return word.toLowerCase().replace(/[-_. ]/g, '')
}
