/**
 * Tokenizes text for search, in the same way for stored text, queries and every database: lower case, without accents,
 * letters and digits only. Scripts without blanks between words yield pairs of characters. Pure.
 */

const WORD = /[\p{L}\p{N}]+/gu
const COMBINING_MARKS = /\p{M}+/gu
const SCRIPTS_WITHOUT_BLANKS = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]+/gu
/** Longer runs of letters are data, not words; only their beginning is kept. */
const MAX_WORD_CHARS = 64

/** All words of a text, in order. */
export function searchWords(text: string): string[] {
  const plain = text.normalize('NFKD').replaceAll(COMBINING_MARKS, '').toLowerCase()
  const words: string[] = []
  for (const [word] of plain.matchAll(WORD)) {
    const spaced = word.replaceAll(SCRIPTS_WITHOUT_BLANKS, run => {
      words.push(...pairsOf(run))
      return ' '
    })
    for (const part of spaced.split(' ')) if (part !== '') words.push(part.slice(0, MAX_WORD_CHARS))
  }
  return words
}

function pairsOf(run: string): string[] {
  const characters = [...run]
  if (characters.length === 1) return characters
  return characters.slice(1).map((character, index) => `${characters[index]}${character}`)
}
