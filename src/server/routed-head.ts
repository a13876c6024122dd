/** The head of a request, looked at: its operation, the accepted head or the reason to refuse it, and its body. */
import type { Operation } from '../api/operation.ts'
import { GatewayError } from '../errors.ts'
import { BodyBuffer, BodyStream, type ByteCount, type PausableSocket } from './body.ts'
import { type AcceptedHead, inspect, type RequestHead } from './gate.ts'
import type { HttpRequestDeps } from './http-request-deps.ts'
import { mismatch } from './neighbours.ts'
import type { RouteMatch } from './router.ts'

/** Label of paths that match no route, and method of unknown ones. */
export const OTHER = 'other'
const KNOWN_METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])

interface RoutedHead {
  /** Out of a closed set. */
  readonly method: string
  /** Null: no such path. */
  readonly match: RouteMatch | null
  readonly operation: Operation | undefined
  /** Null where the head could not be accepted. An accepted one may still be refused, for what it asks. */
  readonly accepted: AcceptedHead | null
  readonly refusal: GatewayError | null
}

/** Finds the operation of a head and checks both. Never throws for input. */
export function routeHead(deps: HttpRequestDeps, head: RequestHead): RoutedHead {
  const match = deps.router.find(head.path)
  const operation = match?.resource.operations.get(head.method)
  const method = KNOWN_METHODS.has(head.method) ? head.method : OTHER
  // An upload to a path that is not there is told so, and not that its media type is wrong.
  const anyMedia = match === null || (operation?.accept === 'raw' && operation.media === 'any')
  const verdict = deps.admissions.shed() ?? inspect(head, deps, match?.freeText, anyMedia)
  if (verdict instanceof GatewayError) return { method, match, operation, accepted: null, refusal: verdict }
  const isUsual =
    operation !== undefined && head.query === '' && (verdict.contentLength ?? 0) <= operation.bodyLimitBytes
  const refusal = isUsual ? null : mismatch(head, verdict, match, deps.router)
  return { method, match, operation, accepted: verdict, refusal }
}

/** Null where no body is read. */
export function openBody(
  { operation, accepted, refusal }: RoutedHead,
  socket: PausableSocket,
  held: ByteCount,
): BodyBuffer | BodyStream | null {
  if (refusal !== null || accepted === null || operation === undefined) return null
  const { bodyLimitBytes } = operation
  if (operation.accept !== 'raw') return accepted.hasBody ? new BodyBuffer(bodyLimitBytes, held) : null
  return new BodyStream(socket, accepted.hasBody ? accepted.contentLength : 0, bodyLimitBytes, held)
}
