/** Passes a request of the page on to the public port of this process, and streams its reply back unchanged. */
import { readFileSync } from 'node:fs'
import { request as askPlainly, type IncomingMessage, type ServerResponse } from 'node:http'
import { request as askSecurely } from 'node:https'
import type { Clock } from '../clock.ts'
import { GatewayError } from '../errors.ts'

/** Headers of the reply that the page shows. */
const PASSED = ['content-type', 'x-generation-id', 'x-request-id', 'retry-after'] as const

/** The public port of this process. */
export interface PublicPort {
  readonly publicUrl: string
  /** PEM file of its certificate; null: it has none. */
  readonly certificateFile: string | null
}

/** A request to the public port. */
interface ForwardOptions {
  readonly method: string
  /** Below the address of the port, with the query. */
  readonly path: string
  /** With the kind: `Bearer …`. */
  readonly authorization: string
  readonly body: Buffer | null
  readonly timeoutMs: number
}

/**
 * Resolves when the reply has been passed on, or when the page has left; then the request at the public port ends too.
 * @throws GatewayError before anything was sent
 */
export function forward(
  clock: Clock,
  { publicUrl, certificateFile }: PublicPort,
  { method, path, authorization, body, timeoutMs }: ForwardOptions,
  response: ServerResponse,
): Promise<void> {
  return new Promise((resolve, reject) => {
    // Left while its body was read: `close` has come, and will not come again.
    if (response.destroyed) {
      resolve()
      return
    }
    const ask = certificateFile === null ? askPlainly : askSecurely
    const asked = ask(new URL(path, publicUrl), {
      method,
      agent: false,
      ...(certificateFile === null ? {} : trustOnly(certificateFile)),
      headers: {
        authorization,
        ...(body === null ? {} : { 'content-type': 'application/json', 'content-length': body.length }),
      },
    })
    const timer = clock.after(timeoutMs, () => asked.destroy())
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
        'cross-origin-resource-policy': 'same-origin',
      })
      answer.on('error', () => response.destroy())
      answer.on('aborted', () => response.destroy())
      answer.pipe(response)
    })
    asked.end(body ?? undefined)
  })
}

/** Its own certificate, whatever name is in it: the port is asked by its address. Read anew, since it is renewed. */
function trustOnly(certificateFile: string) {
  return {
    ca: readFileSync(certificateFile),
    allowPartialTrustChain: true,
    checkServerIdentity: () => undefined,
  }
}

/** @throws GatewayError `payload_too_large`, with the noun of what was sent */
export async function readBody(request: IncomingMessage, maxBytes: number, noun: string): Promise<Buffer> {
  const chunks: Buffer[] = []
  let bytes = 0
  // The connection stays, so that a refusal can be told.
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > maxBytes) {
      throw new GatewayError('payload_too_large', `${noun} can be at most ${maxBytes} bytes long`)
    }
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}
