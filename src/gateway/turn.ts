/**
 * Turn: one model call that counts. The answer takes the reply, and server tools take their calls out of it.
 */

import type { Clock } from '../clock.ts'
import type { GatewayError } from '../errors.ts'
import type { Format } from '../formats/format.ts'
import type { WholeMessage } from '../formats/whole-message.ts'
import type { PicoUsd } from '../money.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import { type Endpoint, type FormatName, textFormat } from '../providers/provider.ts'
import { isPending, whenReady } from '../ready.ts'
import type { ToolPlace } from '../tools/tool.ts'
import { admitCall, type CallTerms, inputOf } from './accounting/account.ts'
import { type Answer, type AnswerSource, type Content, lessonsFor, type Sink } from './answer/answer.ts'
import { Attempt, type AttemptTerms } from './attempt.ts'
import type { AttemptTarget } from './attempt-target.ts'
import { ClientCalls, type FittedRequest, fitTools, withClientPaths } from './client-tools.ts'
import type { DebugNotes } from './debug.ts'
import type { AttemptRecord, Exchange, Finish } from './exchange.ts'
import { type GuardedAttempt, OutputGuard, type ReplyGuarding } from './guard/guard.ts'
import type { OpenedAttempt } from './hedge.ts'
import { askCandidates, Deferred, type ModelCall, type ModelCallDeps } from './model-call.ts'
import type { PluginChain } from './plugin-chain.ts'
import type { RouteCandidate } from './routing/rank.ts'
import type { RunningExchange } from './running.ts'
import { type DeclaredFunction, placeOf, ToolCalls } from './tool-calls.ts'

export interface TurnDeps extends ModelCallDeps {
  readonly formats: Readonly<Record<FormatName, Format>>
}

/** A model has answered. */
export interface TurnReply {
  readonly attempt: AttemptRecord
  readonly finish: Finish
  /** Null where no server tool is declared. */
  readonly calls: ToolCalls | null
  /** The limits of the caller ended it, maybe within a call. */
  readonly isCut: boolean
  /** Gives the answer the calls for the client that have waited for server tools. */
  release(): void
}

/** The functions that the model sees for server tools. */
export type DeclaredFunctions = ReadonlyMap<string, DeclaredFunction>

type Declare = (place: ToolPlace) => Promise<{
  readonly prompt: ResponsesRequest
  readonly functions: DeclaredFunctions
  readonly takesUnknown: boolean
}>

/**
 * Asks the model with the prompt of the exchange, which plugins fit to each endpoint. Rejects and returns null as
 * `askCandidates` does.
 * @throws (rejects with) Deferred if a batch service has taken the call
 */
export function askModel(
  deps: TurnDeps,
  exchange: RunningExchange,
  declare: Declare | null,
): Promise<TurnReply | null> {
  const { answer } = exchange
  answer.openTurn(exchange.plugins?.holds === true)
  const call = new TurnCall(deps, exchange, declare)
  // A callback, for it is smaller than an async function that waits as long as the stream is open.
  return askCandidates(deps, exchange, firstCandidate(exchange), call).then(reply => {
    if (reply === null) return null
    const { candidate, record, attempt, finish } = reply
    exchange.stay?.succeeded(candidate, attempt.usage)
    exchange.onModel?.(candidate.endpoint.modelId)
    exchange.candidate = candidate
    return {
      attempt: record,
      finish,
      calls: call.calls,
      isCut: attempt.isCut,
      release: () => call.target?.release(),
    }
  })
}

/** The candidate that answered last; another one where it would take a prompt that has grown only in part. */
function firstCandidate({
  candidate,
  candidates,
  plugins,
  prompt,
}: RunningExchange): RouteCandidate | undefined {
  if (candidate === null) return candidates[0]
  if (plugins?.fits !== true || plugins.fitting(candidate.endpoint, prompt) === 'whole') return candidate
  const isPaidAlike = ({ credential }: RouteCandidate): boolean =>
    (credential === null) === (candidate.credential === null)
  const larger = candidates.find(
    each => isPaidAlike(each) && plugins.fitting(each.endpoint, prompt) === 'whole',
  )
  return larger ?? candidate
}

/** The model call of one turn. */
class TurnCall implements ModelCall {
  /** Of the attempt that was opened last. */
  calls: ToolCalls | null = null
  target: AnswerTarget | null = null
  readonly #deps: TurnDeps
  readonly #exchange: RunningExchange
  readonly #declare: Declare | null

  constructor(deps: TurnDeps, exchange: RunningExchange, declare: Declare | null) {
    this.#deps = deps
    this.#exchange = exchange
    this.#declare = declare
  }

  /** Server tools and fitting plugins keep the state of one attempt only, and nobody waits for a batch. */
  get hedges(): boolean {
    const { batch, plugins } = this.#exchange
    return this.#declare === null && plugins?.fits !== true && batch === undefined
  }

  open(
    candidate: RouteCandidate,
    record: AttemptRecord,
  ): OpenedAttempt | null | Promise<OpenedAttempt | null> {
    const fitting = fitPrompt(this.#exchange, candidate.endpoint)
    if (this.#declare === null && !isPending(fitting)) {
      return this.#admit(candidate, record, this.#exchange.prompt, null)
    }
    return this.#openLater(candidate, record, fitting)
  }

  isSeen(): boolean {
    return this.#exchange.answer.turnSeen
  }

  drop(): void {
    this.#exchange.answer.dropTurn()
  }

  async #openLater(
    candidate: RouteCandidate,
    record: AttemptRecord,
    fitting: void | Promise<void>,
  ): Promise<OpenedAttempt | null> {
    if (isPending(fitting)) await fitting
    if (this.#declare === null) return this.#admit(candidate, record, this.#exchange.prompt, null)
    const declared = await this.#declare(
      placeOf(candidate.endpoint, this.#deps.formats[textFormat(candidate.endpoint)]),
    )
    // If the provider runs all of them itself, there are no calls to take out: the reply may be relayed.
    const { functions, takesUnknown } = declared
    // What plugins judge or replace is told in the order in which it comes.
    const { plugins } = this.#exchange
    const holds = plugins === null || !(plugins.judges || plugins.finishes)
    const calls = functions.size === 0 ? null : new ToolCalls(functions, { takesUnknown, holds })
    return this.#admit(candidate, record, declared.prompt, calls)
  }

  #admit(
    candidate: RouteCandidate,
    record: AttemptRecord,
    prompt: ResponsesRequest,
    calls: ToolCalls | null,
  ): OpenedAttempt | null | Promise<OpenedAttempt | null> {
    return whenReady(allowedCall(this.#exchange, candidate, prompt), terms =>
      terms === null ? null : this.#opened(candidate, record, prompt, calls, terms),
    )
  }

  #opened(
    candidate: RouteCandidate,
    record: AttemptRecord,
    uncapped: ResponsesRequest,
    calls: ToolCalls | null,
    { cap, meter, reserved }: CallTerms | typeof UNLIMITED,
  ): OpenedAttempt {
    const deps = this.#deps
    const exchange = this.#exchange
    this.calls = calls
    const format = deps.formats[textFormat(candidate.endpoint)]
    const fitted = fitTools(uncapped, format)
    const fitting = fitted?.prompt ?? uncapped
    const prompt = cap === null ? fitting : { ...fitting, max_output_tokens: cap }
    const isPlain = calls === null && fitted === null
    if (isPlain && isDeferred(deps, exchange, record, format, prompt, reserved)) throw new Deferred()
    const attempt = new Attempt(deps, exchange, record, {
      encode: () =>
        withClientPaths(fitted?.toolPaths ?? null, () =>
          deps.requests.encode(exchange, record, format, prompt),
        ),
      format,
      body: null,
      takesMessages: isPlain && isUnseen(exchange, candidate),
      relay: isPlain ? relayOf(format, exchange, candidate) : null,
      echo: echoes(exchange) ? exchange.debug.bodies : null,
      debug: exchange.request.debug?.timings === true ? exchange.debug : null,
      meter,
    })
    const target = (): AnswerTarget => {
      const made = targetOf(deps, exchange, attempt, record, calls, fitted)
      if (calls !== null) this.target = made
      return made
    }
    return { attempt, target }
  }
}

const UNLIMITED = { cap: null, meter: null, reserved: 0 }

/** The output that the caller's limits allow the next call; null: nothing. */
function allowedCall(
  exchange: RunningExchange,
  candidate: RouteCandidate,
  prompt: ResponsesRequest,
): CallTerms | typeof UNLIMITED | null | Promise<CallTerms | null> {
  const allowance = exchange.reservation?.allowance ?? null
  return allowance === null ? UNLIMITED : admitCall(exchange, allowance, prompt, candidate)
}

/**
 * True if a batch service takes the call: one that is all that the exchange asks, and that may be done in two halves.
 */
function isDeferred(
  { requests }: TurnDeps,
  exchange: RunningExchange,
  record: AttemptRecord,
  format: Format,
  prompt: ResponsesRequest,
  reserved: PicoUsd,
): boolean {
  const { attempts, batch, bill, plugins, pipeline, request, withMetadata } = exchange
  const service = batch?.service
  if (service?.kind !== 'submission' || request.stream === true) return false
  if (bill.turns > 0 || attempts.length > 1 || plugins?.isRepeatable === false) return false
  // Findings in the request are told with the reply, and would be gone by then.
  if (withMetadata && pipeline.length > 0) return false
  const wire = requests.encode(exchange, record, format, prompt)
  return service.take({ exchange, attempt: record, wire, reserved })
}

/** Has plugins make the prompt fit the endpoint. A promise only where one has to. */
function fitPrompt(exchange: RunningExchange, endpoint: Endpoint): void | Promise<void> {
  const { answer, guarding, plugins } = exchange
  if (plugins === null) return
  if (!plugins.fits) {
    annotate(answer, plugins)
    return
  }
  return plugins.fitTo(exchange, endpoint, guarding?.input).then(() => annotate(answer, plugins))
}

function annotate(answer: Answer, plugins: PluginChain): void {
  answer.annotate(plugins.annotations())
  const found = plugins.found()
  if (found.length > 0) answer.cite(found, true)
}

/** True if nobody has to see what the reply says, and nothing is added to it. */
function isUnseen(
  { answer, guarding, plugins, tools }: RunningExchange,
  { endpoint }: RouteCandidate,
): boolean {
  if (answer.live || guarding?.reply != null || plugins !== null || tools !== null) return false
  return !answer.cites && !endpoint.provider.quirks.includes('no-relay')
}

/** Null unless both sides speak a dialect, and the content may pass unread. */
function relayOf(
  { dialect }: Format,
  { answer, guarding }: RunningExchange,
  { endpoint }: RouteCandidate,
): AttemptTerms['relay'] {
  const { relays } = answer
  if (guarding?.reply != null || dialect === null || relays === null || answer.cites) return null
  if (endpoint.provider.quirks.includes('no-relay')) return null
  const learn = lessonsFor(dialect, relays)
  return learn === null ? null : { to: answer, learn }
}

/** True in the first turn: prompts of later ones may quote texts that were withheld. */
function echoes({ request, bill }: RunningExchange): boolean {
  return request.debug?.echo_upstream_body === true && bill.turns === 0
}

function targetOf(
  { clock }: TurnDeps,
  exchange: RunningExchange,
  attempt: Attempt,
  record: AttemptRecord,
  calls: ToolCalls | null,
  fitted: FittedRequest | null,
): AnswerTarget {
  const { answer, debug, guarding } = exchange
  const { endpoint } = record
  return new AnswerTarget({
    clock,
    exchange,
    answer,
    attempt,
    record,
    model: endpoint.modelId,
    provider: endpoint.provider.name,
    guarding: guarding?.reply ?? null,
    calls,
    fitted,
    debug,
  })
}

export interface AnswerTargetDeps {
  readonly clock: Clock
  readonly exchange: Exchange
  readonly answer: Answer
  readonly attempt: Attempt
  readonly record: AttemptRecord
  /** Catalogue id of the model that is asked. */
  readonly model: string
  /** Display name of its provider. */
  readonly provider: string
  /** Null: replies may leave unseen. */
  readonly guarding: ReplyGuarding | null
  /** Null: no server tool is declared. */
  readonly calls: ToolCalls | null
  /** Tools of the client that go out in another form; absent or null: none. */
  readonly fitted?: FittedRequest | null
  readonly debug: DebugNotes
}

export class AnswerTarget implements AttemptTarget, GuardedAttempt, AnswerSource {
  readonly sink: Pick<Sink, 'hold' | 'flush'>
  readonly #deps: AnswerTargetDeps
  readonly #answer: Answer
  readonly #guard: OutputGuard | null
  readonly #client: ClientCalls | null
  #hasContent = false

  constructor(deps: AnswerTargetDeps) {
    this.#deps = deps
    this.#answer = deps.answer
    const { answer, fitted = null } = deps
    this.#client = fitted === null ? null : new ClientCalls(fitted, delta => answer.take(delta))
    this.#guard = deps.guarding === null ? null : new OutputGuard(deps.guarding, deps.exchange, this)
    // Without a guard nothing stands between the reads and the sink.
    this.sink = this.#guard === null ? answer.sink : this
    this.#answer.follow(this)
    deps.attempt.lead()
  }

  /** A read begins that the guard looks at. */
  hold(): void {
    this.#guard?.resetBudget()
    this.#answer.hold()
  }

  flush(): boolean {
    return this.#answer.flush()
  }

  take(delta: Content): void {
    if (this.#guard !== null) {
      this.#guard.take(delta)
      return
    }
    // The body of `deliver`, one call less for each delta.
    if (!this.#hasContent) this.#begin()
    if (this.#deps.calls?.take(delta) !== true && this.#client?.take(delta) !== true) this.#answer.take(delta)
  }

  /** No guard looks at the reply, and no tool of ours or of the client's is called. */
  message(message: WholeMessage): void {
    if (!this.#hasContent) this.#begin()
    this.#answer.message(message)
  }

  end(done: () => void): void {
    if (this.#guard === null) this.#end(done)
    else this.#guard.end(() => this.#end(done))
  }

  close(): void {
    this.#guard?.close()
  }

  /** True once the client has seen something. */
  get committed(): boolean {
    return this.#answer.committed
  }

  deliver(delta: Content): void {
    if (!this.#hasContent) this.#begin()
    if (this.#deps.calls?.take(delta) === true || this.#client?.take(delta) === true) return
    this.#answer.take(delta)
  }

  /** Takes the calls that have waited for server tools. */
  release(): void {
    for (const delta of this.#deps.calls?.release() ?? []) {
      if (this.#client?.take(delta) !== true) this.#answer.take(delta)
    }
  }

  fail(error: GatewayError): void {
    this.#deps.attempt.refuse(error)
  }

  turn(work: () => void): void {
    this.#deps.attempt.turn(work)
  }

  pause(): void {
    this.#deps.attempt.pause()
  }

  resume(): void {
    this.#deps.attempt.resume()
  }

  /** An answer without a word has its opening events all the same. */
  #end(done: () => void): void {
    if (!this.#hasContent) this.#begin()
    done()
  }

  #begin(): void {
    const { clock, exchange, debug, model, provider } = this.#deps
    const nowMs = clock.monotonicMs()
    this.#hasContent = true
    this.#deps.record.health?.answered(nowMs)
    exchange.watch.enter('stream', nowMs)
    debug.note('first_token_received', clock, exchange.watch.startedMs)
    if (!this.#answer.begun) {
      exchange.firstTokenMs = nowMs
      if (exchange.removedTokens > 0) this.#answer.cut(exchange.removedTokens)
      const { usage } = this.#deps.attempt
      this.#answer.begin(
        model,
        provider,
        exchange.request.stream === true ? debug.opening() : [],
        usage === null ? null : inputOf(usage),
      )
    }
    this.#answer.showWaiting()
  }
}
