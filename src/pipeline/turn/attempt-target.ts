/** The contract between an attempt and the receiver of its deltas. Types only. */
import type { WholeMessage } from '../../formats/whole-message.ts'
import type { Content } from '../answer/answer.ts'
import type { Relay, RelayDeps } from '../answer/relay.ts'
import type { Sink } from '../answer/sink.ts'

/** Receives the deltas of an attempt. */
export interface AttemptTarget {
  /**
   * Held while a read from the provider is processed, so that its events can be sent together. If `flush` returns
   * false, the reader is slow and the attempt pauses. Null: nothing is sent for now.
   */
  readonly sink: Pick<Sink, 'cork' | 'flush'> | null
  receive(delta: Content): void
  /** Takes a message instead of its deltas; only if the terms of the attempt ask for it. */
  message?(message: WholeMessage): void
  /** The model has finished; `done` is called, now or later, once all output may be sent. */
  end(done: () => void): void
  /** The attempt failed: held output is discarded. */
  close(): void
  /** Opens a relay for frames that need not be decoded. Null or absent: every frame has to be decoded. */
  relay?(source: Pick<RelayDeps, 'parser' | 'decode'>): Relay | null
}
