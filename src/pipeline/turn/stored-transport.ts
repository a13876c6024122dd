/**
 * The transport of an exchange whose reply a provider batch service has already produced: the stored reply replaces the
 * provider. Batch thread.
 */
import type { StoredReply } from '../../exchange/exchange.ts'
import type {
  Transport,
  UpstreamCall,
  UpstreamHandler,
  UpstreamRequest,
} from '../../providers/upstream/transport.ts'

/** A stored reply needs no request. */
export const NO_REQUEST: UpstreamRequest = {
  url: new URL('stored:reply'),
  headers: {},
  body: '',
  headersTimeoutMs: 0,
  idleTimeoutMs: 0,
}

const NO_HEADERS: Readonly<Record<string, string>> = Object.freeze(Object.create(null))

/** Returns the stored reply to every call: whole, and after the running code. */
export class StoredTransport implements Transport {
  readonly #reply: StoredReply

  constructor(reply: StoredReply) {
    this.#reply = reply
  }

  start(_request: UpstreamRequest, handler: UpstreamHandler): UpstreamCall {
    const reply = this.#reply
    let isOver = false
    queueMicrotask(() => {
      if (isOver) return
      if ('error' in reply) {
        handler.onError(reply.error)
        return
      }
      handler.onHead({ status: reply.status, headers: NO_HEADERS })
      if (!isOver) handler.onData(Buffer.from(reply.body))
      if (!isOver) handler.onEnd()
    })
    return {
      pause: () => undefined,
      resume: () => undefined,
      abort() {
        isOver = true
      },
    }
  }

  async close(): Promise<void> {
    // There is nothing open.
  }
}
