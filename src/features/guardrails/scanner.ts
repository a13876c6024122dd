/** Finds matches of compiled rules in a text, as a whole or in windows. Hot path for short texts. Pure. */
import { INJECTION_SLUG } from '../../protocol/management/guardrails.ts'
import type { CustomPatterns } from './custom.ts'
import {
  type Author,
  CONTEXT_CHARS,
  type Detect,
  type Finding,
  type Lane,
  type Shape,
  sweep,
} from './detector.ts'
import type { Folded } from './detectors/evasions.ts'
import { plainForm, plainShapes } from './plain-form.ts'

/** The state of each lane between two windows of a text: the end of its last hit, and an open hit that may continue. */
export interface Progress {
  readonly ends: number[]
  readonly open: (Shape | null)[]
}

/** The new end of a hit that was still open at the end of the previous window. */
export interface Continuation {
  readonly lane: Lane
  readonly end: number
}

export class Scanner {
  readonly lanes: readonly Lane[]
  readonly #builtins: readonly Lane[]
  readonly #custom: CustomPatterns

  constructor(builtins: readonly Lane[], custom: CustomPatterns) {
    this.#builtins = builtins
    this.#custom = custom
    this.lanes = [...builtins, ...custom.lanes]
  }

  get isEmpty(): boolean {
    return this.lanes.length === 0
  }

  /** All findings in a text that `who` wrote, sorted by start. */
  scan(text: string, who: Author): readonly Finding[] {
    return this.scanUpTo(Number.POSITIVE_INFINITY, text, who) ?? []
  }

  /** The same, but null if there are more findings than `findingsMax`, because each takes time. */
  scanUpTo(findingsMax: number, text: string, who: Author): readonly Finding[] | null {
    const found: Finding[] = []
    if (text === '') return found
    const plain = plainForm(text)
    for (const lane of this.#builtins) {
      if (lane.userOnly && who !== 'user') continue
      if (!gather(lane, text, plain, findingsMax, found)) return null
    }
    for (const lane of this.#candidates(text, plain))
      if (!gather(lane, text, plain, findingsMax, found)) return null
    return inOrder(found)
  }

  #candidates(text: string, plain: Folded | null): Iterable<Lane> {
    const lanes = this.#custom.candidates(text)
    return plain === null ? lanes : new Set([...lanes, ...this.#custom.candidates(plain.text)])
  }

  /** True if the text ends with a finding that redacts or blocks, and that more text could not continue. */
  endsWhole(text: string): boolean {
    if (text === '') return false
    const plain = plainForm(text)
    return this.lanes.some(
      lane => lane.action !== 'flag' && !lane.userOnly && isWholeAtEnd(lane, text, plain),
    )
  }

  /** The progress at the start of a text. */
  begin(): Progress {
    return { ends: this.lanes.map(() => -CONTEXT_CHARS), open: this.lanes.map(() => null) }
  }

  /**
   * Findings that start in [from, until) of a piece of a text. `base` units of the text precede the piece; positions in
   * `progress` and in findings refer to the whole text. The author is not the user. With a negative `base`, the piece
   * begins before the text, with the end of another text; findings entirely within that part are left out.
   */
  scanPiece(
    piece: string,
    base: number,
    from: number,
    until: number,
    progress: Progress,
  ): { findings: readonly Finding[]; continued: readonly Continuation[] } {
    const found: Finding[] = []
    const continued: Continuation[] = []
    const plain = plainForm(piece)
    const candidates = new Set(this.#candidates(piece, plain))
    for (const [index, lane] of this.lanes.entries()) {
      if (lane.userOnly) continue
      const end = progress.ends[index] ?? 0
      const shape = progress.open[index]
      let at = Math.max(from, end - base)
      if (shape?.goesOn !== undefined) {
        const tail = shape.goesOn(piece, at)
        progress.open[index] = tail.open ? shape : null
        progress.ends[index] = base + tail.end
        continued.push({ lane, end: base + tail.end })
        at = tail.end
      }
      if (lane.detector === 'custom' && !candidates.has(lane)) continue
      const shapes = at < until ? shapesOf(lane, piece, plain) : NOTHING
      if (shapes.length === 0) continue
      let last = -1
      sweep(shapes, piece, at, until, (hit, by) => {
        if (base + hit.end > 0) found.push(findingOf(lane, hit, base))
        last = hit.end
        progress.open[index] = hit.end === piece.length && by.goesOn !== undefined ? by : null
        return true
      })
      if (last >= 0) progress.ends[index] = base + last
    }
    return { findings: inOrder(found), continued }
  }
}

const NOTHING: ReturnType<Detect> = []

/** The shapes that a text may contain unchanged, and those that its plain form may contain. */
function shapesOf({ detect, detector }: Lane, text: string, plain: Folded | null): readonly Shape[] {
  const shapes = detect(text)
  // Prompt injection undoes more by itself.
  if (plain === null || detector === INJECTION_SLUG) return shapes
  return [...shapes, ...plainShapes(detect(plain.text), plain)]
}

/** Adds the findings of one rule; false if that makes more than `findingsMax`. */
function gather(
  lane: Lane,
  text: string,
  plain: Folded | null,
  findingsMax: number,
  found: Finding[],
): boolean {
  const shapes = shapesOf(lane, text, plain)
  if (shapes.length === 0) return true
  sweep(shapes, text, 0, text.length, hit => found.push(findingOf(lane, hit, 0)) <= findingsMax)
  return found.length <= findingsMax
}

/** True if the last hit of the rule reaches the end of the text and its shape has a definite end. */
function isWholeAtEnd(lane: Lane, text: string, plain: Folded | null): boolean {
  let isWhole = false
  sweep(shapesOf(lane, text, plain), text, 0, text.length, (hit, shape) => {
    isWhole = hit.end === text.length && shape.goesOn === undefined
    return true
  })
  return isWhole
}

function findingOf(lane: Lane, hit: { start: number; end: number; name: string }, base: number): Finding {
  return {
    detector: lane.detector,
    pattern: hit.name,
    action: lane.action,
    start: base + hit.start,
    end: base + hit.end,
    replacement: lane.replacement,
    rule: lane.rule,
  }
}

/** Sorts by start, then longest first, then by rule, so that the order does not depend on the list of rules. */
function inOrder(found: Finding[]): Finding[] {
  return found.length < 2
    ? found
    : found.sort((a, b) => a.start - b.start || b.end - a.end || a.rule - b.rule)
}
