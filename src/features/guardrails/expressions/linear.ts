/**
 * Proves that V8's backtracking engine matches a pattern in time linear in the text, and bounds that time. Pure.
 *
 * The engine tries each start once, and from it every path through the pattern. `tries` bounds how often one place of
 * the pattern is tried at one place of the text, over all starts and paths. If that is finite everywhere, the time is
 * the sum over the places of the pattern, each times the length of the text. `tries` begins at 1. A character leaves it
 * unchanged, a choice adds up its branches. The interesting case is a repeat of a class C:
 *
 * - `before` is the text that can precede a place. If no character of C directly precedes the repeat, it is entered
 *   only where a run of C begins. Each place that it reaches then has only one place of entry. So `tries` stays, and
 *   each run is read that many times. Examples: the `\s*` in `password\s*=`, the `[\w.-]+` in `@[\w.-]+\.com`, the
 *   `\w+` in `\b\w+@`.
 * - If one of the last n characters before the repeat is not in C, two places of entry into one run are less than n
 *   apart. So `tries` is multiplied by n. Example: the `[A-Z ]*` in `--BEGIN [A-Z ]*KEY`, with n = 7 because of the
 *   hyphen.
 * - Otherwise a repeat of a to b times multiplies `tries` by b - a + 1 and reads b characters each time. An unbounded
 *   one is not proved: `x.*y` on `xxx…` is quadratic.
 * - A last repeat cannot fail once it has its minimum, and everything it reads belongs to the match, after which the
 *   search continues. So it may be unbounded: the `\S+` in `token=\S+`, the group in `\d+(?:,\d{3})*`.
 * - A first unbounded repeat of C that may be entered within a run is searched in another way (engine.ts): only from
 *   the first start of each run. From a later start of the run, the repeat reaches only places that it also reaches
 *   from the first, so any match from there is also a match from the first. Examples: `x*y`, `\b[\w.]+@`.
 */
import {
  ALL_CHARACTERS,
  type Characters,
  intersection,
  isDisjoint,
  isWithin,
  LINE_FEED,
  maxOverlap,
  NO_CHARACTERS,
  NOT_WORD,
  union,
  WORD,
} from './characters.ts'
import { type Node, shortestMatch } from './parse.ts'

interface Proof {
  /** Bound on the engine's steps per unit of text. */
  readonly steps: number
  /** The first repeat is unbounded and may be entered within a run, so it must be searched run by run. */
  readonly isByRuns: boolean
}

/** With more steps, the automaton is faster. */
const MAX_STEPS = 400
/** Characters before a place that are remembered. */
const MAX_REMEMBERED_CHARACTERS = 16

interface State {
  readonly tries: number
  /** The characters before this place, nearest first; each is in its set unless the text begins after it. */
  readonly before: readonly Characters[]
  /** True directly after `\b`. */
  readonly isAtWord: boolean
}

const START_STATE: State = { tries: 1, before: [], isAtWord: false }

/**
 * Proves that a pattern is linear; null if that is not proved, needs too many steps, or if the pattern may match the
 * empty text.
 */
export function proveLinear(node: Node): Proof | null {
  if (shortestMatch(node) === 0) return null
  const { assertions, firstRepeat, later } = leadingPart(node)
  const walk = new Walk()
  const start = walk.sequence(assertions, START_STATE, false)
  if (start === null) return null
  const isByRuns = firstRepeat !== null && later.some(canFail) && entriesWithin(firstRepeat.set, start) !== 1
  const next = isByRuns ? walk.firstRepeat(firstRepeat) : start
  const searchedNodes = isByRuns || firstRepeat === null ? later : [firstRepeat.node, ...later]
  if (walk.sequence(searchedNodes, next, true) === null) return null
  return walk.steps > MAX_STEPS ? null : { steps: Math.ceil(walk.steps), isByRuns }
}

interface Leading {
  /** Assertions at the start. */
  readonly assertions: readonly Node[]
  /** The unbounded repeat of a set after them; null if something else follows. */
  readonly firstRepeat: { readonly set: Characters; readonly min: number; readonly node: Node } | null
  readonly later: readonly Node[]
}

export function leadingPart(node: Node): Leading {
  const nodes = node.kind === 'sequence' ? node.nodes : [node]
  const index = nodes.findIndex(({ kind }) => kind !== 'assertion')
  const head = nodes.slice(0, index)
  const first = nodes[index]
  if (first?.kind === 'repeat' && first.node.kind === 'set' && first.max === Number.POSITIVE_INFINITY) {
    const { set } = first.node
    return {
      assertions: head,
      firstRepeat: { set, min: first.min, node: first },
      later: nodes.slice(index + 1),
    }
  }
  return { assertions: head, firstRepeat: null, later: nodes.slice(index) }
}

/** False if the node matches any text. */
function canFail(node: Node): boolean {
  if (node.kind === 'repeat') return node.min > 0
  if (node.kind === 'sequence') return node.nodes.some(canFail)
  return true
}

/** The characters before a place where a character of the set is read. */
function beforeSet(set: Characters, { before, isAtWord }: State): readonly Characters[] {
  if (!isAtWord) return before
  const otherKind = isWithin(set, WORD) ? NOT_WORD : isWithin(set, NOT_WORD) ? WORD : ALL_CHARACTERS
  return [intersection(before[0] ?? ALL_CHARACTERS, otherKind), ...before.slice(1)]
}

/** The maximum number of places at which one run of the set is entered; infinite if there is no bound. */
function entriesWithin(set: Characters, state: State): number {
  const outside = beforeSet(set, state).findIndex(earlier => isDisjoint(set, earlier))
  return outside === -1 ? Number.POSITIVE_INFINITY : outside + 1
}

interface SetRepeat {
  readonly set: Characters
  readonly min: number
  readonly max: number
}

/** Walks over a pattern and adds up its steps. Each method returns the state after a node; null if not proved. */
class Walk {
  steps = 0

  sequence(nodes: readonly Node[], start: State, isEnd: boolean): State | null {
    let state: State | null = start
    let literal: Characters[] = []
    for (const [index, node] of nodes.entries()) {
      if (state === null) return null
      if (node.kind === 'set') {
        // Of characters in a row, one is tried if the one before it has matched: not all of them at one place.
        const overlapBefore = maxOverlap(literal) + 1
        literal.push(node.set)
        this.steps += state.tries * (maxOverlap(literal) + 1 - (literal.length > 1 ? overlapBefore : 0))
        state = read(node.set, state)
        continue
      }
      literal = []
      // The engine backtracks only at parts that can fail.
      state = this.#node(node, state, isEnd && !nodes.slice(index + 1).some(canFail))
      if (this.steps > MAX_STEPS) return null
    }
    return state
  }

  /** `isEnd`: nothing after the node can fail. */
  #node(node: Node, state: State, isEnd: boolean): State | null {
    switch (node.kind) {
      case 'set':
        this.steps += state.tries
        return read(node.set, state)
      case 'assertion':
        this.steps += state.tries
        if (node.assertion === 'word') return { ...state, isAtWord: true }
        if (node.assertion === 'start') return { ...state, before: [NO_CHARACTERS] }
        if (node.assertion !== 'line-start') return state
        return {
          ...state,
          before: [intersection(state.before[0] ?? ALL_CHARACTERS, LINE_FEED), ...state.before.slice(1)],
        }
      case 'sequence':
        return this.sequence(node.nodes, state, isEnd)
      case 'choice': {
        const states = node.nodes.map(inner => this.#node(inner, state, isEnd))
        return states.includes(null) ? null : merge(states.filter(branch => branch !== null))
      }
      case 'repeat':
        return node.node.kind === 'set'
          ? this.#repeat({ set: node.node.set, min: node.min, max: node.max }, state, isEnd)
          : this.#repeatGroup(node.node, node.min, node.max, state, isEnd)
    }
  }

  #repeat({ set, min, max }: SetRepeat, state: State, isEnd: boolean): State | null {
    const { tries, before } = state
    const entryCount = entriesWithin(set, state)
    // If the repeat reads nothing, it may still stand behind a character of its set.
    const isExact = entryCount === 1 && (min > 0 || isDisjoint(set, before[0] ?? ALL_CHARACTERS))
    const stateAfter = (factor: number): State => ({
      tries: tries * factor + (isExact || min > 0 ? 0 : tries),
      before:
        min > 0
          ? Array.from({ length: Math.min(min, MAX_REMEMBERED_CHARACTERS) }, () => set)
          : [union(set, before[0] ?? ALL_CHARACTERS)],
      isAtWord: false,
    })
    if (isEnd && entryCount > 1) {
      this.steps += tries * (min + 1) + 2
      return stateAfter(1)
    }
    const choices = max - min + 1
    if (entryCount < choices || entryCount === 1) {
      // To read the run and to go back through it.
      this.steps += 3 * tries * entryCount
      return stateAfter(entryCount)
    }
    if (max === Number.POSITIVE_INFINITY) return null
    this.steps += 2 * tries * max
    return stateAfter(choices)
  }

  /** The first repeat, run by run: from the first start of a run, and again from the end of a match within it. */
  firstRepeat({ set, min }: Pick<SetRepeat, 'set' | 'min'>): State {
    const tries = min > 0 ? 2 : 4
    // Six more steps look back and ahead for the starts.
    this.steps += 3 * tries + 6
    return { tries, before: min > 0 ? [set] : [], isAtWord: false }
  }

  /** Writes out the repeat: it may end after each iteration from the minimum on. */
  #repeatGroup(node: Node, min: number, max: number, start: State, isEnd: boolean): State | null {
    const isEndless = max === Number.POSITIVE_INFINITY
    if (isEndless && !isEnd) return null
    const ends: State[] = min === 0 ? [start] : []
    let state = start
    // Beyond the minimum, one iteration of an endless repeat stands for all of them, so the text before it is unknown.
    for (let iteration = 1; iteration <= (isEndless ? min + 1 : max); iteration++) {
      const from: State = isEndless && iteration > min ? { ...state, before: [], isAtWord: false } : state
      const next = this.#node(node, from, false)
      if (next === null || this.steps > MAX_STEPS) return null
      state = next
      if (iteration >= min) ends.push(state)
    }
    return merge(ends)
  }
}

function read(set: Characters, state: State): State {
  const before = [set, ...beforeSet(set, state)].slice(0, MAX_REMEMBERED_CHARACTERS)
  return { tries: state.tries, before, isAtWord: false }
}

/** The state after several alternatives. */
function merge(states: readonly State[]): State {
  const length = Math.min(...states.map(({ before }) => before.length))
  return {
    tries: states.reduce((sum, { tries }) => sum + tries, 0),
    before: Array.from({ length }, (_, index) =>
      union(...states.map(({ before }) => before[index] ?? ALL_CHARACTERS)),
    ),
    isAtWord: states.every(({ isAtWord }) => isAtWord),
  }
}
