/** The changes that another configuration would make: settings, models, prices, routes. Pure. */
import { formatUsd } from '../../base/money.ts'
import type { Pricing } from '../../protocol/provider.ts'
import type { Route } from '../../protocol/route.ts'
import type { PricedEndpoint, Snapshot } from './snapshot.ts'

export interface SettingChange {
  /** For example `limits.openPerKey` or `providers[openai].baseUrl`. */
  readonly path: string
  /** Null: not set. */
  readonly from: unknown
  readonly to: unknown
}

export interface Repricing {
  readonly model: string
  readonly provider: string
  readonly from: Readonly<Record<string, string | null>>
  readonly to: Readonly<Record<string, string | null>>
}

export interface RouteChange {
  readonly route: string
  readonly change: 'added' | 'removed' | 'changed'
}

export interface Differences {
  readonly settings: readonly SettingChange[]
  readonly models: {
    readonly added: readonly string[]
    readonly removed: readonly string[]
    readonly repriced: readonly Repricing[]
  }
  readonly routes: readonly RouteChange[]
}

export function differencesOf(before: Snapshot, after: Snapshot): Differences {
  const [idsBefore, idsAfter] = [Object.keys(before.models), Object.keys(after.models)]
  const commonIds = idsAfter.filter(id => Object.hasOwn(before.models, id))
  return {
    settings: changesOf(before.settings, after.settings, ''),
    models: {
      added: idsAfter.filter(id => !Object.hasOwn(before.models, id)),
      removed: idsBefore.filter(id => !Object.hasOwn(after.models, id)),
      repriced: commonIds.flatMap(id => repricings(id, before.models[id] ?? [], after.models[id] ?? [])),
    },
    routes: routeChanges(before.routes, after.routes),
  }
}

type Group = Readonly<Record<string, unknown>>

function isGroup(value: unknown): value is Group {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Rows with a slug are compared by slug, so that a row in another place is no change. */
function groupOf(value: unknown): Group | null {
  if (!Array.isArray(value) || value.length === 0) return null
  const rows = value.map((row): readonly [unknown, unknown] => [isGroup(row) ? row['slug'] : undefined, row])
  return rows.every(([name]) => typeof name === 'string') ? Object.fromEntries(rows) : null
}

function changesOf(from: unknown, to: unknown, path: string): readonly SettingChange[] {
  if (JSON.stringify(from) === JSON.stringify(to)) return []
  if (isGroup(from) && isGroup(to)) {
    return [...new Set([...Object.keys(from), ...Object.keys(to)])].flatMap(name =>
      changesOf(from[name], to[name], path === '' ? name : `${path}.${name}`),
    )
  }
  const [before, after] = [groupOf(from), groupOf(to)]
  const isEmpty = (value: unknown): boolean =>
    value === undefined || (Array.isArray(value) && value.length === 0)
  if ((before ?? after) !== null && (before !== null || isEmpty(from)) && (after !== null || isEmpty(to))) {
    return [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])].flatMap(name =>
      changesOf(before?.[name], after?.[name], `${path}[${name}]`),
    )
  }
  return [{ path, from: from ?? null, to: to ?? null }]
}

function repricings(
  model: string,
  before: readonly PricedEndpoint[],
  after: readonly PricedEndpoint[],
): readonly Repricing[] {
  return after.flatMap(({ provider, pricing }) => {
    const oldPricing = before.find(endpoint => endpoint.provider === provider)?.pricing
    if (oldPricing === undefined || JSON.stringify(oldPricing) === JSON.stringify(pricing)) return []
    return [{ model, provider, from: show(oldPricing), to: show(pricing) }]
  })
}

function show({ prompt, completion, isUnknown }: Pricing): Readonly<Record<string, string | null>> {
  if (isUnknown === true) return { prompt: null, completion: null }
  return { prompt: formatUsd(prompt), completion: formatUsd(completion) }
}

function routeChanges(before: readonly Route[], after: readonly Route[]): readonly RouteChange[] {
  const [textsBefore, textsAfter] = [before, after].map(
    routes => new Map(routes.map(route => [route.name, JSON.stringify(route)])),
  )
  const names = new Set([...(textsBefore?.keys() ?? []), ...(textsAfter?.keys() ?? [])])
  return [...names].flatMap((route): readonly RouteChange[] => {
    const [from, to] = [textsBefore?.get(route), textsAfter?.get(route)]
    if (from === to) return []
    return [{ route, change: from === undefined ? 'added' : to === undefined ? 'removed' : 'changed' }]
  })
}
