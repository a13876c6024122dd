/** How the guide is searched: the same for the index, which is built once, and for the page that asks it. */

/** Ids, hashes and numbers of examples, which nobody looks for. */
const NOISE = /^(?=.*\d)[\da-f]{8,}$|^\d+$|.{41,}/

export const TERMS = {
  fields: ['heading', 'title', 'text'],
  storeFields: ['heading', 'title', 'page'],
  processTerm(term) {
    const word = term.toLowerCase()
    return word.length < 2 || NOISE.test(word) ? null : word
  },
  searchOptions: { boost: { heading: 3, title: 2 }, prefix: true, fuzzy: 0.15, combineWith: 'AND' },
}
