/**
 * Reads a provider's complete, non-streamed reply as text: a recognized document, the state of a job, an uploaded file.
 * Serve and batch threads.
 */
import { TextBody } from './body.ts'
import type { Transport, UpstreamHead, UpstreamRequest } from './transport.ts'

export interface WholeReply extends UpstreamHead {
  readonly text: string
}

export interface WholeReplyTerms {
  readonly maxBytes: number
  readonly signal: AbortSignal
}

/**
 * Resolves regardless of the status. Rejects with the reason of the signal, or with a GatewayError: of the transport,
 * or `reply_too_large`.
 */
export function wholeReply(
  client: Transport,
  request: UpstreamRequest,
  { maxBytes, signal }: WholeReplyTerms,
): Promise<WholeReply> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted()
    const body = new TextBody(maxBytes)
    let head: UpstreamHead = { status: 0, headers: {} }
    const onAbort = (): void => {
      call.abort()
      reject(signal.reason as Error)
    }
    const stopListening = (): void => signal.removeEventListener('abort', onAbort)
    const call = client.start(request, {
      onHead(received) {
        head = received
      },
      onData: chunk => body.push(chunk),
      onEnd() {
        stopListening()
        resolve({ ...head, text: body.text() })
      },
      onError(error) {
        stopListening()
        reject(error)
      },
    })
    signal.addEventListener('abort', onAbort, { once: true })
  })
}
