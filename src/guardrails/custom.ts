/**
 * The user's own patterns. One automaton of all of them says which occur at all; only those are then looked for one
 * by one. Pure. RE2 syntax and time linear in the text; two patterns cost hardly more than one.
 */
import { RE2JS, RE2Set } from 're2js'
import type { Lane, Shape } from './detector.ts'
import { readPattern } from './pattern-syntax.ts'
import type { CustomRule } from './rule.ts'

/** How records name a pattern without a label, and what redaction puts in its place. */
const UNNAMED = 'custom'
const REPLACEMENT = '[REDACTED]'
/** Memory of the automaton, in bytes: bounds what a scanner holds. Above it the engine forgets and starts anew. */
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

/** Patterns must have been found fit to run. `firstRule` is the place of the first among all rules. */
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
      // What is empty hides nothing: the next place is tried.
      while (at <= text.length && matcher.find(at)) {
        if (matcher.end() > matcher.start()) return { start: matcher.start(), end: matcher.end(), name }
        at = matcher.start() + 1
      }
      return null
    },
  }
}
