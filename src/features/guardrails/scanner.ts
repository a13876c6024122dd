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
import type { FoldedText } from './detectors/evasions.ts'
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
    const findings: Finding[] = []
    if (text === '') return findings
    const plain = plainForm(text)
    for (const lane of this.#builtins) {
      if (lane.userOnly && who !== 'user') continue
      if (!gather(lane, text, plain, findingsMax, findings)) return null
    }
    for (const lane of this.#candidates(text, plain))
      if (!gather(lane, text, plain, findingsMax, findings)) return null
    return inOrder(findings)
  }

  #candidates(text: string, plain: FoldedText | null): Iterable<Lane> {
    const lanes = this.#custom.candidates(text)
    return plain === null ? lanes : new Set([...lanes, ...this.#custom.candidates(plain.text)])
  }

  /** True if the text ends with a finding that redacts or blocks, and that more text could not continue. */
  endsWithFinding(text: string): boolean {
    if (text === '') return false
    const plain = plainForm(text)
    return this.lanes.some(
      lane => lane.action !== 'flag' && !lane.userOnly && hasFindingAtEnd(lane, text, plain),
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
    const findings: Finding[] = []
    const continued: Continuation[] = []
    const plain = plainForm(piece)
    const candidates = new Set(this.#candidates(piece, plain))
    for (const [index, lane] of this.lanes.entries()) {
      if (lane.userOnly) continue
      const end = progress.ends[index] ?? 0
      const shape = progress.open[index]
      let position = Math.max(from, end - base)
      if (shape?.goesOn !== undefined) {
        const continuation = shape.goesOn(piece, position)
        progress.open[index] = continuation.open ? shape : null
        progress.ends[index] = base + continuation.end
        continued.push({ lane, end: base + continuation.end })
        position = continuation.end
      }
      if (lane.detector === 'custom' && !candidates.has(lane)) continue
      const shapes = position < until ? shapesOf(lane, piece, plain) : NO_SHAPES
      if (shapes.length === 0) continue
      let lastEnd = -1
      sweep(shapes, piece, position, until, (hit, hitShape) => {
        if (base + hit.end > 0) findings.push(findingOf(lane, hit, base))
        lastEnd = hit.end
        progress.open[index] = hit.end === piece.length && hitShape.goesOn !== undefined ? hitShape : null
        return true
      })
      if (lastEnd >= 0) progress.ends[index] = base + lastEnd
    }
    return { findings: inOrder(findings), continued }
  }
}

const NO_SHAPES: ReturnType<Detect> = []

/** The shapes that a text may contain unchanged, and those that its plain form may contain. */
function shapesOf({ detect, detector }: Lane, text: string, plain: FoldedText | null): readonly Shape[] {
  const shapes = detect(text)
  // The detector of prompt injection undoes more disguises itself.
  if (plain === null || detector === INJECTION_SLUG) return shapes
  return [...shapes, ...plainShapes(detect(plain.text), plain)]
}

/** Adds the findings of one rule; false if that makes more than `findingsMax`. */
function gather(
  lane: Lane,
  text: string,
  plain: FoldedText | null,
  findingsMax: number,
  findings: Finding[],
): boolean {
  const shapes = shapesOf(lane, text, plain)
  if (shapes.length === 0) return true
  sweep(shapes, text, 0, text.length, hit => findings.push(findingOf(lane, hit, 0)) <= findingsMax)
  return findings.length <= findingsMax
}

/** True if the last hit of the rule reaches the end of the text and its shape has a definite end. */
function hasFindingAtEnd(lane: Lane, text: string, plain: FoldedText | null): boolean {
  let isAtEnd = false
  sweep(shapesOf(lane, text, plain), text, 0, text.length, (hit, shape) => {
    isAtEnd = hit.end === text.length && shape.goesOn === undefined
    return true
  })
  return isAtEnd
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
function inOrder(findings: Finding[]): Finding[] {
  return findings.length < 2
    ? findings
    : findings.sort((a, b) => a.start - b.start || b.end - a.end || a.rule - b.rule)
}
