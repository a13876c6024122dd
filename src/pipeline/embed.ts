/**
 * Runs an embeddings call from admission to its result. It uses the same guardrails, routing,
 * credentials, limits, attempts and accounting as every exchange, but has no turns, plugins, tools or events.
 *
 * guard -> route -> admit -> call -> account -> result
 */

import { type Clock, unixSeconds } from '../base/clock.ts'
import { GatewayError } from '../base/errors.ts'
import { whenReady } from '../base/maybe-promise.ts'
import { type AttemptRecord, type ClientRequest, type EndedExchange, endOf } from '../exchange/exchange.ts'
import type { Observation } from '../exchange/observer.ts'
import type { EmbeddingsFormat, EmbeddingsNeed } from '../formats/embeddings/format.ts'
import { EMBEDDINGS_FORMATS } from '../formats/embeddings/table.ts'
import type { WireRequest } from '../formats/format.ts'
import {
  type EmbeddingsRequest,
  type EmbeddingsResult,
  type EmbeddingsSettings,
  inputPath,
} from '../protocol/embeddings.ts'
import { elementPath } from '../protocol/json/schema.ts'
import { type Endpoint, isEmbeddingsFormat } from '../protocol/provider.ts'
import { supportsParameter } from '../providers/parameters.ts'
import { account, type Ledger, type ReserveDeps, reserve } from './accounting/account.ts'
import { unpaidError } from './accounting/allowance.ts'
import { fixCharge, toResponseUsage } from './accounting/charge.ts'
import { admitEmbedding, EMBEDDING_ESTIMATES, embeddingDemand } from './accounting/embeddings.ts'
import type { ExchangeSummary, Outcome } from './answer/sink.ts'
import { EmbeddingsAnswer } from './embeddings-answer.ts'
import { type Conclusion, details, routingMetadata, summarize } from './ending.ts'
import { type ExchangeStage, guardRequest, RoutedExchange, runStages, SKIPPED } from './exchange-stages.ts'
import type { Guard } from './guard/guard.ts'
import type { RouteCandidate } from './routing/candidate.ts'
import { explainRefused, type RankDeps, rankCandidates } from './routing/rank.ts'
import { Attempt } from './turn/attempt.ts'
import type { AttemptTarget } from './turn/attempt-target.ts'
import { type CallSubject, callModel, type ModelCallDeps } from './turn/model-call.ts'
import { asGatewayError } from './turn/provider-failure.ts'
import { deployedEndpoint } from './turn/provider-request.ts'

/** A request for embeddings, as the operation passes it in. */
export interface EmbeddingsCall extends ClientRequest {
  readonly dialect: 'embeddings'
  readonly request: EmbeddingsRequest
  readonly settings: EmbeddingsSettings
}

/** The end of a call, for the operation that has to answer. If the caller has left, it is the error `client_closed`. */
export type EmbeddingsOutcome = (
  | { readonly answered: true; readonly result: EmbeddingsResult }
  | Extract<Outcome, { answered: false }>
) & { readonly summary: ExchangeSummary }

interface EmbedDeps extends ModelCallDeps, Omit<RankDeps, 'quota'>, ReserveDeps {
  readonly clock: Clock
  readonly ledger: Ledger
  readonly byokFeePercent: number
  readonly region: string
  readonly guard: Guard
}

class EmbeddingsExchange extends RoutedExchange {
  readonly settings: EmbeddingsSettings
  /** The vectors of the answer; null until then. */
  vectors: EmbeddingsResult['vectors'] | null = null

  constructor(call: EmbeddingsCall, createdAt: number) {
    super(call, createdAt)
    this.settings = call.settings
  }

  /** The request as guardrails have left it: they replace texts, and keep everything else. */
  get inputs(): EmbeddingsRequest {
    return this.prompt as EmbeddingsRequest
  }
}

const STAGES: readonly ExchangeStage<EmbedDeps, EmbeddingsExchange>[] = [
  { label: 'guard', run: guard },
  { label: 'route', run: route },
  { label: 'admit', run: admit },
  { label: null, run: ask },
]

/** Runs an embeddings call; never rejects. `recording` is null if no capture includes it. */
export async function embed(
  deps: EmbedDeps,
  call: EmbeddingsCall,
  recording: Observation | null,
): Promise<EmbeddingsOutcome> {
  const exchange = new EmbeddingsExchange(call, unixSeconds(deps.clock))
  if (recording !== null) exchange.transport = recording.recordingTransport(deps.client)
  let conclusion: Conclusion = null
  try {
    await runStages(STAGES, deps, exchange)
  } catch (thrown) {
    const error = asGatewayError(deps, thrown)
    conclusion = { error, channel: error.code === 'client_closed' ? 'none' : 'envelope' }
    if (conclusion.channel === 'envelope') await explainRefused(deps, exchange)
  }
  if (conclusion !== null) fixCharge(exchange, conclusion.channel)
  const end = endOf(exchange, conclusion?.error ?? null, deps.clock.monotonicMs())
  // The vectors are in the reply of the provider.
  recording?.end(end, { isReplyGuarded: false, output: null })
  account(deps, end)
  const writing = deps.ledger.whenWritten()
  if (writing !== null) await writing
  if (conclusion !== null) {
    const outcome = {
      answered: false as const,
      error: conclusion.error,
      ...details(deps, end, conclusion.error),
    }
    return { ...outcome, summary: summarize(deps, end, outcome) }
  }
  return {
    answered: true,
    result: resultOf(deps, end),
    summary: summarize(deps, end, { answered: true }),
  }
}

function resultOf(
  { byokFeePercent, region }: EmbedDeps,
  { exchange, isByok, last }: EndedExchange<EmbeddingsExchange>,
): EmbeddingsResult {
  const { id, bill, vectors, withMetadata } = exchange
  return {
    id,
    model: last?.endpoint.modelId ?? '',
    provider: last?.endpoint.provider.name ?? '',
    vectors: vectors ?? [],
    usage: toResponseUsage(bill, isByok, byokFeePercent),
    metadata: withMetadata ? routingMetadata(exchange, true, region) : null,
  }
}

/** Guardrails read texts, so token ids would pass unread. */
function guard(deps: EmbedDeps, exchange: EmbeddingsExchange) {
  return whenReady(guardRequest(deps, exchange), result => {
    if (exchange.guarding?.input == null) return result
    const index = exchange.inputs.input.findIndex(({ tokens }) => tokens !== undefined)
    if (index === -1) return result
    deps.metrics.guardrailDecisions.inc({ guardrail: 'all', action: 'refused_unchecked' })
    throw new GatewayError(
      'permission_denied',
      `${inputPath(exchange.settings, index)}: a guardrail on this API key checks texts and cannot read token ids: send the text`,
    )
  })
}

/** Lists the candidates, without those whose API cannot express the request. */
function route(deps: EmbedDeps, exchange: EmbeddingsExchange) {
  return whenReady(rankCandidates(deps, exchange), () => {
    for (const { need, path } of needsOf(exchange)) {
      exchange.candidates = exchange.candidates.filter(({ endpoint }) => accepts(deps, endpoint, need))
      if (exchange.candidates.length === 0) throw unsupportedNeed(exchange, need, path)
    }
  })
}

interface Need {
  readonly need: EmbeddingsNeed
  /** The first field that has it. */
  readonly path: string
}

function needsOf({ inputs: { input, provider }, settings }: EmbeddingsExchange): readonly Need[] {
  const needs: Need[] = []
  // All inputs of a list have the same form.
  if (input[0]?.tokens !== undefined) needs.push({ need: 'tokens', path: inputPath(settings, 0) })
  for (const [index, { content }] of input.entries()) {
    const imageIndex =
      typeof content === 'string' ? -1 : content.findIndex(({ type }) => type === 'input_image')
    if (imageIndex === -1) continue
    needs.push({ need: 'images', path: elementPath(`${inputPath(settings, index)}.content`, imageIndex) })
    break
  }
  if (settings.dimensions !== null) needs.push({ need: 'dimensions', path: 'dimensions' })
  if (settings.inputType !== null && provider?.require_parameters === true) {
    needs.push({ need: 'input_type', path: 'input_type' })
  }
  return needs
}

function accepts({ catalog }: EmbedDeps, endpoint: Endpoint, need: EmbeddingsNeed): boolean {
  if (!formatOf(endpoint).takes(need, endpoint)) return false
  switch (need) {
    case 'tokens':
      return true
    case 'images':
      return catalog.model(endpoint.modelId)?.inputModalities.includes('image') === true
    case 'dimensions':
    case 'input_type':
      return supportsParameter(endpoint, need)
  }
}

const UNSUPPORTED_NEEDS: Readonly<Record<EmbeddingsNeed, string>> = {
  tokens: 'does not accept token ids: send text',
  images: 'does not accept images',
  dimensions: 'produces vectors of only one length',
  input_type: 'does not accept input_type at any endpoint, but provider.require_parameters is set',
}

function unsupportedNeed({ request }: EmbeddingsExchange, need: EmbeddingsNeed, path: string): GatewayError {
  return new GatewayError('invalid_request', `${path}: ${request.model} ${UNSUPPORTED_NEEDS[need]}`)
}

/** Reserves the cost under the caller's limits. */
function admit(deps: EmbedDeps, exchange: EmbeddingsExchange) {
  if (!deps.quota.limits(exchange.caller)) return SKIPPED
  const { bill, prompt, candidates } = exchange
  return reserve(deps, exchange, embeddingDemand(prompt, candidates, bill.priceFactor))
}

async function ask(deps: EmbedDeps, exchange: EmbeddingsExchange): Promise<void> {
  const call = new EmbeddingsModelCall(deps, exchange)
  const reply = await callModel(deps, exchange, call, exchange.candidates[0], modelReply => modelReply)
  if (reply === null) throw unpaidError(exchange)
  // Either there is a reply or there is none, so a finish reason would say nothing.
  exchange.finish = null
  exchange.vectors = call.answer?.vectors ?? []
  exchange.watch.enter('flush', deps.clock.monotonicMs())
}

class EmbeddingsModelCall implements CallSubject<EmbeddingsFormat> {
  /** The client sees the whole result or nothing. */
  readonly draft = { turnSeen: false, dropTurn: () => undefined }
  readonly mayHedge = false
  readonly estimates = EMBEDDING_ESTIMATES
  /** The answer of the attempt that was opened last. */
  answer: EmbeddingsAnswer | null = null
  readonly #deps: EmbedDeps
  readonly #exchange: EmbeddingsExchange

  constructor(deps: EmbedDeps, exchange: EmbeddingsExchange) {
    this.#deps = deps
    this.#exchange = exchange
  }

  prepare(candidate: RouteCandidate): EmbeddingsFormat | null | Promise<EmbeddingsFormat | null> {
    const { bill, prompt, reservation } = this.#exchange
    const allowance = reservation?.allowance ?? null
    const format = formatOf(candidate.endpoint)
    if (allowance === null) return format
    const coverage = admitEmbedding(allowance, prompt, candidate, bill.priceFactor)
    return whenReady(coverage, isCovered => (isCovered ? format : null))
  }

  encode(record: AttemptRecord, format: EmbeddingsFormat): WireRequest {
    const { inputs: request, settings } = this.#exchange
    const endUser = this.#deps.requests.endUserOf(this.#exchange)
    return format.encode({ request, settings, endUser }, deployedEndpoint(record))
  }

  open(record: AttemptRecord, format: EmbeddingsFormat): Attempt {
    const deps = this.#deps
    const exchange = this.#exchange
    const { inputs, settings, watch } = exchange
    const answer = new EmbeddingsAnswer({
      format,
      inputs: inputs.input.length,
      terms: {
        encoding: settings.encoding,
        dimensions: settings.dimensions,
        isInt8: record.endpoint.provider.quirks.includes('int8-vectors'),
      },
      onReply: () => {
        const nowMs = deps.clock.monotonicMs()
        record.health?.noteFirstContent(nowMs)
        watch.enter('stream', nowMs)
      },
    })
    this.answer = answer
    const attempt = new Attempt(deps, exchange, record, {
      format: {
        framing: () => 'json',
        decoder: emit => answer.decoder(emit),
        failure: (status, body) => format.failure(status, body),
      },
      body: answer.body,
      debug: null,
      meter: null,
      transport: exchange.transport,
    })
    answer.follow(attempt)
    return attempt
  }

  /** Embeddings models write nothing. */
  mostTokens(): number {
    return 0
  }

  receive(): AttemptTarget {
    return this.answer as EmbeddingsAnswer
  }
}

function formatOf({ format }: Pick<Endpoint, 'format'>): EmbeddingsFormat {
  // Routing selects only embeddings endpoints for embeddings requests.
  if (!isEmbeddingsFormat(format)) throw new Error('a text endpoint was asked for embeddings')
  return EMBEDDINGS_FORMATS[format]
}
