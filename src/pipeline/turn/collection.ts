/**
 * Collection: the model call of an exchange whose reply a provider batch service has already produced. The stored reply
 * replaces the provider, and only the key that submitted the job is used. Batch thread.
 */
import type { CollectedReply, StoredReply } from '../../exchange/exchange.ts'
import type { WireRequest } from '../../formats/format.ts'
import type { OutgoingKey } from '../../protocol/provider.ts'
import type {
  Transport,
  UpstreamCall,
  UpstreamHandler,
  UpstreamRequest,
} from '../../providers/upstream/transport.ts'
import type { ModelCallDeps } from './model-call.ts'

/** Nothing is sent. */
const NO_WIRE: WireRequest = { path: '', body: {} }
const NO_REQUEST: UpstreamRequest = {
  url: new URL('stored:reply'),
  headers: {},
  body: '',
  headersTimeoutMs: 0,
  idleTimeoutMs: 0,
}
const NO_REQUESTS: ModelCallDeps['requests'] = {
  encode: () => NO_WIRE,
  address: () => NO_REQUEST,
  endUserOf: () => null,
}

/** The dependencies of an exchange whose only model call gets the stored reply. */
export function collecting<Deps extends ModelCallDeps>(
  deps: Deps,
  { providerKey, reply }: CollectedReply,
): Deps {
  return {
    ...deps,
    client: new StoredTransport(reply),
    // If a BYOK credential submitted the job, its key is used.
    providerKeys: { own: () => providerKey as OutgoingKey, shared: () => providerKey },
    requests: NO_REQUESTS,
    // The reply says nothing about the endpoint's current health.
    health: null,
  }
}

const NO_HEADERS: Readonly<Record<string, string>> = Object.freeze(Object.create(null))

/** Returns the stored reply to every call: whole, and after the running code. */
class StoredTransport implements Transport {
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
