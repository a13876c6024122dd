/** The contracts of an attempt: its dependencies, its terms, and the receiver of its deltas. Types only. */
import type { Clock } from '../../clock.ts'
import type { WholeMessage } from '../../formats/whole-message.ts'
import type { Log } from '../../log/log.ts'
import type { Metrics } from '../../metrics/metrics.ts'
import type { Transport } from '../../upstream/transport.ts'
import type { Meter } from '../accounting/account.ts'
import type { Content, DebugNotes, Relay, RelayDeps, Sink } from '../answer/answer.ts'
import type { AbandonedReplies } from './abandoned-replies.ts'
import type { ReadingTerms } from './reply-reading.ts'

/** Takes the deltas of an attempt. */
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

export interface AttemptDeps {
  readonly client: Transport
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  readonly abandoned: AbandonedReplies
}

/** How the reply of an attempt is read, and what else watches it. */
export interface AttemptTerms extends Pick<ReadingTerms, 'format' | 'body'> {
  /** True: messages of a whole reply may come to the target as such. */
  readonly takesMessages?: boolean
  /** Takes the times of the attempt; null: nobody asks. */
  readonly debug: DebugNotes | null
  /** Watches what the reply comes to; null: no limit of money holds for the caller. */
  readonly meter: Meter | null
}
