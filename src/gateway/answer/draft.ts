/** Events of a turn that is held back until it was judged, within a bound. */
import { GatewayError } from '../../errors.ts'
import type { StreamEvent } from '../../protocol/events.ts'

/** As much as a JSON reply may have, whose reader sees it whole just the same. */
const DRAFT_MAX_BYTES = 64 * 1024 * 1024
/** Memory of an event beside its texts. */
const EVENT_BYTES = 256

export class Draft {
  readonly #maxBytes: number
  #events: StreamEvent[] = []
  #bytes = 0

  constructor(maxBytes = DRAFT_MAX_BYTES) {
    this.#maxBytes = maxBytes
  }

  /** @throws GatewayError `provider_unavailable` when more would be held than fits in memory. */
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
  }

  /** All events, which the draft then no longer holds. */
  take(): readonly StreamEvent[] {
    const events = this.#events
    this.#events = []
    this.#bytes = 0
    return events
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
