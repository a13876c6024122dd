/**
 * Reasons: notes taken while an exchange runs, so that it can be explained after it has ended. A request with nothing
 * to note allocates nothing. Types, their bound, and their initial value.
 */
import type { EndpointChoice } from '../base/metrics/table.ts'
import type { Change } from '../formats/format.ts'
import type { Endpoint } from '../protocol/provider.ts'

/** An endpoint, with the id of the own credential to call it with; null: the shared key. */
export interface Way {
  readonly endpoint: Endpoint
  readonly credential: { readonly id: string } | null
}

/** A candidate that routing left out. */
export interface Exclusion extends Way {
  /** The filter, as named in `availability.excluded_by`. */
  readonly by: string
}

/** The way routing arrived at the candidates of an exchange. */
export interface RankingNotes {
  /** The name of the route that chose the model; absent if the request names none. */
  readonly route?: string | undefined
  /** Models of the request that the catalogue does not have. */
  readonly skipped: readonly string[]
  /** The reason that the first candidate is first; null if unknown. */
  readonly choice: EndpointChoice | null
  /** The candidate that would be first without pins and plugins; null if it is the first, or is unknown. */
  readonly rather: Way | null
  /** Candidates that routing left out. */
  readonly exclusions: readonly Exclusion[]
}

/** The notes of an exchange that was not routed. */
export const UNRANKED: RankingNotes = { skipped: [], choice: null, rather: null, exclusions: [] }

/** A candidate that could not be called when its turn came. */
export interface PassedCandidate {
  readonly candidate: Way
  /** True if the provider had sent Retry-After; false if the breaker was open. */
  readonly isLimited: boolean
  readonly waitMs: number
}

/** A candidate for which the request would have lost something that its caller requires. */
export interface LossyCandidate {
  readonly candidate: Way
  readonly changes: readonly Change[]
}

/** The times, turn and cost of an attempt. */
export interface AttemptFigures {
  /** Monotonic milliseconds; 0 if not yet. */
  startedMs: number
  endedMs: number
  /** The turn of the exchange, from 0. */
  turn: number
  /** Units of 1e-12 USD at full price; the last attempt of a turn has the charge of the turn. */
  cost: number
}

/** One finished call of a server tool. Times are monotonic milliseconds. */
export interface ToolCallNote {
  /** The server tool, e.g. `mcp`. */
  readonly tool: string
  readonly startedMs: number
  readonly endedMs: number
  readonly outcome: string
  /** Units of 1e-12 USD. */
  readonly cost: number
}

/** A finished model call that a tool or plugin made for the exchange. Times are monotonic milliseconds. */
export interface InnerCallNote {
  /** Generation id: it has a usage record of its own. */
  readonly id: string
  readonly startedMs: number
  readonly endedMs: number
  readonly model: string | null
  /** Our failure code; null if it ended well. */
  readonly error: string | null
  /** Units of 1e-12 USD. */
  readonly cost: number
}

/** Limit of tool calls and of inner calls that one exchange notes. */
const NOTED_CALLS_MAX = 100

/** Notes a call of a server tool on the exchange. */
export function noteToolCall(exchange: { toolCalls: ToolCallNote[] | null }, note: ToolCallNote): void {
  exchange.toolCalls ??= []
  if (exchange.toolCalls.length < NOTED_CALLS_MAX) exchange.toolCalls.push(note)
}

/** Notes a model call that a tool or plugin made for the exchange. */
export function noteInnerCall(exchange: { innerCalls: InnerCallNote[] | null }, note: InnerCallNote): void {
  exchange.innerCalls ??= []
  if (exchange.innerCalls.length < NOTED_CALLS_MAX) exchange.innerCalls.push(note)
}
