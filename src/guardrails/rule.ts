/** Rules and findings as plain data, which can be sent to worker threads. Pure. */
import type { BuiltinSlug, FilterAction, ScanScope } from '../protocol/guardrails.ts'

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
  /** Its replacement in redacted text and its name in records; null: `[REDACTED]` and `custom`. */
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
  /** Its replacement in redacted text. */
  readonly replacement: string
  /** The number of its rule: first `builtins`, then `custom`. Policies find the guardrail by it. */
  readonly rule: number
}

export const NO_RULES: RuleSet = { builtins: [], custom: [] }

const SEVERITY: Readonly<Record<Action, number>> = { flag: 1, redact: 2, block: 3 }

/** True if `action` is stricter than `than`: block, then redact, then flag. */
export function isStricter(action: Action, than: Action): boolean {
  return SEVERITY[action] > SEVERITY[than]
}
