/**
 * Rules, findings and detectors: the contract of this folder, and the search for a detector's patterns in a text. Pure.
 * Rules and findings are plain data, which can be sent to worker threads.
 */
import type { BuiltinSlug, FilterAction, ScanScope } from '../../protocol/management/guardrails.ts'

export type Action = FilterAction
/** The author of a text: the user, or anyone else (system, model, tool). */
export type Author = 'user' | 'other'

export interface BuiltinRule {
  readonly slug: BuiltinSlug
  readonly action: Action
  /** `user_only`: the rule applies only to texts of the user. */
  readonly scope: ScanScope
}

export interface CustomRule {
  /** RE2 syntax, at most 100,000 characters. */
  readonly pattern: string
  readonly action: Action
  /** Its name in records; null for `custom`. */
  readonly label: string | null
}

/** The rules of one scanner. */
export interface RuleSet {
  readonly builtins: readonly BuiltinRule[]
  readonly custom: readonly CustomRule[]
}

export interface Finding {
  readonly detector: BuiltinSlug | 'custom'
  /** Name or label of the pattern that matched; never matched text. */
  readonly pattern: string
  readonly action: Action
  /** UTF-16 units from the start of the text; `end` is the first one after. */
  readonly start: number
  readonly end: number
  /** Its replacement in redacted text; of a mask, the placeholder without its number. */
  readonly replacement: string
  /** The text of the finding that continues in later texts; absent if it ends in this one. */
  readonly continuedText?: string
  /** The number of its rule: `builtins` first, then `custom`. Policies use it to find the guardrail. */
  readonly rule: number
}

export const NO_RULES: RuleSet = { builtins: [], custom: [] }

const SEVERITY: Readonly<Record<Action, number>> = { flag: 1, mask: 2, redact: 3, block: 4 }

/** True if `action` is stricter than `other`: block, then redact, then mask, then flag. */
export function isStricter(action: Action, other: Action): boolean {
  return SEVERITY[action] > SEVERITY[other]
}

export interface Hit {
  readonly start: number
  readonly end: number
  readonly name: string
}

/**
 * One form of what a detector finds. `find` returns the leftmost hit that starts at `from` or later, or null. A hit may
 * depend on the CONTEXT_CHARS characters before its start and on nothing before them, so that texts can be scanned in
 * windows.
 */
export interface Shape {
  find(text: string, from: number): Hit | null
  /**
   * For a hit that may be longer than any window: continues it at `from` in the next piece of text. Returns its end
   * there, and if it may continue beyond the end of the piece.
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

const NO_SHAPES: readonly Shape[] = []
export const noShapes = (): readonly Shape[] => NO_SHAPES

/**
 * Passes the hits of several shapes to `report`, from left to right and without overlaps; of hits with the same start,
 * the longest. Stops if `report` returns false. Returns the end of the last hit, or `from`.
 */
export function sweep(
  shapes: readonly Shape[],
  text: string,
  from: number,
  until: number,
  report: (hit: Hit, shape: Shape) => boolean,
): number {
  const next: (Hit | null | undefined)[] = shapes.map(() => undefined)
  let position = from
  while (position < until) {
    let bestHit: Hit | null = null
    let bestShape: Shape | null = null
    for (const [index, shape] of shapes.entries()) {
      let hit = next[index]
      if (hit === undefined || (hit !== null && hit.start < position)) {
        hit = shape.find(text, position)
        next[index] = hit
      }
      if (hit === null || hit.start >= until) continue
      if (
        bestHit === null ||
        hit.start < bestHit.start ||
        (hit.start === bestHit.start && hit.end > bestHit.end)
      ) {
        bestHit = hit
        bestShape = shape
      }
    }
    if (bestHit === null || bestShape === null) break
    position = bestHit.end
    if (!report(bestHit, bestShape)) break
  }
  return position
}

/**
 * Creates a shape from a constant expression, which must be global and bounded: neither a match nor a failed try may
 * read more than some hundred characters. `accepts` may reject a match.
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

/** The text before `start` in lower case: at most `reach` units, which must not exceed CONTEXT_CHARS. */
export function before(text: string, start: number, reach: number): string {
  return text.slice(Math.max(0, start - reach), start).toLowerCase()
}

/** Names of numbers that are not personal data. */
const NUMBERED =
  /(?:order|invoice|inv|ticket|tracking|ref|reference|case|sku|isbn|issn|part|serial|model|batch|lot|version|build|commit|item|product|article|bestellung|rechnung|auftrag|commande|facture|pedido|factura|ordine)(?:\s?(?:nummer|number|no|nr|num|id|n°|nº))?[.:]?\s?[#:]?\s?$/

/** True if the text before `start` names an order, a part, a version or something similar. */
export function isNumbered(text: string, start: number): boolean {
  const context = before(text, start, 32)
  return context.endsWith('#') || NUMBERED.test(context)
}
