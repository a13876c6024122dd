/**
 * The content rules from all of a caller's guardrails, compiled for requests or for replies. Each rule records its
 * guardrail, and each guardrail records what happens if it cannot be evaluated. Pure.
 */
import { createHash } from 'node:crypto'
import { ScanCost } from '../../features/guardrails/cost.ts'
import { CONTEXT_CHARS, type RuleSet } from '../../features/guardrails/detector.ts'
import type { Policy, SourcedRules } from '../../features/guardrails/policy.ts'
import { compileRules, type FilterField } from '../../features/guardrails/rules.ts'
import type { Scanner } from '../../features/guardrails/scanner.ts'
import type { WindowSize } from '../../features/guardrails/window.ts'
import type { BuiltinSlug } from '../../protocol/management/guardrails.ts'
import type { AppliedGuardrail, GuardrailScope } from '../../storage/guardrails.ts'

/** The guardrail that a rule comes from, and its detector. */
export interface RuleSource {
  readonly guardrailId: string
  readonly scope: GuardrailScope
  readonly detector: BuiltinSlug | 'custom'
}

/** A guardrail with rules for this side, requests or replies. */
export interface RuleOwner {
  readonly guardrailId: string
  readonly name: string
  readonly scope: GuardrailScope
  /** `open`: requests and replies continue if the guardrail cannot be evaluated. */
  readonly failMode: 'open' | 'closed'
}

export interface GuardRules {
  readonly allRules: CompiledRules
  /** Only the built-in detectors. */
  readonly builtin: CompiledRules
  /** Only user-defined patterns. */
  readonly custom: CompiledRules
  /** Indexed by the number of the rule in `allRules`. */
  readonly sources: readonly RuleSource[]
  /** Never empty. */
  readonly owners: readonly RuleOwner[]
  /** True if a rule masks. */
  readonly masks: boolean
}

export interface OutputGuardRules {
  readonly rules: GuardRules
  readonly size: WindowSize
  /** True if windows are scanned on this thread. */
  readonly isInline: boolean
}

/** A rule set that is compiled at first use. */
export class CompiledRules {
  readonly set: RuleSet
  /** Equal for equal rules: the key under which workers cache compiled rules. */
  readonly key: string
  readonly cost: ScanCost
  /** The field of the guardrail with the patterns: errors about a pattern name it. */
  readonly field: FilterField
  #scanner: Scanner | null = null

  constructor(set: RuleSet, field: FilterField) {
    this.set = set
    this.field = field
    this.cost = new ScanCost(set)
    this.key = createHash('sha256').update(JSON.stringify(set)).digest('base64')
  }

  get scanner(): Scanner {
    this.#scanner ??= compileRules(this.set, this.field)
    return this.#scanner
  }
}

/** Null if no rule looks at requests. */
export function inputRulesOf(policy: Policy, applied: readonly AppliedGuardrail[]): GuardRules | null {
  const owners = applied.filter(({ guardrail }) => hasRules(guardrail))
  return rulesOf(policy.input, owners, 'content_filters')
}

/** Null if no rule looks at replies. */
export function outputRulesOf(policy: Policy, applied: readonly AppliedGuardrail[]): OutputGuardRules | null {
  if (policy.output === null) return null
  const owners = applied.filter(({ guardrail: { output } }) => output !== null && hasRules(output))
  const rules = rulesOf(policy.output, owners, 'output.content_filters')
  if (rules === null) return null
  const { windowBytes, overlapBytes } = policy.output
  // One guardrail may have the wider window, another one the wider overlap.
  const size = { windowBytes: Math.max(windowBytes, overlapBytes + 1), overlapBytes }
  return {
    rules,
    size,
    isInline: rules.allRules.cost.placeFor(size.windowBytes + CONTEXT_CHARS) === 'inline',
  }
}

function rulesOf(
  { rules, sources }: SourcedRules,
  owners: readonly AppliedGuardrail[],
  field: FilterField,
): GuardRules | null {
  if (sources.length === 0) return null
  const scopes = new Map(owners.map(({ scope, guardrail }) => [`${guardrail.id} ${scope}`, scope]))
  return {
    allRules: new CompiledRules(rules, field),
    builtin: new CompiledRules({ builtins: rules.builtins, custom: [] }, field),
    custom: new CompiledRules({ builtins: [], custom: rules.custom }, field),
    sources: sources.map(({ id, scope }, rule) => ({
      guardrailId: id,
      scope: scopes.get(`${id} ${scope}`) ?? 'workspace',
      detector: rules.builtins[rule]?.slug ?? 'custom',
    })),
    masks: [...rules.builtins, ...rules.custom].some(({ action }) => action === 'mask'),
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
