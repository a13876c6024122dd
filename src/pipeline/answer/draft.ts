/**
 * Draft: the events of a turn that is held back until a plugin has judged it. Bounded; its memory counts towards the
 * request. Used only if a plugin judges turns, so not on the usual path.
 */
import { GatewayError, overloadError } from '../../base/errors.ts'
import type { RequestSignal } from '../../base/signal.ts'
import { type Held, UNCOUNTED } from '../../exchange/exchange.ts'
import type { StreamEvent } from '../../protocol/events.ts'

/** As much as a JSON reply with images may have, which its reader also gets only as a whole. */
const DRAFT_MAX_BYTES = 64 * 1024 * 1024
/** Memory of an event in addition to its texts. */
const EVENT_BYTES = 256
/** Smaller amounts are not reported to the request's count. */
const REPORT_STEP_BYTES = 64 * 1024

export class Draft {
  readonly #maxBytes: number
  readonly #held: Held
  #events: StreamEvent[] = []
  #bytes = 0
  #reportedBytes = 0

  constructor(held: Held = UNCOUNTED, maxBytes = DRAFT_MAX_BYTES) {
    this.#held = held
    this.#maxBytes = maxBytes
  }

  /** @throws GatewayError `provider_unavailable` for a reply that is too large, `overloaded` if there is no room. */
  add(event: StreamEvent): void {
    this.#bytes += weigh(event)
    if (this.#bytes > this.#maxBytes) {
      this.#events = []
      throw new GatewayError(
        'provider_unavailable',
        'The provider sent a reply that is too large to be checked',
      )
    }
    this.#events.push(event)
    if (this.#bytes - this.#reportedBytes >= REPORT_STEP_BYTES && !this.#report(this.#bytes))
      throw overloadError()
  }

  /** Removes all events from the draft and returns them. */
  drain(): readonly StreamEvent[] {
    const events = this.#events
    this.#events = []
    this.#bytes = 0
    this.#report(0)
    return events
  }

  #report(bytes: number): boolean {
    const addedBytes = bytes - this.#reportedBytes
    this.#reportedBytes = bytes
    return this.#held.count(addedBytes)
  }
}

/**
 * Approximate size in memory, in bytes. Complete texts in later events share the memory of the deltas; hosted items
 * have their own.
 */
function weigh(event: StreamEvent): number {
  let bytes = EVENT_BYTES
  if ('delta' in event && typeof event.delta === 'string') return bytes + event.delta.length
  for (const value of Object.values(event)) if (typeof value === 'string') bytes += value.length
  if ('item' in event) {
    for (const value of Object.values(event.item)) if (typeof value === 'string') bytes += value.length
  }
  return bytes
}

/**
 * Waits until a slow reader continues. `wait` gets the function to call then, or null once nothing waits any more.
 * Rejects with the reason of the signal.
 */
export function readerGoesOn(
  signal: RequestSignal,
  wait: (goOn: (() => void) | null) => void,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = (): void => {
      wait(null)
      reject(signal.reason as GatewayError)
    }
    if (signal.aborted) {
      abort()
      return
    }
    signal.addEventListener('abort', abort, { once: true })
    wait(() => {
      wait(null)
      signal.removeEventListener('abort', abort)
      resolve()
    })
  })
}
