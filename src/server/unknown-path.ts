/**
 * Errors for unknown paths, wrong methods and keys, with the nearest operation as a suggestion. Reads an upload to its
 * end before the error is sent. The answer repeats nothing of the request.
 */
import type { Clock, Timer } from '../base/clock.ts'
import { nearest } from '../base/did-you-mean.ts'
import { GatewayError } from '../base/errors.ts'
import { type AcceptedHead, lengthFault, type RequestHead } from './head-checks.ts'
import type { RouteMatch, Router } from './router.ts'

/** Resources of similar APIs: the first part of their paths below `/v1`. */
const FOREIGN_PATHS: ReadonlySet<string> = new Set([
  'a2a',
  'agents',
  'assistants',
  'audio',
  'auth_tokens',
  'cachedContents',
  'chatkit',
  'completions',
  'containers',
  'content_provenance_checks',
  'conversations',
  'decisions',
  'deployment_runs',
  'deployments',
  'dreams',
  'environments',
  'evals',
  'fileSearchStores',
  'fine_tuning',
  'images',
  'live',
  'mcp',
  'memory_stores',
  'moderations',
  'ocr',
  'operations',
  'organization',
  'organizations',
  'presets',
  'projects',
  'prompts',
  'realtime',
  'rerank',
  'safety',
  'sessions',
  'skills',
  'threads',
  'tokenize',
  'tunedModels',
  'tunnels',
  'uploads',
  'user_profiles',
  'vaults',
  'vector_stores',
  'videos',
  'webhook_endpoints',
  'webhook_event_types',
])
/** Messages for unknown paths below these paths. */
const HINTS_BELOW: Readonly<Record<string, string>> = {
  'chat/completions':
    'chat completions are not stored; below /v1/chat/completions there is only GET /v1/chat/completions/{id}, for resumable streams',
  messages:
    'below /v1/messages there are only count_tokens, batches, and GET /v1/messages/{id} for resumable streams',
  responses:
    'responses are not stored; below /v1/responses there are only compact, input_tokens, and GET /v1/responses/{id} for resumable streams',
}
const ADMIN_PORT_PATHS = new Set(['/metrics', '/healthz', '/readyz', '/health', '/ready'])
const GOOGLE_PATH = /^\/v1(?:beta|alpha)(?:\/|$)/
const GOOGLE_VERBS =
  ':generateContent, :streamGenerateContent, :countTokens, :embedContent and :batchEmbedContents'
const SUGGESTION_MAX_CHARS = 64

const NO_OPERATION = 'No such operation'

/** The errors for a key of the wrong kind, by the kind that the operation needs. */
export const KEY_REFUSALS = {
  inference: 'A management key cannot call inference operations',
  management: 'A management key is required',
} as const

/** The error for a path that the router does not know. */
export function noSuchOperation(path: string, router: Router): GatewayError {
  return new GatewayError('not_found', messageFor(path.replace(/\/+$/, ''), router))
}

function messageFor(path: string, router: Router): string {
  if (path === '') return `${NO_OPERATION}: the base URL of a client has to end in /v1`
  if (GOOGLE_PATH.test(path))
    return `${NO_OPERATION}: below /v1beta there are only models and their methods ${GOOGLE_VERBS}`
  if (ADMIN_PORT_PATHS.has(path)) return `${NO_OPERATION}: metrics and health are on the admin port`
  const below = path.replace(/^(?:\/api)?\/v1(?=\/|$)/, '')
  if (below === '') return NO_OPERATION
  const guess = operationAt(below, router)
  if (below === path) {
    return guess === null
      ? `${NO_OPERATION}: paths begin with /v1`
      : `${NO_OPERATION}${didYouMean(guess)} The base URL of a client has to end in /v1`
  }
  const parent = Object.keys(HINTS_BELOW).find(name => below.startsWith(`/${name}/`))
  if (parent !== undefined) return `${NO_OPERATION}: ${HINTS_BELOW[parent]}`
  const firstSegment = below.split('/')[1] ?? ''
  if (FOREIGN_PATHS.has(firstSegment))
    return `${NO_OPERATION}: /v1/${firstSegment} is not offered by this gateway`
  const suggestion = nearestOperation(below, router)
  return suggestion === null ? NO_OPERATION : `${NO_OPERATION}${didYouMean(suggestion)}`
}

/** `POST /v1/responses` for a path below the base; null if there is no such path. */
function operationAt(below: string, router: Router): string | null {
  const match = router.find(`/v1${below}`)
  return match === null ? null : pathText(match.resource)
}

/** Operations with varying parts in their path are never suggested, because their values are data. */
function nearestOperation(below: string, { resources }: Router): string | null {
  if (below.length > SUGGESTION_MAX_CHARS) return null
  const fixedResources = resources.filter(
    ({ template }) => !template.includes('{') && !GOOGLE_PATH.test(template),
  )
  const template = nearest(
    below,
    fixedResources.map(resource => resource.template),
  )
  const resource = fixedResources.find(each => each.template === template)
  return resource === undefined ? null : pathText(resource)
}

function pathText({ template, operations }: Router['resources'][number]): string {
  const methods = [...operations.keys()].filter(method => method !== 'HEAD')
  return `${methods.join(' or ')} /v1${template}`
}

function didYouMean(operation: string): string {
  return `: did you mean ${operation}?`
}

/**
 * The fault of a well-formed request: an unknown path, a method that the path does not accept, a query that the dialect
 * refuses, or a body that is too long; null if there is none.
 */
export function mismatch(
  { method, path, query }: Pick<RequestHead, 'method' | 'path' | 'query'>,
  accepted: AcceptedHead,
  match: RouteMatch | null,
  router: Router,
): GatewayError | null {
  if (match === null) {
    // A browser sends a preflight first; the answer to the request itself says that there is no such path.
    const isPreflight = method === 'OPTIONS' && accepted.headers.has('access-control-request-method')
    return isPreflight ? null : noSuchOperation(path, router)
  }
  if (method === 'OPTIONS') return null
  const { allow, operations, dialect } = match.resource
  const fault = query === '' ? null : dialect?.queryFault?.(query)
  if (fault != null) return new GatewayError('invalid_request', fault)
  const operation = operations.get(method)
  if (operation !== undefined) return lengthFault(accepted, operation.bodyLimitBytes)
  if (match.resource.isQuiet) return noSuchOperation(path, router)
  return new GatewayError('method_not_allowed', `Method not allowed: this path accepts ${allow}`)
}

/** Maximum number of bytes, and maximum time, to read of an upload that is refused because of its path. */
export const DISCARDED_MAX_BYTES = 32 * 1024 * 1024
const DISCARD_TIMEOUT_MS = 10_000

/** An upload that is read and discarded: many clients lose an answer that arrives while they are sending. */
export class DiscardedUpload {
  /** Rejects with the error when the upload, or as much of it as is read, has arrived. */
  readonly ended: Promise<void>
  readonly #refuse: () => void
  readonly #timer: Timer
  #bytes = 0

  constructor(clock: Clock, refusal: GatewayError) {
    const { promise, reject } = Promise.withResolvers<void>()
    this.ended = promise
    this.#refuse = () => reject(refusal)
    this.#timer = clock.after(DISCARD_TIMEOUT_MS, this.#refuse)
  }

  push(bytes: number, isLast: boolean): void {
    this.#bytes += bytes
    if (isLast || this.#bytes > DISCARDED_MAX_BYTES) this.end()
  }

  end(): void {
    this.#timer.cancel()
    this.#refuse()
  }
}
