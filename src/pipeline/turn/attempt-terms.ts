/** The inputs of an attempt, and the terms on which its reply is read. Types only. */
import type { Clock } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { Transport } from '../../providers/upstream/transport.ts'
import type { Meter } from '../accounting/account.ts'
import type { DebugNotes } from '../answer/answer.ts'
import type { AbandonedReplies } from './abandoned-replies.ts'
import type { ReadingTerms } from './reply-reading.ts'

export interface AttemptDeps {
  readonly client: Transport
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  readonly abandoned: AbandonedReplies
}

/** The way an attempt's reply is read, and its observers. */
export interface AttemptTerms extends Pick<ReadingTerms, 'format' | 'body'> {
  /** True if messages of a whole reply may be passed to the target as such. */
  readonly takesMessages?: boolean
  /** Receives the times of the attempt; null if they were not requested. */
  readonly debug: DebugNotes | null
  /** Tracks the cost of the reply; null if the caller has no spending limit. */
  readonly meter: Meter | null
}
