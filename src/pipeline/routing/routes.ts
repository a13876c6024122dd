/**
 * The choice of a route's target. It is computed from the route and from what stays the same in a session, so that all
 * threads and nodes choose alike, and nothing is stored. Each target has a place in a lottery of its own (weighted
 * rendezvous hashing): if a target is added, dropped or weighted anew, only the sessions that it wins or loses move.
 * Hot path.
 */
import { hash } from 'node:crypto'
import type { ResponsesRequest } from '../../protocol/request.ts'
import {
  type Condition,
  type ConditionValue,
  type Route,
  type RouteTarget,
  TAG,
} from '../../protocol/route.ts'
import { conversationOf, hasAnswer } from './conversation.ts'

/** What a route knows of a request. */
export interface RoutedRequest {
  /** The id of the exchange: a request that stays with nobody is chosen by it. */
  readonly id: string
  readonly organizationId: string
  /** The request of the client, before plugins and tools have changed it, so that each turn has the same target. */
  readonly request: ResponsesRequest
  /** Approximate tokens of the input. */
  readonly inputTokens: (request: ResponsesRequest) => number
  /** Unix milliseconds. */
  readonly nowMs: number
}

/** The targets that may serve the request, the chosen one first. A caller that may not use it gets the next one. */
export function drawnTargets(route: Route, routed: RoutedRequest): readonly RouteTarget[] {
  const { targets } = route
  const only = targets[0] as RouteTarget
  if (targets.length === 1 && only.when.length === 0) return targets
  const fitting = targets.filter(({ when }) => when.length > 0 && holdsAll(when, routed))
  const among = fitting.length > 0 ? fitting : targets.filter(({ when }) => when.length === 0)
  if (among.length < 2) return among
  const stay = `${route.name} ${keyOf(route, routed)}`
  return among
    .map(target => ({ target, place: placeOf(target, stay) }))
    .filter(({ place }) => place < Number.POSITIVE_INFINITY)
    .sort((one, other) => one.place - other.place)
    .map(({ target }) => target)
}

/** Bytes of a hash that become a number, and the number of these numbers. */
const DRAW_BYTES = 6
const DRAWS = 2 ** (8 * DRAW_BYTES)

/** The smallest place wins: exponentially distributed with the weight as its rate, so shares follow the weights. */
function placeOf({ key, weight }: RouteTarget, stay: string): number {
  const drawn = hash('sha256', `${stay} ${key}`, 'buffer').readUIntBE(0, DRAW_BYTES)
  return -Math.log((drawn + 0.5) / DRAWS) / weight
}

/**
 * What stays with a target. Without a name, a conversation is known by its beginning once it has an answer; before that,
 * requests that begin alike are not one conversation.
 */
function keyOf({ sticky }: Route, { id, organizationId, request }: RoutedRequest): string {
  let name: string | null = null
  if (sticky === 'session') {
    const isNamed = request.session_id !== undefined || request.prompt_cache_key != null
    if (isNamed || hasAnswer(request)) name = conversationOf(request)
  } else if (sticky === 'user') name = request.safety_identifier ?? request.user ?? null
  return name === null ? id : `${organizationId} ${name}`
}

function holdsAll(conditions: readonly Condition[], routed: RoutedRequest): boolean {
  return conditions.every(condition => holds(condition, routed))
}

function holds({ field, op, value }: Condition, routed: RoutedRequest): boolean {
  const actual = actualOf(field, routed)
  if (Array.isArray(value)) return actual !== null && value.includes(actual)
  return COMPARISONS[op](actual, value as ConditionValue)
}

/** A tag that is absent equals nothing. */
const COMPARISONS: Readonly<
  Record<Condition['op'], (actual: ConditionValue | null, value: ConditionValue) => boolean>
> = {
  '=': (actual, value) => actual === value,
  '!=': (actual, value) => actual !== value,
  '<': (actual, value) => actual !== null && actual < value,
  '<=': (actual, value) => actual !== null && actual <= value,
  '>': (actual, value) => actual !== null && actual > value,
  '>=': (actual, value) => actual !== null && actual >= value,
  in: () => false,
}

function actualOf(field: Condition['field'], routed: RoutedRequest): ConditionValue | null {
  const { request } = routed
  switch (field) {
    case 'input_tokens':
      return routed.inputTokens(request)
    case 'hour':
      return new Date(routed.nowMs).getUTCHours()
    case 'tools':
      return (request.tools?.length ?? 0) > 0
    case 'images':
      return hasPart(request, 'input_image')
    case 'files':
      return hasPart(request, 'input_file')
    case 'audio':
      return hasPart(request, 'input_audio')
    default:
      return request.metadata?.[field.slice(TAG.length)] ?? null
  }
}

/** True if a message, or the output of a tool, has a part of this type. */
function hasPart({ input }: ResponsesRequest, type: string): boolean {
  if (!Array.isArray(input)) return false
  return input.some(item => {
    const { content, output } = item as { readonly content?: unknown; readonly output?: unknown }
    return [content, output].some(
      parts =>
        Array.isArray(parts) && parts.some((part: { readonly type?: unknown } | null) => part?.type === type),
    )
  })
}
