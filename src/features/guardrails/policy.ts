/**
 * Merges several guardrails into one policy: restrictions, rules, and the guardrail that each rule came from. Pure.
 * Merging never loosens a rule, and the order of the guardrails does not matter.
 */
import type { Region } from '../../protocol/data-regions.ts'
import type { BuiltinSlug, FailMode, FilterAction, ScanScope } from '../../protocol/management/guardrails.ts'
import { type BuiltinRule, type CustomRule, isStricter, NO_RULES, type RuleSet } from './detector.ts'

/** The scopes in which a guardrail applies, from the broadest to the narrowest. */
export const SCOPES = ['account', 'workspace', 'member', 'api-key'] as const
type PolicyScope = (typeof SCOPES)[number]

export const ZDR_GROUPS = ['anthropic', 'openai', 'google', 'xai', 'other'] as const
export type ZdrGroup = (typeof ZDR_GROUPS)[number]

interface Filter {
  readonly slug: BuiltinSlug
  readonly action: FilterAction
  readonly scanScope: ScanScope
}

/** The fields of a guardrail that are merged. Store records have this form; a null field sets no rule. */
export interface PolicyGuardrail {
  readonly id: string
  readonly name: string
  readonly allowedModels: readonly string[] | null
  readonly ignoredModels: readonly string[] | null
  readonly allowedProviders: readonly string[] | null
  readonly ignoredProviders: readonly string[] | null
  readonly enforceZdr: Readonly<Record<ZdrGroup, boolean | null>>
  readonly enableFreeModelTraining: boolean | null
  readonly enableFreeModelPublication: boolean | null
  readonly enablePaidModelTraining: boolean | null
  readonly allowedDataRegions: readonly Region[] | null
  readonly contentFilterBuiltins: readonly Filter[]
  readonly contentFilters: readonly CustomRule[]
  readonly output: {
    readonly contentFilterBuiltins: readonly Filter[]
    readonly contentFilters: readonly CustomRule[]
    readonly windowBytes: number
    readonly overlapBytes: number
  } | null
  readonly failMode: FailMode
}

export interface AppliedGuardrail {
  readonly scope: PolicyScope
  readonly guardrail: PolicyGuardrail
}

/** Restrictions on requests, apart from their content. Null: no restriction; an empty list allows nothing. */
export interface PolicyRestrictions {
  readonly allowedModels: readonly string[] | null
  readonly ignoredModels: readonly string[]
  readonly allowedProviders: readonly string[] | null
  readonly ignoredProviders: readonly string[]
  readonly zdr: Readonly<Record<ZdrGroup, boolean>>
  readonly regions: readonly Region[] | null
  /** False if any guardrail forbids it; null if no guardrail has a rule. */
  readonly freeModelTraining: boolean | null
  readonly freeModelPublication: boolean | null
  readonly paidModelTraining: boolean | null
}

/** The guardrail that a rule comes from. */
interface SourceGuardrail {
  readonly id: string
  readonly name: string
  readonly scope: PolicyScope
}

/** Rules of several guardrails; `sources[finding.rule]` is the guardrail of a finding. */
export interface SourcedRules {
  readonly rules: RuleSet
  readonly sources: readonly SourceGuardrail[]
}

export interface Policy {
  readonly restrictions: PolicyRestrictions
  readonly input: SourcedRules
  /** Null if no rule checks output. */
  readonly output: (SourcedRules & { readonly windowBytes: number; readonly overlapBytes: number }) | null
  /** Closed if any guardrail with content rules fails closed. */
  readonly failMode: FailMode
}

export function mergeGuardrails(applied: readonly AppliedGuardrail[]): Policy {
  const ordered = applied.toSorted(
    (a, b) => SCOPES.indexOf(a.scope) - SCOPES.indexOf(b.scope) || compare(a.guardrail.id, b.guardrail.id),
  )
  const guardrails = ordered.map(({ guardrail }) => guardrail)
  const outputs = ordered.flatMap(({ scope, guardrail }) =>
    guardrail.output === null ? [] : [{ scope, guardrail, side: guardrail.output }],
  )
  const output = mergeRules(outputs)
  return {
    restrictions: mergeRestrictions(guardrails),
    input: mergeRules(ordered.map(({ scope, guardrail }) => ({ scope, guardrail, side: guardrail }))),
    output:
      output.sources.length === 0
        ? null
        : {
            ...output,
            windowBytes: Math.max(...outputs.map(({ side }) => side.windowBytes)),
            overlapBytes: Math.max(...outputs.map(({ side }) => side.overlapBytes)),
          },
    failMode:
      guardrails.length > 0 && guardrails.filter(hasContentRules).every(({ failMode }) => failMode === 'open')
        ? 'open'
        : 'closed',
  }
}

const hasContentRules = ({ contentFilterBuiltins, contentFilters, output }: PolicyGuardrail): boolean =>
  contentFilterBuiltins.length > 0 || contentFilters.length > 0 || output !== null

function mergeRestrictions(guardrails: readonly PolicyGuardrail[]): PolicyRestrictions {
  const zdr = (group: ZdrGroup): boolean => guardrails.some(({ enforceZdr }) => enforceZdr[group] === true)
  return {
    allowedModels: intersection(
      guardrails.map(({ allowedModels }) => allowedModels),
      isSame,
    ),
    ignoredModels: union(guardrails.map(({ ignoredModels }) => ignoredModels)),
    allowedProviders: intersection(
      guardrails.map(({ allowedProviders }) => allowedProviders),
      isProviderWithin,
    ),
    ignoredProviders: union(guardrails.map(({ ignoredProviders }) => ignoredProviders)),
    zdr: {
      anthropic: zdr('anthropic'),
      openai: zdr('openai'),
      google: zdr('google'),
      xai: zdr('xai'),
      other: zdr('other'),
    },
    regions: intersection(
      guardrails.map(({ allowedDataRegions }) => allowedDataRegions),
      isSame,
    ),
    freeModelTraining: narrowest(guardrails.map(({ enableFreeModelTraining }) => enableFreeModelTraining)),
    freeModelPublication: narrowest(
      guardrails.map(({ enableFreeModelPublication }) => enableFreeModelPublication),
    ),
    paidModelTraining: narrowest(guardrails.map(({ enablePaidModelTraining }) => enablePaidModelTraining)),
  }
}

const isSame = (a: string, b: string): boolean => a === b
/** A base slug includes every region and variant of a provider. */
const isProviderWithin = (name: string, allowed: string): boolean => {
  const [narrow, wide] = [name.toLowerCase(), allowed.toLowerCase()]
  return narrow === wide || narrow.startsWith(`${wide}/`)
}

/** The names that every list allows, sorted; null if there is no list. */
function intersection<Name extends string>(
  lists: readonly (readonly Name[] | null)[],
  isWithin: (name: string, allowed: string) => boolean,
): readonly Name[] | null {
  const restricting = lists.filter(list => list !== null)
  if (restricting.length === 0) return null
  const names = restricting
    .flat()
    .filter(name => restricting.every(list => list.some(entry => isWithin(name, entry))))
  return [...new Set(names)].toSorted(compare)
}

function union(lists: readonly (readonly string[] | null)[]): readonly string[] {
  return [...new Set(lists.flatMap(list => list ?? []))].toSorted(compare)
}

function narrowest(values: readonly (boolean | null)[]): boolean | null {
  if (values.includes(false)) return false
  return values.includes(true) ? true : null
}

interface Side {
  readonly scope: PolicyScope
  readonly guardrail: PolicyGuardrail
  readonly side: {
    readonly contentFilterBuiltins: readonly Filter[]
    readonly contentFilters: readonly CustomRule[]
  }
}

/** Keeps the strictest of equal rules. If several are equally strict, the rule of the broadest guardrail counts. */
function mergeRules(sides: readonly Side[]): SourcedRules {
  const builtins: { rule: BuiltinRule; source: SourceGuardrail }[] = []
  const custom: { rule: CustomRule; source: SourceGuardrail }[] = []
  for (const { scope, guardrail, side } of sides) {
    const source: SourceGuardrail = { id: guardrail.id, name: guardrail.name, scope }
    for (const { slug, action, scanScope } of side.contentFilterBuiltins) {
      builtins.push({ rule: { slug, action, scope: scanScope }, source })
    }
    for (const { pattern, action, label } of side.contentFilters)
      custom.push({ rule: { pattern, action, label }, source })
  }
  const strictBuiltins = withoutWeaker(builtins, (stricter, rule) => {
    if (stricter.slug !== rule.slug) return false
    return (
      (stricter.scope === 'all_messages' || rule.scope === 'user_only') &&
      !isStricter(rule.action, stricter.action)
    )
  }).toSorted((a, b) => compare(builtinKey(a.rule), builtinKey(b.rule)))
  const strictCustom = withoutWeaker(
    custom,
    (stricter, rule) => stricter.pattern === rule.pattern && !isStricter(rule.action, stricter.action),
  ).toSorted((a, b) => compare(a.rule.pattern, b.rule.pattern))
  if (strictBuiltins.length + strictCustom.length === 0) return { rules: NO_RULES, sources: [] }
  return {
    rules: { builtins: strictBuiltins.map(({ rule }) => rule), custom: strictCustom.map(({ rule }) => rule) },
    sources: [...strictBuiltins, ...strictCustom].map(({ source }) => source),
  }
}

const builtinKey = ({ slug, scope }: BuiltinRule): string => `${slug} ${scope}`

/** Drops every rule that another one covers; of two rules that cover each other, keeps the first. */
function withoutWeaker<Rule>(
  candidates: readonly { readonly rule: Rule; readonly source: SourceGuardrail }[],
  covers: (stricter: Rule, rule: Rule) => boolean,
): { readonly rule: Rule; readonly source: SourceGuardrail }[] {
  return candidates.filter(({ rule }, index) =>
    candidates.every(
      (candidate, otherIndex) =>
        otherIndex === index ||
        !covers(candidate.rule, rule) ||
        (covers(rule, candidate.rule) && index < otherIndex),
    ),
  )
}

/** The same order on all machines: by code units. */
const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)
