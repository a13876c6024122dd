/** Plays a reply that a batch service has stored to an attempt, as a transport would. Batch thread. */
import type { UpstreamCall, UpstreamHandler } from '../upstream/transport.ts'
import type { StoredReply } from './exchange.ts'

const NO_HEADERS: Readonly<Record<string, string>> = Object.freeze(Object.create(null))

/** The reply comes whole, after the running code. */
export function replay(reply: StoredReply, handler: UpstreamHandler): UpstreamCall {
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
