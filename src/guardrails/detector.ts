/** The contract of detectors, and the sweep of their shapes over a text. Pure. */
import type { BuiltinSlug } from '../protocol/guardrails.ts'
import type { Action } from './rule.ts'

export interface Hit {
  readonly start: number
  readonly end: number
  readonly name: string
}

/**
 * One form of what a detector finds. `find` returns the leftmost hit that starts at `from` or later; null: none. A hit
 * may depend on CONTEXT_CHARS of the text before its start and on nothing before that, so that texts can be scanned in
 * windows.
 */
export interface Shape {
  find(text: string, from: number): Hit | null
  /**
   * For a hit that may be longer than any window: continues it at `from` in the next piece of text. Returns its end
   * there, and if it may continue after the end of the piece.
   */
  readonly goesOn?: (text: string, from: number) => { readonly end: number; readonly open: boolean }
}

export const CONTEXT_CHARS = 128

/** Returns the shapes that the text may have; empty if a quick check rules all of them out. */
export type Detect = (text: string) => readonly Shape[]

/** One rule with its detector. */
export interface Lane {
  readonly detector: BuiltinSlug | 'custom'
  readonly rule: number
  readonly action: Action
  readonly userOnly: boolean
  readonly replacement: string
  readonly detect: Detect
}

const NONE: readonly Shape[] = []
export const noShapes = (): readonly Shape[] => NONE

/**
 * Passes the hits of several shapes to `tell`, from the left and without overlaps: of hits with the same start the
 * longest. Stops if `tell` returns false. Returns the end of the last hit, or `from`.
 */
export function sweep(
  shapes: readonly Shape[],
  text: string,
  from: number,
  until: number,
  tell: (hit: Hit, shape: Shape) => boolean,
): number {
  const next: (Hit | null | undefined)[] = shapes.map(() => undefined)
  let at = from
  while (at < until) {
    let best: Hit | null = null
    let by: Shape | null = null
    for (const [index, shape] of shapes.entries()) {
      let hit = next[index]
      if (hit === undefined || (hit !== null && hit.start < at)) {
        hit = shape.find(text, at)
        next[index] = hit
      }
      if (hit === null || hit.start >= until) continue
      if (best === null || hit.start < best.start || (hit.start === best.start && hit.end > best.end)) {
        best = hit
        by = shape
      }
    }
    if (best === null || by === null) break
    at = best.end
    if (!tell(best, by)) break
  }
  return at
}

/**
 * Makes a shape from a constant expression, which must be global and bounded: neither a hit nor a failed try may read
 * more than some hundred characters. `accepts` may reject a match.
 */
export function shapeOf(
  name: string,
  expression: RegExp,
  accepts?: (text: string, start: number, end: number) => boolean,
): Shape {
  if (!expression.global) throw new TypeError(`expression of ${name} is not global`)
  return {
    find(text, from) {
      expression.lastIndex = from
      for (;;) {
        const match = expression.exec(text)
        if (match === null) return null
        const end = match.index + match[0].length
        if (accepts === undefined || accepts(text, match.index, end)) return { start: match.index, end, name }
        // Another match may begin inside the rejected one.
        expression.lastIndex = match.index + 1
      }
    },
  }
}
