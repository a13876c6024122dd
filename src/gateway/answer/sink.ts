/** Where the events of an exchange go: an event stream or one JSON body. Hot path. */
import type { GatewayError } from '../../errors.ts'
import type { ExchangeLine } from '../../log/log.ts'
import type { StreamEvent } from '../../protocol/events.ts'
import type { GatewayMetadata, ResponseResource, ResponseUsage } from '../../protocol/response.ts'

export interface Sink {
  /**
   * True when what is written is seen at once, so that the first content commits the attempt. False when
   * nothing leaves before the end; then an attempt may still be replaced until its terminal event.
   */
  readonly live: boolean
  /** Takes one event. False: the reader is slow, write no more until drained (the event itself was taken). */
  write(event: StreamEvent): boolean
  /**
   * Takes `events` whole frames of an event stream as bytes, valid during the call only; the answer is `write`'s.
   * Absent where events are looked at one by one.
   */
  relay?(frames: Buffer, events: number): boolean
  /** What is written from here on may leave together: at the latest with `flush`, in the same turn. */
  hold?(): void
  /** Lets go what was held. False as for `write`, which answers true meanwhile. */
  flush?(): boolean
  /** What to call each time writing may go on after a false. One callback; a later call replaces it. */
  onDrain(resume: () => void): void
  /** All events are written, the terminal one included. */
  end(): void
}

/** A sink that keeps only the final object, for callers who want one JSON document. */
export class FinalSink implements Sink {
  readonly live = false
  response: ResponseResource | null = null

  write(event: StreamEvent): boolean {
    if (event.type === 'response.completed' || event.type === 'response.incomplete')
      this.response = event.response
    return true
  }

  onDrain(): void {
    // Never slow, so there is nothing to resume.
  }

  end(): void {
    // The object is all there is.
  }
}

/** What only the pipeline knows of an exchange, for its log line. */
export type ExchangeSummary = Pick<
  ExchangeLine,
  'firstTokenMs' | 'model' | 'provider' | 'attempts' | 'inputTokens' | 'outputTokens' | 'finish' | 'error'
>

/** What a failure tells of calls that were made and count, although nothing of them is delivered. */
export interface Charged {
  readonly id: string
  readonly usage: ResponseUsage
}

/** How an exchange ended, for the front end that has to answer. */
export type Outcome =
  /** Everything was said through the sink, a failure after the commit point included. */
  (
    | {
        readonly answered: true
        /** Why nothing was delivered although the model answered. */
        readonly refused?: GatewayError
      }
    /** Nothing was written to the sink; the front end answers with the envelope. */
    | {
        readonly answered: false
        readonly error: GatewayError
        readonly metadata: GatewayMetadata | null
        readonly charged?: Charged | null
      }
  ) & { readonly summary?: ExchangeSummary }
