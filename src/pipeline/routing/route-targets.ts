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

/** Bytes of a hash that become a number, and the number of these numbers. */
const DRAW_BYTES = 6
const DRAWS = 2 ** (8 * DRAW_BYTES)

/**
 * The targets that may serve the request, the chosen one first. A caller that may not use it gets the next one. Loops
 * instead of callbacks, because every request of a route comes here.
 */
export function drawnTargets(route: Route, routed: RoutedRequest): readonly RouteTarget[] {
  const among = amongOf(route.targets, routed)
  if (among.length === 1 && among[0]?.weight !== 0) return among
  const stay = `${route.name} ${keyOf(route, routed)}`
  const drawn: RouteTarget[] = []
  const ranks: number[] = []
  for (const target of among) {
    if (target.weight === 0) continue
    const number = numberOf(`${stay} ${target.key}`)
    // Exponentially distributed with the weight as its rate, so the smallest place has the share of the weight.
    const rank = -Math.log((number + 0.5) / DRAWS) / target.weight
    let at = drawn.length
    while (at > 0 && (ranks[at - 1] as number) > rank) at--
    drawn.splice(at, 0, target)
    ranks.splice(at, 0, rank)
  }
  return drawn
}

/**
 * The place of a request in the rollout of its route, from 0 (inclusive) to 1 (exclusive): it is the candidate's if it is
 * below the candidate's share. The place stays in a session, so a growing share only moves sessions to the candidate.
 */
export function rolloutPlace(route: Route, candidate: string, routed: RoutedRequest): number {
  return numberOf(`${route.name} ${keyOf(route, routed)} rollout ${candidate}`) / DRAWS
}

function numberOf(text: string): number {
  return hash('sha256', text, 'buffer').readUIntBE(0, DRAW_BYTES)
}

/** If targets with conditions hold, only these; otherwise those without conditions. */
function amongOf(targets: readonly RouteTarget[], routed: RoutedRequest): readonly RouteTarget[] {
  let fitting: RouteTarget[] | null = null
  let free: RouteTarget[] | null = null
  for (const [at, target] of targets.entries()) {
    if (target.when.length === 0) {
      free?.push(target)
      continue
    }
    // The targets before it had no conditions, or have been listed.
    free ??= targets.slice(0, at)
    if (!holdsAll(target.when, routed)) continue
    fitting ??= []
    fitting.push(target)
  }
  return fitting ?? free ?? targets
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
