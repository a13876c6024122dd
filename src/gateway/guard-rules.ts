/**
 * The content rules of all guardrails of a caller, ready for use on requests or on replies: whose each rule is, where
 * they are evaluated, and what happens when they cannot be. Pure.
 */
import { createHash } from 'node:crypto'
import { whereToScan } from '../guardrails/cost.ts'
import type { Policy, SourcedRules } from '../guardrails/policy.ts'
import { compileRules, type RuleSet, type Scanner } from '../guardrails/rules.ts'
import type { WindowSize } from '../guardrails/window.ts'
import type { BuiltinSlug } from '../protocol/guardrails.ts'
import type { AppliedGuardrail, GuardrailScope } from '../storage/guardrails.ts'

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
  #scanner: Scanner | null = null

  constructor(set: RuleSet) {
    this.set = set
    this.key = createHash('sha256').update(JSON.stringify(set)).digest('base64')
  }

  get scanner(): Scanner {
    this.#scanner ??= compileRules(this.set)
    return this.#scanner
  }
}

/** Null: nothing to look for in requests. */
export function inputRulesOf(policy: Policy, applied: readonly AppliedGuardrail[]): GuardRules | null {
  const owners = applied.filter(({ guardrail }) => hasRules(guardrail))
  return rulesOf(policy.input, owners)
}

/** Null: nothing to look for in replies. */
export function outputRulesOf(policy: Policy, applied: readonly AppliedGuardrail[]): OutputGuardRules | null {
  if (policy.output === null) return null
  const owners = applied.filter(({ guardrail: { output } }) => output !== null && hasRules(output))
  const rules = rulesOf(policy.output, owners)
  if (rules === null) return null
  const { windowBytes, overlapBytes } = policy.output
  // Of two guardrails one may have the wider window, the other the wider overlap.
  const size = { windowBytes: Math.max(windowBytes, overlapBytes + 1), overlapBytes }
  return { rules, size, inline: whereToScan(rules.all.set, size.windowBytes) === 'inline' }
}

function rulesOf({ rules, sources }: SourcedRules, owners: readonly AppliedGuardrail[]): GuardRules | null {
  if (sources.length === 0) return null
  const scopes = new Map(owners.map(({ scope, guardrail }) => [`${guardrail.id} ${scope}`, scope]))
  return {
    all: new Rules(rules),
    builtin: new Rules({ builtins: rules.builtins, custom: [] }),
    custom: new Rules({ builtins: [], custom: rules.custom }),
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
