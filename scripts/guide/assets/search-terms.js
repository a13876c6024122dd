/** Search rules of the guide, shared by the index, which is built once, and the page that queries it. */

/** Ids, hashes and numbers of examples, which nobody looks for; but statuses of errors. */
const NOISE = /^(?=.*\d)[\da-f]{8,}$|^(?![45]\d\d$)\d+$|.{41,}/

/** Pages for those who change Sluice: they come after the pages for those who use it. */
const OF_MAKERS = /^(?:decisions|repository|architecture)\b/
const MAKERS_BOOST = 0.3

export const TERMS = {
  fields: ['heading', 'title', 'text'],
  storeFields: ['heading', 'title', 'page'],
  processTerm(term) {
    const word = term.toLowerCase()
    return word.length < 2 || NOISE.test(word) ? null : word
  },
  searchOptions: {
    boost: { heading: 3, title: 2 },
    boostDocument: (_id, _term, { page }) => (OF_MAKERS.test(page) ? MAKERS_BOOST : 1),
    prefix: true,
    fuzzy: 0.15,
    combineWith: 'AND',
  },
}

/** Places with all of the words, or, where there is none, with some of them. */
export function searched(index, words) {
  const all = index.search(words)
  return all.length > 0 ? all : index.search(words, { combineWith: 'OR' })
}
