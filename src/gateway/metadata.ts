/** The `gateway_metadata` object: how an exchange was routed. Pure. */

import { roundedTimes } from '../metrics/stages.ts'
import type { GatewayMetadata } from '../protocol/response.ts'
import type { Exchange } from './exchange.ts'

/** `selected`: whether the last attempt is the one that answered. */
export function routingMetadata(exchange: Exchange, selected: boolean): GatewayMetadata {
  const last = exchange.attempts.at(-1)
  const chosen = selected ? last : undefined
  const requested = exchange.request.model ?? exchange.request.models?.[0] ?? ''
  return {
    requested,
    strategy: (exchange.request.models?.length ?? 0) > 0 ? 'fallback' : 'direct',
    region: null,
    summary: `available=${exchange.candidates.length}${chosen === undefined ? '' : `, selected=${chosen.endpoint.provider.name}`}`,
    attempt: chosen === undefined ? 0 : exchange.attempts.length,
    attempts: exchange.attempts.map(attempt => ({
      provider: attempt.endpoint.provider.name,
      model: attempt.endpoint.modelId,
      status: attempt.status,
    })),
    is_byok: last?.isByok ?? false,
    endpoints: {
      total: exchange.candidates.length,
      available: exchange.candidates.map(({ endpoint, credential }) => ({
        model: endpoint.modelId,
        provider: endpoint.provider.name,
        selected: endpoint === chosen?.endpoint && credential === chosen.credential,
      })),
    },
    ...(exchange.pipeline.length === 0 ? {} : { pipeline: exchange.pipeline }),
    timings_ms: roundedTimes(exchange.watch),
  }
}
