/** Rules and findings as plain data, which travels to worker threads; the words of guardrails/rules.ts. Pure. */
import type { BuiltinSlug, FilterAction, ScanScope } from '../protocol/guardrails.ts'

export type Action = FilterAction
/** Who wrote the text: the user, or anyone else (system, model, tool). */
export type Author = 'user' | 'other'

export interface BuiltinRule {
  readonly slug: BuiltinSlug
  readonly action: Action
  /** `user_only`: only texts of the user are looked at. */
  readonly scope: ScanScope
}

export interface CustomRule {
  /** RE2 syntax, at most 100,000 characters. */
  readonly pattern: string
  readonly action: Action
  /** What redaction puts in its place and how records name it; null: `[REDACTED]` and `custom`. */
  readonly label: string | null
}

/** Plain data, so that it can travel to worker threads. */
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
  /** What redaction puts in its place. */
  readonly replacement: string
  /** Place of its rule: in `builtins`, then, counted on, in `custom`. Policies tell by it whose rule it was. */
  readonly rule: number
}

export const NO_RULES: RuleSet = { builtins: [], custom: [] }

const SEVERITY: Readonly<Record<Action, number>> = { flag: 1, redact: 2, block: 3 }

/** Whether an action is stricter than another: block, then redact, then flag. */
export function isStricter(action: Action, than: Action): boolean {
  return SEVERITY[action] > SEVERITY[than]
}
