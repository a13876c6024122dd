/**
 * The request on one screen: runs a request from admission to the end of its answer. `embed.ts` does this for
 * embeddings.
 *
 * stored files -> guard -> compact -> prepare -> route -> admit -> turns -> finish -> account -> end of the answer
 */

import { unixSeconds } from '../base/clock.ts'
import { GatewayError } from '../base/errors.ts'
import { whenReady } from '../base/maybe-promise.ts'
import { type Candidate, type ClientRequest, type EndedExchange, endOf } from '../exchange/exchange.ts'
import type { Observer } from '../exchange/observer.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import { routerOf } from '../protocol/routers.ts'
import type { Catalog } from '../providers/catalog.ts'
import type { CredentialCatalog } from '../providers/credentials/catalog.ts'
import { account, type Ledger, type ReserveDeps, reserve } from './accounting/account.ts'
import { demandOf } from './accounting/allowance.ts'
import { fixCharge } from './accounting/charge.ts'
import { Answer } from './answer/answer.ts'
import { echoRequest } from './answer/response-object.ts'
import { FinalSink, type Outcome, type Sink } from './answer/sink.ts'
import { openCacheUse, type ResponseCacheDeps } from './cached-request.ts'
import { type TokenCount, TokenCounter } from './count-tokens.ts'
import { type EmbeddingsCall, type EmbeddingsOutcome, embed } from './embed.ts'
import { answerEmpty } from './empty-answer.ts'
import { type Conclusion, failureOf, summarize, tellLostRight, writeEnd } from './ending.ts'
import {
  type ExchangeStage,
  guardBy,
  guardRequest,
  type LostRightTeller,
  RunningExchange,
  runStages,
  type ShadowSender,
  SKIPPED,
} from './exchange-stages.ts'
import type { Guard } from './guard/guard.ts'
import { type LoopDeps, watchLoops } from './loops.ts'
import type { Plan, Plans } from './plans.ts'
import { type PluginChains, pluginFailure } from './plugin-chain.ts'
import { runOnce } from './response-cache.ts'
import { checkRights } from './rights.ts'
import type { RouteCandidate } from './routing/candidate.ts'
import { rankCandidates } from './routing/rank.ts'
import type { Stickiness } from './routing/sticky.ts'
import { type StoredFilesDeps, withStoredFiles } from './stored-files.ts'
import { compactIfLong, openSummaries, type SummariesDeps } from './summaries.ts'
import { openServerTools, type ServerToolDeps } from './tool-calls/server-tools.ts'
import { checkToolWays, type ToolWaysDeps } from './tool-calls/tool-ways.ts'
import { StoredTransport } from './turn/stored-transport.ts'
import { noteCalls } from './turn/tool-call-quality.ts'
import { runTurns, type TurnsDeps } from './turn/tool-loop.ts'

export interface Gateway {
  /** Runs a validated request to its end. Never rejects: a failure is in the outcome or in the sink. */
  respond(call: ClientRequest, sink: Sink): Promise<Outcome>
  /** Answers a validated request that needs no model; see `empty-answer.ts`. @throws GatewayError */
  answerEmpty(call: ClientRequest, sink: Sink): void
  /** Runs a validated request for embeddings to its end. Never rejects. */
  embed(call: EmbeddingsCall): Promise<EmbeddingsOutcome>
  /**
   * Counts the tokens of a request without sending it. Rejects with the error that the request would get before any
   * model is called.
   */
  count(call: ClientRequest): Promise<TokenCount>
  /**
   * Checks that the caller may still send this request, whose answer exists already. Rejects with GatewayError
   * `permission_denied`, or `service_unavailable` if the caller's rules cannot be read.
   */
  permits(call: ClientRequest): Promise<void>
}

export interface GatewayDeps
  extends TurnsDeps,
    ServerToolDeps,
    ToolWaysDeps,
    StoredFilesDeps,
    SummariesDeps,
    ReserveDeps,
    ResponseCacheDeps {
  readonly catalog: Catalog
  readonly ledger: Ledger
  /** The own provider credentials of workspaces. */
  readonly credentials: Pick<CredentialCatalog, 'of'>
  /** Fee of a request on a BYOK credential, as a percentage of its price in the catalogue. */
  readonly byokFeePercent: number
  /** The location of this gateway. */
  readonly region: string
  readonly stickiness: Stickiness
  readonly plugins: PluginChains
  readonly guard: Guard
  /** For keys whose policy looks for loops. Absent: loops are not checked. */
  readonly loops?: LoopDeps
  /** Absent: every request takes the general path. */
  readonly plans?: Pick<Plans, 'of'>
  /** Absent: nothing is captured. */
  readonly captures?: Observer
  /** Absent: no request is sent to the candidate of a rollout as well. */
  readonly shadows?: ShadowSender
}

export function createGateway(deps: GatewayDeps): Gateway {
  const counter = new TokenCounter(deps)
  const tell: LostRightTeller = (exchange, reason) => tellLostRight(deps, exchange, reason)
  return {
    respond(call, sink) {
      const exchange =
        // Inlined, so that a request without the cache costs no call.
        call.cache === undefined &&
        (call.caller.caching?.policy ?? deps.responseCache?.policy)?.enabled !== true
          ? open(deps, call, sink, deps.plans?.of(call) ?? null, tell)
          : openCached(deps, call, sink, tell)
      const collected = call.batch?.collected
      if (collected !== undefined) exchange.transport = new StoredTransport(collected.reply)
      const recording = deps.captures?.isIdle === false ? deps.captures.open(call) : null
      if (recording !== null) {
        exchange.recording = recording
        exchange.answer.isRead = true
        exchange.transport = recording.recordingTransport(exchange.transport ?? deps.client)
      }
      let stageRun: void | Promise<void>
      try {
        stageRun = runStages(stagesOf(exchange), deps, exchange)
      } catch (thrown) {
        return endFailed(deps, exchange, thrown)
      }
      // Uses callbacks, because they need less memory than an async function that waits as long as the stream is open.
      return Promise.resolve(stageRun).then(
        () => endExchange(deps, exchange, null),
        thrown => endFailed(deps, exchange, thrown),
      )
    },
    answerEmpty: (call, sink) => answerEmpty(deps, call, sink),
    embed: call => embed(deps, call, deps.captures?.isIdle === false ? deps.captures.open(call) : null),
    count: call => countTokens(deps, counter, call),
    permits: call => checkRights(deps, call),
  }
}

/**
 * Counts the tokens of a request as guardrails leave it. Routers choose a model with the whole pipeline, so no provider
 * is asked for their counts.
 */
async function countTokens(deps: GatewayDeps, counter: TokenCounter, call: ClientRequest) {
  const exchange = open(deps, call, new FinalSink(), null)
  exchange.prompt = openSummaries(deps, exchange)
  await guardRequest(deps, exchange)
  exchange.plugins = deps.plugins.of(exchange.request)
  if (routerOf(call.request) === null) {
    exchange.prompt = await withStoredFiles(deps, exchange)
    await rankCandidates(deps, exchange)
  }
  return await counter.count(exchange)
}

async function endFailed(deps: GatewayDeps, exchange: RunningExchange, thrown: unknown): Promise<Outcome> {
  return endExchange(deps, exchange, await failureOf(deps, exchange, thrown))
}

/**
 * Closes what the exchange has opened, accounts for it, and sends its end once its record is written. A submitted
 * exchange goes on elsewhere: it is only closed.
 */
function endExchange(
  deps: GatewayDeps,
  exchange: RunningExchange,
  conclusion: Conclusion,
): Outcome | Promise<Outcome> {
  const { tools, trust, plugins } = exchange
  tools?.close()
  trust?.leave()
  plugins?.observeTimes(deps.metrics)
  if (exchange.isSubmitted) {
    exchange.recording?.drop()
    return SUBMITTED_OUTCOME
  }
  if (conclusion !== null) fixCharge(exchange, conclusion.channel)
  // The provider may have ended its reply long after the client got the error of a lost right.
  const lostRight = conclusion === null && exchange.signal.aborted ? lostRightOf(exchange) : null
  const end = endOf(exchange, conclusion?.error ?? lostRight, deps.clock.monotonicMs())
  exchange.sessionSpending?.add(end.cost + end.fees + exchange.bill.inner.cost)
  account(deps, end)
  const writing = deps.ledger.whenWritten()
  return writing === null
    ? conclude(deps, end, conclusion)
    : writing.then(() => conclude(deps, end, conclusion))
}

function lostRightOf({ signal }: RunningExchange): GatewayError | null {
  const reason = signal.reason as GatewayError
  return reason.meaning.isLostRight === true ? reason : null
}

function conclude(deps: GatewayDeps, end: EndedExchange<RunningExchange>, conclusion: Conclusion): Outcome {
  const { exchange, error } = end
  const { answer, guarding, recording } = exchange
  let outcome: Outcome
  try {
    outcome = writeEnd(deps, end, conclusion)
    recording?.end(end, {
      isReplyGuarded: guarding?.reply != null,
      // Output before a failure was dropped if the failure is the whole answer.
      output: outcome.answered ? answer.output : null,
    })
  } finally {
    recording?.drop()
    exchange.cache?.end(end, unixSeconds(deps.clock))
  }
  if (error === null && exchange.prompt.tools != null) noteCalls(deps, exchange)
  if (exchange.rollout?.shadow != null) deps.shadows?.after(end)
  return { ...outcome, summary: summarize(deps, end, outcome) }
}

/**
 * Resolves to the candidate that would be called first, or null if there is none. Rejects with the error that the
 * request would get before any model is called; see `createRequestCheck`.
 */
export type RequestCheck = (call: ClientRequest) => Promise<Candidate | null>

/**
 * Creates a check that a request would be served now: guardrails, candidates and limits. It calls no model, keeps no
 * reservation, and leaves no usage record.
 */
export function createRequestCheck(deps: GatewayDeps): RequestCheck {
  return async call => {
    const router = routerOf(call.request)
    if (router !== null) throw new GatewayError('invalid_request', `model: ${router.slug} ${ROUTER_IN_BATCH}`)
    const exchange = open(deps, call, new FinalSink(), null)
    try {
      exchange.prompt = openSummaries(deps, exchange)
      await guardRequest(deps, exchange)
      // Plugins do not run here, but routing must know whether they could make the prompt fit.
      exchange.plugins = deps.plugins.of(exchange.request)
      await rankCandidates(deps, exchange)
      await admit({ ...deps, reservationWait: undefined }, exchange)
      return exchange.candidates[0] ?? null
    } finally {
      exchange.reservation?.settle({ cost: 0, isByok: false, tokens: 0 })
    }
  }
}

const ROUTER_IN_BATCH = 'is a router for single requests: a batch has to name its model'

/** The kind of a request: it decides which stages the request has. */
interface RequestKind {
  /** False for a plain request, which has a plan. */
  readonly isGeneral: boolean
  /** True if a batch service has stored its reply: its admission was decided earlier. */
  readonly isCollected: boolean
  /** False if its plan says that no guardrail applies to the caller. */
  readonly isGuarded: boolean
  /** False if its plan says that the caller has no limit. */
  readonly isLimited: boolean
  /** True if it may get the answer of an equal request. */
  readonly isCached: boolean
}

interface RequestStage extends ExchangeStage<GatewayDeps, RunningExchange> {
  readonly when: (kind: RequestKind) => boolean
}

/** The stages of a request, in order. */
const STAGES: readonly RequestStage[] = [
  { label: 'guard', run: guard, when: kind => kind.isGuarded },
  { label: 'tools', run: compactIfLong, when: kind => kind.isGeneral && !kind.isCollected },
  { label: 'route', run: prepare, when: kind => kind.isGeneral },
  { label: 'route', run: rankCandidates, when: kind => !kind.isCollected },
  { label: 'route', run: continueCollected, when: kind => kind.isCollected },
  { label: 'admit', run: admit, when: kind => kind.isLimited && !kind.isCollected },
  { label: null, run: runTurns, when: kind => !kind.isCached },
  { label: null, run: runOnce, when: kind => kind.isCached },
  { label: null, run: finish, when: kind => kind.isGeneral },
]

const stagesWhen = (kind: RequestKind): readonly RequestStage[] => STAGES.filter(({ when }) => when(kind))
const plannedStages = (isGuarded: boolean, isLimited: boolean): readonly RequestStage[] =>
  stagesWhen({ isGeneral: false, isCollected: false, isGuarded, isLimited, isCached: false })

const GENERAL_KIND = {
  isGeneral: true,
  isCollected: false,
  isGuarded: true,
  isLimited: true,
  isCached: false,
}
const GENERAL_STAGES = stagesWhen(GENERAL_KIND)
const CACHED_STAGES = stagesWhen({ ...GENERAL_KIND, isCached: true })
const COLLECTED_STAGES = stagesWhen({ ...GENERAL_KIND, isCollected: true })
const PLAIN_STAGES = plannedStages(false, false)
const PLAIN_GUARDED_STAGES = plannedStages(true, false)
const PLAIN_LIMITED_STAGES = plannedStages(false, true)
const PLAIN_GUARDED_LIMITED_STAGES = plannedStages(true, true)

function stagesOf({ batch, cache, plan }: RunningExchange): readonly RequestStage[] {
  if (cache !== null) return CACHED_STAGES
  if (plan === null) return batch?.collected === undefined ? GENERAL_STAGES : COLLECTED_STAGES
  if (plan.isGuarded) return plan.isLimited ? PLAIN_GUARDED_LIMITED_STAGES : PLAIN_GUARDED_STAGES
  return plan.isLimited ? PLAIN_LIMITED_STAGES : PLAIN_STAGES
}

/** Sends nothing: the exchange that collects the reply answers. */
const SUBMITTED_OUTCOME: Outcome = {
  answered: false,
  error: new GatewayError('service_unavailable', 'This request was handed to a batch service'),
  metadata: null,
}

/** Opens an exchange. It takes the general path if it may get the answer of an equal request. */
function openCached(
  deps: GatewayDeps,
  call: ClientRequest,
  sink: Sink,
  tell: LostRightTeller,
): RunningExchange {
  const cache = openCacheUse(deps, call)
  if (cache === null) return open(deps, call, sink, deps.plans?.of(call) ?? null, tell)
  const exchange = open(deps, call, cache.around(sink), null, tell)
  exchange.cache = cache
  return exchange
}

function open(
  { clock }: GatewayDeps,
  call: ClientRequest,
  sink: Sink,
  plan: Plan | null,
  tell: LostRightTeller | null = null,
): RunningExchange {
  const { context, request } = call
  const createdAt = unixSeconds(clock)
  const answer = new Answer(
    sink,
    echoRequest(request, { id: context.id, createdAt, model: '' }),
    context.held,
  )
  return new RunningExchange(call, createdAt, answer, plan, tell)
}

/**
 * Applies the guardrails. Before that, it adds data that the client only references or stores sealed, so that all later
 * stages see it.
 */
function guard(deps: GatewayDeps, exchange: RunningExchange) {
  if (exchange.plan !== null) return guardRequest(deps, exchange)
  exchange.prompt = openSummaries(deps, exchange)
  return whenReady(withStoredFiles(deps, exchange), prompt => {
    exchange.prompt = prompt
    if (exchange.batch?.collected === undefined) return guardRequest(deps, exchange)
    // The current guardrails apply to a stored reply.
    return whenReady(deps.guard.storedReply(exchange), guarding => guardBy(exchange, guarding))
  })
}

/**
 * Looks for loops and for a session that has spent too much, then prepares the request. A finding refuses the request
 * only if the key's policy is `stop`.
 */
function prepare(deps: GatewayDeps, exchange: RunningExchange): void | Promise<void> {
  const { batch, caller, parent } = exchange
  const { loops } = deps
  if (caller.loops == null || loops === undefined || batch !== undefined || parent !== undefined)
    return prepareRequest(deps, exchange)
  return whenReady(watchLoops(loops, exchange, caller.loops), spending => {
    exchange.sessionSpending = spending
    return prepareRequest(deps, exchange)
  })
}

/** Lets plugins work on the request and opens its server tools, unless it leads to a disabled tool. */
function prepareRequest(deps: GatewayDeps, exchange: RunningExchange): void | Promise<void> {
  return whenReady(checkToolWays(deps, exchange), disabled => {
    exchange.disabledTools = disabled
    return runPlugins(deps, exchange)
  })
}

function runPlugins(deps: GatewayDeps, exchange: RunningExchange): void | Promise<void> {
  exchange.plugins = deps.plugins.of(exchange.request)
  if (exchange.plugins === null) return openTools(deps, exchange)
  let earlyAdmission: Promise<void> | null = null
  exchange.admitEarly = prompt => {
    earlyAdmission ??= admitEarly(deps, exchange, prompt)
    return earlyAdmission
  }
  const { plugins } = exchange
  return whenReady(plugins.route(exchange), () =>
    plugins.prepare(exchange, exchange.guarding?.input).then(() => openTools(deps, exchange)),
  )
}

/** Opens the server tools that the request names or that plugins have added. */
function openTools(deps: GatewayDeps, exchange: RunningExchange): void | Promise<void> {
  const opening = openServerTools(deps, exchange)
  if (opening === null) return undefined
  return whenReady(opening, tools => {
    exchange.tools = tools
  })
}

/**
 * Runs before routing for a plugin that calls other models; after all plugins, the request is routed in its final form.
 */
async function admitEarly(
  deps: GatewayDeps,
  exchange: RunningExchange,
  prompt: ResponsesRequest | undefined,
): Promise<void> {
  const before = exchange.prompt
  exchange.prompt = prompt ?? before
  try {
    await rankCandidates(deps, exchange)
    await admit(deps, exchange)
  } finally {
    if (prompt !== undefined) exchange.prompt = before
  }
}

/** Continues with the candidate and the reservation with which the request was submitted. */
function continueCollected(_: GatewayDeps, exchange: RunningExchange): void {
  const collected = exchange.batch?.collected
  if (collected === undefined) return
  // Its key has already been opened, so nothing else of the credential is needed.
  exchange.candidates = [collected.candidate as RouteCandidate]
  exchange.reservation = collected.reservation
}

/** Reserves the estimated cost under the caller's limits. */
function admit(deps: GatewayDeps, exchange: RunningExchange) {
  const { quota, visibleStreams } = deps
  if (exchange.reservation !== null || !quota.limits(exchange.caller)) return SKIPPED
  const { bill, prompt, candidates, plugins } = exchange
  exchange.trust = visibleStreams.trustOf(exchange.caller.keyHash)
  return reserve(
    deps,
    exchange,
    demandOf(prompt, candidates, exchange.trust, plugins?.maxCalls, bill.priceFactor),
  )
}

/** Lets plugins replace the items of a whole answer. */
function finish(_: GatewayDeps, exchange: RunningExchange): void | Promise<void> {
  const { answer, plugins, request, turn } = exchange
  if (plugins?.finishes !== true || turn === null || request.stream === true) return
  return plugins.finish(turn, exchange).then(
    output => answer.replaceTurn(output),
    thrown => {
      throw pluginFailure(thrown, exchange)
    },
  )
}
