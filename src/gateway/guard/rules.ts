/**
 * The content rules of all guardrails of a caller, ready for use on requests or on replies: whose each rule is, where
 * they are evaluated, and what happens when they cannot be. Pure.
 */
import { createHash } from 'node:crypto'
import { Cost } from '../../guardrails/cost.ts'
import { CONTEXT_CHARS } from '../../guardrails/detector.ts'
import type { Policy, SourcedRules } from '../../guardrails/policy.ts'
import { compileRules, type FilterField, type RuleSet, type Scanner } from '../../guardrails/rules.ts'
import type { WindowSize } from '../../guardrails/window.ts'
import type { BuiltinSlug } from '../../protocol/guardrails.ts'
import type { AppliedGuardrail, GuardrailScope } from '../../storage/guardrails.ts'

/** Whose a rule is, and what it looks for. */
export interface RuleSource {
  readonly guardrailId: string
  readonly scope: GuardrailScope
  readonly detector: BuiltinSlug | 'custom'
}

/** A guardrail with rules of this side. */
export interface RuleOwner {
  readonly guardrailId: string
  readonly name: string
  readonly scope: GuardrailScope
  /** Whether requests go on when it cannot be evaluated. */
  readonly failMode: 'open' | 'closed'
}

export interface GuardRules {
  readonly all: Rules
  /** The gateway's own detectors and the patterns of users, each alone. */
  readonly builtin: Rules
  readonly custom: Rules
  /** By the number of the rule in `all`. */
  readonly sources: readonly RuleSource[]
  /** Never empty. */
  readonly owners: readonly RuleOwner[]
}

export interface OutputGuardRules {
  readonly rules: GuardRules
  readonly size: WindowSize
  /** Whether windows are looked at on this thread. */
  readonly inline: boolean
}

/** A rule set, compiled when it is first needed. */
export class Rules {
  readonly set: RuleSet
  /** Equal for equal rules: workers remember compiled rules by it. */
  readonly key: string
  readonly cost: Cost
  /** Where a body has the patterns: what a pattern that cannot be run is told by. */
  readonly field: FilterField
  #scanner: Scanner | null = null

  constructor(set: RuleSet, field: FilterField) {
    this.set = set
    this.field = field
    this.cost = new Cost(set)
    this.key = createHash('sha256').update(JSON.stringify(set)).digest('base64')
  }

  get scanner(): Scanner {
    this.#scanner ??= compileRules(this.set, this.field)
    return this.#scanner
  }
}

/** Null: nothing to look for in requests. */
export function inputRulesOf(policy: Policy, applied: readonly AppliedGuardrail[]): GuardRules | null {
  const owners = applied.filter(({ guardrail }) => hasRules(guardrail))
  return rulesOf(policy.input, owners, 'content_filters')
}

/** Null: nothing to look for in replies. */
export function outputRulesOf(policy: Policy, applied: readonly AppliedGuardrail[]): OutputGuardRules | null {
  if (policy.output === null) return null
  const owners = applied.filter(({ guardrail: { output } }) => output !== null && hasRules(output))
  const rules = rulesOf(policy.output, owners, 'output.content_filters')
  if (rules === null) return null
  const { windowBytes, overlapBytes } = policy.output
  // Of two guardrails one may have the wider window, the other the wider overlap.
  const size = { windowBytes: Math.max(windowBytes, overlapBytes + 1), overlapBytes }
  return { rules, size, inline: rules.all.cost.where(size.windowBytes + CONTEXT_CHARS) === 'inline' }
}

function rulesOf(
  { rules, sources }: SourcedRules,
  owners: readonly AppliedGuardrail[],
  field: FilterField,
): GuardRules | null {
  if (sources.length === 0) return null
  const scopes = new Map(owners.map(({ scope, guardrail }) => [`${guardrail.id} ${scope}`, scope]))
  return {
    all: new Rules(rules, field),
    builtin: new Rules({ builtins: rules.builtins, custom: [] }, field),
    custom: new Rules({ builtins: [], custom: rules.custom }, field),
    sources: sources.map(({ id, scope }, rule) => ({
      guardrailId: id,
      scope: scopes.get(`${id} ${scope}`) ?? 'workspace',
      detector: rules.builtins[rule]?.slug ?? 'custom',
    })),
    owners: owners.map(({ scope, guardrail: { id, name, failMode } }) => ({
      guardrailId: id,
      name,
      scope,
      failMode,
    })),
  }
}

function hasRules(side: {
  readonly contentFilterBuiltins: readonly unknown[]
  readonly contentFilters: readonly unknown[]
}): boolean {
  return side.contentFilterBuiltins.length + side.contentFilters.length > 0
}
