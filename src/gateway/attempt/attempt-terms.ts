/** The inputs of an attempt, and the terms on which its reply is read. Types only. */
import type { Clock } from '../../clock.ts'
import type { Log } from '../../log/log.ts'
import type { Metrics } from '../../metrics/metrics.ts'
import type { Transport } from '../../upstream/transport.ts'
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
  /** True: messages of a whole reply may come to the target as such. */
  readonly takesMessages?: boolean
  /** Takes the times of the attempt; null: nobody asks. */
  readonly debug: DebugNotes | null
  /** Watches what the reply comes to; null: no limit of money holds for the caller. */
  readonly meter: Meter | null
}
