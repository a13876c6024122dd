/**
 * The plan for the texts of a value, made from its TypeBox schema when the process starts. Pure. The schema knows the
 * fields and their enumerated words; in a value that it does not know, every string is a text.
 */
import { Kind, type TSchema } from '@sinclair/typebox'
import { type MapSchema, Rule, type VariantsRule, type VariantsSchema } from '../../protocol/schema.ts'
import {
  FIELDS_UNDER,
  type FieldRule,
  type FieldRules,
  GATEWAY_ITEM_FIELDS,
  ITEM_FIELDS,
  type Leaf,
} from './text-fields.ts'

/** The plan for one value. Null: the schema has no value of this kind here, so every string in it is a text. */
export interface Plan {
  /** Of a string. */
  readonly leaf: Leaf | null
  /** Of the values of a list. */
  readonly each: Plan | null
  /** Of the fields of an object; null: `rest` holds for all of them. */
  readonly fields: ReadonlyMap<string, Plan> | null
  readonly rest: Plan | null
  /** Of objects of several kinds: the field that tells the kind, and the plan of each. */
  readonly kinds: { readonly tag: string; readonly table: ReadonlyMap<unknown, Plan> } | null
  /** A JSON schema, or a value without texts. */
  readonly special: 'schema' | 'nothing' | null
}

const BARE: Plan = { leaf: null, each: null, fields: null, rest: null, kinds: null, special: null }
/** Every string is a text. */
export const EVERYTHING: Plan = BARE
const NOTHING: Plan = { ...BARE, special: 'nothing' }
const JSON_SCHEMA: Plan = { ...BARE, special: 'schema' }
const NAME: Plan = { ...BARE, leaf: 'name' }
const CHOICES: Plan = {
  ...BARE,
  each: {
    ...BARE,
    fields: new Map([
      ['type', NAME],
      ['name', NAME],
    ]),
  },
}

type Make = (schema: TSchema, rules: FieldRules) => Plan

const MAKERS: Readonly<Record<string, Make>> = {
  String: () => ({ ...BARE, leaf: 'text' }),
  Text: () => ({ ...BARE, leaf: 'text' }),
  Literal: () => ({ ...BARE, leaf: 'kept' }),
  Array: (schema, rules) => ({ ...BARE, each: planOf(schema['items'] as TSchema, rules) }),
  Union: (schema, rules) => (schema['anyOf'] as TSchema[]).map(one => planOf(one, rules)).reduce(mergePlans),
  Object: (schema, rules) => ({ ...BARE, fields: fieldsOf(schema, rules) }),
  Map: (schema, rules) => ({ ...BARE, rest: planOf((schema as MapSchema)[Rule].schema, rules) }),
  Metadata: () => ({ ...BARE, rest: { ...BARE, leaf: 'text' } }),
  Variants: (schema, rules) => variantsPlan((schema as VariantsSchema)[Rule], rules),
}

/** Makes the plan of a schema; `rules` hold for its fields. */
export function planOf(schema: TSchema, rules: FieldRules): Plan {
  return MAKERS[schema[Kind]]?.(schema, rules) ?? EVERYTHING
}

/** Applies the rule of a field to its strings: the value itself, or those of a list. */
function applyRule(plan: Plan, rule: FieldRule | undefined): Plan {
  if (rule === undefined) return plan
  if (rule === 'nothing') return NOTHING
  if (rule === 'choices') return CHOICES
  // `parameters` of a server tool are known settings; those of a function are a JSON schema.
  if (rule === 'schema') return plan.fields === null || plan.fields.size === 0 ? JSON_SCHEMA : plan
  const leaf = plan.leaf === 'text' ? rule : plan.leaf
  return { ...plan, leaf, each: plan.each === null ? null : applyRule(plan.each, rule) }
}

function fieldsOf(schema: TSchema, rules: FieldRules): ReadonlyMap<string, Plan> {
  const properties = schema['properties'] as Readonly<Record<string, TSchema>>
  return new Map(
    Object.entries(properties).map(([name, each]) => {
      const inner = FIELDS_UNDER.get(name) ?? rules
      return [name, applyRule(planOf(each, inner), rules[name])] as const
    }),
  )
}

function variantsPlan({ tag, absent, table }: VariantsRule, rules: FieldRules): Plan {
  const plans = new Map<unknown, Plan>()
  for (const [kind, { schema }] of table) plans.set(kind, kindPlan(kind, schema, rules))
  const usual = absent === null ? undefined : plans.get(absent)
  if (usual !== undefined) plans.set(undefined, usual)
  return { ...BARE, kinds: { tag, table: plans } }
}

/** Items of tools that the gateway runs. */
const GATEWAY_ITEM = /^(?:gateway|openrouter):/

function kindPlan(kind: string, schema: TSchema, rules: FieldRules): Plan {
  const own = ITEM_FIELDS.get(kind) ?? {}
  // A server tool has the same `type` as its items, but also settings, which do not reach a provider as one text.
  const isGatewayItem = GATEWAY_ITEM.test(kind) && !('parameters' in (schema['properties'] as object))
  if (!isGatewayItem) return planOf(schema, { ...rules, ...own })
  const plan = planOf(schema, {})
  if (plan.fields === null) return plan
  const known: FieldRules = { ...GATEWAY_ITEM_FIELDS, ...own }
  return {
    ...plan,
    fields: new Map([...plan.fields].map(([name, each]) => [name, applyRule(each, known[name])])),
  }
}

/** Merges the plans of a union. */
function mergePlans(one: Plan, other: Plan): Plan {
  return {
    leaf: one.leaf === 'kept' ? (other.leaf ?? one.leaf) : (one.leaf ?? other.leaf),
    each: one.each ?? other.each,
    fields: one.fields ?? other.fields,
    rest: one.rest ?? other.rest,
    kinds: one.kinds ?? other.kinds,
    special: one.special ?? other.special,
  }
}
