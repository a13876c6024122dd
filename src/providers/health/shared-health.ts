/**
 * Endpoint health of one instance: forwards the updates of each thread to all other threads, and to other instances if
 * there are any. Main thread.
 */
import type { Clock } from '../../base/clock.ts'
import { randomText } from '../../base/ids.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { EndpointFigures } from '../endpoint-figures.ts'
import { type ConditionCounts, type EndpointCondition, EndpointHealth } from './health.ts'
import { type HealthNote, readNotes } from './notes.ts'

/** Carries messages between instances. */
interface HealthCarrier {
  /** Rejects while nothing can be sent. */
  send(text: string): Promise<unknown>
  close(): Promise<void>
}

interface SharedHealthOptions {
  readonly clock: Clock
  /** Opens the connection to other instances. Default: there are none. */
  readonly open?: (onMessage: (text: string) => void) => HealthCarrier
}

/** The connection of one thread. */
interface HealthThread {
  /** Takes notes of the thread. */
  receive(notes: readonly HealthNote[]): void
  /** The thread has ended. */
  close(): void
}

/** Messages of other instances are shorter; a longer text has another source. */
const MESSAGE_MAX_CHARS = 16 * 1024 * 1024
const INSTANCE_CHARS = 12

export class SharedHealth {
  /** The sum of all notes, for threads that start later. */
  readonly #health: EndpointHealth
  readonly #threads = new Set<(notes: readonly HealthNote[]) => void>()
  readonly #carrier: HealthCarrier | null
  /** Sent in each message, because Redis also delivers an instance's own messages. */
  readonly #instance = randomText(INSTANCE_CHARS)

  constructor({ clock, open }: SharedHealthOptions) {
    this.#health = new EndpointHealth({ clock, breakerFailures: null })
    this.#carrier = open?.(text => this.#receive(text)) ?? null
  }

  /** Notes for a thread that starts now. */
  snapshot(): readonly HealthNote[] {
    return this.#health.snapshot()
  }

  /** Number of endpoints that must not be called now, by reason. */
  blocked(): ReturnType<EndpointHealth['blocked']> {
    return this.#health.blocked()
  }

  /** Slugs of providers none of whose endpoints may be called, because all of them failed for all keys. */
  downProviders(): readonly string[] {
    return this.#health.downProviders()
  }

  /** The condition of an endpoint with the shared key. */
  condition(endpoint: Endpoint): EndpointCondition {
    return this.#health.condition(endpoint)
  }

  /** See EndpointHealth. */
  ownConditions(): (endpoint: Endpoint) => ConditionCounts {
    return this.#health.ownConditions()
  }

  /** Measured figures of an endpoint; null if nothing was measured. */
  figures(endpoint: Endpoint): EndpointFigures | null {
    return this.#health.figures(endpoint)
  }

  /** @param send passes notes of other threads and instances to the thread */
  connect(send: (notes: readonly HealthNote[]) => void): HealthThread {
    this.#threads.add(send)
    return {
      receive: notes => {
        this.#forward(notes, send)
        // A late note would be out of date, so a failed one is not sent again.
        this.#carrier?.send(JSON.stringify({ from: this.#instance, notes })).catch(() => undefined)
      },
      close: () => void this.#threads.delete(send),
    }
  }

  async close(): Promise<void> {
    await this.#carrier?.close()
  }

  #forward(notes: readonly HealthNote[], sender: ((notes: readonly HealthNote[]) => void) | null): void {
    this.#health.apply(notes)
    for (const send of this.#threads) if (send !== sender) send(notes)
  }

  #receive(text: string): void {
    if (text.length > MESSAGE_MAX_CHARS) return
    let message: { readonly from?: unknown; readonly notes?: unknown } | null
    try {
      message = JSON.parse(text)
    } catch {
      return
    }
    if (message === null || typeof message !== 'object' || message.from === this.#instance) return
    const notes = readNotes(message.notes)
    if (notes.length > 0) this.#forward(notes, null)
  }
}
