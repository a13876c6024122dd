/** What a detector is to the scanner, and how the shapes of one detector share a text. Pure. */
import type { BuiltinSlug } from '../protocol/guardrails.ts'
import type { Action } from './rule.ts'

export interface Hit {
  readonly start: number
  readonly end: number
  readonly name: string
}

/**
 * One form of what a detector looks for. `find` gives the leftmost hit that starts at `from` or later, null: none.
 * A hit may depend on CONTEXT_CHARS of the text before its start and on nothing further back, so that a text can be
 * looked at in windows.
 */
export interface Shape {
  find(text: string, from: number): Hit | null
  /**
   * For what may be longer than any window: from where it goes on in `text`, how far it reaches, and whether it may
   * go on after the end of the text.
   */
  readonly goesOn?: (text: string, from: number) => { readonly end: number; readonly open: boolean }
}

export const CONTEXT_CHARS = 128

/** The shapes that a text may hold; empty when a glance says that it has none of them. */
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
 * Tells the hits of several shapes from the left, without overlaps: of those that start at the same place the longest;
 * no more once `tell` says false. Returns where it came to: the end of the last hit, or `from`.
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
 * A shape of a constant expression of ours, which must be global and bounded: no hit longer than some hundred
 * characters, and no way to try a place for longer. `accepts` has the last word.
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
        // Inside of what was refused something may begin that is not.
        expression.lastIndex = match.index + 1
      }
    },
  }
}
