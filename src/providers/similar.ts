/**
 * Finds the model ids nearest to a mistyped one. The work is bounded: ids of very different length are not compared,
 * and recent results are cached, because clients repeat a stale id. Pure.
 */
import { distance } from 'fastest-levenshtein'
import { LRUCache } from 'lru-cache'

const SUGGESTIONS_MAX = 3
/** Longer ids are not compared, because they are not typing errors. */
const ID_MAX_CHARS = 80
/** Maximum part of an id that may differ, but at least DIFFERENT_MIN_CHARS (two swapped letters). */
const DIFFERENT_MAX_PART = 1 / 4
const DIFFERENT_MIN_CHARS = 2
const DIFFERENT_MAX_CHARS = 4
/** Shorter ids would be similar to all others. */
const ID_MIN_CHARS = 4
const CACHED_ANSWERS_MAX = 256

const NO_IDS: readonly string[] = []

/** Creates the search over `ids`, which have the form vendor/model. */
export function createSimilar(ids: readonly string[]): (id: string) => readonly string[] {
  const names = ids.map(id => ({ id, lower: id.toLowerCase(), slug: slugOf(id.toLowerCase()) }))
  const cache = new LRUCache<string, readonly string[]>({ max: CACHED_ANSWERS_MAX })
  return id => {
    if (id.length < ID_MIN_CHARS || id.length > ID_MAX_CHARS) return NO_IDS
    let answer = cache.get(id)
    if (answer === undefined) {
      answer = nearest(id.toLowerCase(), names)
      cache.set(id, answer)
    }
    return answer
  }
}

interface CatalogueName {
  readonly id: string
  readonly lower: string
  readonly slug: string
}

function nearest(name: string, names: readonly CatalogueName[]): readonly string[] {
  const hasVendor = name.includes('/')
  const limit = Math.min(
    DIFFERENT_MAX_CHARS,
    Math.max(DIFFERENT_MIN_CHARS, Math.floor(name.length * DIFFERENT_MAX_PART)),
  )
  const matches: { readonly id: string; readonly edits: number }[] = []
  for (const { id, lower, slug } of names) {
    // An id without a vendor is compared with the part after the vendor.
    const compared = hasVendor ? lower : slug
    if (Math.abs(compared.length - name.length) > limit) continue
    const edits = distance(name, compared)
    if (edits <= limit) matches.push({ id, edits })
  }
  return matches
    .sort((a, b) => a.edits - b.edits)
    .slice(0, SUGGESTIONS_MAX)
    .map(({ id }) => id)
}

function slugOf(id: string): string {
  return id.slice(id.indexOf('/') + 1)
}
