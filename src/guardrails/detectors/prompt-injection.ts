/**
 * Prompt injection: the named patterns and the disguises in which they come. Pure. A text that has none of the words
 * that patterns need costs one walk over it.
 */
import { type Detect, type Hit, noShapes, type Shape } from '../detector.ts'
import { encodedRun, SCRAMBLED, spacedRun, unscramble } from './evasions.ts'
import { type Folded, fold, foldedPlace, originalPlace } from './fold.ts'
import { INJECTION_PATTERNS } from './injection-patterns.ts'
import { type Survey, surveyor } from './survey.ts'

const ANY_SCRIPT = '*'

const PATTERNS = INJECTION_PATTERNS.map(({ name, words, source, needs }) => ({
  name,
  needs,
  places: words.filter(word => word !== ANY_SCRIPT),
  inOtherScripts: words.includes(ANY_SCRIPT),
  expression: new RegExp(source, 'g'),
}))
const WORDS = [...new Set(PATTERNS.flatMap(({ places }) => places))]
const BY_PLACE = PATTERNS.map(pattern => ({
  ...pattern,
  places: pattern.places.map(word => WORDS.indexOf(word)),
}))
const survey = surveyor(WORDS, SCRAMBLED)

function namedPatterns(folded: string, { present, hasOtherScripts }: Survey): typeof BY_PLACE {
  return BY_PLACE.filter(
    ({ places, inOtherScripts, needs }) =>
      ((inOtherScripts && hasOtherScripts) ||
        (places.length === 0 && !inOtherScripts) ||
        places.some(place => present[place] === 1)) &&
      needs.test(folded),
  )
}

/** A pattern that is matched against the folded text and tells its places in the original. */
function foldedShape(name: string, expression: RegExp, folded: Folded, searched: string): Shape {
  return {
    find(_text, from): Hit | null {
      expression.lastIndex = foldedPlace(folded, from)
      for (;;) {
        const match = expression.exec(searched)
        if (match === null) return null
        // A pattern may begin with the line break before it.
        const skipped = match[0].length - match[0].trimStart().length
        const start = originalPlace(folded, match.index + skipped)
        if (start >= from && match[0].length > skipped) {
          return { start, end: originalPlace(folded, match.index + match[0].length), name }
        }
      }
    },
  }
}

export const detectPromptInjection: Detect = text => {
  const folded = fold(text)
  const seen = survey(folded.text)
  const shapes = namedPatterns(folded.text, seen).map(({ name, expression }) =>
    foldedShape(name, expression, folded, folded.text),
  )
  const plain = seen.mayScramble ? unscramble(folded.text) : null
  if (plain !== null) {
    for (const { expression } of namedPatterns(plain, survey(plain))) {
      shapes.push(foldedShape('scrambled_words', expression, folded, plain))
    }
  }
  if (seen.mayEncode) shapes.push(ENCODED)
  if (seen.maySpace) {
    shapes.push({
      find(_text, from) {
        const run = spacedRun(folded.text, foldedPlace(folded, from))
        if (run === null) return null
        const [start, end] = [originalPlace(folded, run.start), originalPlace(folded, run.end)]
        return { start, end, name: 'spaced_characters' }
      },
    })
  }
  return shapes.length === 0 ? noShapes() : shapes
}

const ENCODED: Shape = {
  find(text, from) {
    const run = encodedRun(text, from, isHostile)
    return run === null ? null : { ...run, name: 'encoded_instructions' }
  },
}

const isHostile = (decoded: string): boolean =>
  namedPatterns(decoded, survey(decoded)).some(({ expression }) => decoded.search(expression) >= 0)
