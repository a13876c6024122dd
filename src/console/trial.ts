/**
 * The playground (the "try it" box): passes one request on to the public port of this process and streams its reply
 * back unchanged. So the public port needs no permission for pages, and the page none for other addresses. The API key
 * comes with the request, is passed on, and is kept nowhere.
 */
import { readFileSync } from 'node:fs'
import { request as askPlainly, type IncomingMessage, type ServerResponse } from 'node:http'
import { request as askSecurely } from 'node:https'
import type { Clock } from '../clock.ts'
import { GatewayError, RETRY_AFTER_SECONDS } from '../errors.ts'

/** A question that somebody types. */
const BODY_MAX_BYTES = 64 * 1024
/** A person looks at one answer at a time. */
const TRIALS_MAX = 4
const TRIAL_MS = 300_000
/** Longer texts are no key of ours. */
const KEY_MAX_CHARS = 256
/** The key of the trial: `Authorization` has that of the viewer. */
const KEY_HEADER = 'x-api-key'
/** Headers of the answer that the page shows. */
const PASSED = ['content-type', 'x-generation-id', 'x-request-id', 'retry-after'] as const

/** The public port of this process. */
export interface PublicPort {
  readonly publicUrl: string
  /** PEM file of its certificate; null: it has none. */
  readonly certificateFile: string | null
}

export class Trials {
  readonly #clock: Clock
  readonly #port: PublicPort
  #open = 0

  constructor(clock: Clock, port: PublicPort) {
    this.#clock = clock
    this.#port = port
  }

  /** Answers with what the public port answers. @throws GatewayError before anything was sent */
  async run(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const key = request.headers[KEY_HEADER]
    if (typeof key !== 'string' || key === '' || key.length > KEY_MAX_CHARS || !/^[\x21-\x7e]+$/.test(key)) {
      throw new GatewayError('invalid_request', 'x-api-key: an API key is required, from POST /keys')
    }
    if (this.#open >= TRIALS_MAX) {
      throw new GatewayError('rate_limit_exceeded', 'Too many playground requests are running', {
        retryAfterSeconds: RETRY_AFTER_SECONDS.transfer,
      })
    }
    this.#open++
    try {
      const body = await readBody(request)
      await this.#pass(key, body, response)
    } finally {
      this.#open--
    }
  }

  #pass(key: string, body: Buffer, response: ServerResponse): Promise<void> {
    return new Promise((resolve, reject) => {
      // Left while its body was read: `close` has come, and will not come again.
      if (response.destroyed) {
        resolve()
        return
      }
      const { publicUrl, certificateFile } = this.#port
      const ask = certificateFile === null ? askPlainly : askSecurely
      const asked = ask(new URL('/v1/responses', publicUrl), {
        method: 'POST',
        agent: false,
        ...(certificateFile === null ? {} : trustOnly(certificateFile)),
        headers: {
          authorization: `Bearer ${key}`,
          'content-type': 'application/json',
          'content-length': body.length,
        },
      })
      const timer = this.#clock.after(TRIAL_MS, () => asked.destroy())
      // Stopping the trial ends the request of the gateway too.
      response.on('close', () => {
        timer.cancel()
        asked.destroy()
        resolve()
      })
      asked.on('error', () => {
        if (response.headersSent) response.destroy()
        else reject(new GatewayError('service_unavailable', 'The public port does not answer'))
      })
      asked.on('response', answer => {
        const headers = PASSED.flatMap(name => {
          const value = answer.headers[name]
          return value === undefined ? [] : [[name, value] as const]
        })
        response.writeHead(answer.statusCode ?? 502, {
          ...Object.fromEntries(headers),
          'cache-control': 'no-store',
          'x-content-type-options': 'nosniff',
        })
        answer.on('error', () => response.destroy())
        answer.on('aborted', () => response.destroy())
        answer.pipe(response)
      })
      asked.end(body)
    })
  }
}

/** Its own certificate, whatever name is in it: the port is asked by its address. Read anew, since it is renewed. */
function trustOnly(certificateFile: string) {
  return {
    ca: readFileSync(certificateFile),
    allowPartialTrustChain: true,
    checkServerIdentity: () => undefined,
  }
}

/** @throws GatewayError `payload_too_large` */
async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  let bytes = 0
  // The connection stays, so that a refusal can be told.
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > BODY_MAX_BYTES) {
      throw new GatewayError('payload_too_large', `A playground request has at most ${BODY_MAX_BYTES} bytes`)
    }
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}
