/**
 * User-defined patterns: checks that each one runs in linear time, and searches text for them. Pure. RE2 syntax, time
 * linear in the text. Patterns that are proved linear in V8 run there, one by one. For all others, one automaton finds
 * which patterns occur, and only those are then matched one by one; two of them cost hardly more than one.
 */
import { RE2JS, RE2JSSyntaxException, RE2Set } from 're2js'
import { kindOf } from '../../exchange/masks.ts'
import { FILTER_PATTERN_MAX_CHARS, FILTERS_MAX_POSITIONS } from '../../protocol/limits.ts'
import { type CustomRule, type Detect, type Lane, noShapes, type Shape } from './detector.ts'
import { nativePattern } from './expressions/engine.ts'
import { PATTERN_MAX_POSITIONS, readPattern } from './pattern-syntax.ts'

/** The positions of the patterns in one list that were checked so far. */
interface PositionTotal {
  positions: number
}

/**
 * The reason why a pattern cannot be run, worded to follow the name of its field; null if it can. `total` sums the
 * positions of the patterns before it in its list; the call adds its own.
 */
export function patternProblem(pattern: string, total?: PositionTotal): string | null {
  if (pattern.length === 0) return 'must not be empty'
  if (pattern.length > FILTER_PATTERN_MAX_CHARS) {
    return `must have at most ${FILTER_PATTERN_MAX_CHARS} characters`
  }
  const { problem, literal, positions } = readPattern(pattern)
  if (problem !== null) return problem
  if (total !== undefined) {
    total.positions += positions
    if (total.positions > FILTERS_MAX_POSITIONS) return LIST_TOO_LARGE
  }
  if (literal !== null) return null
  try {
    const size = RE2JS.compile(pattern).programSize()
    return size > PROGRAM_MAX_INSTRUCTIONS ? TOO_LARGE_PROGRAM : null
  } catch (error) {
    // The message of the engine repeats a part of the pattern.
    return error instanceof RE2JSSyntaxException ? WRONG_SYNTAX : TOO_LARGE_PROGRAM
  }
}

/** Twice the positions: alternatives and repeats add instructions that read nothing. */
const PROGRAM_MAX_INSTRUCTIONS = 2 * PATTERN_MAX_POSITIONS + 100
const TOO_LARGE_PROGRAM = `must compile to at most ${PROGRAM_MAX_INSTRUCTIONS} instructions: split it into several patterns`
const LIST_TOO_LARGE = `must not make the patterns in its list expand to more than ${FILTERS_MAX_POSITIONS} characters in total`
const WRONG_SYNTAX = 'must be a regular expression in RE2 syntax'

/** The name of a pattern without a label in records. */
const UNNAMED_PATTERN = 'custom'
/** The replacement of a match, except for a mask whose label can name its placeholder. */
const REPLACEMENT = '[REDACTED]'
/** Memory of the automaton, in bytes. When it is full, the engine discards its states and starts again. */
const AUTOMATON_MAX_BYTES = 4 * 1024 * 1024
/** V8 remembers each character that a repeat may give back, up to 64 MB: longer texts use the other engine. */
const NATIVE_MAX_CHARS = 1024 * 1024

export class CustomPatterns {
  readonly lanes: readonly Lane[]
  /** Lanes that can rule out texts themselves: literals, and patterns for V8. */
  readonly #quick: readonly Lane[]
  readonly #expressions: readonly Lane[]
  readonly #set: RE2Set | null

  constructor(quick: readonly Lane[], expressions: readonly Lane[], set: RE2Set | null) {
    this.#quick = quick
    this.#expressions = expressions
    this.#set = set
    this.lanes = [...quick, ...expressions].sort((a, b) => a.rule - b.rule)
  }

  /** The lanes whose pattern may occur in the text. */
  candidates(text: string): readonly Lane[] {
    if (this.#set === null) return this.#quick
    const lanes = [...this.#quick]
    for (const index of this.#set.match(text)) {
      const lane = this.#expressions[index]
      if (lane !== undefined) lanes.push(lane)
    }
    return lanes
  }
}

/** Compiles patterns that `patternProblem` accepts. `firstRule` is the number of the first pattern among all rules. */
export function compilePatterns(rules: readonly CustomRule[], firstRule: number): CustomPatterns {
  const quick: Lane[] = []
  const expressions: Lane[] = []
  let set: RE2Set | null = null
  for (const [index, { pattern, action, label }] of rules.entries()) {
    const name = label ?? UNNAMED_PATTERN
    const detect = literalDetect(name, pattern) ?? nativeDetect(name, pattern)
    const lane: Lane = {
      detector: 'custom',
      rule: firstRule + index,
      action,
      userOnly: false,
      replacement: action === 'mask' && label !== null && kindOf(label) !== null ? `[${label}]` : REPLACEMENT,
      detect: detect ?? expressionDetect(name, pattern),
    }
    if (detect !== null) quick.push(lane)
    else {
      set ??= new RE2Set(RE2Set.UNANCHORED, 0, AUTOMATON_MAX_BYTES)
      set.add(pattern)
      expressions.push(lane)
    }
  }
  set?.compile()
  return new CustomPatterns(quick, expressions, set)
}

/** Null if the pattern is not plain text. */
function literalDetect(name: string, pattern: string): Detect | null {
  const { literal } = readPattern(pattern)
  if (literal === null) return null
  const shape: Shape = {
    find(text, from) {
      const start = text.indexOf(literal, from)
      return start < 0 ? null : { start, end: start + literal.length, name }
    },
  }
  const shapes = [shape]
  return text => (text.includes(literal) ? shapes : noShapes())
}

/** Null if the pattern cannot run in V8. */
function nativeDetect(name: string, pattern: string): Detect | null {
  const v8Pattern = nativePattern(pattern)
  if (v8Pattern === null) return null
  const shape: Shape = {
    find(text, from) {
      const match = v8Pattern.find(text, from)
      return match === null ? null : { start: match.start, end: match.end, name }
    },
  }
  const shapes = [shape]
  let longTextDetect: Detect | null = null
  return text => {
    if (!v8Pattern.mayOccur(text)) return noShapes()
    if (text.length <= NATIVE_MAX_CHARS) return shapes
    longTextDetect ??= expressionDetect(name, pattern)
    return longTextDetect(text)
  }
}

function expressionDetect(name: string, pattern: string): Detect {
  const expression = RE2JS.compile(pattern)
  const shape: Shape = {
    find(text, from) {
      const matcher = expression.matcher(text)
      let position = from
      // Skip empty matches: they have no text to hide.
      while (position <= text.length && matcher.find(position)) {
        if (matcher.end() > matcher.start()) return { start: matcher.start(), end: matcher.end(), name }
        position = matcher.start() + 1
      }
      return null
    },
  }
  const shapes = [shape]
  return () => shapes
}
