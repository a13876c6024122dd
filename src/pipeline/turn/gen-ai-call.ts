/** Records an attempt for the OpenTelemetry GenAI metrics, if enabled. */

import type { Metrics } from '../../base/metrics/metrics.ts'
import type { AttemptRecord, Exchange } from '../../exchange/exchange.ts'
import type { Usage } from '../../formats/format.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'

/** Counts a finished attempt. `usage` is null if the provider reported none that is plausible. */
export function countGenAi(
  genAi: NonNullable<Metrics['genAi']>,
  { dialect }: Pick<Exchange, 'dialect'>,
  { endpoint, error, health }: AttemptRecord,
  usage: Usage | null,
  nowMs: number,
): void {
  // A stored reply has no times.
  if (health === undefined) return
  const { firstTokenMs, perTokenMs } = health
  genAi.observe({
    operation: DIALECT_ABILITIES[dialect].embeds ? 'embeddings' : 'chat',
    provider: endpoint.provider.slug,
    model: endpoint.modelId,
    seconds: (nowMs - health.beganMs) / 1000,
    error: error?.code ?? null,
    inputTokens: usage?.inputTokens ?? null,
    outputTokens: usage?.outputTokens ?? null,
    firstTokenSeconds: firstTokenMs === null ? null : firstTokenMs / 1000,
    perTokenSeconds: perTokenMs === null ? null : perTokenMs / 1000,
  })
}
