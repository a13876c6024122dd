/**
 * Runs patterns in V8's own engine if they are proved linear (linear.ts): it is ten times as fast as an automaton.
 * Finds the same matches as RE2: test/features/guardrails/expressions compares both on random patterns. Pure.
 */
import { classSource, onlyCharacter } from './characters.ts'
import { leadingPart, proveLinear } from './linear.ts'
import { type Assertion, type Node, parsePattern } from './parse.ts'

interface Match {
  readonly start: number
  readonly end: number
}

export interface NativePattern {
  /** Bound on the engine's steps per unit of text. */
  readonly steps: number
  /** True if every match contains a text that rules out most texts. */
  readonly hasLiteral: boolean
  /** True if it is searched run by run. */
  readonly isByRuns: boolean
  /** True if the text may contain a match: it contains the longest text that every match has. */
  mayOccur(text: string): boolean
  /** The leftmost match that starts at `from` or later. `from` is 0 or the end of an earlier match. */
  find(text: string, from: number): Match | null
}

/** Longer patterns are hardly ever written by hand, and take long to prove. */
const PATTERN_MAX_CHARS = 2_000

/** Compiles a pattern for V8's engine; null if it has to run on the automaton. */
export function nativePattern(pattern: string): NativePattern | null {
  const node = pattern.length > PATTERN_MAX_CHARS ? null : parsePattern(pattern)
  if (node === null) return null
  const proof = proveLinear(node)
  if (proof === null) return null
  const [codeUnitSearch, codePointSearch] = [
    searchOf(node, proof.isByRuns, false),
    searchOf(node, proof.isByRuns, true),
  ]
  const literal = literalOf(node)
  return {
    steps: proof.steps,
    hasLiteral: literal !== '',
    isByRuns: proof.isByRuns,
    mayOccur: literal === '' ? () => true : text => text.includes(literal),
    find: (text, from) => (hasSurrogates(text) ? codePointSearch() : codeUnitSearch())(text, from),
  }
}

const SURROGATES = /[\ud800-\udfff]/
/** The result for the last text, because all patterns search a text before the next one comes. */
let lastText = { text: '', has: false }

function hasSurrogates(text: string): boolean {
  if (lastText.text !== text) lastText = { text, has: SURROGATES.test(text) }
  return lastText.has
}

type Search = (text: string, from: number) => Match | null

/** Creates the search on first use. `unicode`: for texts with characters of two units. */
function searchOf(node: Node, isByRuns: boolean, unicode: boolean): () => Search {
  let search: Search | null = null
  return () => {
    search ??= isByRuns ? createSearchByRuns(node, unicode) : createSearch(node, unicode)
    return search
  }
}

function createSearch(node: Node, unicode: boolean): Search {
  const expression = new RegExp(writeSource(node, unicode), unicode ? 'gu' : 'g')
  return (text, from) => matchFrom(expression, text, from)
}

/**
 * For a first repeat of a set C after assertions A: only the first position in each run of C at which A holds is a
 * start. A search that begins within a run tries its own first start, and continues after the run.
 */
function createSearchByRuns(node: Node, unicode: boolean): Search {
  const { assertions, firstRepeat } = leadingPart(node)
  const flags = unicode ? 'u' : ''
  const body = writeSource(node, unicode)
  const asserted = writeSource({ kind: 'sequence', nodes: assertions }, unicode)
  const run = classSource(firstRepeat?.set ?? [], unicode)
  // Looks back to the nearest earlier start of the run, and no further than the run reaches.
  const unanchored = new RegExp(`${asserted}(?<!${asserted}${run}+?)${body}`, `g${flags}`)
  const starts = new RegExp(asserted, `g${flags}`)
  const anchored = new RegExp(body, `y${flags}`)
  const runEnd = new RegExp(`${run}*`, `y${flags}`)
  return (text, from) => {
    if (from === 0) return matchFrom(unanchored, text, 0)
    starts.lastIndex = from
    const start = starts.exec(text)?.index
    if (start === undefined) return null
    const match = matchFrom(anchored, text, start)
    if (match !== null) return match
    runEnd.lastIndex = start
    runEnd.test(text)
    return matchFrom(unanchored, text, runEnd.lastIndex)
  }
}

function matchFrom(expression: RegExp, text: string, from: number): Match | null {
  expression.lastIndex = from
  const match = expression.exec(text)
  return match === null ? null : { start: match.index, end: match.index + match[0].length }
}

/** `$` is RE2's end of text; lines end only with a line feed. */
const ASSERTIONS: Readonly<Record<Assertion, string>> = {
  word: '\\b',
  start: '^',
  end: '$',
  'line-start': '(?<![^\\n])',
  'line-end': '(?![^\\n])',
}

function writeSource(node: Node, unicode: boolean): string {
  switch (node.kind) {
    case 'set':
      return classSource(node.set, unicode)
    case 'assertion':
      return ASSERTIONS[node.assertion]
    case 'sequence':
      return node.nodes
        .map(inner => (inner.kind === 'choice' ? writeGroup(inner, unicode) : writeSource(inner, unicode)))
        .join('')
    case 'choice':
      return node.nodes.map(inner => writeSource(inner, unicode)).join('|')
    case 'repeat': {
      const most = node.max === Number.POSITIVE_INFINITY ? '' : node.max
      const body = node.node.kind === 'set' ? writeSource(node.node, unicode) : writeGroup(node.node, unicode)
      return `${body}{${node.min},${most}}${node.isLazy ? '?' : ''}`
    }
  }
}

function writeGroup(node: Node, unicode: boolean): string {
  return `(?:${writeSource(node, unicode)})`
}

/** The longest text of consecutive single characters that every match has; empty if there is none. */
function literalOf(node: Node): string {
  let [longest, current] = ['', '']
  const visit = (visited: Node): void => {
    if (visited.kind === 'sequence') {
      for (const inner of visited.nodes) visit(inner)
      return
    }
    const character = visited.kind === 'set' ? onlyCharacter(visited.set) : null
    if (character !== null) current += character
    // An assertion reads nothing.
    else if (visited.kind !== 'assertion') current = ''
    if (current.length > longest.length) longest = current
  }
  visit(node)
  return longest
}
