/**
 * Patterns of users. One automaton of all patterns finds those that occur; only these are then matched one by one.
 * Pure. RE2 syntax, time linear in the text; two patterns cost hardly more than one.
 */
import { RE2JS, RE2Set } from 're2js'
import type { Lane, Shape } from './detector.ts'
import { readPattern } from './pattern-syntax.ts'
import type { CustomRule } from './rule.ts'

/** The name of a pattern without a label in records, and its replacement in redacted text. */
const UNNAMED = 'custom'
const REPLACEMENT = '[REDACTED]'
/** Memory of the automaton, in bytes. When it is full, the engine discards its states and starts again. */
const AUTOMATON_MAX_BYTES = 4 * 1024 * 1024

export class CustomPatterns {
  readonly lanes: readonly Lane[]
  readonly #literals: readonly { readonly lane: Lane; readonly text: string }[]
  readonly #expressions: readonly Lane[]
  readonly #set: RE2Set | null

  constructor(
    literals: readonly { readonly lane: Lane; readonly text: string }[],
    expressions: readonly Lane[],
    set: RE2Set | null,
  ) {
    this.#literals = literals
    this.#expressions = expressions
    this.#set = set
    this.lanes = [...literals.map(({ lane }) => lane), ...expressions].sort((a, b) => a.rule - b.rule)
  }

  /** The lanes whose pattern occurs in the text. */
  candidates(text: string): readonly Lane[] {
    const found: Lane[] = []
    for (const { lane, text: literal } of this.#literals) if (text.includes(literal)) found.push(lane)
    if (this.#set === null) return found
    for (const index of this.#set.match(text)) {
      const lane = this.#expressions[index]
      if (lane !== undefined) found.push(lane)
    }
    return found
  }
}

/** Compiles patterns that `patternProblem` accepts. `firstRule` is the number of the first one among all rules. */
export function compilePatterns(rules: readonly CustomRule[], firstRule: number): CustomPatterns {
  const literals: { lane: Lane; text: string }[] = []
  const expressions: Lane[] = []
  let set: RE2Set | null = null
  for (const [index, { pattern, action, label }] of rules.entries()) {
    const { literal } = readPattern(pattern)
    const name = label ?? UNNAMED
    const shapes = [literal === null ? expressionShape(name, pattern) : literalShape(name, literal)]
    const lane: Lane = {
      detector: 'custom',
      rule: firstRule + index,
      action,
      userOnly: false,
      replacement: label ?? REPLACEMENT,
      detect: () => shapes,
    }
    if (literal !== null) literals.push({ lane, text: literal })
    else {
      set ??= new RE2Set(RE2Set.UNANCHORED, 0, AUTOMATON_MAX_BYTES)
      set.add(pattern)
      expressions.push(lane)
    }
  }
  set?.compile()
  return new CustomPatterns(literals, expressions, set)
}

function literalShape(name: string, literal: string): Shape {
  return {
    find(text, from) {
      const start = text.indexOf(literal, from)
      return start < 0 ? null : { start, end: start + literal.length, name }
    },
  }
}

function expressionShape(name: string, pattern: string): Shape {
  const expression = RE2JS.compile(pattern)
  return {
    find(text, from) {
      const matcher = expression.matcher(text)
      let at = from
      // Skip empty matches: they have no text to hide.
      while (at <= text.length && matcher.find(at)) {
        if (matcher.end() > matcher.start()) return { start: matcher.start(), end: matcher.end(), name }
        at = matcher.start() + 1
      }
      return null
    },
  }
}
