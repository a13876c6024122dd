/**
 * Metered deltas: counts the output on its way from the decoder to the attempt, for callers with a spending limit. It
 * reserves more of the limit in advance, holds deltas back while it waits for the counters, and ends the reply when
 * nothing is left.
 */
import type { Delta } from '../../formats/format.ts'
import type { Meter } from '../accounting/allowance.ts'
import type { ReplyFigures, ReplyReading } from './reply-reading.ts'

/** The attempt whose reply is metered. */
export interface MeteredReply {
  readonly figures: ReplyFigures
  readonly reader: ReplyReading
  /** True if the model has finished, or may write no more. */
  readonly hasFinished: boolean
  readonly isOver: boolean
  receive(delta: Delta): void
  /** Pauses reading, until `goOn`. */
  halt(): void
  goOn(): void
  /** Runs the work as if the provider had just sent something. */
  turn(work: () => void): void
  /** Ends the reply as if it had reached its output limit. */
  endHere(): void
  /** Called when the provider has ended its reply. */
  conclude(): void
}

export class MeteredDeltas {
  /** True while deltas wait for a response from the counters. */
  isHeld = false
  readonly #meter: Meter
  readonly #reply: MeteredReply
  /** Output, in quarters of tokens, at which more has to be reserved. */
  #nextCheckQuarters: number
  /** Deltas that wait for the counters; at most the deltas of one read. */
  #heldDeltas: Delta[] = []
  /** True if the provider has ended its reply meanwhile. */
  #endsLater = false

  constructor(meter: Meter, reply: MeteredReply) {
    this.#meter = meter
    this.#reply = reply
    this.#nextCheckQuarters = meter.nextCheckQuarters
  }

  readonly receive = (delta: Delta): void => {
    if (this.isHeld) {
      this.#heldDeltas.push(delta)
      return
    }
    const reply = this.#reply
    reply.receive(delta)
    // A relay passes on a whole read, and is checked after it.
    if (
      reply.figures.outputQuarters >= this.#nextCheckQuarters &&
      !reply.reader.mayRelay &&
      'text' in delta
    ) {
      this.#reach()
    }
  }

  /** Called when a relay has passed on a read; `quarters`: output so far. */
  noteRelayed(quarters: number): void {
    if (quarters >= this.#nextCheckQuarters && this.#reply.reader.mayRelay) this.#reach()
  }

  /** Called when the provider has ended its reply. True if output is still held back. */
  endReply(): boolean {
    this.#endsLater = this.isHeld
    return this.isHeld
  }

  #reach(): void {
    const reply = this.#reply
    const { figures, hasFinished, reader } = reply
    if (!reader.isStream || hasFinished) return
    reader.relay?.settle()
    const next = this.#meter.reach(figures.outputQuarters, this.#goOn)
    this.#nextCheckQuarters = this.#meter.nextCheckQuarters
    if (next === 'stop') reply.endHere()
    else if (next === 'wait') {
      this.isHeld = true
      reply.halt()
    }
    // A relay passes on a whole read, which may be more than the remaining amount.
    if (this.#meter.isShort) reader.endRelay()
  }

  /** Called when the counters have answered. */
  readonly #goOn = (): void => {
    const reply = this.#reply
    if (reply.isOver || reply.figures.isCut) return
    this.#nextCheckQuarters = this.#meter.nextCheckQuarters
    if (!this.#meter.isShort) reply.reader.mayRelay = true
    if (!this.isHeld) return
    this.isHeld = false
    reply.turn(() => this.#releaseHeld())
    if (!this.isHeld) reply.goOn()
  }

  #releaseHeld(): void {
    const reply = this.#reply
    if (reply.figures.outputQuarters >= this.#nextCheckQuarters) this.#reach()
    // One of them may have to wait again, and so do those behind it.
    for (const delta of this.#heldDeltas.splice(0)) this.receive(delta)
    if (this.#endsLater && !this.isHeld && !reply.isOver && !reply.figures.isCut) reply.conclude()
  }
}
