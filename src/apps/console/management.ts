/**
 * Management operations for the page: forwarded to the public port with the key of the viewer, or of its session. So
 * the limits, roles and audit of the API apply to the page too, and the public port needs no special access for pages.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Clock } from '../../base/clock.ts'
import { GatewayError, RETRY_AFTER_SECONDS } from '../../base/errors.ts'
import { GUARDRAIL_BODY_MAX_BYTES } from '../../protocol/limits.ts'
import { forward, type PublicPort, readBody } from './forward.ts'

/** Maximum concurrent operations for a page with 16 viewers; each is short. */
const CALLS_MAX = 32
/** A search of a large ledger in a busy database takes a few seconds. */
const CALL_TIMEOUT_MS = 60_000
/** Enough for an id with every character escaped. */
const PATH_MAX_CHARS = 8_192
const METHODS: ReadonlySet<string> = new Set(['GET', 'POST', 'PATCH', 'DELETE'])
/** First parts of the paths that the page may call. */
const NOUNS: ReadonlySet<string> = new Set([
  'activity',
  'audit',
  'byok',
  'credits',
  'end-users',
  'generation',
  'generations',
  'guardrails',
  'keys',
  'models',
  'pauses',
  'providers',
  'rollouts',
  'workspaces',
])
/**
 * Ids and words of paths. Leading dots and escapes could lead to other paths, so the only escape is a slash inside the
 * name of a route or a provider, and what follows it has the form of a word.
 */
const CALL_PATH = /^([a-z-]+)(?:\/[A-Za-z0-9_][A-Za-z0-9._~:-]*(?:%2F[A-Za-z0-9_][A-Za-z0-9._~:-]*)*){0,4}$/

export class ManagementCalls {
  readonly #clock: Clock
  readonly #port: PublicPort
  #open = 0

  constructor(clock: Clock, port: PublicPort) {
    this.#clock = clock
    this.#port = port
  }

  /** @param path below `/v1`, without the query @throws GatewayError before anything was sent */
  async run(
    request: IncomingMessage,
    response: ServerResponse,
    path: string,
    authorization = '',
  ): Promise<void> {
    const { method = '', url = '' } = request
    const [, noun = ''] = CALL_PATH.exec(path) ?? []
    if (!NOUNS.has(noun) || url.length > PATH_MAX_CHARS) throw new GatewayError('not_found', 'Not found')
    if (!METHODS.has(method)) throw new GatewayError('method_not_allowed', 'Method not allowed')
    if (this.#open >= CALLS_MAX) {
      throw new GatewayError('rate_limit_exceeded', 'Too many concurrent console requests', {
        retryAfterSeconds: RETRY_AFTER_SECONDS.moment,
      })
    }
    this.#open++
    try {
      const hasBody = method === 'POST' || method === 'PATCH'
      const body = hasBody ? await readBody(request, GUARDRAIL_BODY_MAX_BYTES, 'A request of the page') : null
      const query = url.indexOf('?')
      const options = {
        method,
        path: `/v1/${path}${query === -1 ? '' : url.slice(query)}`,
        authorization,
        body,
        timeoutMs: CALL_TIMEOUT_MS,
      }
      await forward(this.#clock, this.#port, options, response)
    } finally {
      this.#open--
    }
  }
}
