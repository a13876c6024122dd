/**
 * Finds the model ids nearest to a mistyped one. The work is bounded: ids of very different length are not compared,
 * and recent results are cached, because clients repeat a stale id. Pure.
 */
import { distance } from 'fastest-levenshtein'
import { LRUCache } from 'lru-cache'

const SUGGESTIONS_MAX = 3
/** Longer ids are not compared, because they are not typing errors. */
const ID_MAX_CHARS = 80
/** The maximum part of an id that may differ, with a minimum (two swapped letters) and a maximum of letters. */
const DIFFERENT_MAX_PART = 1 / 4
const DIFFERENT_MIN_CHARS = 2
const DIFFERENT_MAX_CHARS = 4
/** Shorter ids would be similar to all others. */
const ID_MIN_CHARS = 4
const KEPT_ANSWERS = 256

const NONE: readonly string[] = []

/** Creates the search over `ids`, which have the form vendor/model. */
export function createSimilar(ids: readonly string[]): (id: string) => readonly string[] {
  const known = ids.map(id => ({ id, lower: id.toLowerCase(), slug: slugOf(id.toLowerCase()) }))
  const cache = new LRUCache<string, readonly string[]>({ max: KEPT_ANSWERS })
  return id => {
    if (id.length < ID_MIN_CHARS || id.length > ID_MAX_CHARS) return NONE
    let answer = cache.get(id)
    if (answer === undefined) {
      answer = nearest(id.toLowerCase(), known)
      cache.set(id, answer)
    }
    return answer
  }
}

interface KnownName {
  readonly id: string
  readonly lower: string
  readonly slug: string
}

function nearest(name: string, known: readonly KnownName[]): readonly string[] {
  const hasVendor = name.includes('/')
  const limit = Math.min(
    DIFFERENT_MAX_CHARS,
    Math.max(DIFFERENT_MIN_CHARS, Math.floor(name.length * DIFFERENT_MAX_PART)),
  )
  const found: { readonly id: string; readonly edits: number }[] = []
  for (const { id, lower, slug } of known) {
    // An id without a vendor is compared with the part after the vendor.
    const other = hasVendor ? lower : slug
    if (Math.abs(other.length - name.length) > limit) continue
    const edits = distance(name, other)
    if (edits <= limit) found.push({ id, edits })
  }
  return found
    .sort((a, b) => a.edits - b.edits)
    .slice(0, SUGGESTIONS_MAX)
    .map(({ id }) => id)
}

function slugOf(id: string): string {
  return id.slice(id.indexOf('/') + 1)
}
