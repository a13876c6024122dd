/** The contract between an attempt and the receiver of its deltas. Types only. */
import type { WholeMessage } from '../../formats/whole-message.ts'
import type { Content, Relay, RelayDeps, Sink } from '../answer/answer.ts'

/** Receives the deltas of an attempt. */
export interface AttemptTarget {
  /**
   * Held while a read of the provider is told: what it brings may leave together. Where its `flush` is false the reader
   * is slow, and the attempt pauses. Null: nothing leaves for now.
   */
  readonly sink: Pick<Sink, 'hold' | 'flush'> | null
  take(delta: Content): void
  /** Takes a message in place of its deltas; only where the terms of the attempt ask for it. */
  message?(message: WholeMessage): void
  /** The model has said all; `done` is called, now or later, once everything said may leave. */
  end(done: () => void): void
  /** The attempt failed: what is still held goes nowhere. */
  close(): void
  /** Opens a relay for frames that need not be decoded. Null, or absent: every frame has to be. */
  relay?(source: Pick<RelayDeps, 'parser' | 'decode'>): Relay | null
}
