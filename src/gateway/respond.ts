/**
 * The request on one screen: runs a request from admission to the end of its answer.
 *
 * guard -> prepare -> route -> admit -> turns -> finish -> account -> end of the answer
 */
import { unixSeconds } from '../clock.ts'
import type { CredentialCatalog } from '../credentials/catalog.ts'
import type { Quota } from '../limits/quota.ts'
import type { Stage } from '../metrics/stages.ts'
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
  return {
    async respond(asked, sink) {
      const exchange = open(deps, asked, sink)
      let conclusion: Conclusion = null
      try {
        for (const { timed, run } of STAGES) {
          if (timed !== null) exchange.watch.enter(timed, deps.clock.monotonicMs())
          const running = run(deps, exchange)
          const result = running instanceof Promise ? await running : running
          if (result === SKIPPED) exchange.watch.skip()
        }
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

/** A stage that had nothing to do: its time counts with the stage before it. */
const SKIPPED = 'skipped'

interface ExchangeStage {
  /** Label of its time; null: it times its parts itself, or counts with the stage before it. */
  readonly timed: Stage | null
  /**
   * Returns SKIPPED, nothing, or a promise of either, the last only where something has to be awaited. A GatewayError
   * that it throws ends the exchange.
   */
  readonly run: (deps: GatewayDeps, exchange: RunningExchange) => unknown
}

const STAGES: readonly ExchangeStage[] = [
  { timed: 'guard', run: guard },
  { timed: 'route', run: prepare },
  { timed: null, run: route },
  { timed: 'admit', run: admit },
  { timed: null, run: runTurns },
  { timed: null, run: finish },
]

function open({ clock }: GatewayDeps, asked: ClientRequest, sink: Sink): RunningExchange {
  const { id, request } = asked
  const createdAt = unixSeconds(clock)
  const answer = new Answer(sink, echoRequest(request, { id, createdAt, model: '' }), asked.held)
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
    exchange.skippedModels = ranking.skipped
    exchange.stay = ranking.stay
  })
}

/** Reserves the estimated cost by the limits of the caller. */
function admit({ quota }: GatewayDeps, exchange: RunningExchange) {
  if (exchange.reservation !== null || !quota.limits(exchange.caller)) return SKIPPED
  return reserve(quota, exchange, exchange.plugins?.maxCalls ?? 1)
}

/** Plugins replace the items of a whole answer. */
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
