/** Reads `routes` of the configuration, and the models that stand for routes in the catalogue. Pure. */
import { didYouMean } from '../base/did-you-mean.ts'
import { UNITS_PER_USD } from '../base/money.ts'
import type { Faults } from '../base/settings/check.ts'
import type { Model } from '../protocol/provider.ts'
import type { ProviderPreferences } from '../protocol/request.ts'
import { ALL_PERCENT, DEFAULT_GUARD_ERRORS, DEFAULT_STEPS, type ShadowTerms } from '../protocol/rollout.ts'
import {
  CONDITION_FIELDS,
  type Condition,
  type ConditionField,
  type ConditionValue,
  type Route,
  type RouteRollout,
  type RouteTarget,
  TAG_PREFIX,
} from '../protocol/route.ts'
import { quote } from './provider-rows.ts'
import type { RolloutRow, RouteRow } from './row-schemas.ts'

type ConditionRow = NonNullable<RouteRow['targets'][number]['when']>[number]

/** Checks the rows against each other and against the names of models. */
export function readRoutes(
  rows: readonly RouteRow[],
  rollouts: readonly RolloutRow[],
  isModel: (name: string) => boolean,
  faults: Faults,
): readonly Route[] {
  const rolloutByRoute = readRollouts(rollouts, rows, faults)
  const names = new Set<string>()
  return rows.map((row, index): Route => {
    const path = `routes[${index}]`
    const { name, fallback = [], sticky = 'session' } = row
    if (names.has(name)) faults.add(`${path}.name`, `duplicate name ${quote(name)}`)
    else if (isModel(name))
      faults.add(`${path}.name`, `a model has the name ${quote(name)}; give the route another one`)
    names.add(name)
    const targets = row.targets.map((target, targetIndex): RouteTarget => {
      const { model, weight = 1, provider, when = [] } = target
      for (const [conditionIndex, condition] of when.entries())
        checkCondition(condition, `${path}.targets[${targetIndex}].when[${conditionIndex}]`, faults)
      return {
        model,
        weight,
        preferences:
          provider === undefined
            ? null
            : typeof provider === 'string'
              ? { only: [provider] }
              : (provider as ProviderPreferences),
        when: when as readonly Condition[],
        key: JSON.stringify([model, provider ?? null, when]),
      }
    })
    const keys = targets.map(({ key }) => key)
    for (const [targetIndex, key] of keys.entries())
      if (keys.indexOf(key) !== targetIndex)
        faults.add(`${path}.targets[${targetIndex}]`, 'is the same as an earlier target')
    if (targets.every(({ weight }) => weight === 0))
      faults.add(`${path}.targets`, 'at least one needs a weight above 0')
    return { name, targets, fallback, sticky, rollout: rolloutByRoute.get(name) ?? null }
  })
}

const MINUTE_MS = 60_000

/** Rollouts by their route. */
function readRollouts(
  rows: readonly RolloutRow[],
  routes: readonly RouteRow[],
  faults: Faults,
): ReadonlyMap<string, RouteRollout> {
  const rolloutByRoute = new Map<string, RouteRollout>()
  for (const [index, row] of rows.entries()) {
    const path = `rollouts[${index}]`
    const { route, candidate, steps = DEFAULT_STEPS, holdMinutes, guard = {} } = row
    const { errors = DEFAULT_GUARD_ERRORS, ...guardFields } = guard
    if (rolloutByRoute.has(route))
      faults.add(`${path}.route`, `the route ${quote(route)} has a rollout already`)
    else if (!routes.some(({ name }) => name === route)) {
      const names = routes.map(({ name }) => name)
      faults.add(`${path}.route`, `there is no such route${didYouMean(route, names)}`)
    }
    if (steps.at(-1) !== ALL_PERCENT || steps.some((step, stepIndex) => step <= (steps[stepIndex - 1] ?? -1)))
      faults.add(`${path}.steps`, `must ascend and end with ${ALL_PERCENT}`)
    const shadow = readShadow(row, path, faults)
    if (steps[0] === 0 && shadow === null)
      faults.add(
        `${path}.steps`,
        'a step of 0 compares nothing without shadows: set shadow, or leave the 0 out',
      )
    if (guardFields.judged !== undefined && shadow === null)
      faults.add(`${path}.guard.judged`, 'only the answers of shadows are judged: set shadow')
    rolloutByRoute.set(route, {
      candidate: {
        model: candidate,
        weight: 1,
        preferences: null,
        when: [],
        key: JSON.stringify([candidate, null, []]),
      },
      steps,
      holdMs: holdMinutes * MINUTE_MS,
      guard: { errors, ...guardFields },
      shadow,
    })
  }
  return rolloutByRoute
}

function readShadow(
  { shadow = 0, shadowBudgetUsd }: RolloutRow,
  path: string,
  faults: Faults,
): ShadowTerms | null {
  if (shadow === 0) return null
  if (shadowBudgetUsd === undefined)
    faults.add(
      `${path}.shadowBudgetUsd`,
      'shadows cost money that no caller pays: say how much they may cost',
    )
  return { share: shadow, budget: Math.round((shadowBudgetUsd ?? 0) * UNITS_PER_USD) }
}

function checkCondition({ field, op, value }: ConditionRow, path: string, faults: Faults): void {
  const kind = field.startsWith(TAG_PREFIX)
    ? 'string'
    : CONDITION_FIELDS[field as Exclude<ConditionField, `tag:${string}`>]
  const values: readonly ConditionValue[] = Array.isArray(value) ? value : [value as ConditionValue]
  if ((op === 'in') !== Array.isArray(value))
    faults.add(
      `${path}.value`,
      op === 'in' ? 'a list is expected after in' : `a list is expected only after in, not after ${op}`,
    )
  else if (kind !== 'number' && op !== '=' && op !== '!=' && op !== 'in')
    faults.add(`${path}.op`, `${field} can only be compared by =, != or in`)
  else if (values.some(item => typeof item !== kind))
    faults.add(`${path}.value`, `${field} is compared with ${KIND_NAMES[kind]}`)
}

const KIND_NAMES = { number: 'numbers', boolean: 'true or false', string: 'text: put it in quotes' } as const

/** The models that stand for routes. A route none of whose targets is in the catalogue yet is left out. */
export function routeModels(
  routes: readonly Route[],
  modelOf: (id: string) => Model | undefined,
): readonly Model[] {
  return routes.flatMap(route => {
    const models = [...new Set(route.targets.flatMap(({ model }) => modelOf(model) ?? []))]
    const [first] = models
    if (first === undefined) return []
    const endpoints = models.flatMap(model => model.endpoints)
    return [{ ...first, id: route.name, name: route.name, endpoints, route }]
  })
}
