/**
 * The playground: forwards one request to the public port of this process and streams its reply back unchanged. So the
 * public port need not allow pages, and the page calls no other address. The API key arrives with the request and is
 * not stored.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Clock } from '../../base/clock.ts'
import { GatewayError, RETRY_AFTER_SECONDS } from '../../base/errors.ts'
import { forward, type PublicPort, readBody } from './forward.ts'

/** Limit for a typed request. */
const BODY_MAX_BYTES = 64 * 1024
/** Maximum concurrent requests: a user compares at most four answers; two users at once. */
const TRIALS_MAX = 8
const TRIAL_TIMEOUT_MS = 300_000
/** Longer texts are not keys of the gateway. */
const KEY_MAX_CHARS = 256
/** The API key of the request; `Authorization` contains that of the viewer. */
const KEY_HEADER = 'x-api-key'

export class Trials {
  readonly #clock: Clock
  readonly #port: PublicPort
  #open = 0

  constructor(clock: Clock, port: PublicPort) {
    this.#clock = clock
    this.#port = port
  }

  /** Answers like the public port. @throws GatewayError before anything was sent */
  async run(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const key = request.headers[KEY_HEADER]
    if (typeof key !== 'string' || key === '' || key.length > KEY_MAX_CHARS || !/^[\x21-\x7e]+$/.test(key)) {
      throw new GatewayError('invalid_request', 'x-api-key: an API key is required; POST /keys creates one')
    }
    if (this.#open >= TRIALS_MAX) {
      throw new GatewayError('rate_limit_exceeded', 'Too many playground requests are running', {
        retryAfterSeconds: RETRY_AFTER_SECONDS.transfer,
      })
    }
    this.#open++
    try {
      const body = await readBody(request, BODY_MAX_BYTES, 'A playground request')
      const options = {
        method: 'POST',
        path: '/v1/responses',
        authorization: `Bearer ${key}`,
        body,
        timeoutMs: TRIAL_TIMEOUT_MS,
      }
      await forward(this.#clock, this.#port, options, response)
    } finally {
      this.#open--
    }
  }
}
