/** Forwards a request of the page to the public port of this process, and streams its reply back unchanged. */
import { readFileSync } from 'node:fs'
import { request as askPlainly, type IncomingMessage, type ServerResponse } from 'node:http'
import { request as askSecurely } from 'node:https'
import type { Clock } from '../../base/clock.ts'
import { GatewayError } from '../../base/errors.ts'
import { BODY_CUT_TOO_FINE, BODY_PIECES, PieceCount } from '../../base/fairness/short-chunks.ts'

/** Reply headers that the page gets. */
const PASSED_HEADERS = ['content-type', 'x-generation-id', 'x-request-id', 'retry-after'] as const

/** The public port of this process. */
export interface PublicPort {
  readonly publicUrl: string
  /** PEM file of its certificate; null: it has none. */
  readonly certificateFile: string | null
}

/** A request to the public port. */
interface ForwardOptions {
  readonly method: string
  /** Relative to the address of the port, with the query. */
  readonly path: string
  /** With the scheme: `Bearer …`. */
  readonly authorization: string
  readonly body: Buffer | null
  readonly timeoutMs: number
}

/**
 * Resolves when the reply was forwarded, or the page has left; then the request at the public port ends too.
 * @throws GatewayError before anything was sent
 */
export function forward(
  clock: Clock,
  { publicUrl, certificateFile }: PublicPort,
  { method, path, authorization, body, timeoutMs }: ForwardOptions,
  response: ServerResponse,
): Promise<void> {
  return new Promise((resolve, reject) => {
    // The page left while its body was read, so `close` will not be emitted again.
    if (response.destroyed) {
      resolve()
      return
    }
    const send = certificateFile === null ? askPlainly : askSecurely
    const request = send(new URL(path, publicUrl), {
      method,
      agent: false,
      ...(certificateFile === null ? {} : trustOnly(certificateFile)),
      headers: {
        authorization,
        ...(body === null ? {} : { 'content-type': 'application/json', 'content-length': body.length }),
      },
    })
    const timer = clock.after(timeoutMs, () => request.destroy())
    response.on('close', () => {
      timer.cancel()
      request.destroy()
      resolve()
    })
    request.on('error', () => {
      if (response.headersSent) response.destroy()
      else
        reject(
          new GatewayError(
            'service_unavailable',
            "The public port does not answer: see /readyz on the admin port, and the gateway's log",
          ),
        )
    })
    request.on('response', answer => {
      const headers = PASSED_HEADERS.flatMap(name => {
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
    request.end(body ?? undefined)
  })
}

/**
 * Trusts only the certificate of the port, whatever name is in it, because the port is called by its address. The file
 * is read each time, because certificates are renewed.
 */
function trustOnly(certificateFile: string) {
  return {
    ca: readFileSync(certificateFile),
    allowPartialTrustChain: true,
    checkServerIdentity: () => undefined,
  }
}

/**
 * Reads the body of a request. After a refusal it reads no further, and the connection stays open for the answer.
 * @param noun names the body in the error for a long one
 * @throws GatewayError `payload_too_large`; `invalid_request` if its chunks are too short; `client_closed`
 */
export function readBody(request: IncomingMessage, maxBytes: number, noun: string): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    const count = new PieceCount(BODY_PIECES)
    const refuse = (error: GatewayError): void => {
      request.off('data', onChunk).pause()
      reject(error)
    }
    const onChunk = (chunk: Buffer): void => {
      if (!count.add(chunk.length)) refuse(new GatewayError('invalid_request', BODY_CUT_TOO_FINE))
      else if (count.bytes > maxBytes) {
        refuse(new GatewayError('payload_too_large', `${noun} can be at most ${maxBytes} bytes long`))
      } else chunks.push(chunk)
    }
    const onClose = (): void => reject(new GatewayError('client_closed', 'The client disconnected'))
    request
      .on('data', onChunk)
      .once('end', () => resolve(Buffer.concat(chunks)))
      .once('error', onClose)
      .once('close', onClose)
  })
}
