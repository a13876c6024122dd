/**
 * Keeps the events of one attempt until a judge has passed them. Until then nothing counts as seen, so the attempt may
 * still be replaced, and the bytes of a provider never go straight through; the real sink goes on with its heartbeats.
 * Afterwards it is the real sink.
 */
import { GatewayError } from '../../errors.ts'
import type { StreamEvent } from '../../protocol/events.ts'
import type { Sink } from './sink.ts'

/** As much as a JSON reply may have, whose reader sees it whole just the same. */
const HELD_MAX_BYTES = 64 * 1024 * 1024
/** What an event costs beside its texts. */
const EVENT_BYTES = 256

export class HeldSink implements Sink {
  readonly relays = null
  readonly #sink: Sink
  readonly #maxBytes: number
  #kept: StreamEvent[] = []
  #bytes = 0
  #passed = false
  #resume: (() => void) | null = null
  #next = 0

  constructor(sink: Sink, maxBytes = HELD_MAX_BYTES) {
    this.#sink = sink
    this.#maxBytes = maxBytes
  }

  get live(): boolean {
    return this.#passed && this.#sink.live
  }

  /** @throws GatewayError `provider_unavailable` when more would be held than fits in memory. */
  write(event: StreamEvent): boolean {
    if (this.#passed) return this.#forward(event)
    this.#bytes += weigh(event)
    if (this.#bytes > this.#maxBytes) {
      this.#kept = []
      throw new GatewayError(
        'provider_unavailable',
        'The provider sent a reply that is too large to be checked',
      )
    }
    this.#kept.push(event)
    return true
  }

  relay(): boolean {
    throw new TypeError('events that are held back are never relayed')
  }

  hold(): void {
    if (this.#passed) this.#sink.hold()
  }

  flush(): boolean {
    return !this.#passed || this.#sink.flush() !== false
  }

  onDrain(resume: () => void): void {
    this.#resume = resume
    if (this.#passed) this.#sink.onDrain(resume)
  }

  end(): void {
    this.#sink.end()
  }

  /**
   * Writes what was kept, no faster than the reader takes it. From here on everything goes straight through.
   * Rejects with the reason of the signal.
   */
  async pass(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    const kept = this.#kept
    this.#kept = []
    this.#passed = true
    for (const event of kept) {
      this.#sink.hold()
      const flowing = this.#forward(event)
      if (!flowing) await this.#drained(signal)
    }
    if (this.#sink.flush() === false) await this.#drained(signal)
    this.#sink.onDrain(() => this.#resume?.())
  }

  #drained(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const abort = (): void => reject(signal.reason as GatewayError)
      if (signal.aborted) abort()
      signal.addEventListener('abort', abort, { once: true })
      this.#sink.onDrain(() => {
        signal.removeEventListener('abort', abort)
        resolve()
      })
    })
  }

  /** Numbers what is written: when the rest of what was kept never is, the end still has the next number. */
  #forward(event: StreamEvent): boolean {
    event.sequence_number = this.#next++
    return this.#sink.write(event)
  }
}

/** Bytes of memory, roughly. Whole texts in later events are those of the deltas; hosted items bring their own. */
function weigh(event: StreamEvent): number {
  let bytes = EVENT_BYTES
  if ('delta' in event && typeof event.delta === 'string') return bytes + event.delta.length
  for (const value of Object.values(event)) if (typeof value === 'string') bytes += value.length
  if ('item' in event) {
    for (const value of Object.values(event.item)) if (typeof value === 'string') bytes += value.length
  }
  return bytes
}
