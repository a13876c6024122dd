/**
 * A completed request, reported by its serve thread to the main thread while a console is open: the fields of the log
 * line that the console shows, without address and key, and the stage times. Types only.
 */
import type { ExchangeLine } from '../base/log/log.ts'
import type { Stage } from '../base/metrics/stages.ts'

export interface EndedRequest
  extends Pick<
    ExchangeLine,
    | 'id'
    | 'route'
    | 'status'
    | 'outcome'
    | 'durationMs'
    | 'firstTokenMs'
    | 'model'
    | 'requestedModel'
    | 'provider'
    | 'failedAttempts'
    | 'inputTokens'
    | 'outputTokens'
    | 'error'
    | 'cause'
  > {
  readonly organization: string
  readonly workspace: string | null
  /** Time of the end, ISO 8601 UTC. */
  readonly endedAt: string
  /** Milliseconds of the stages that were entered, in their order. */
  readonly stages: Readonly<Partial<Record<Stage, number>>>
}
