/**
 * What is looked at in a value, worked out from its schema when the process starts. Pure. A schema knows where a field
 * stands and which words it may hold; what the schema does not know is looked at whole.
 */
import { Kind, type TSchema } from '@sinclair/typebox'
import { type MapSchema, Rule, type VariantsRule, type VariantsSchema } from '../../protocol/schema.ts'
import {
  FIELDS_UNDER,
  type FieldRule,
  GATEWAY_ITEM_FIELDS,
  ITEM_FIELDS,
  type Leaf,
  type Rules,
} from './text-fields.ts'

/** How one value is looked at. Null: the schema has no value of this kind here, so nothing is known of it. */
export interface Plan {
  readonly leaf: Leaf | null
  readonly each: Plan | null
  /** Null: every field is looked at as `rest`. */
  readonly fields: ReadonlyMap<string, Plan> | null
  readonly rest: Plan | null
  readonly kinds: { readonly tag: string; readonly table: ReadonlyMap<unknown, Plan> } | null
  readonly special: 'schema' | 'nothing' | null
}

const BARE: Plan = { leaf: null, each: null, fields: null, rest: null, kinds: null, special: null }
/** Everything is looked at. */
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

type Make = (schema: TSchema, rules: Rules) => Plan

const MAKERS: Readonly<Record<string, Make>> = {
  String: () => ({ ...BARE, leaf: 'text' }),
  Text: () => ({ ...BARE, leaf: 'text' }),
  Literal: () => ({ ...BARE, leaf: 'kept' }),
  Array: (schema, rules) => ({ ...BARE, each: planOf(schema['items'] as TSchema, rules) }),
  Union: (schema, rules) => (schema['anyOf'] as TSchema[]).map(one => planOf(one, rules)).reduce(either),
  Object: (schema, rules) => ({ ...BARE, fields: fieldsOf(schema, rules) }),
  Map: (schema, rules) => ({ ...BARE, rest: planOf((schema as MapSchema)[Rule].schema, rules) }),
  Metadata: () => ({ ...BARE, rest: { ...BARE, leaf: 'text' } }),
  Variants: (schema, rules) => variantsPlan((schema as VariantsSchema)[Rule], rules),
}

/** How values of the schema are looked at, where fields that it knows follow these rules. */
export function planOf(schema: TSchema, rules: Rules): Plan {
  return MAKERS[schema[Kind]]?.(schema, rules) ?? EVERYTHING
}

/** The plan with a rule for the strings of the value itself and of a list. */
function ruled(plan: Plan, rule: FieldRule | undefined): Plan {
  if (rule === undefined) return plan
  if (rule === 'nothing') return NOTHING
  if (rule === 'choices') return CHOICES
  // Settings of tools of ours are called like the schemas of functions, and are known.
  if (rule === 'schema') return plan.fields === null || plan.fields.size === 0 ? JSON_SCHEMA : plan
  const leaf = plan.leaf === 'text' ? rule : plan.leaf
  return { ...plan, leaf, each: plan.each === null ? null : ruled(plan.each, rule) }
}

function fieldsOf(schema: TSchema, rules: Rules): ReadonlyMap<string, Plan> {
  const properties = schema['properties'] as Readonly<Record<string, TSchema>>
  return new Map(
    Object.entries(properties).map(([name, each]) => {
      const inner = FIELDS_UNDER.get(name) ?? rules
      return [name, ruled(planOf(each, inner), rules[name])] as const
    }),
  )
}

function variantsPlan({ tag, absent, table }: VariantsRule, rules: Rules): Plan {
  const plans = new Map<unknown, Plan>()
  for (const [kind, { schema }] of table) plans.set(kind, kindPlan(kind, schema, rules))
  const usual = absent === null ? undefined : plans.get(absent)
  if (usual !== undefined) plans.set(undefined, usual)
  return { ...BARE, kinds: { tag, table: plans } }
}

const OUR_ITEM = /^(?:gateway|openrouter):/

function kindPlan(kind: string, schema: TSchema, rules: Rules): Plan {
  const own = ITEM_FIELDS.get(kind) ?? {}
  // A tool of ours is called like its items; it has settings, which do not go to a provider as one text.
  const isOurItem = OUR_ITEM.test(kind) && !('parameters' in (schema['properties'] as object))
  if (!isOurItem) return planOf(schema, { ...rules, ...own })
  const plan = planOf(schema, {})
  if (plan.fields === null) return plan
  const known: Rules = { ...GATEWAY_ITEM_FIELDS, ...own }
  return {
    ...plan,
    fields: new Map([...plan.fields].map(([name, each]) => [name, ruled(each, known[name])])),
  }
}

/** Of a value that may be either. */
function either(one: Plan, other: Plan): Plan {
  return {
    leaf: one.leaf === 'kept' ? (other.leaf ?? one.leaf) : (one.leaf ?? other.leaf),
    each: one.each ?? other.each,
    fields: one.fields ?? other.fields,
    rest: one.rest ?? other.rest,
    kinds: one.kinds ?? other.kinds,
    special: one.special ?? other.special,
  }
}
