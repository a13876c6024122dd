/** Routes: public names that lead to several models, with weights, conditions and fallbacks. Types and tables. Pure. */
import type { ProviderPreferences } from './request.ts'
import type { RolloutGuard, ShadowTerms } from './rollout.ts'

/** The fields that a condition may compare, and the kind of their values. `tag:NAME` is the metadata of this name. */
export const CONDITION_FIELDS = {
  input_tokens: 'number',
  hour: 'number',
  tools: 'boolean',
  images: 'boolean',
  files: 'boolean',
  audio: 'boolean',
} as const
export type ConditionField = keyof typeof CONDITION_FIELDS | `tag:${string}`
export const TAG_PREFIX = 'tag:'

export const CONDITION_OPS = ['=', '!=', '<', '<=', '>', '>=', 'in'] as const

export type ConditionValue = boolean | number | string
export interface Condition {
  readonly field: ConditionField
  readonly op: (typeof CONDITION_OPS)[number]
  /** A list only for `in`. */
  readonly value: ConditionValue | readonly ConditionValue[]
}

export interface RouteTarget {
  /** The id of a model, or another name of it. */
  readonly model: string
  /** Its share among the targets that may be chosen; 0: it is never chosen. */
  readonly weight: number
  /** Take precedence over the preferences of the request; null: none. */
  readonly preferences: ProviderPreferences | null
  /** All have to hold. Empty: the target is used if no target with conditions matches. */
  readonly when: readonly Condition[]
  /** Identifies the target when a session is assigned, so that its position in the list does not matter. */
  readonly key: string
}

/** Units that stay with the target of their first request: a conversation, an end user, or none. */
export const STICKY_UNITS = ['session', 'user', 'none'] as const

/** A candidate that gets a growing share of a route; see rollout.ts. */
export interface RouteRollout {
  readonly candidate: RouteTarget
  /** Per cent, ascending; the last one is 100. */
  readonly steps: readonly number[]
  readonly holdMs: number
  readonly guard: RolloutGuard
  /** Null: no request is sent twice. */
  readonly shadow: ShadowTerms | null
}

export interface Route {
  readonly name: string
  /** Not empty. */
  readonly targets: readonly RouteTarget[]
  /** Models that are tried in this order after the chosen target. */
  readonly fallback: readonly string[]
  readonly sticky: (typeof STICKY_UNITS)[number]
  /** Null: the route has no candidate. */
  readonly rollout: RouteRollout | null
}
