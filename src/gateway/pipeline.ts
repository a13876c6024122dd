/**
 * The way of one exchange: guard, prepare, route, admit, ask the candidates in order until one is committed or done,
 * judge what it said, finish, account. The only place that decides what a failure or a verdict means for the exchange.
 */

import { unixSeconds } from '../clock.ts'
import type { Credential, CredentialCatalog } from '../credentials/catalog.ts'
import { GatewayError, toGatewayError } from '../errors.ts'
import type { Quota } from '../limits/quota.ts'
import { markAttempt } from '../metrics/stages.ts'
import type { Verdict } from '../plugins/plugin.ts'
import type { OutputItem } from '../protocol/items.ts'
import type { Catalog } from '../providers/catalog.ts'
import type { Endpoint, OutgoingKey } from '../providers/provider.ts'
import { account, billedOf, settle } from './accounting/account.ts'
import { admit } from './accounting/admit.ts'
import type { Ledger } from './accounting/ledger.ts'
import { Assembler, type Ending } from './answer/assemble.ts'
import { echoRequest } from './answer/echo.ts'
import { HeldSink } from './answer/held-sink.ts'
import type { Outcome, Sink } from './answer/sink.ts'
import { AttemptRun, type AttemptTools, type Finish } from './attempt.ts'
import type { Attempt, Exchange } from './exchange.ts'
import type { Guard, Guarding } from './guard/guard.ts'
import { routingMetadata } from './metadata.ts'
import { type Steps, type StepsOf, stepFailure } from './plugin-chain.ts'
import { reported, told } from './refusal.ts'
import type { RouteCandidate } from './routing/candidate.ts'
import { candidateAfter, lastError } from './routing/failover.ts'
import { type Route, route } from './routing/route.ts'
import type { Stay, Stickiness } from './routing/sticky.ts'

export interface GatewayTools extends AttemptTools {
  readonly catalog: Catalog
  readonly ledger: Ledger
  /** The own provider credentials of workspaces. */
  readonly credentials: Pick<CredentialCatalog, 'of'>
  /** What to send of a credential; a promise only when it is not at hand. Fails with a GatewayError. */
  readonly openKey: (credential: Credential, endpoint: Endpoint) => OutgoingKey | Promise<OutgoingKey>
  /** What a request on an own credential costs its caller, as a share of its price by the catalogue. */
  readonly byokFeePercent: number
  readonly stickiness: Stickiness
  readonly quota: Quota
  readonly stepsOf: StepsOf
  readonly guard: Guard
}

/** One candidate that is asked, and where what it says goes. */
interface Round {
  readonly candidate: RouteCandidate
  readonly attempt: Attempt
  readonly run: AttemptRun
  /** Null where the turn need not be held back until it was judged. */
  readonly held: HeldSink | null
  readonly target: Sink
}

export class Pipeline {
  readonly #tools: GatewayTools
  readonly #exchange: Exchange
  readonly #sink: Sink
  /** Bodies that were sent, to echo, over all attempts. */
  readonly #debug: Readonly<Record<string, unknown>>[] = []
  #guarding: Guarding | null = null
  #steps: Steps | null = null
  /** Turns that were judged. */
  #judged = 0

  constructor(tools: GatewayTools, exchange: Exchange, sink: Sink) {
    this.#tools = tools
    this.#exchange = exchange
    this.#sink = sink
  }

  /** Rejects with why nobody has answered, when nothing was written to the sink. */
  async serve(): Promise<Outcome> {
    // Only what has to be waited for is: a turn of the event loop is dearer than all of routing.
    const looking = this.#look()
    if (looking !== null) await looking
    const preparing = this.#prepare()
    if (preparing !== null) await preparing
    const { marks, caller } = this.#exchange
    const { clock, stickiness, quota } = this.#tools
    const routing = this.#route()
    const { candidates: routed, fallbacks } = routing instanceof Promise ? await routing : routing
    const finding = stickiness.order(this.#exchange, routed)
    const { candidates: found, stay } = finding instanceof Promise ? await finding : finding
    const candidates = this.#steps === null ? found : this.#steps.order(found, this.#exchange)
    marks.routedMs = clock.monotonicMs()
    marks.admittedMs = marks.routedMs
    this.#exchange.candidates = candidates
    if (this.#exchange.reservation === null && quota.limits(caller)) await admit(this.#tools, this.#exchange)
    return this.#ask(candidates, fallbacks, stay)
  }

  /** Has guardrails look at the request; a promise only where they have to be waited for. */
  #look(): Promise<void> | null {
    const { marks } = this.#exchange
    marks.validatedMs = this.#tools.clock.monotonicMs()
    marks.guardedMs = marks.validatedMs
    const looking = this.#tools.guard.request(this.#exchange)
    if (looking instanceof Promise) return looking.then(guarding => this.#looked(guarding))
    this.#looked(looking)
    return null
  }

  #looked(guarding: Guarding | null): void {
    if (guarding === null) return
    this.#guarding = guarding
    this.#exchange.marks.guardedMs = this.#tools.clock.monotonicMs()
    this.#exchange.zeroRetention = guarding.restrictions?.zeroRetention === true
  }

  /** Lets plugins work on the request; null where none has to do with it. */
  #prepare(): Promise<void> | null {
    const steps = this.#tools.stepsOf(this.#exchange.request)
    if (steps === null) return null
    this.#steps = steps
    let early: Promise<void> | null = null
    this.#exchange.admitted = () => {
      early ??= this.#admitEarly()
      return early
    }
    return steps.prepare(this.#exchange, this.#guarding?.look)
  }

  /** Before routing, for a step whose questions cost; when all steps are done it is routed as they leave it. */
  async #admitEarly(): Promise<void> {
    const { candidates } = await this.#route()
    this.#exchange.candidates = candidates
    if (this.#tools.quota.limits(this.#exchange.caller)) await admit(this.#tools, this.#exchange)
  }

  /** Who may serve the prompt as it stands; a promise only where the own keys have to be waited for. */
  #route(): Route | Promise<Route> {
    const { prompt, caller, dataRegion } = this.#exchange
    const { credentials, catalog } = this.#tools
    const { organizationId, workspaceId, keyHash } = caller
    const restrictions = this.#guarding?.restrictions ?? null
    const known = credentials.of(organizationId, workspaceId)
    return known instanceof Promise
      ? known.then(ownKeys => route(prompt, catalog, { ownKeys, keyHash, dataRegion, restrictions }))
      : route(prompt, catalog, { ownKeys: known, keyHash, dataRegion, restrictions })
  }

  /** Rejects with the last failure when no candidate is left. */
  async #ask(candidates: readonly RouteCandidate[], fallbacks: boolean, stay: Stay | null): Promise<Outcome> {
    const exchange = this.#exchange
    let next = candidates[0]
    while (next !== undefined) {
      const round = this.#begin(next)
      const { run } = round
      let finish: Finish | null = null
      try {
        finish = await this.#call(round)
        stay?.succeeded(next, run.usage)
        this.#settle(round, finish)
        const verdict = this.#steps === null ? PASS : await this.#judge(this.#steps, round, finish)
        if (verdict.kind === 'again' && !run.committed) {
          exchange.earlier = billedOf(exchange, round.attempt, run.usage, finish)
          exchange.prompt = verdict.prompt
          continue
        }
        if (verdict.kind !== 'pass')
          return this.#refuse(run, verdict.kind === 'refuse' ? verdict.error : misjudged())
        return this.#finish(round, finish)
      } catch (thrown) {
        const error = foreseen(this.#tools, finish === null ? thrown : stepFailure(thrown, exchange))
        if (finish === null) round.attempt.error = error
        this.#settle(round, finish)
        if (error.code === 'client_closed') {
          account(this.#tools, exchange, error)
          return { answered: true, refused: error }
        }
        if (run.committed) return this.#failLive(round.target, run, error)
        // The model has answered: nobody else would do better.
        if (finish !== null) throw error
        // Nobody else is asked for a caller who has gone, or whose request was ended here.
        const goesOn = fallbacks && !exchange.signal.aborted
        next = goesOn ? candidateAfter(candidates, next, exchange, error) : undefined
      }
    }
    throw lastError(exchange.attempts)
  }

  #begin(candidate: RouteCandidate): Round {
    const exchange = this.#exchange
    const { endpoint, credential } = candidate
    const attempt: Attempt = {
      endpoint,
      credential,
      isByok: credential !== null,
      ownKey: null,
      status: null,
      error: null,
      again: this.#judged > 0,
    }
    const { marks, attempts } = exchange
    markAttempt(marks, attempts.length === 0 ? marks.admittedMs : this.#tools.clock.monotonicMs())
    attempts.push(attempt)
    exchange.upstreamId = null
    exchange.outputCharacters = 0
    // One for each attempt: what an earlier one still says goes nowhere.
    const held = this.#steps?.holds === true && this.#sink.live ? new HeldSink(this.#sink) : null
    const target = held ?? this.#sink
    const guarding = this.#guarding?.reply ?? null
    const run = new AttemptRun(this.#tools, exchange, attempt, target, this.#debug, guarding)
    return { candidate, attempt, run, held, target }
  }

  async #call({ candidate, attempt, run }: Round): Promise<Finish> {
    const { endpoint, credential } = candidate
    if (credential !== null) {
      const opened = this.#tools.openKey(credential, endpoint)
      attempt.ownKey = opened instanceof Promise ? await opened : opened
    }
    if (this.#steps?.addresses === true) {
      await this.#steps.address(this.#exchange, endpoint, this.#guarding?.look)
      run.assembler.annotate(this.#exchange.parsedFiles)
    }
    return run.run()
  }

  #settle({ attempt, run }: Round, finish: Finish | null): void {
    settle(this.#exchange, attempt, run.usage, finish, this.#tools.byokFeePercent)
  }

  /** What the plugins say of a round. Once it has passed it is delivered, as they leave it. */
  async #judge(steps: Steps, round: Round, finish: Finish): Promise<Verdict> {
    const exchange = this.#exchange
    const { attempt, run, held, target } = round
    const output = steps.judges || steps.finishes ? closed(run, target, finish) : []
    const said = { attempt, output, finish: finish.reason, call: ++this.#judged }
    if (steps.judges) {
      exchange.marks.judgedMs = Number.NaN
      const verdict = await steps.judge(said, exchange)
      exchange.marks.judgedMs = this.#tools.clock.monotonicMs()
      if (verdict.kind !== 'pass') return verdict
    }
    if (held !== null) {
      // To the client nothing was said before now.
      exchange.firstTokenMs = this.#tools.clock.monotonicMs()
      await held.pass(exchange.signal)
    }
    if (steps.finishes && exchange.request.stream !== true)
      run.assembler.replace(await steps.finish(said, exchange))
    return PASS
  }

  #finish({ run, target }: Round, finish: Finish): Outcome {
    // The record is safe before the caller sees the end: whatever was answered is in the ledger.
    account(this.#tools, this.#exchange, null)
    target.hold()
    run.assembler.finish(finish.reason, this.#ending(finish))
    target.end()
    return { answered: true }
  }

  /** Ends an exchange whose turn is not to be delivered. Its calls were made, so they count. */
  #refuse(run: AttemptRun, why: GatewayError): Outcome {
    const exchange = this.#exchange
    const sink = this.#sink
    if (run.committed) return this.#failLive(sink, run, why)
    const error = reported(exchange, why)
    account(this.#tools, exchange, error)
    if (!sink.live) return { answered: false, error, ...told(exchange) }
    const { id, createdAt, attempts, request } = exchange
    const model = attempts.at(-1)?.endpoint.modelId ?? ''
    // Not the one of the attempt, which knows what was said.
    const assembler = new Assembler(echoRequest(request, { id, createdAt, model }), event => {
      sink.write(event)
    })
    sink.hold()
    assembler.begin(this.#debug)
    assembler.fail(error, this.#ending(null))
    sink.end()
    return { answered: true, refused: error }
  }

  /** Tells a failure in the stream that has begun. */
  #failLive(sink: Sink, run: AttemptRun, error: GatewayError): Outcome {
    account(this.#tools, this.#exchange, error)
    sink.hold()
    run.assembler.fail(reported(this.#exchange, error), this.#ending(null))
    sink.end()
    return { answered: true, refused: error }
  }

  #ending(finish: Finish | null): Ending {
    const exchange = this.#exchange
    return {
      completedAt: unixSeconds(this.#tools.clock),
      usage: exchange.shownUsage,
      serviceTier: finish?.serviceTier ?? null,
      metadata: exchange.withMetadata ? routingMetadata(exchange, finish !== null) : null,
      alignment: exchange.alignment,
    }
  }
}

const PASS: Verdict = { kind: 'pass' }

/** The final items. What closing them says goes to the sink, as all before it. */
function closed(run: AttemptRun, target: Sink, finish: Finish): readonly OutputItem[] {
  target.hold()
  const output = run.assembler.close(finish.reason)
  target.flush()
  return output
}

/** A judge that does not hold the turn back can no longer ask for another one. */
function misjudged(): GatewayError {
  return new GatewayError('internal', 'Internal Server Error')
}

/** The thrown value as a GatewayError; one we did not foresee is logged with where it came from. */
export function foreseen({ log }: Pick<GatewayTools, 'log'>, thrown: unknown): GatewayError {
  const error = toGatewayError(thrown)
  if (error.code === 'internal') log.fault('exchange failed', error.cause ?? error)
  return error
}
