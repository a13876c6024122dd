/**
 * A finished trace, as a thread sends it to the main thread: plain data, with times in monotonic milliseconds of that
 * thread. It contains no prompts, answers, arguments, metadata or provider texts. Types only. Leaf.
 */
import type { ExchangeLine } from '../log/log.ts'

/** One try at one endpoint. */
export interface AttemptNotes {
  readonly spanId: string
  readonly startedMs: number
  /** Null: not sent yet, or never. */
  sentMs: number | null
  headMs: number | null
  firstMs: number | null
  endedMs: number | null
  /** Milliseconds from sending to the first content, with the same value as in the metrics. */
  firstTokenMs: number | null
  readonly kind: 'first' | 'again' | 'hedge'
  /** Slug. */
  readonly provider: string
  readonly model: string
  readonly upstreamModel: string
  readonly region: string | null
  readonly isByok: boolean
  host: string | null
  port: number | null
  status: number | null
  error: string | null
  /** True if another attempt of the same call answered first. */
  isOutrun: boolean
  upstreamId: string | null
  finish: string | null
  inputTokens: number | null
  cachedTokens: number | null
  cacheWriteTokens: number | null
  outputTokens: number | null
  reasoningTokens: number | null
  /** Units of 1e-12 USD, at the full price until the exchange is charged. */
  cost: number
  /** The turn of the exchange, from 0. */
  readonly turn: number
}

/** One call of a server tool. */
export interface ToolNotes {
  readonly spanId: string
  readonly startedMs: number
  endedMs: number | null
  /** The server tool, for example `mcp`. */
  readonly tool: string
  /** The function, if a trace may contain its name. */
  readonly name: string | null
  readonly callId: string | null
  /** Null while it runs. */
  outcome: string | null
  cost: number
}

/** One exchange: of the client, or a model call that the gateway made for it. */
export interface ExchangeNotes {
  readonly id: string
  /** For the client's own exchange, the span of the request. */
  readonly spanId: string
  /** Null for the client's own exchange. */
  readonly parentId: string | null
  readonly startedMs: number
  endedMs: number | null
  readonly operation: 'chat' | 'embeddings'
  readonly requestedModel: string | null
  readonly isStreamed: boolean
  readonly temperature: number | null
  readonly topP: number | null
  readonly maxTokens: number | null
  session: string | null
  outcome: string | null
  error: string | null
  /** Costs that belong to no attempt or tool. */
  cost: number
  readonly attempts: AttemptNotes[]
  readonly tools: ToolNotes[]
}

/** A stage, and the time at which it began. */
export type StageNote = readonly [stage: string, atMs: number]

export interface EndedTrace {
  readonly traceId: string
  readonly spanId: string
  /** The caller's span; null: none. */
  readonly parentId: string | null
  /** The caller's `tracestate`; null: none. */
  readonly state: string | null
  readonly isSampled: boolean
  /** Unix milliseconds at time 0 of the monotonic clock. */
  readonly epochMs: number
  readonly startedMs: number
  readonly endedMs: number
  readonly line: ExchangeLine
  readonly stages: readonly StageNote[]
  readonly exchanges: readonly ExchangeNotes[]
  /** Number of spans that exceeded the limit. */
  readonly leftOut: number
}
