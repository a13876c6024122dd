/**
 * Builds the spans of a finished trace: a server span for the request, a client span for each attempt, one for each
 * server-tool call, and one for each model call that the gateway itself made. Main thread. Pure. Leaf.
 */
import { toUsd } from '../../money.ts'
import type { AttemptNotes, EndedTrace, ExchangeNotes, ToolNotes } from '../ended-trace.ts'
import { NAMES, PROVIDER_NAMES } from './names.ts'

/** A number is encoded as an integer if it is a whole one, a `Decimal` never. */
export type AttributeValue = string | number | boolean | Decimal | readonly string[]
export type Attribute = readonly [name: string, value: AttributeValue]

const SPAN_KINDS = { internal: 1, server: 2, client: 3 } as const

interface SpanEvent {
  readonly name: string
  /** Unix microseconds. */
  readonly micros: number
}

export interface Span {
  readonly traceId: string
  readonly spanId: string
  readonly parentId: string | null
  readonly state: string | null
  readonly name: string
  readonly kind: (typeof SPAN_KINDS)[keyof typeof SPAN_KINDS]
  /** Unix microseconds; nothing here is measured more precisely. */
  readonly startMicros: number
  readonly endMicros: number
  readonly attributes: readonly Attribute[]
  readonly events: readonly SpanEvent[]
  /** True if it failed; otherwise no status is set. */
  readonly isFailed: boolean
}

type AttributeEntry = readonly [name: string, value: AttributeValue | null | undefined]

/** Builds the spans of a trace, the request first. */
export function spansOf(trace: EndedTrace): readonly Span[] {
  const spans = [requestSpan(trace)]
  for (const exchange of trace.exchanges) {
    if (exchange.parentId !== null) spans.push(innerSpan(trace, exchange))
    for (const attempt of exchange.attempts) spans.push(attemptSpan(trace, exchange, attempt))
    for (const tool of exchange.tools) spans.push(toolSpan(trace, exchange, tool))
  }
  return spans
}

function requestSpan(trace: EndedTrace): Span {
  const { line, startedMs, endedMs } = trace
  const outerExchange = trace.exchanges.find(({ parentId }) => parentId === null)
  const firstMs = line.firstTokenMs ?? null
  const tokens = line.outputTokens ?? 0
  return span(trace, {
    spanId: trace.spanId,
    parentId: trace.parentId,
    name: `${line.method} ${line.route}`,
    kind: SPAN_KINDS.server,
    startedMs,
    endedMs,
    isFailed: line.status >= 500 || line.outcome === 'failed',
    events: trace.stages.map(([stage, atMs]) => ({ name: stage, micros: unixMicros(trace, atMs) })),
    attributes: [
      [NAMES.method, line.method],
      [NAMES.route, line.route],
      [NAMES.statusCode, line.status],
      [NAMES.outcome, line.outcome],
      [NAMES.errorType, line.error],
      [NAMES.field, line.field],
      [NAMES.generation, line.id],
      [NAMES.requestId, line.requestId],
      [NAMES.userAgent, line.userAgent],
      [NAMES.conversation, line.session],
      [NAMES.endUser, line.endUser],
      [NAMES.key, line.key],
      [NAMES.workspace, line.workspace],
      [NAMES.organization, line.organization],
      [NAMES.timeToFirstToken, firstMs === null ? null : decimalOrNull(firstMs / 1000)],
      [
        NAMES.timePerOutputToken,
        firstMs === null || tokens < 2
          ? null
          : decimalOrNull((endedMs - startedMs - firstMs) / 1000 / (tokens - 1)),
      ],
      ...Object.entries(line.trace ?? {}).map(
        ([name, value]): AttributeEntry => [`gateway.trace.${name}`, value],
      ),
      ...costs(outerExchange?.cost ?? 0),
      [NAMES.leftOut, trace.leftOut === 0 ? null : trace.leftOut],
    ],
  })
}

function innerSpan(trace: EndedTrace, exchange: ExchangeNotes): Span {
  return span(trace, {
    spanId: exchange.spanId,
    parentId: exchange.parentId,
    name: exchange.requestedModel === null ? 'ask' : `ask ${exchange.requestedModel}`,
    kind: SPAN_KINDS.internal,
    startedMs: exchange.startedMs,
    endedMs: exchange.endedMs,
    isFailed: exchange.error !== null,
    events: [],
    attributes: [
      [NAMES.generation, exchange.id],
      [NAMES.outcome, exchange.outcome],
      [NAMES.errorType, exchange.error],
      ...costs(exchange.cost),
    ],
  })
}

function attemptSpan(trace: EndedTrace, exchange: ExchangeNotes, attempt: AttemptNotes): Span {
  const marks: readonly (readonly [string, number | null])[] = [
    ['sent', attempt.sentMs],
    ['headers', attempt.headMs],
    ['first_chunk', attempt.firstMs],
  ]
  const { sentMs, firstMs } = attempt
  return span(trace, {
    spanId: attempt.spanId,
    parentId: exchange.spanId,
    name: `${exchange.operation} ${attempt.model}`,
    kind: SPAN_KINDS.client,
    startedMs: attempt.startedMs,
    endedMs: attempt.endedMs,
    isFailed: attempt.error !== null,
    events: marks.flatMap(([name, atMs]) =>
      atMs === null ? [] : [{ name, micros: unixMicros(trace, atMs) }],
    ),
    attributes: [
      [NAMES.operation, exchange.operation],
      [NAMES.providerName, PROVIDER_NAMES.get(attempt.provider) ?? attempt.provider],
      [NAMES.requestModel, attempt.model],
      [NAMES.responseModel, attempt.error === null ? attempt.upstreamModel : null],
      [NAMES.responseId, attempt.upstreamId],
      [NAMES.finishReasons, attempt.finish === null ? null : [attempt.finish]],
      [NAMES.requestStream, exchange.isStreamed],
      [NAMES.requestTemperature, decimalOrNull(exchange.temperature)],
      [NAMES.requestTopP, decimalOrNull(exchange.topP)],
      [NAMES.requestMaxTokens, exchange.maxTokens],
      [
        NAMES.timeToFirstChunk,
        exchange.isStreamed && sentMs !== null && firstMs !== null
          ? decimalOrNull((firstMs - sentMs) / 1000)
          : null,
      ],
      [NAMES.inputTokens, attempt.inputTokens],
      [NAMES.outputTokens, attempt.outputTokens],
      [NAMES.cacheReadTokens, attempt.cachedTokens],
      [NAMES.cacheWriteTokens, attempt.cacheWriteTokens],
      [NAMES.reasoningTokens, attempt.reasoningTokens],
      [NAMES.conversation, exchange.session],
      [NAMES.serverAddress, attempt.host],
      [NAMES.serverPort, attempt.port],
      [NAMES.statusCode, attempt.status],
      [NAMES.errorType, attempt.error],
      [NAMES.provider, attempt.provider],
      [NAMES.region, attempt.region],
      [NAMES.attempt, attempt.kind],
      [NAMES.turn, attempt.turn + 1],
      [NAMES.isByok, attempt.isByok ? true : null],
      [NAMES.isOutrun, attempt.isOutrun ? true : null],
      ...costs(attempt.cost),
    ],
  })
}

function toolSpan(trace: EndedTrace, exchange: ExchangeNotes, tool: ToolNotes): Span {
  const name = tool.name ?? tool.tool
  return span(trace, {
    spanId: tool.spanId,
    parentId: exchange.spanId,
    name: `execute_tool ${name}`,
    kind: SPAN_KINDS.internal,
    startedMs: tool.startedMs,
    endedMs: tool.endedMs,
    isFailed: tool.outcome === 'failed',
    events: [],
    attributes: [
      [NAMES.operation, 'execute_tool'],
      [NAMES.toolName, name],
      [NAMES.toolCallId, tool.callId],
      [NAMES.toolType, 'extension'],
      [NAMES.serverTool, tool.tool],
      [NAMES.outcome, tool.outcome],
      ...costs(tool.cost),
    ],
  })
}

/** A number that is encoded with a fraction, even if it is whole. */
export class Decimal {
  readonly value: number

  constructor(value: number) {
    this.value = value
  }
}

function decimalOrNull(value: number | null): Decimal | null {
  return value === null ? null : new Decimal(value)
}

function costs(cost: number): readonly AttributeEntry[] {
  if (cost === 0) return []
  return [
    [NAMES.costPicoUsd, cost],
    [NAMES.costUsd, decimalOrNull(toUsd(cost))],
  ]
}

interface SpanParts extends Pick<Span, 'spanId' | 'parentId' | 'name' | 'kind' | 'isFailed' | 'events'> {
  readonly startedMs: number
  /** Null: it had not ended when the request ended. */
  readonly endedMs: number | null
  readonly attributes: readonly AttributeEntry[]
}

function span(trace: EndedTrace, { startedMs, endedMs, attributes, ...fields }: SpanParts): Span {
  return {
    traceId: trace.traceId,
    state: trace.state,
    ...fields,
    startMicros: unixMicros(trace, startedMs),
    endMicros: unixMicros(trace, Math.max(endedMs ?? trace.endedMs, startedMs)),
    attributes: attributes.filter((pair): pair is Attribute => pair[1] != null),
  }
}

function unixMicros({ epochMs }: EndedTrace, atMs: number): number {
  return Math.round((epochMs + atMs) * 1000)
}
