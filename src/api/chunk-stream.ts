/** Sends long answers no faster than the client reads. */
import type { RequestSignal } from '../base/signal.ts'
import type { Reply } from './operation.ts'

export class SlowReader {
  readonly #signal: RequestSignal
  #wake: () => void = () => undefined

  constructor(reply: Reply, signal: RequestSignal) {
    this.#signal = signal
    reply.onProgress(isDrained => {
      if (isDrained) this.#wake()
    })
    signal.addEventListener('abort', () => this.#wake(), { once: true })
  }

  /** Resolves when the client has read all written bytes. Rejects with the reason of the abort. */
  async untilDrained(): Promise<void> {
    if (!this.#signal.aborted) {
      await new Promise<void>(resolve => {
        this.#wake = resolve
      })
    }
    this.#signal.throwIfAborted()
  }
}

/**
 * Answers with chunks of a content type. The first one is created before the answer begins, so that an early failure
 * gets a status.
 */
export async function streamChunks(
  reply: Reply,
  signal: RequestSignal,
  contentType: string,
  chunks: AsyncIterator<Uint8Array>,
  onBegin: () => void = () => undefined,
): Promise<void> {
  try {
    let next = await chunks.next()
    const reader = new SlowReader(reply, signal)
    onBegin()
    let isFlowing = reply.openStream(bytesOf(next), contentType)
    while (!reply.ended) {
      next = next.done === true ? next : await chunks.next()
      signal.throwIfAborted()
      if (next.done === true) {
        reply.endStream('')
        return
      }
      if (!isFlowing) await reader.untilDrained()
      isFlowing = reply.writeStream(bytesOf(next))
    }
  } finally {
    await chunks.return?.()
  }
}

function bytesOf({ value, done }: IteratorResult<Uint8Array>): Buffer {
  if (done === true) return Buffer.alloc(0)
  const { buffer, byteOffset, byteLength } = value as Uint8Array
  return Buffer.from(buffer, byteOffset, byteLength)
}
