/** Every operation of the interface that asks a model comes in here, and leaves answered and accounted. */

import { account, isStoppedHere, summarize, waive } from './accounting/account.ts'
import type { Outcome } from './answer/sink.ts'
import type { Exchange } from './exchange.ts'
import type { Gateway } from './gateway.ts'
import { openExchange } from './open-exchange.ts'
import { foreseen, type GatewayTools, Pipeline } from './pipeline.ts'
import { advised, reported, told } from './refusal.ts'
import { explainRefused } from './routing/explain-refused.ts'

export function createGateway(tools: GatewayTools): Gateway {
  return {
    async respond(call, sink) {
      const exchange = openExchange(tools.clock, call)
      const serving = new Pipeline(tools, exchange, sink).serve()
      const outcome = await serving.catch(thrown => refusal(tools, exchange, thrown))
      account(tools, exchange, outcome.answered ? null : outcome.error)
      return { ...outcome, summary: summarize(exchange, outcome) }
    },
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
    exchange.candidates = await explainRefused(tools, exchange)
  return { answered: false, error, ...told(exchange) }
}
