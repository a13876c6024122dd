/** Checks if guardrails can run a pattern of a user in time linear in the text. Pure. */
import { RE2JS, RE2JSSyntaxException } from 're2js'
import { FILTER_PATTERN_MAX_CHARS, FILTERS_MAX_POSITIONS } from '../protocol/limits.ts'
import { PATTERN_MAX_POSITIONS, readPattern } from './pattern-syntax.ts'

/** Places of the patterns of one list that were checked so far. */
export interface ListedPlaces {
  positions: number
}

/**
 * The reason why a pattern cannot be run, worded to follow the name of its field; null if it can. `listed` counts the
 * places of the patterns before it in its list; the call adds its own.
 */
export function patternProblem(pattern: string, listed?: ListedPlaces): string | null {
  if (pattern.length === 0) return 'must not be empty'
  if (pattern.length > FILTER_PATTERN_MAX_CHARS) {
    return `must have at most ${FILTER_PATTERN_MAX_CHARS} characters`
  }
  const { problem, literal, positions } = readPattern(pattern)
  if (problem !== null) return problem
  if (listed !== undefined) {
    listed.positions += positions
    if (listed.positions > FILTERS_MAX_POSITIONS) return TOO_MANY_LISTED
  }
  if (literal !== null) return null
  try {
    const size = RE2JS.compile(pattern).programSize()
    return size > PROGRAM_MAX_INSTRUCTIONS ? TOO_LARGE : null
  } catch (error) {
    // The message of the engine repeats a part of the pattern.
    return error instanceof RE2JSSyntaxException ? SYNTAX : TOO_LARGE
  }
}

/** Twice the positions: alternatives and repeats add instructions that read nothing. */
const PROGRAM_MAX_INSTRUCTIONS = 2 * PATTERN_MAX_POSITIONS + 100
const TOO_LARGE = `must compile to at most ${PROGRAM_MAX_INSTRUCTIONS} instructions: split it into several patterns`
const TOO_MANY_LISTED = `must not make the patterns of its list expand to more than ${FILTERS_MAX_POSITIONS} characters together`
const SYNTAX = 'must be a regular expression in RE2 syntax'
