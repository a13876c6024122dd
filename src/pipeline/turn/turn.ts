/** Turn: one model call, at the first endpoint that answers. Server tools remove their calls from its reply. */
import type { Clock } from '../../base/clock.ts'
import type { PicoUsd } from '../../base/money.ts'
import type { AttemptRecord, Finish } from '../../exchange/exchange.ts'
import type { ToolEndpoint } from '../../exchange/server-tool.ts'
import type { Format, WireRequest } from '../../formats/format.ts'
import { COMPACTS, type NotedRequest } from '../../protocol/json/request-notes.ts'
import { type ContinueStreams, type Endpoint, type FormatName, textFormat } from '../../protocol/provider.ts'
import type { DialectName, ResponsesRequest } from '../../protocol/request.ts'
import { admitCall, type CallTerms } from '../accounting/allowance.ts'
import { settlePart } from '../accounting/charge.ts'
import { mostOutput } from '../accounting/estimate.ts'
import { TEXT_ESTIMATES } from '../accounting/usage-check.ts'
import type { Answer } from '../answer/answer.ts'
import type { LearnFrame } from '../answer/relay.ts'
import { lessonsFor } from '../answer/relay-patterns.ts'
import type { RunningExchange } from '../exchange-stages.ts'
import { PlaceholderJoiner } from '../guard/placeholder-joiner.ts'
import { OutputGuard } from '../guard/reply.ts'
import type { PluginChain } from '../plugin-chain.ts'
import { makerOf, type RouteCandidate } from '../routing/candidate.ts'
import { compactsItself, type Summaries } from '../summaries.ts'
import { type CallSeals, SIGNING_FORMAT } from '../tool-calls/call-seals.ts'
import { type FittedRequest, fitTools, withClientPaths } from '../tool-calls/client-tools.ts'
import { type DeclaredFunction, ToolCalls, toolEndpointFor } from '../tool-calls/tool-calls.ts'
import { AnswerTarget } from './answer-target.ts'
import { Attempt } from './attempt.ts'
import type { AttemptTarget } from './attempt-target.ts'
import {
  type BrokenReply,
  type Continuation,
  ContinuedReply,
  continuable,
  continuationOf,
  continuedPrompt,
  tokensIn,
  wayOf,
  wishOf,
  withPrefixMark,
} from './continuation.ts'
import { type CallSubject, callModel, type ModelCallDeps } from './model-call.ts'
import { StopCut } from './stop-cut.ts'

export interface TurnDeps extends ModelCallDeps {
  /** Absent: signatures of calls are lost if clients leave them out. */
  readonly callSeals?: CallSeals
  /** Absent: provider-made summaries are sent unchanged, and no provider is asked for one. */
  readonly summaries?: Summaries
  readonly formats: Readonly<Record<FormatName, Format>>
  readonly clock: Clock
  /** Applies to broken streams if neither a row nor the request says how to continue them. Absent: they end. */
  readonly continueStreams?: ContinueStreams
}

/** The reply of a model that has answered. */
export interface TurnReply {
  readonly attempt: AttemptRecord
  readonly finish: Finish
  /** Null if no server tool is declared. */
  readonly calls: ToolCalls | null
  /** True if the gateway ended it, for example at the caller's limits, possibly within a call. */
  readonly isCut: boolean
  /** Adds to the answer the client's calls that waited for server tools. */
  release(): void
}

/** The functions that represent server tools to the model. */
type DeclaredFunctions = ReadonlyMap<string, DeclaredFunction>

type Declare = (endpoint: ToolEndpoint) => Promise<{
  readonly prompt: ResponsesRequest
  readonly functions: DeclaredFunctions
  readonly takesUnknown: boolean
}>

/**
 * Calls the model with the prompt of the exchange, which plugins adapt to each endpoint, and passes its reply to
 * `onward`. Rejects, or returns null, as `callModel` does.
 */
export function askModel<Then>(
  deps: TurnDeps,
  exchange: RunningExchange,
  declare: Declare | null,
  onward: (reply: TurnReply | null) => Then | Promise<Then>,
): Promise<Then> {
  const { answer, candidate, candidates, plugins } = exchange
  answer.openTurn(plugins?.holdsTurns === true)
  const call = new TurnCall(deps, exchange, declare)
  // Uses a callback, because it needs less memory than an async function that waits as long as the stream is open.
  const first = candidate === null ? candidates[0] : candidateOfNextTurn(exchange, candidate)
  return callModel(deps, exchange, call, first, reply => {
    if (reply === null) return onward(null)
    const { candidate: answeringCandidate, record, figures, finish } = reply
    const { endpoint } = answeringCandidate
    exchange.ranking.affinity?.noteSuccess(answeringCandidate, figures.usage)
    exchange.prefix?.note(answeringCandidate, figures.usage)
    if (endpoint.format === SIGNING_FORMAT) deps.callSeals?.keepSignatures(exchange, answer.output)
    else if (endpoint.provider.quirks.includes('replay-reasoning'))
      deps.callSeals?.keepThoughts(exchange, answer.output, makerOf(record))
    plugins?.noteAnswer(exchange, endpoint.modelId)
    exchange.candidate = answeringCandidate
    if (call.promptBefore !== null) {
      exchange.prompt = call.promptBefore
      deps.metrics.streamContinuations.inc({ outcome: 'continued' })
    }
    return onward({
      attempt: record,
      finish,
      calls: call.calls,
      isCut: figures.isCut,
      release: () => call.answerTarget?.release(),
    })
  })
}

/**
 * The candidate that answered last, or another one if the prompt has grown so that the last one would take only part of
 * it.
 */
function candidateOfNextTurn(
  { candidates, plugins, prompt }: RunningExchange,
  candidate: RouteCandidate,
): RouteCandidate | undefined {
  if (plugins?.fits !== true || plugins.fitting(candidate.endpoint, prompt) === 'whole') return candidate
  const isPaidAlike = ({ credential }: RouteCandidate): boolean =>
    (credential === null) === (candidate.credential === null)
  const larger = candidates.find(
    otherCandidate =>
      isPaidAlike(otherCandidate) && plugins.fitting(otherCandidate.endpoint, prompt) === 'whole',
  )
  return larger ?? candidate
}

/** The request of one attempt of a turn, and its form. */
interface TurnTerms {
  readonly prompt: ResponsesRequest
  readonly format: Format
  /** Client tools that are sent in another form; null if none. */
  readonly fitted: FittedRequest | null
  /** Null: no server tool is declared. */
  readonly calls: ToolCalls | null
  /** Null if the caller has no spending limits. */
  readonly limit: CallTerms | null
}

/** The model call of one turn. */
class TurnCall implements CallSubject<TurnTerms> {
  readonly draft: Answer
  /** False if server tools or fitting plugins keep the state of a single attempt; batches are not in a hurry. */
  readonly mayHedge: boolean
  readonly estimates = TEXT_ESTIMATES
  /** Calls of the attempt that was opened last. */
  calls: ToolCalls | null = null
  answerTarget: AnswerTarget | null = null
  /** The prompt without the text so far; null unless another endpoint continues the turn. */
  promptBefore: ResponsesRequest | null = null
  #continuation: Continuation | null = null
  readonly #deps: TurnDeps
  readonly #exchange: RunningExchange
  readonly #declare: Declare | null

  constructor(deps: TurnDeps, exchange: RunningExchange, declare: Declare | null) {
    const { answer, batch, plugins } = exchange
    this.draft = answer
    this.mayHedge = declare === null && plugins?.fits !== true && batch === undefined
    this.#deps = deps
    this.#exchange = exchange
    this.#declare = declare
  }

  prepare(candidate: RouteCandidate): TurnTerms | null | Promise<TurnTerms | null> {
    const exchange = this.#exchange
    const deps = this.#deps
    const prefixLookup = exchange.prefix?.waitFor(candidate.endpoint) ?? null
    const { format, provider } = candidate.endpoint
    let withCallSeals: ResponsesRequest | Promise<ResponsesRequest> | undefined
    if (format === SIGNING_FORMAT) withCallSeals = deps.callSeals?.recallSignatures(exchange)
    else if (provider.quirks.includes('replay-reasoning'))
      withCallSeals = deps.callSeals?.recallThoughts(exchange)
    withCallSeals ??= exchange.prompt
    if (prefixLookup !== null || withCallSeals instanceof Promise)
      return Promise.all([withCallSeals, prefixLookup]).then(([prompt]) => {
        exchange.prompt = prompt
        return this.prepare(candidate)
      })
    exchange.prompt = withCallSeals
    const pendingFit =
      exchange.plugins === null ? undefined : fitPrompt(exchange, exchange.plugins, candidate)
    if (this.#declare !== null || pendingFit instanceof Promise)
      return this.#prepareLater(candidate, pendingFit)
    return this.#admit(candidate, exchange.prompt, null)
  }

  encode(record: AttemptRecord, { prompt, format, fitted }: TurnTerms): WireRequest {
    const deps = this.#deps
    const exchange = this.#exchange
    const wire =
      fitted === null
        ? deps.requests.encode(exchange, record, format, prompt)
        : withClientPaths(fitted.toolPaths, () =>
            deps.requests.encode(exchange, record, format, prompt, fitted),
          )
    // Only in the first turn, because prompts of later turns may quote texts that were withheld.
    if (exchange.request.debug?.echo_upstream_body === true && exchange.bill.turns === 0)
      exchange.debug.bodies.push(wire.body)
    const { way, text = null } = this.#continuation ?? {}
    return way === 'prefix' && text?.text.trim() !== '' ? withPrefixMark(wire) : wire
  }

  goesOn(
    broken: BrokenReply,
    next: (isWanted: (candidate: RouteCandidate) => boolean) => RouteCandidate | undefined,
  ): RouteCandidate | undefined {
    const exchange = this.#exchange
    const { continueStreams = false, metrics } = this.#deps
    const { figures, record } = broken
    const wish = wishOf(exchange, record.endpoint, continueStreams)
    if (wish === false || exchange.signal.aborted) return undefined
    const text = (this.calls?.pending.length ?? 0) > 0 ? null : continuable(exchange, broken)
    const candidate = text === null ? undefined : next(({ endpoint }) => wayOf(endpoint, wish) !== null)
    const way = candidate === undefined ? null : wayOf(candidate.endpoint, wish)
    if (text === null || way === null) {
      const outcome = text === null ? 'impossible' : 'no_endpoint'
      metrics.streamContinuations.inc({ outcome: this.#continuation === null ? outcome : 'failed' })
      return undefined
    }
    if (figures.outputQuarters > 0) settlePart(exchange, record, figures, this.estimates)
    this.promptBefore ??= exchange.prompt
    this.#continuation = continuationOf(text, way)
    exchange.prompt = continuedPrompt(this.promptBefore, this.#continuation, tokensIn(text.text))
    return candidate
  }

  /** Submits a call that is the only one of its exchange, and whose exchange can be split into two halves. */
  submits(record: AttemptRecord, terms: TurnTerms, wire: WireRequest): boolean {
    const { attempts, batch, bill, plugins, pipeline, request, withMetadata } = this.#exchange
    if (batch?.submit === undefined || request.stream === true) return false
    if (terms.calls !== null || terms.fitted !== null || record.stops !== undefined) return false
    if (bill.turns > 0 || attempts.length > 1 || plugins?.isRepeatable === false) return false
    // Findings in the request are reported with the reply, and would be lost by then.
    if (withMetadata && pipeline.length > 0) return false
    const reservedAmount: PicoUsd = terms.limit?.reservedAmount ?? 0
    return batch.submit({ exchange: this.#exchange, attempt: record, wire, reservedAmount })
  }

  open(record: AttemptRecord, { format, calls, fitted, limit }: TurnTerms): Attempt {
    const deps = this.#deps
    const exchange = this.#exchange
    const { answer, guarding, masks, plugins, tools } = exchange
    this.calls = calls
    // Nothing has to read the whole reply, and nothing is added to it.
    const isUnseen =
      guarding?.reply == null &&
      masks === null &&
      plugins === null &&
      tools === null &&
      !answer.cites &&
      !record.endpoint.provider.quirks.includes('no-relay') &&
      record.stops === undefined
    const takesMessages = calls === null && fitted === null && !answer.live && isUnseen
    return new Attempt(deps, exchange, record, {
      format,
      body: null,
      takesMessages,
      debug: exchange.request.debug?.timings === true ? exchange.debug : null,
      meter: limit?.meter ?? null,
      transport: exchange.transport,
    })
  }

  mostTokens({ endpoint }: AttemptRecord, { prompt, limit }: TurnTerms): number {
    if (limit !== null) return limit.meter.coveredTokens
    return Math.min(prompt.max_output_tokens ?? Number.POSITIVE_INFINITY, mostOutput(endpoint))
  }

  receive(attempt: Attempt, record: AttemptRecord, terms: TurnTerms): AttemptTarget {
    const deps = this.#deps
    const exchange = this.#exchange
    const { calls, fitted, format } = terms
    const { answer, guarding, masks } = exchange
    const { figures } = attempt
    const liveDialect = answer.live ? answer.relays : null
    const learn =
      liveDialect === null || calls !== null || fitted !== null
        ? null
        : lessonsOf(format, liveDialect, exchange, record.endpoint)
    const target = new AnswerTarget({
      clock: deps.clock,
      exchange,
      answer,
      figures,
      record,
      calls,
      fitted,
      learn,
      summaries: deps.summaries?.seal,
    })
    // A reply that is delivered at its end is never paused.
    if (answer.live) answer.follow(attempt)
    if (calls !== null) this.answerTarget = target
    let innerTarget: AttemptTarget & { readonly committed: boolean } = target
    if (masks !== null) {
      answer.sink.unmask?.(masks)
      innerTarget = new PlaceholderJoiner(masks, target)
    }
    const continuation = this.#continuation
    const guardedTarget =
      guarding?.reply == null
        ? innerTarget
        : new OutputGuard(guarding.reply, exchange, attempt, innerTarget, continuation?.text.text)
    const receiver =
      record.stops === undefined ? guardedTarget : new StopCut(record.stops, attempt, guardedTarget)
    if (continuation === null) return receiver
    return new ContinuedReply(receiver, continuation, () => this.#noteContinuation(record, continuation))
  }

  #noteContinuation(record: AttemptRecord, { text }: Continuation): void {
    const { answer, withMetadata } = this.#exchange
    const { modelId, provider } = record.endpoint
    record.continuedAt = text.text.length
    if (withMetadata) answer.tellContinued(modelId, provider.name, text.text.length)
  }

  async #prepareLater(
    candidate: RouteCandidate,
    pendingFit: void | Promise<void>,
  ): Promise<TurnTerms | null> {
    if (pendingFit instanceof Promise) await pendingFit
    if (this.#declare === null) return this.#admit(candidate, this.#exchange.prompt, null)
    const { endpoint } = candidate
    const format = this.#deps.formats[textFormat(endpoint)]
    const declaredPrompt = await this.#declare(toolEndpointFor(this.#exchange.prompt, endpoint, format))
    const { functions, prompt, takesUnknown } = declaredPrompt
    // Output that plugins judge or replace is reported in the order in which it arrives.
    const { plugins } = this.#exchange
    const holdsCalls = plugins === null || !(plugins.judges || plugins.finishes)
    // If the provider runs all server tools itself, there are no calls to take out, so the reply may be relayed.
    const calls = functions.size === 0 ? null : new ToolCalls(functions, { takesUnknown, holdsCalls })
    return this.#admit(candidate, prompt, calls)
  }

  /** The format of a request for a summary, if the provider makes it itself. */
  #compactionFormat(endpoint: Endpoint, usual: Format, threshold: number | null): Format {
    const { formats, summaries } = this.#deps
    if (summaries === undefined || !compactsItself(endpoint, formats, summaries.mode)) return usual
    return usual.compaction?.format(threshold) ?? usual
  }

  /** The terms, with the output that the caller's limits allow; null if they allow nothing. */
  #admit(
    candidate: RouteCandidate,
    prompt: ResponsesRequest & NotedRequest,
    calls: ToolCalls | null,
  ): TurnTerms | null | Promise<TurnTerms | null> {
    const { endpoint } = candidate
    // Routing never selects embeddings endpoints here.
    let format = this.#deps.formats[endpoint.format as FormatName]
    const compaction = prompt[COMPACTS]
    if (format.variant !== undefined)
      format = format.variant(prompt, this.#exchange.dialect, endpoint) ?? format
    else if (compaction !== undefined) format = this.#compactionFormat(endpoint, format, compaction.threshold)
    const allowance = this.#exchange.reservation?.allowance ?? null
    // A plain request has no tools, and most have no limit.
    if (allowance === null && this.#exchange.plan !== null)
      return { prompt, format, fitted: null, calls, limit: null }
    if (allowance === null) return termsOf(candidate, prompt, format, calls, null)
    const limit = admitCall(this.#exchange, allowance, prompt, candidate)
    if (limit instanceof Promise)
      return limit.then(terms => (terms === null ? null : termsOf(candidate, prompt, format, calls, terms)))
    return limit === null ? null : termsOf(candidate, prompt, format, calls, limit)
  }
}

function termsOf(
  { endpoint }: RouteCandidate,
  request: ResponsesRequest,
  format: Format,
  calls: ToolCalls | null,
  limit: CallTerms | null,
): TurnTerms {
  const fitted = fitTools(request, format, endpoint)
  const fittedPrompt = fitted?.prompt ?? request
  const cap = limit?.cap ?? null
  const prompt = cap === null ? fittedPrompt : { ...fittedPrompt, max_output_tokens: cap }
  return { prompt, format, fitted, calls, limit }
}

/**
 * Lets plugins make the prompt fit the endpoint, and adds their annotations and search results to the answer. A promise
 * only if a plugin has to make it fit.
 */
function fitPrompt(
  exchange: RunningExchange,
  plugins: PluginChain,
  { endpoint }: RouteCandidate,
): void | Promise<void> {
  const { answer, guarding } = exchange
  if (!plugins.fits) {
    annotate(answer, plugins)
    return
  }
  return plugins.fitTo(exchange, endpoint, guarding?.input).then(() => annotate(answer, plugins))
}

function annotate(answer: Answer, plugins: PluginChain): void {
  answer.annotate(plugins.annotations())
  const searchResults = plugins.searchResults()
  if (searchResults.length > 0) answer.cite(searchResults, true)
}

/** Null unless both sides have a dialect, and the content may be relayed unread. */
function lessonsOf(
  { dialect, framing }: Format,
  relays: DialectName,
  { answer, guarding, masks }: RunningExchange,
  { provider }: Endpoint,
): LearnFrame | null {
  if (
    guarding?.reply != null ||
    masks !== null ||
    dialect === null ||
    answer.cites ||
    framing(true) !== 'sse'
  )
    return null
  return provider.quirks.includes('no-relay') ? null : lessonsFor(dialect, relays)
}
