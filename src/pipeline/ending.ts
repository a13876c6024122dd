/**
 * Ends an exchange: its error, its charge, the last event or metadata that the caller gets, and the summary for the log
 * line.
 */
import { type Clock, unixSeconds } from '../base/clock.ts'
import { type GatewayError, rewritten, systemCode } from '../base/errors.ts'
import type { FailedAttempt } from '../base/log/log.ts'
import { loggableModel } from '../base/log/loggable.ts'
import { roundedTimes, type Stopwatch } from '../base/metrics/stages.ts'
import { toUsd } from '../base/money.ts'
import { reportedChanges } from '../exchange/changes.ts'
import { type AttemptRecord, type EndedExchange, type Exchange, endOf } from '../exchange/exchange.ts'
import type { Usage } from '../formats/format.ts'
import { asksForEdits } from '../formats/format-abilities.ts'
import type { GatewayMetadata } from '../protocol/response.ts'
import { type FailureKind, toResponseUsage } from './accounting/charge.ts'
import { keptName, traceOf } from './accounting/client-fields.ts'
import type { Ending } from './answer/response-object.ts'
import type { ExchangeSummary, Outcome } from './answer/sink.ts'
import type { RunningExchange } from './exchange-stages.ts'
import type { PluginChains } from './plugin-chain.ts'
import { type ExplainRefusedDeps, explainRefused } from './routing/rank.ts'
import type { ModelCallDeps } from './turn/model-call.ts'
import { asGatewayError } from './turn/provider-failure.ts'
import { RefusedTurn } from './turn/tool-loop.ts'

interface ConcludeDeps extends ExplainRefusedDeps, Pick<ModelCallDeps, 'log'> {
  readonly clock: Clock
  readonly byokFeePercent: number
  readonly plugins: PluginChains
  /** The location of this gateway, as shown in `gateway_metadata`. */
  readonly region: string
}

/** The reason that an exchange failed, and the way its caller learns of it; null if it ended well. */
export type Conclusion = {
  readonly error: GatewayError
  readonly channel: FailureKind
} | null

/** Creates the conclusion of an exchange from the value that a stage threw. */
export async function failureOf(
  deps: ConcludeDeps,
  exchange: RunningExchange,
  thrown: unknown,
): Promise<NonNullable<Conclusion>> {
  const { answer } = exchange
  const isRefusedTurn = thrown instanceof RefusedTurn
  const error = asGatewayError(deps, isRefusedTurn ? thrown.error : thrown)
  if (error.code === 'client_closed') return { error, channel: 'none' }
  if (answer.committed || (isRefusedTurn && answer.live))
    return { error: withFindings(exchange, error), channel: 'stream' }
  await explainRefused(deps, exchange)
  const advisedError = isRefusedTurn ? error : withAdvice(deps, exchange, error)
  const isOverflow = error.code === 'context_length_exceeded' && answer.sink.tellsOverflow === true
  return { error: withFindings(exchange, advisedError), channel: isOverflow ? 'events' : 'envelope' }
}

/** Writes the end of a stream whose caller has lost a right. The usage of the running turn is not known yet. */
export function tellLostRight(deps: ConcludeDeps, exchange: RunningExchange, error: GatewayError): void {
  const { answer } = exchange
  answer.hold()
  answer.fail(error, endingOf(deps, endOf(exchange, error, deps.clock.monotonicMs()), false))
}

/** Writes the end of the answer, unless the error is the whole answer, and returns the outcome. */
export function writeEnd(
  deps: ConcludeDeps,
  end: EndedExchange<RunningExchange>,
  conclusion: Conclusion,
): Outcome {
  const { exchange } = end
  const { answer, finish } = exchange
  if (conclusion === null) {
    if (!exchange.isEndWritten) answer.finish(finish?.reason ?? 'other', endingOf(deps, end, true))
    return { answered: true }
  }
  const { error, channel } = conclusion
  if (exchange.isEndWritten) return { answered: true, refusal: error }
  if (channel === 'envelope') return { answered: false, error, ...details(deps, end, error) }
  if (channel === 'stream' || channel === 'events') {
    if (!answer.turnSeen) {
      answer.dropTurn()
      answer.openTurn(false)
    }
    answer.hold()
    if (!answer.hasBegun) {
      const endpoint = end.last?.endpoint
      answer.begin(endpoint?.modelId ?? '', endpoint?.provider.name ?? null, exchange.debug.opening())
    }
    answer.fail(error, endingOf(deps, end, false))
  }
  return { answered: true, refusal: error }
}

function endingOf(
  { clock, byokFeePercent, region }: ConcludeDeps,
  { exchange, isByok, last, serviceTier }: EndedExchange<RunningExchange>,
  isAnswered: boolean,
): Ending {
  const { batch, bill, finish, withMetadata } = exchange
  return {
    completedAt: unixSeconds(clock),
    usage: toResponseUsage(bill, isByok, byokFeePercent),
    serviceTier: isAnswered ? serviceTier : null,
    metadata: withMetadata ? routingMetadata(exchange, isAnswered, region) : null,
    ...(last === undefined ? {} : { model: last.endpoint.modelId, provider: last.endpoint.provider.name }),
    nativeFinish: isAnswered ? (finish?.native ?? null) : null,
    stopSequence: isAnswered ? requestedStop(exchange) : null,
    isBatched: batch !== undefined,
    ...(exchange.request.debug == null ? undefined : { debug: exchange.debug }),
    ...(exchange.plan === null ? fieldsOf(exchange) : undefined),
  }
}

/** The stop sequence that ended the answer. Some providers use its field for words of their own. */
function requestedStop({ finish, request: { stop } }: RunningExchange): string | null {
  const sequence = finish?.stopSequence ?? null
  if (sequence === null || stop == null) return null
  return stop === sequence || stop.includes(sequence) ? sequence : null
}

/** Fields of plugins, and the results of edits that the caller requested. */
function fieldsOf({ cache, plugins, request, finish }: RunningExchange): Pick<Ending, 'fields'> {
  if (cache?.fields !== undefined) return { fields: cache.fields }
  if (!asksForEdits(request)) return plugins === null ? {} : { fields: plugins.responseFields() }
  const edits = { context_management: { applied_edits: finish?.appliedEdits ?? [] } }
  return { fields: { ...plugins?.responseFields(), ...edits } }
}

/** Details next to an error that is the whole reply to the caller. */
export function details(
  { byokFeePercent, region }: Pick<ConcludeDeps, 'byokFeePercent' | 'region'>,
  { exchange, isByok }: EndedExchange,
  error: GatewayError,
) {
  const { id, bill, withMetadata, candidates, pipeline } = exchange
  const usage = toResponseUsage(bill, isByok, byokFeePercent)
  // A request that no endpoint may serve was routed too.
  const isRouted = candidates.length + pipeline.length > 0 || error.metadata?.['availability'] !== undefined
  return {
    metadata: withMetadata && isRouted ? routingMetadata(exchange, false, region) : null,
    charged: usage === null ? null : { id, usage },
  }
}

/** The error, with the findings of plugins. */
function withFindings({ plugins }: RunningExchange, error: GatewayError): GatewayError {
  const fields = plugins?.failureFields() ?? {}
  if (Object.keys(fields).length === 0) return error
  return rewritten(error, { metadata: { ...fields, ...error.metadata } })
}

/** Adds the remedies that the gateway offers to a provider's refusal: the provider does not know them. */
function withAdvice(
  { plugins }: ConcludeDeps,
  { attempts, request }: RunningExchange,
  error: GatewayError,
): GatewayError {
  if (attempts.at(-1)?.status == null) return error
  const advice = plugins.advice(error, request)
  if (advice.length === 0) return error
  const message = error.message.trimEnd()
  return rewritten(error, { message: `${message}${message.endsWith('.') ? '' : '.'} ${advice.join(' ')}` })
}

/** The kind of a connection failure, otherwise the kind of the failure. */
function reasonOf({ metadata, errorType }: GatewayError): string {
  const reason = metadata?.['reason']
  return typeof reason === 'string' ? reason : errorType
}

/** Routing metadata of an exchange. `isAnswered`: true if the last attempt answered. */
export function routingMetadata(exchange: Exchange, isAnswered: boolean, region: string): GatewayMetadata {
  const { repeated } = exchange
  const last = exchange.attempts.at(-1) ?? repeated?.attempt
  const chosenAttempt = isAnswered ? last : undefined
  const requested = exchange.request.model ?? exchange.request.models?.[0] ?? ''
  return {
    requested,
    ...(exchange.ranking.route === undefined ? {} : { route: exchange.ranking.route }),
    strategy: exchange.strategy,
    region,
    summary: `available=${exchange.candidates.length}${chosenAttempt === undefined ? '' : `, selected=${chosenAttempt.endpoint.provider.name}`}`,
    attempt: exchange.attempts.filter(({ isStarted }) => isStarted).length,
    attempts: exchange.attempts.map(attempt => ({
      provider: attempt.endpoint.provider.name,
      model: attempt.endpoint.modelId,
      status: attempt.status,
      ...(attempt.error === null ? undefined : { reason: reasonOf(attempt.error) }),
      ...(attempt.continuedAt === undefined ? undefined : { continued_at: attempt.continuedAt }),
      ...(attempt.partUsage === undefined ? undefined : { usage: partUsage(attempt.partUsage) }),
    })),
    is_byok: last?.isByok ?? false,
    endpoints: {
      total: exchange.candidates.length,
      available: exchange.candidates.map(({ endpoint, credential }) => ({
        model: endpoint.modelId,
        provider: endpoint.provider.name,
        selected: endpoint === chosenAttempt?.endpoint && credential === chosenAttempt.credential,
      })),
    },
    ...(exchange.ranking.skipped.length === 0 ? {} : { skipped_models: exchange.ranking.skipped }),
    ...pipelineOf(exchange),
    ...(repeated?.endedAt == null ? {} : { cached_at: repeated.endedAt }),
    timings_ms: roundedTimes(exchange.watch),
    ...(exchange.batch === undefined ? {} : { generation_time: generationMs(exchange.watch) }),
  }
}

function partUsage({ inputTokens, outputTokens }: Usage) {
  return { input_tokens: inputTokens, output_tokens: outputTokens }
}

/** Actions of guardrails and plugins, and changes of the request for the last provider. */
function pipelineOf({
  attempts,
  clientRequest,
  pipeline,
  repeated,
}: Exchange): Pick<GatewayMetadata, 'pipeline'> {
  const changes = (attempts.at(-1) ?? repeated?.attempt)?.changes
  if (changes === undefined) return pipeline.length === 0 ? {} : { pipeline }
  const summary = `${changes.length} ${changes.length === 1 ? 'change' : 'changes'} of the request for this provider`
  const data = { changes: reportedChanges(changes, clientRequest) }
  return { pipeline: [...pipeline, { type: 'translation', name: 'translation', summary, data }] }
}

/** Whole milliseconds from sending the request to the end of the provider's reply, over all turns. */
function generationMs(watch: Stopwatch): number {
  const times = watch.times(null)
  let ms = 0
  for (const stage of ['upstream_first_byte', 'first_token', 'stream'] as const) ms += times.get(stage) ?? 0
  return Math.round(ms)
}

interface SummaryDeps {
  /** See ProviderRequests. */
  readonly requests: { endUserOf(exchange: Exchange): string | null }
}

/** The summary for the log line. The list of failed attempts is made only if one failed. */
export function summarize(
  { requests }: SummaryDeps,
  { cost, exchange, fees, last }: EndedExchange,
  outcome: Outcome,
): ExchangeSummary {
  const { attempts, bill, client, request } = exchange
  const usage = bill.total?.usage
  const hasEndUser = request.user !== undefined || request.safety_identifier != null
  const model = last?.endpoint.modelId ?? null
  const requested = request.model ?? request.models?.[0]
  const error = outcome.answered ? (outcome.refusal ?? last?.error ?? null) : outcome.error
  return {
    // People read log lines, so a microsecond is precise enough.
    firstTokenMs:
      exchange.firstTokenMs === null
        ? null
        : Math.round((exchange.firstTokenMs - exchange.watch.startedMs) * 1000) / 1000,
    model,
    requestedModel:
      requested === undefined || requested === model
        ? undefined
        : // The name of a route is the operator's own.
          (exchange.ranking.route ?? loggableModel(requested)),
    provider: last?.endpoint.provider.slug ?? null,
    attempts: attempts.length,
    failedAttempts: attempts.length > 1 || error !== null ? failedAttempts(attempts) : undefined,
    inputTokens: usage?.inputTokens ?? null,
    outputTokens: usage?.outputTokens ?? null,
    finish: exchange.finish?.reason ?? null,
    cost: bill.total === null && cost + fees === 0 ? null : toUsd(cost + fees + bill.inner.cost),
    error: error?.code ?? null,
    cause: error === null ? undefined : (systemCode(error) ?? undefined),
    trace: request.trace === undefined ? undefined : loggedTrace(request),
    session: request.session_id === undefined ? undefined : keptName(request.session_id),
    agent: client?.agent === undefined ? undefined : keptName(client.agent),
    parentAgent: client?.parentAgent === undefined ? undefined : keptName(client.parentAgent),
    endUser: hasEndUser ? (requests.endUserOf(exchange) ?? undefined) : undefined,
    exchange,
  }
}

/** Fields of a trace that a log line includes. */
const LOGGED_TRACE_FIELDS = [
  'trace_id',
  'trace_name',
  'span_name',
  'generation_name',
  'parent_span_id',
] as const

function loggedTrace(request: Exchange['request']): ExchangeSummary['trace'] {
  const trace = traceOf(request)
  if (trace === undefined) return undefined
  const entries = LOGGED_TRACE_FIELDS.flatMap(name =>
    trace[name] === undefined ? [] : [[name, trace[name]] as const],
  )
  return entries.length === 0 ? undefined : Object.fromEntries(entries)
}

/** Maximum number of attempts in a log line: enough for two turns. */
const MAX_LOGGED_ATTEMPTS = 20

function failedAttempts(attempts: readonly AttemptRecord[]): readonly FailedAttempt[] | undefined {
  const failures = attempts.filter(attempt => attempt.error !== null).slice(0, MAX_LOGGED_ATTEMPTS)
  if (failures.length === 0) return undefined
  return failures.map(({ endpoint, error, status }) => ({
    provider: endpoint.provider.slug,
    model: endpoint.modelId,
    error: error?.code ?? null,
    status,
    cause: systemCode(error),
  }))
}
