/**
 * Turn: one model call that counts. Candidates are asked in order until one has answered; a failure that nobody has
 * seen moves on to the next.
 */
import type { Credential } from '../credentials/catalog.ts'
import { type GatewayError, toGatewayError } from '../errors.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { Endpoint, OutgoingKey } from '../providers/provider.ts'
import { whenReady } from '../ready.ts'
import { settle } from './accounting/account.ts'
import { AnswerTarget } from './answer/answer-target.ts'
import { Attempt, type AttemptDeps } from './attempt.ts'
import type { AttemptRecord, Finish } from './exchange.ts'
import type { RouteCandidate } from './routing/candidate.ts'
import { candidateAfter, lastError } from './routing/failover.ts'
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
}

/** The functions that the model sees for server tools. */
export type DeclaredFunctions = ReadonlyMap<string, DeclaredFunction>

/**
 * Asks the model with `prompt`, or with the prompt of the exchange where plugins fit it to each endpoint.
 * Rejects with the last failure when no candidate is left, at once when the client has seen some of the turn.
 */
export async function askModel(
  deps: TurnDeps,
  exchange: RunningExchange,
  declare:
    | ((prompt: ResponsesRequest) => Promise<{ prompt: ResponsesRequest; functions: DeclaredFunctions }>)
    | null,
): Promise<TurnReply> {
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
      if (preparing instanceof Promise) await preparing
      const declared = declare === null ? null : await declare(exchange.prompt)
      const prompt = declared?.prompt ?? exchange.prompt
      const calls = declared === null ? null : new ToolCalls(declared.functions)
      attempt = new Attempt(deps, exchange, record, {
        prompt,
        relayTo: mayRelay(deps, exchange, candidate, calls) ? answer : null,
        echo: echoes(exchange) ? exchange.debug : null,
      })
      const finish = await attempt.run(targetOf(deps, exchange, attempt, candidate, calls))
      settle(exchange, record, attempt)
      exchange.stay?.succeeded(candidate, attempt.usage)
      exchange.candidate = candidate
      return { attempt: record, finish, calls }
    } catch (thrown) {
      const error = foreseen(deps, thrown)
      record.error = error
      settle(exchange, record, attempt ?? NOTHING_SAID)
      if (error.code === 'client_closed' || answer.turnSeen) throw error
      answer.dropTurn()
      // Nobody else is asked for a caller who has gone, or whose request was ended here.
      const goesOn = exchange.fallbacks && !signal.aborted
      const turn = { attempts: attempts.length - from, hasCharge: bill.closed !== null }
      next = goesOn ? candidateAfter(candidates, candidate, error, turn) : undefined
    }
  }
  throw lastError(attempts.slice(from))
}

const NOTHING_SAID = { usage: null, finish: null, outputCharacters: 0 }

function openRecord({ endpoint, credential }: RouteCandidate): AttemptRecord {
  return {
    endpoint,
    credential,
    isByok: credential !== null,
    ownKey: null,
    upstreamId: null,
    status: null,
    error: null,
  }
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

/** Bytes may go on as they are where client and provider speak alike and nobody has to see the content. */
function mayRelay(
  deps: TurnDeps,
  { answer, guarding }: RunningExchange,
  { endpoint }: RouteCandidate,
  calls: ToolCalls | null,
): boolean {
  if (guarding?.reply != null || calls !== null || answer.relays === null) return false
  return (
    deps.formats[endpoint.format].dialect === answer.relays && !endpoint.provider.quirks.includes('no-relay')
  )
}

/** Later turns may quote what nobody is to see. */
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
export function foreseen({ log }: Pick<AttemptDeps, 'log'>, thrown: unknown): GatewayError {
  const error = toGatewayError(thrown)
  if (error.code === 'internal') log.fault('exchange failed', error.cause ?? error)
  return error
}
