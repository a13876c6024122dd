/**
 * The choice of a route's target. It is computed from the route and from what stays the same in a session, so that all
 * threads and nodes choose alike, and nothing is stored. Each target draws a number of its own (weighted
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
  TAG_PREFIX,
} from '../../protocol/route.ts'
import { conversationOf, hasAnswer } from './conversation.ts'

/** The facts of a request that routes read. */
export interface RoutedRequest {
  /** The id of the exchange: it chooses the target of a request without a session. */
  readonly id: string
  readonly organizationId: string
  /** The request of the client, before plugins and tools have changed it, so that each turn has the same target. */
  readonly request: ResponsesRequest
  /** Approximate tokens of the input. */
  readonly inputTokens: (request: ResponsesRequest) => number
  /** Unix milliseconds. */
  readonly nowMs: number
}

/** Bytes of a hash that are read as a number, and how many such numbers there are. */
const DRAW_BYTES = 6
const DRAW_COUNT = 2 ** (8 * DRAW_BYTES)

/**
 * The targets that may serve the request, the chosen one first. A caller that may not use it gets the next one. Loops
 * instead of callbacks, because every request of a route comes here.
 */
export function drawnTargets(route: Route, routed: RoutedRequest): readonly RouteTarget[] {
  const eligibleTargets = eligibleTargetsOf(route.targets, routed)
  if (eligibleTargets.length === 1 && eligibleTargets[0]?.weight !== 0) return eligibleTargets
  const stickyName = `${route.name} ${keyOf(route, routed)}`
  const rankedTargets: RouteTarget[] = []
  const ranks: number[] = []
  for (const target of eligibleTargets) {
    if (target.weight === 0) continue
    const number = numberOf(`${stickyName} ${target.key}`)
    // Exponentially distributed with the weight as its rate: a target is first as often as its share of the weights says.
    const rank = -Math.log((number + 0.5) / DRAW_COUNT) / target.weight
    let index = rankedTargets.length
    while (index > 0 && (ranks[index - 1] as number) > rank) index--
    rankedTargets.splice(index, 0, target)
    ranks.splice(index, 0, rank)
  }
  return rankedTargets
}

/**
 * The position of a request in the rollout of its route, from 0 (inclusive) to 1 (exclusive). The candidate serves the
 * request if the position is below the candidate's share. A session keeps its position, so a growing share only moves
 * sessions to the candidate.
 */
export function rolloutPosition(route: Route, candidate: string, routed: RoutedRequest): number {
  return numberOf(`${route.name} ${keyOf(route, routed)} rollout ${candidate}`) / DRAW_COUNT
}

function numberOf(text: string): number {
  return hash('sha256', text, 'buffer').readUIntBE(0, DRAW_BYTES)
}

/** The targets whose conditions hold; if there are none, the targets without conditions. */
function eligibleTargetsOf(targets: readonly RouteTarget[], routed: RoutedRequest): readonly RouteTarget[] {
  let matchingTargets: RouteTarget[] | null = null
  let unconditionalTargets: RouteTarget[] | null = null
  for (const [index, target] of targets.entries()) {
    if (target.when.length === 0) {
      unconditionalTargets?.push(target)
      continue
    }
    // The targets before it had no conditions, or have been listed.
    unconditionalTargets ??= targets.slice(0, index)
    if (!holdsAll(target.when, routed)) continue
    matchingTargets ??= []
    matchingTargets.push(target)
  }
  return matchingTargets ?? unconditionalTargets ?? targets
}

/**
 * The name of everything that stays with one target: a session, an end user, or a single request. A conversation without
 * a name is recognized by its beginning once it has an answer; before that, requests that begin alike may be different
 * conversations.
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
      return request.metadata?.[field.slice(TAG_PREFIX.length)] ?? null
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
