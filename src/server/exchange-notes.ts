/**
 * Notes of ended requests for the console. Kept and sent only while somebody watches: otherwise a request costs one
 * check of `isWatched`.
 */
import { type Clock, isoInstant } from '../clock.ts'
import type { ExchangeLine } from '../log/log.ts'
import { roundedTimes, type Stopwatch } from '../metrics/stages.ts'
import type { ExchangeNote } from '../protocol/exchange-note.ts'

/** People see them as live; a message for each would cost more than the note. */
const SEND_MS = 250
/** In one message. People cannot follow more, and sums come from usage records. */
const NOTES_MAX = 200

export class ExchangeNotes {
  isWatched = false
  readonly #clock: Clock
  readonly #send: (notes: readonly ExchangeNote[]) => void
  #notes: ExchangeNote[] = []

  constructor(clock: Clock, send: (notes: readonly ExchangeNote[]) => void) {
    this.#clock = clock
    this.#send = send
  }

  /** Notes a request of a known key; only models are asked by POST. */
  add(line: ExchangeLine, watch: Stopwatch, endedMs: number): void {
    const { organization } = line
    if (organization === undefined || line.method !== 'POST' || this.#notes.length >= NOTES_MAX) return
    if (this.#notes.length === 0) this.#clock.after(SEND_MS, () => this.#flush())
    this.#notes.push({
      id: line.id,
      route: line.route,
      status: line.status,
      outcome: line.outcome,
      durationMs: line.durationMs,
      firstTokenMs: line.firstTokenMs,
      model: line.model,
      requestedModel: line.requestedModel,
      provider: line.provider,
      failedAttempts: line.failedAttempts,
      inputTokens: line.inputTokens,
      outputTokens: line.outputTokens,
      error: line.error,
      cause: line.cause,
      organization,
      workspace: line.workspace ?? null,
      endedAt: isoInstant(this.#clock.nowMs()),
      stages: roundedTimes(watch, endedMs),
    })
  }

  #flush(): void {
    const notes = this.#notes
    this.#notes = []
    if (this.isWatched) this.#send(notes)
  }
}
