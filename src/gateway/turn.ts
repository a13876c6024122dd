/**
 * Turn: one model call that counts. Asks the candidates in order until one has answered. After a failure that the
 * client has not seen, it asks the next one.
 */

import type { Clock } from '../clock.ts'
import type { Credential } from '../credentials/catalog.ts'
import { type FailureCode, type GatewayError, rewritten, toGatewayError } from '../errors.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { Endpoint, OutgoingKey } from '../providers/provider.ts'
import { isPending, whenReady } from '../ready.ts'
import { admitCall, type CallFigures, type CallTerms, settle } from './accounting/account.ts'
import { type Answer, type AnswerSource, type Content, RELAYS } from './answer/answer.ts'
import { Attempt, type AttemptDeps, type AttemptTerms } from './attempt.ts'
import type { AttemptTarget } from './attempt-target.ts'
import type { AttemptRecord, Exchange, Finish } from './exchange.ts'
import { type GuardedAttempt, OutputGuard, type ReplyGuarding } from './guard/guard.ts'
import { candidateAfter, lastError, type RouteCandidate } from './routing/rank.ts'
import type { RunningExchange } from './running.ts'
import { type DeclaredFunction, ToolCalls } from './tool-calls.ts'

export interface TurnDeps extends AttemptDeps {
  /** Opens an own key; a promise only when it is not at hand. Fails with a GatewayError. */
  readonly openKey: (credential: Credential, endpoint: Endpoint) => OutgoingKey | Promise<OutgoingKey>
}

/** A model has answered. */
export interface TurnReply {
  readonly attempt: AttemptRecord
  readonly finish: Finish
  /** Null where no server tool is declared. */
  readonly calls: ToolCalls | null
  /** The limits of the caller ended it, maybe within a call. */
  readonly isCut: boolean
}

/** The functions that the model sees for server tools. */
export type DeclaredFunctions = ReadonlyMap<string, DeclaredFunction>

/**
 * Asks the model with `prompt`, or with the prompt of the exchange where plugins fit it to each endpoint.
 * Rejects with the last failure when no candidate is left, at once when the client has seen some of the turn. Null: the
 * limits of the caller leave nothing for it, and nobody was asked.
 */
export async function askModel(
  deps: TurnDeps,
  exchange: RunningExchange,
  declare:
    | ((prompt: ResponsesRequest) => Promise<{ prompt: ResponsesRequest; functions: DeclaredFunctions }>)
    | null,
): Promise<TurnReply | null> {
  const { answer, attempts, bill, candidates, signal } = exchange
  const from = attempts.length
  let next = exchange.candidate ?? candidates[0]
  answer.openTurn(exchange.plugins?.holds === true)
  while (next !== undefined) {
    const candidate = next
    const record = openRecord(candidate)
    exchange.watch.beginAttempt(deps.clock.monotonicMs(), attempts.length > from)
    attempts.push(record)
    let attempt: Attempt | null = null
    try {
      const preparing = prepare(deps, exchange, candidate, record)
      if (isPending(preparing)) await preparing
      const declared = declare === null ? null : await declare(exchange.prompt)
      const uncapped = declared?.prompt ?? exchange.prompt
      const allowed = allowedCall(exchange, candidate, uncapped)
      const terms = isPending(allowed) ? await allowed : allowed
      if (terms === null) {
        attempts.pop()
        next =
          exchange.fallbacks && bill.closed === null
            ? candidates[candidates.indexOf(candidate) + 1]
            : undefined
        continue
      }
      const prompt = terms.cap === null ? uncapped : { ...uncapped, max_output_tokens: terms.cap }
      const calls = declared === null ? null : new ToolCalls(declared.functions)
      attempt = new Attempt(deps, exchange, record, {
        prompt,
        relay: relayOf(deps, exchange, candidate, calls),
        echo: echoes(exchange) ? exchange.debug : null,
        meter: terms.meter,
      })
      const finish = await attempt.run(targetOf(deps, exchange, attempt, candidate, calls))
      if (!settle(exchange, record, attempt)) noteImplausible(deps, candidate)
      exchange.stay?.succeeded(candidate, attempt.usage)
      exchange.candidate = candidate
      return { attempt: record, finish, calls, isCut: attempt.isCut }
    } catch (thrown) {
      const error = withProvider(asGatewayError(deps, thrown), record)
      record.error = error
      settle(exchange, record, attempt ?? NOTHING_SAID)
      if (error.code === 'client_closed' || answer.turnSeen) throw error
      answer.dropTurn()
      // No other candidate is asked if the caller has left or the request was ended here.
      const goesOn = exchange.fallbacks && !signal.aborted
      const turn = { attempts: attempts.length - from, hasCharge: bill.closed !== null }
      next = goesOn ? candidateAfter(candidates, candidate, error, turn) : undefined
    }
  }
  if (attempts.length === from) return null
  throw lastError(attempts.slice(from))
}

const NOTHING_SAID: CallFigures = {
  usage: null,
  finish: null,
  outputQuarters: 0,
  isThoughtSeen: false,
  sentBytes: 0,
  isCut: false,
  isStalled: false,
}

const UNLIMITED = { cap: null, meter: null }

/** The output that the caller's limits allow the next call; null: nothing. */
function allowedCall(
  exchange: RunningExchange,
  candidate: RouteCandidate,
  prompt: ResponsesRequest,
): CallTerms | typeof UNLIMITED | null | Promise<CallTerms | null> {
  const allowance = exchange.reservation?.allowance ?? null
  return allowance === null ? UNLIMITED : admitCall(exchange, allowance, prompt, candidate)
}

function noteImplausible({ log, metrics }: TurnDeps, { endpoint }: RouteCandidate): void {
  const { slug } = endpoint.provider
  metrics.usageImplausible.inc({ provider: slug })
  log.notice('a provider reported implausible usage; a corrected usage was charged', {
    provider: slug,
    model: endpoint.modelId,
  })
}

function openRecord({ endpoint, credential }: RouteCandidate): AttemptRecord {
  return {
    endpoint,
    credential,
    isByok: credential !== null,
    ownKey: null,
    upstreamId: null,
    status: null,
    error: null,
    isRefused: false,
  }
}

/** Failures that a provider had a part in, whoever found them. */
const OF_PROVIDERS: ReadonlySet<FailureCode> = new Set<FailureCode>([
  'provider_unavailable',
  'upstream_timeout',
  'unprocessable',
])

/** The failure with the name of the provider that it was met at, unless it has one. */
function withProvider(error: GatewayError, { endpoint }: AttemptRecord): GatewayError {
  if (!OF_PROVIDERS.has(error.code) || error.metadata?.['provider_name'] !== undefined) return error
  return rewritten(error, { metadata: { ...error.metadata, provider_name: endpoint.provider.name } })
}

/** Opens the key of the candidate, and has plugins make the prompt fit it. A promise only where one has to. */
function prepare(
  deps: TurnDeps,
  exchange: RunningExchange,
  { endpoint, credential }: RouteCandidate,
  record: AttemptRecord,
): void | Promise<void> {
  if (credential === null) return fitPrompt(exchange, endpoint)
  return whenReady(deps.openKey(credential, endpoint), key => {
    record.ownKey = key
    return fitPrompt(exchange, endpoint)
  })
}

function fitPrompt(exchange: RunningExchange, endpoint: Endpoint): void | Promise<void> {
  const { answer, guarding, plugins } = exchange
  if (plugins?.fits !== true) return
  return plugins.fitTo(exchange, endpoint, guarding?.input).then(() => answer.annotate(plugins.annotations()))
}

/** Null unless client and provider speak alike, a relay exists for it, and the content may pass unread. */
function relayOf(
  { formats }: TurnDeps,
  { answer, guarding }: RunningExchange,
  { endpoint }: RouteCandidate,
  calls: ToolCalls | null,
): AttemptTerms['relay'] {
  const { relays } = answer
  if (guarding?.reply != null || calls !== null || relays === null) return null
  if (formats[endpoint.format].dialect !== relays || endpoint.provider.quirks.includes('no-relay'))
    return null
  const learn = RELAYS[relays]
  return learn === undefined ? null : { to: answer, learn }
}

/** True in the first turn: prompts of later ones may quote texts that were withheld. */
function echoes({ request, bill }: RunningExchange): boolean {
  return request.debug?.echo_upstream_body === true && bill.turns === 0
}

function targetOf(
  { clock }: TurnDeps,
  exchange: RunningExchange,
  attempt: Attempt,
  { endpoint }: RouteCandidate,
  calls: ToolCalls | null,
): AnswerTarget {
  const { answer, debug, guarding } = exchange
  return new AnswerTarget({
    clock,
    exchange,
    answer,
    attempt,
    model: endpoint.modelId,
    provider: endpoint.provider.name,
    guarding: guarding?.reply ?? null,
    calls,
    debug,
  })
}

/** The thrown value as a GatewayError; one we did not foresee is logged with its cause. */
export function asGatewayError({ log }: Pick<AttemptDeps, 'log'>, thrown: unknown): GatewayError {
  const error = toGatewayError(thrown)
  if (error.code === 'internal') log.fault('exchange failed', error.cause ?? error)
  return error
}

export interface AnswerTargetDeps {
  readonly clock: Clock
  readonly exchange: Exchange
  readonly answer: Answer
  readonly attempt: Attempt
  /** Catalogue id of the model that is asked. */
  readonly model: string
  /** Display name of its provider. */
  readonly provider: string
  /** Null: replies may leave unseen. */
  readonly guarding: ReplyGuarding | null
  /** Null: no server tool is declared. */
  readonly calls: ToolCalls | null
  /** Upstream bodies to echo. */
  readonly debug: readonly Readonly<Record<string, unknown>>[]
}

export class AnswerTarget implements AttemptTarget, GuardedAttempt, AnswerSource {
  readonly #deps: AnswerTargetDeps
  readonly #answer: Answer
  readonly #guard: OutputGuard | null
  #hasContent = false

  constructor(deps: AnswerTargetDeps) {
    this.#deps = deps
    this.#answer = deps.answer
    this.#guard = deps.guarding === null ? null : new OutputGuard(deps.guarding, deps.exchange, this)
    this.#answer.follow(this)
  }

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
    if (this.#deps.calls?.take(delta) !== true) this.#answer.take(delta)
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
    if (this.#deps.calls?.take(delta) === true) return
    this.#answer.take(delta)
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
    exchange.watch.enter('stream', nowMs)
    if (this.#answer.begun) return
    exchange.firstTokenMs = nowMs
    this.#answer.begin(model, provider, exchange.request.stream === true ? debug : [])
  }
}
