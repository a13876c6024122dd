/**
 * Prompt injection: named patterns, plain or disguised. Pure. One walk over the folded text finds which patterns and
 * disguises to try; a text without any of their words costs only this walk.
 */
import { type Detect, type Hit, noShapes, type Shape } from '../detector.ts'
import {
  encodedRun,
  type FoldedText,
  fold,
  foldedPosition,
  originalPosition,
  SCRAMBLED,
  spacedRun,
  unscramble,
} from './evasions.ts'
import { INJECTION_PATTERNS } from './injection-patterns.ts'

interface Survey {
  /** By index of a word start: 1 if a word of the text begins with it. */
  readonly present: Uint8Array
  /** True if there is a run of sixteen or more base64 characters, or many pairs in a row. */
  readonly mayEncode: boolean
  readonly maySpace: boolean
  readonly mayScramble: boolean
  /** True if the text has letters of scripts other than Latin and similar ones. */
  readonly hasOtherScripts: boolean
}

const RUN_MIN_CHARS = 16
const PAIRS_MIN = 8
const SINGLES_MIN = 6

/** Packs the first four characters of a word into one number. */
function packedHead(text: string, start: number, end: number): number {
  let packed = 0
  for (let position = start; position < start + 4; position++)
    packed = (packed << 7) | (position < end ? text.charCodeAt(position) : 0)
  return packed
}

/** `starts`: the first four letters of words, or short words. `disguised`: words to find with scrambled middles. */
function surveyor(starts: readonly string[], disguised: readonly string[]): (folded: string) => Survey {
  const indexes = new Map(starts.map((word, index) => [packedHead(word, 0, word.length), index]))
  const ends = new Set(disguised.map(word => endsOf(word, 0, word.length)))
  return folded => {
    const present = new Uint8Array(starts.length)
    let mayEncode = false
    let mayScramble = false
    let maySpace = false
    let hasOtherScripts = false
    let pairs = 0
    let singles = 0
    let runStart = -1
    let wordStart = -1
    const end = folded.length
    for (let position = 0; position <= end; position++) {
      const code = position < end ? folded.charCodeAt(position) : 32
      const isLetter = code >= 97 && code <= 122
      if (isLetter) {
        if (wordStart < 0) wordStart = position
        if (runStart < 0) runStart = position
        continue
      }
      if (wordStart >= 0) {
        const index = indexes.get(packedHead(folded, wordStart, position))
        if (index !== undefined) present[index] = 1
        if (position - wordStart >= 6 && ends.has(endsOf(folded, wordStart, position))) mayScramble = true
        wordStart = -1
      }
      if (code > 0x2ff) hasOtherScripts = true
      // Digits, and the signs + - / = _
      if ((code >= 47 && code <= 57) || code === 43 || code === 45 || code === 61 || code === 95) {
        if (runStart < 0) runStart = position
      } else if (runStart >= 0) {
        const run = position - runStart
        runStart = -1
        if (run >= RUN_MIN_CHARS) mayEncode = maySpace = true
        pairs = run === 2 ? pairs + 1 : 0
        singles = run === 1 ? singles + 1 : 0
        if (pairs >= PAIRS_MIN) mayEncode = true
        if (singles >= SINGLES_MIN) maySpace = true
      }
    }
    return { present, mayEncode, maySpace, mayScramble, hasOtherScripts }
  }
}

const endsOf = (text: string, start: number, end: number): number =>
  (text.charCodeAt(start) << 16) | (text.charCodeAt(end - 1) << 8) | (end - start)

const ANY_SCRIPT = '*'

const PATTERNS = INJECTION_PATTERNS.map(({ name, words, source, needs }) => ({
  name,
  needs,
  starts: words.filter(word => word !== ANY_SCRIPT),
  inOtherScripts: words.includes(ANY_SCRIPT),
  expression: new RegExp(source, 'g'),
}))
const WORD_STARTS = [...new Set(PATTERNS.flatMap(({ starts }) => starts))]
const PATTERNS_BY_WORD = PATTERNS.map(pattern => ({
  ...pattern,
  starts: pattern.starts.map(word => WORD_STARTS.indexOf(word)),
}))
const survey = surveyor(WORD_STARTS, SCRAMBLED)

function namedPatterns(folded: string, { present, hasOtherScripts }: Survey): typeof PATTERNS_BY_WORD {
  return PATTERNS_BY_WORD.filter(
    ({ starts, inOtherScripts, needs }) =>
      ((inOtherScripts && hasOtherScripts) ||
        (starts.length === 0 && !inOtherScripts) ||
        starts.some(index => present[index] === 1)) &&
      needs.test(folded),
  )
}

/** A pattern that is matched against the folded text and reports positions in the original. */
function foldedShape(name: string, expression: RegExp, folded: FoldedText, searchedText: string): Shape {
  return {
    find(_text, from): Hit | null {
      expression.lastIndex = foldedPosition(folded, from)
      for (;;) {
        const match = expression.exec(searchedText)
        if (match === null) return null
        // A match may begin with a line break, which is not part of the finding.
        const leadingBlanks = match[0].length - match[0].trimStart().length
        const start = originalPosition(folded, match.index + leadingBlanks)
        if (start >= from && match[0].length > leadingBlanks) {
          return { start, end: originalPosition(folded, match.index + match[0].length), name }
        }
      }
    },
  }
}

export const detectPromptInjection: Detect = text => {
  const folded = fold(text)
  const surveyed = survey(folded.text)
  const shapes = namedPatterns(folded.text, surveyed).map(({ name, expression }) =>
    foldedShape(name, expression, folded, folded.text),
  )
  const unscrambled = surveyed.mayScramble ? unscramble(folded.text) : null
  if (unscrambled !== null) {
    for (const { expression } of namedPatterns(unscrambled, survey(unscrambled))) {
      shapes.push(foldedShape('scrambled_words', expression, folded, unscrambled))
    }
  }
  if (surveyed.mayEncode) shapes.push(ENCODED)
  if (surveyed.maySpace) {
    shapes.push({
      find(_text, from) {
        const run = spacedRun(folded.text, foldedPosition(folded, from))
        if (run === null) return null
        const [start, end] = [originalPosition(folded, run.start), originalPosition(folded, run.end)]
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
