/**
 * The request on one screen: runs a request from admission to the end of its answer.
 *
 * guard -> prepare -> route -> admit -> turns -> finish -> account -> end of the answer
 */
import { unixSeconds } from '../clock.ts'
import type { CredentialCatalog } from '../credentials/catalog.ts'
import type { Quota } from '../limits/quota.ts'
import type { Catalog } from '../providers/catalog.ts'
import { whenReady } from '../ready.ts'
import { account, type Ledger, reserve, summarize } from './accounting/account.ts'
import { Answer, echoRequest, type Outcome, type Sink } from './answer/answer.ts'
import { type Conclusion, failureOf, fixCharge, tellEnd } from './conclude.ts'
import type { ClientRequest } from './exchange.ts'
import type { Guard } from './guard/guard.ts'
import { type PluginChains, pluginFailure } from './plugin-chain.ts'
import { type Ranking, rankCandidates, type Stickiness } from './routing/rank.ts'
import { RunningExchange } from './running.ts'
import { type ServerToolDeps, serverToolsOf } from './server-tools.ts'
import { type ExchangeStage, runStages, SKIPPED } from './stages.ts'
import { runTurns, type TurnsDeps } from './turns.ts'

export interface Gateway {
  /** Runs a validated request to its end. Never rejects: a failure is in the outcome or in the sink. */
  respond(call: ClientRequest, sink: Sink): Promise<Outcome>
}

export interface GatewayDeps extends TurnsDeps, ServerToolDeps {
  readonly catalog: Catalog
  readonly ledger: Ledger
  /** The own provider credentials of workspaces. */
  readonly credentials: Pick<CredentialCatalog, 'of'>
  /** Fee of a request on an own credential, as a share of its price by the catalogue. */
  readonly byokFeePercent: number
  readonly stickiness: Stickiness
  readonly quota: Quota
  readonly plugins: PluginChains
  readonly guard: Guard
}

export function createGateway(deps: GatewayDeps): Gateway {
  const stages = stagesOf(deps)
  return {
    async respond(asked, sink) {
      const exchange = open(deps, asked, sink)
      let conclusion: Conclusion = null
      try {
        await runStages(stages, exchange, deps.clock)
      } catch (thrown) {
        conclusion = await failureOf(deps, exchange, thrown)
      }
      fixCharge(exchange, conclusion)
      account(deps, exchange, conclusion?.error ?? null)
      const outcome = tellEnd(deps, exchange, conclusion)
      return { ...outcome, summary: summarize(exchange, outcome) }
    },
  }
}

function stagesOf(deps: GatewayDeps): readonly ExchangeStage[] {
  return [
    { timed: 'guard', run: exchange => guard(deps, exchange) },
    { timed: 'route', run: exchange => prepare(deps, exchange) },
    { timed: 'route', run: exchange => route(deps, exchange) },
    { timed: 'admit', run: exchange => admit(deps, exchange) },
    { timed: null, run: exchange => runTurns(deps, exchange) },
    { timed: null, run: exchange => finish(exchange) },
  ]
}

function open({ clock }: GatewayDeps, asked: ClientRequest, sink: Sink): RunningExchange {
  const { id, request } = asked
  const createdAt = unixSeconds(clock)
  const answer = new Answer(sink, echoRequest(request, { id, createdAt, model: '' }))
  return new RunningExchange(asked, createdAt, answer)
}

/** Guardrails look at the request, and rewrite or refuse it. */
function guard({ guard: rules }: GatewayDeps, exchange: RunningExchange) {
  return whenReady(rules.request(exchange), guarding => {
    if (guarding === null) return SKIPPED
    exchange.guarding = guarding
    exchange.zeroRetention = guarding.restrictions?.zeroRetention === true
    return undefined
  })
}

/** Plugins work on the request. */
function prepare(deps: GatewayDeps, exchange: RunningExchange) {
  exchange.tools = serverToolsOf(deps, exchange.request)
  exchange.plugins = deps.plugins.of(exchange.request)
  if (exchange.plugins === null) return undefined
  let early: Promise<void> | null = null
  exchange.admitEarly = () => {
    early ??= admitEarly(deps, exchange)
    return early
  }
  return exchange.plugins.prepare(exchange, exchange.guarding?.input)
}

/** Before routing, for a plugin that asks other models; after all plugins the request is routed as they leave it. */
async function admitEarly(deps: GatewayDeps, exchange: RunningExchange): Promise<void> {
  await route(deps, exchange)
  await admit(deps, exchange)
}

/** Lists the candidates for the prompt in its present form. */
function route(deps: GatewayDeps, exchange: RunningExchange) {
  return whenReady(rankCandidates(deps, exchange), (ranking: Ranking) => {
    exchange.candidates = ranking.candidates
    exchange.fallbacks = ranking.fallbacks
    exchange.stay = ranking.stay
  })
}

/** Reserves the estimated cost by the limits of the caller. */
function admit({ quota }: GatewayDeps, exchange: RunningExchange) {
  if (exchange.reservation !== null || !quota.limits(exchange.caller)) return SKIPPED
  return reserve(quota, exchange, exchange.plugins?.maxCalls ?? 1)
}

/** Plugins replace the items of a whole answer. */
async function finish(exchange: RunningExchange): Promise<void> {
  const { answer, plugins, request, turn } = exchange
  if (plugins?.finishes !== true || turn === null || request.stream === true) return
  try {
    answer.replaceTurn(await plugins.finish(turn, exchange))
  } catch (thrown) {
    throw pluginFailure(thrown, exchange)
  }
}
