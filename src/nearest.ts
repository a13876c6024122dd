/** Finds the word that a mistyped one was probably meant to be. Leaf. */

/** Words that differ in more than this part of their letters are other words. */
const MAX_DIFFERENT = 1 / 3

/** The known word that is nearest to this one; null if none is near. Case and separators do not count. */
export function nearest(word: string, known: Iterable<string>): string | null {
  const plain = plainOf(word)
  let best: { readonly name: string; readonly distance: number } | null = null
  for (const name of known) {
    const other = plainOf(name)
    const limit = Math.max(1, Math.floor(Math.max(plain.length, other.length) * MAX_DIFFERENT))
    // Too different in length already; this also bounds the work for hostile words.
    if (Math.abs(plain.length - other.length) > limit) continue
    const distance = editDistance(plain, other)
    if (distance <= limit && (best === null || distance < best.distance)) best = { name, distance }
  }
  return best?.name ?? null
}

/** `; did you mean NAME?`, or nothing: goes on after an error message. */
export function didYouMean(word: string, known: Iterable<string>): string {
  const name = nearest(word, known)
  return name === null ? '' : `; did you mean ${name}?`
}

function plainOf(word: string): string {
  return word.toLowerCase().replace(/[-_. ]/g, '')
}

/** Insertions, deletions, replacements and swaps of neighbours that make one word the other. */
function editDistance(from: string, to: string): number {
  let beforeLast: number[] = []
  let last = Array.from({ length: to.length + 1 }, (_, at) => at)
  for (let row = 1; row <= from.length; row++) {
    const current = [row]
    for (let at = 1; at <= to.length; at++) {
      const same = from[row - 1] === to[at - 1]
      let cost = Math.min(cell(last, at) + 1, cell(current, at - 1) + 1, cell(last, at - 1) + (same ? 0 : 1))
      if (row > 1 && at > 1 && from[row - 1] === to[at - 2] && from[row - 2] === to[at - 1]) {
        cost = Math.min(cost, cell(beforeLast, at - 2) + 1)
      }
      current.push(cost)
    }
    beforeLast = last
    last = current
  }
  return cell(last, to.length)
}

function cell(row: readonly number[], at: number): number {
  return row[at] ?? Number.POSITIVE_INFINITY
}
