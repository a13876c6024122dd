/** Types of views: the data that the page can fetch, and the state of the process. */
import type { KeyRecord } from '../../protocol/management/keys.ts'

/** The state of the process, from its metrics. */
export interface ProcessFacts {
  readonly version: string
  /** Null: ready for traffic. */
  readonly unreadyReason: string | null
  readonly degraded: readonly string[]
  readonly openStreams: number
  readonly inFlight: number
}

/** Answers with the data of a view. */
export type View = (key: KeyRecord, query: URLSearchParams) => Promise<unknown>
