/**
 * The pipeline of one request: guard, prepare, route, admit, try the candidates in order until one is committed or
 * done, judge what it said, finish, account. The only place that decides what a failure or a verdict means for the
 * exchange.
 */
import type { Credentials } from '../access/credentials.ts'
import type { Credential } from '../access/own-keys.ts'
import type { Quota } from '../access/quota.ts'
import { unixSeconds } from '../clock.ts'
import { GatewayError, toGatewayError } from '../errors.ts'
import type { Attempt, Exchange, SentKey } from '../exchange.ts'
import type { Turn, Verdict } from '../plugins/plugin.ts'
import type { GatewayMetadata } from '../protocol/response.ts'
import type { Catalog } from '../providers/catalog.ts'
import type { Endpoint } from '../providers/provider.ts'
import { markAttempt } from '../stages.ts'
import { account, billedOf, isStoppedHere, settle, summarize, waive } from './account.ts'
import { admit } from './admit.ts'
import { Assembler, type Ending } from './assemble.ts'
import { AttemptRun, type AttemptTools, type Finish } from './attempt.ts'
import type { RouteCandidate } from './candidate.ts'
import { echoRequest } from './echo.ts'
import { candidateAfter, lastError } from './failover.ts'
import type { Gateway } from './gateway.ts'
import type { Guard } from './guard.ts'
import { HeldSink } from './held-sink.ts'
import type { Ledger } from './ledger.ts'
import { routingMetadata } from './metadata.ts'
import { openExchange } from './open-exchange.ts'
import type { Restrictions } from './restrictions.ts'
import { type Route, route } from './route.ts'
import { servable } from './servable.ts'
import type { Charged, Outcome, Sink } from './sink.ts'
import { type Steps, type StepsOf, stepFailure } from './steps.ts'
import type { Stickiness } from './sticky.ts'

export interface GatewayTools extends AttemptTools {
  readonly catalog: Catalog
  readonly ledger: Ledger
  /** The own provider credentials of workspaces. */
  readonly credentials: Pick<Credentials, 'of'>
  /** What to send of a credential; a promise only when it is not at hand. Fails with a GatewayError. */
  readonly openKey: (credential: Credential, endpoint: Endpoint) => SentKey | Promise<SentKey>
  /** What a request on an own credential costs its caller, as a share of its price by the catalogue. */
  readonly byokFeePercent: number
  readonly stickiness: Stickiness
  readonly quota: Quota
  readonly stepsOf: StepsOf
  readonly guard: Guard
}

export function createGateway(tools: GatewayTools): Gateway {
  return {
    async respond(call, sink) {
      const exchange = openExchange(tools.clock, call)
      const outcome = await serve(tools, exchange, sink).catch(thrown => refusal(tools, exchange, thrown))
      account(tools, exchange, outcome.answered ? null : outcome.error)
      return { ...outcome, summary: summarize(exchange, outcome) }
    },
  }
}

async function serve(tools: GatewayTools, exchange: Exchange, sink: Sink): Promise<Outcome> {
  const { marks } = exchange
  marks.validatedMs = tools.clock.monotonicMs()
  marks.guardedMs = marks.validatedMs
  const looked = tools.guard.request(exchange)
  const guarding = looked instanceof Promise ? await looked : looked
  if (guarding !== null) {
    marks.guardedMs = tools.clock.monotonicMs()
    exchange.zeroRetention = guarding.restrictions?.zeroRetention === true
  }
  const steps = tools.stepsOf(exchange.request)
  const look = guarding === null ? null : guarding.look
  const restrictions = guarding === null ? null : guarding.restrictions
  if (steps !== null) {
    let early: Promise<void> | null = null
    exchange.admitted = () => {
      early ??= admitEarly(tools, exchange, restrictions)
      return early
    }
    await steps.prepare(exchange, look)
  }
  // Only what has to be waited for is: a turn of the event loop is dearer than all of routing.
  const routing = routeOf(tools, exchange, restrictions)
  const routed = routing instanceof Promise ? await routing : routing
  const finding = tools.stickiness.order(exchange, routed.candidates)
  const { candidates: found, stay } = finding instanceof Promise ? await finding : finding
  const candidates = steps === null ? found : steps.order(found, exchange)
  marks.routedMs = tools.clock.monotonicMs()
  exchange.candidates = candidates
  marks.admittedMs = marks.routedMs
  if (exchange.reservation === null && tools.quota.limits(exchange.caller)) await admit(tools, exchange)
  const debug: Readonly<Record<string, unknown>>[] = []
  let turns = 0
  let next = candidates[0]
  while (next !== undefined) {
    const { endpoint, credential }: RouteCandidate = next
    const attempt: Attempt = {
      endpoint,
      credential,
      isByok: credential !== null,
      ownKey: null,
      status: null,
      error: null,
      again: turns > 0,
    }
    markAttempt(marks, exchange.attempts.length === 0 ? marks.admittedMs : tools.clock.monotonicMs())
    exchange.attempts.push(attempt)
    exchange.upstreamId = null
    exchange.outputCharacters = 0
    // One for each attempt: what an earlier one still says goes nowhere.
    const held = steps?.holds === true && sink.live ? new HeldSink(sink) : null
    const target = held ?? sink
    const run = new AttemptRun(tools, exchange, attempt, target, debug, guarding?.reply ?? null)
    let finish: Finish | null = null
    try {
      if (credential !== null) {
        const opened = tools.openKey(credential, endpoint)
        attempt.ownKey = opened instanceof Promise ? await opened : opened
      }
      if (steps?.addresses === true) {
        await steps.address(exchange, endpoint, look)
        run.assembler.annotate(exchange.parsedFiles)
      }
      finish = await run.run()
      stay?.succeeded(next, run.usage)
      settle(exchange, attempt, run.usage, finish, tools.byokFeePercent)
      if (steps !== null) {
        const turn: Turn = {
          attempt,
          output: steps.judges || steps.finishes ? closed(run, target, finish) : [],
          finish: finish.reason,
          call: ++turns,
        }
        const verdict = await judge(tools, steps, turn, exchange)
        if (verdict.kind === 'again' && !run.committed) {
          exchange.earlier = billedOf(exchange, attempt, run.usage, finish)
          exchange.prompt = verdict.prompt
          continue
        }
        if (verdict.kind !== 'pass') {
          const why = verdict.kind === 'refuse' ? verdict.error : misjudged()
          return refuse(tools, exchange, sink, run, debug, why)
        }
        if (held !== null) {
          // To the client nothing was said before now.
          exchange.firstTokenMs = tools.clock.monotonicMs()
          await held.pass(exchange.signal)
        }
        if (steps.finishes && exchange.request.stream !== true) {
          run.assembler.replace(await steps.finish(turn, exchange))
        }
      }
      // The record is safe before the caller sees the end: whatever was answered is in the ledger.
      account(tools, exchange, null)
      target.hold?.()
      run.assembler.finish(finish.reason, ending(tools, exchange, finish))
      target.end()
      return { answered: true }
    } catch (thrown) {
      const error = foreseen(tools, finish === null ? thrown : stepFailure(thrown, exchange))
      if (finish === null) attempt.error = error
      settle(exchange, attempt, run.usage, finish, tools.byokFeePercent)
      if (error.code === 'client_closed') {
        account(tools, exchange, error)
        return { answered: true, refused: error }
      }
      if (run.committed) return failLive(tools, exchange, target, run, error)
      // The model has answered: nobody else would do better.
      if (finish !== null) throw error
      // Nobody else is asked for a caller who has gone, or whose request was ended here.
      const goesOn = routed.fallbacks && !exchange.signal.aborted
      next = goesOn ? candidateAfter(candidates, next, exchange, error) : undefined
    }
  }
  throw lastError(exchange.attempts)
}

/** Who may serve the prompt as it stands; a promise only where the own keys have to be waited for. */
function routeOf(
  { credentials, catalog }: GatewayTools,
  { prompt, caller, dataRegion }: Exchange,
  restrictions: Restrictions | null,
): Route | Promise<Route> {
  const { organizationId, workspaceId, keyHash } = caller
  const known = credentials.of(organizationId, workspaceId)
  return known instanceof Promise
    ? known.then(ownKeys => route(prompt, catalog, { ownKeys, keyHash, dataRegion, restrictions }))
    : route(prompt, catalog, { ownKeys: known, keyHash, dataRegion, restrictions })
}

/** Before routing, for a step whose questions cost; when all steps are done it is routed as they leave it. */
async function admitEarly(
  tools: GatewayTools,
  exchange: Exchange,
  restrictions: Restrictions | null,
): Promise<void> {
  const { candidates } = await routeOf(tools, exchange, restrictions)
  exchange.candidates = candidates
  if (tools.quota.limits(exchange.caller)) await admit(tools, exchange)
}

/** The final items. What closing them says goes to the sink, as all before it. */
function closed(run: AttemptRun, target: Sink, finish: Finish): Turn['output'] {
  target.hold?.()
  const output = run.assembler.close(finish.reason)
  target.flush?.()
  return output
}

async function judge(tools: GatewayTools, steps: Steps, turn: Turn, exchange: Exchange): Promise<Verdict> {
  if (!steps.judges) return { kind: 'pass' }
  exchange.marks.judgedMs = Number.NaN
  const verdict = await steps.judge(turn, exchange)
  exchange.marks.judgedMs = tools.clock.monotonicMs()
  return verdict
}

/** A judge that does not hold the turn back can no longer ask for another one. */
function misjudged(): GatewayError {
  return new GatewayError('internal', 'Internal Server Error')
}

/** Ends an exchange whose turn is not to be delivered. Its calls were made, so they count. */
function refuse(
  tools: GatewayTools,
  exchange: Exchange,
  sink: Sink,
  run: AttemptRun,
  debug: readonly Readonly<Record<string, unknown>>[],
  why: GatewayError,
): Outcome {
  if (run.committed) return failLive(tools, exchange, sink, run, why)
  const error = reported(exchange, why)
  account(tools, exchange, error)
  if (!sink.live) return { answered: false, error, ...told(exchange) }
  const { id, createdAt, attempts } = exchange
  const model = attempts.at(-1)?.endpoint.modelId ?? ''
  // Not the one of the attempt, which knows what was said.
  const assembler = new Assembler(echoRequest(exchange.request, { id, createdAt, model }), event => {
    sink.write(event)
  })
  sink.hold?.()
  assembler.begin(debug)
  assembler.fail(error, ending(tools, exchange, null))
  sink.end()
  return { answered: true, refused: error }
}

/** Tells a failure in the stream that has begun. */
function failLive(
  tools: GatewayTools,
  exchange: Exchange,
  sink: Sink,
  run: AttemptRun,
  error: GatewayError,
): Outcome {
  account(tools, exchange, error)
  sink.hold?.()
  run.assembler.fail(reported(exchange, error), ending(tools, exchange, null))
  sink.end()
  return { answered: true, refused: error }
}

function ending(tools: GatewayTools, exchange: Exchange, finish: Finish | null): Ending {
  return {
    completedAt: unixSeconds(tools.clock),
    usage: exchange.shownUsage,
    serviceTier: finish?.serviceTier ?? null,
    metadata: exchange.withMetadata ? routingMetadata(exchange, finish !== null) : null,
    alignment: exchange.alignment,
  }
}

async function refusal(tools: GatewayTools, exchange: Exchange, thrown: unknown): Promise<Outcome> {
  const error = reported(exchange, advised(exchange, foreseen(tools, thrown)))
  // A model that has answered is charged for, whatever kept its answer from leaving.
  const answered = exchange.finish !== null || exchange.earlier !== null
  const last = exchange.attempts.at(-1)
  if (!answered && (last === undefined || !isStoppedHere(last))) waive(exchange)
  const { withMetadata, candidates, pipeline } = exchange
  if (withMetadata && candidates.length === 0 && pipeline.length > 0)
    exchange.candidates = await servable(tools, exchange)
  return { answered: false, error, ...told(exchange) }
}

/** What was judged and read before the exchange failed is told with the failure. */
function reported({ alignment, parsedFiles }: Exchange, error: GatewayError): GatewayError {
  const judged =
    alignment !== null && alignment.calls.length > 0 && error.metadata?.['alignment'] === undefined
  if (!judged && parsedFiles.length === 0) return error
  return rewritten(error, error.message, {
    ...error.metadata,
    ...(judged ? { alignment } : {}),
    ...(parsedFiles.length === 0 ? {} : { file_annotations: parsedFiles }),
  })
}

/** A provider that finds an input too long does not know what could be done about it here. */
function advised({ attempts, request }: Exchange, error: GatewayError): GatewayError {
  const isTold = error.code === 'context_length_exceeded' && attempts.at(-1)?.status != null
  const compressing = request.plugins?.find(plugin => plugin.id === 'context-compression')
  if (!isTold || (compressing !== undefined && compressing.enabled !== false)) return error
  const advice = 'Shorten the input, or add the plugin context-compression.'
  const message = error.message.trimEnd()
  return rewritten(error, `${message}${message.endsWith('.') ? '' : '.'} ${advice}`, error.metadata)
}

function rewritten(
  error: GatewayError,
  message: string,
  metadata: Readonly<Record<string, unknown>> | undefined,
): GatewayError {
  const { code, retryAfterSeconds, headers } = error
  return new GatewayError(code, message, {
    ...(metadata === undefined ? {} : { metadata }),
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
    ...(headers === undefined ? {} : { headers }),
    cause: error,
  })
}

/** What goes beside an error that is all the caller gets. */
function told(exchange: Exchange): { metadata: GatewayMetadata | null; charged: Charged | null } {
  const { id, shownUsage: usage, withMetadata, candidates, pipeline } = exchange
  return {
    metadata:
      withMetadata && candidates.length + pipeline.length > 0 ? routingMetadata(exchange, false) : null,
    charged: usage === null ? null : { id, usage },
  }
}

/** The thrown value as a GatewayError; one we did not foresee is logged with where it came from. */
function foreseen(tools: GatewayTools, thrown: unknown): GatewayError {
  const error = toGatewayError(thrown)
  if (error.code === 'internal') tools.log.fault('exchange failed', error.cause ?? error)
  return error
}
