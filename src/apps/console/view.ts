/** Types of views: what the page can fetch, and what the process says about itself. */
import type { KeyRecord } from '../../protocol/management/keys.ts'

/** The state of the process, as the metrics tell it. */
export interface ProcessFacts {
  readonly version: string
  /** Null: traffic may come. */
  readonly unreadyReason: string | null
  readonly degraded: readonly string[]
  readonly openStreams: number
  readonly inFlight: number
}

/** Answers with what a view shows. */
export type View = (key: KeyRecord, query: URLSearchParams) => Promise<unknown>
